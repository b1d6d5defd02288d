"""Failures of providers are classified by their sentences, and by status, type, code and headers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.llm import classify

Kind = type[errors.ModelError]

SENTENCES: dict[Kind, list[str]] = {
    errors.ContextOverflow: [
        "400 213462 200000 prompt is too long: 213462 tokens > 200000 maximum",
        "400 200001 200000 input length and `max_tokens` exceed context limit: 200001 + 10 > 200000, decrease input length",
        "400 - - input is too long",
        "400 - - input length exceeds context window",
        "400 - - Input is too long for requested model",
        "400 903884 200000 The model returned the following errors: prompt is too long: 903884 tokens > 200000 maximum",
        "400 - - too many total text bytes: 25165824 > 20971520",
        "400 210000 200000 prompt is too long: 210000 tokens > 200000 maximum",
        "400 1196265 1048575 The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
        "400 - - Your input exceeds the context window of this model",
        (
            "400 130500 128000 This model's maximum context length is 128000 tokens. However, your messages "
            "resulted in 130500 tokens."
        ),
        (
            "400 262145 262144 This model's maximum context length is 262144 tokens. However, you requested 1 "
            "output tokens and your prompt contains at least 262145 input tokens, for a total of at least 262146 "
            "tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=262145)"
        ),
        (
            "400 182402 65536 This model's maximum context length is 65536 tokens. However, you requested 190402 "
            "tokens (182402 in the messages, 8000 in the completion). Please reduce the length of the messages or"
            " completion."
        ),
        (
            "400 140000 131072 This endpoint's maximum context length is 131072 tokens. However, you requested "
            "about 141000 tokens (140000 of text input, 1000 in the output)."
        ),
        (
            "400 141000 131072 This endpoint's maximum context length is 131072 tokens. However, you requested "
            "about 141000 tokens"
        ),
        "400 140000 131072 Input length 140000 exceeds the maximum allowed input length of 131072 tokens.",
        "400 - - Please reduce the length of the messages or completion",
        "400 537812 131072 This model's maximum prompt length is 131072 but the request contains 537812 tokens",
        "400 9000 8192 The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        (
            "400 40000 32768 Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 "
            "maximum context length"
        ),
        "400 150000 128000 prompt token count of 150000 exceeds the limit of 128000",
        "400 - - invalid params, context window exceeds limit",
        "400 300000 262144 Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
        (
            "400 - - Trying to keep the first 9000 tokens when context overflows. However, the number of tokens "
            "to keep from the initial prompt is greater than the context length"
        ),
        "400 - - the request exceeds the available context size, try increasing it",
        "400 - - prompt too long; exceeded max context length by 512 tokens",
        "400 100 200 prompt is too long: 100 tokens > 200 maximum",
        "400 213462 200000 prompt is too long: 213,462 tokens > 200,000 maximum",
        "400 - - Input is too large",
        "400 - - ContextWindowExceededError: no",
        "500 - - the request exceeds the context size",
        "413 - - Prompt is too long",
    ],
    errors.OutputOverflow: [
        (
            "400 188240 200000 input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, "
            "decrease input length or `max_tokens` and try again"
        ),
        "400 - - input and output tokens exceed your context limit",
        "400 - - max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for claude-opus-5-5",
        (
            "400 137217 202752 This model's maximum context length is 202752 tokens. However, you requested 65536"
            " output tokens and your prompt contains at least 137217 input tokens, for a total of at least 202753"
            " tokens."
        ),
        (
            "400 60000 65536 This model's maximum context length is 65536 tokens. However, you requested 68000 "
            "tokens (60000 in the messages, 8000 in the completion)."
        ),
    ],
    errors.RateLimited: [
        "400 - - rate limit: prompt is too long for your tier",
        "400 - - Too many requests; the input is too long to wait",
        "400 - - ThrottlingException: Too many tokens, please wait before trying again.",
        "429 - - prompt is too long for this minute",
    ],
    errors.ProviderFailing: [
        "400 - - Request took too long",
        "500 - - Request took too long: prompt is too long",
        "400 - - The request timed out",
        "504 - - upstream request timeout",
        "408 - - ",
        "500 - - Internal server error",
    ],
    errors.RequestInvalid: [
        "400 - - timeout: Extra inputs are not permitted",
        "400 - - temperature: Extra inputs are not permitted",
        "400 - - messages.167: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01.",
        "400 - - model: Input should be a valid string",
    ],
    errors.ModelUnknown: [
        "404 - - model: claude-nothing",
        "404 - - The model `gpt-9` does not exist or you do not have access to it.",
        '404 - - model "llama9:7b" not found, try pulling it first',
        "400 - - acme/none is not a valid model ID",
        "400 - - The provided model identifier is invalid.",
        "403 - - You do not have access to the model with this key.",
    ],
    errors.ModelMisconfigured: [
        "404 - - Not Found",
        "307 - - ",
    ],
    errors.ModelRefused: [
        "401 - - prompt is too long",
        "403 - - Request not allowed",
    ],
    errors.SpendLimit: [
        "402 - - no money",
        "400 - - Your credit balance is too low to access the Anthropic API.",
        "429 - - You exceeded your current quota, please check your plan",
    ],
    errors.RequestTooLarge: [
        "413 - - Request exceeds the maximum size",
    ],
    errors.Overloaded: [
        "529 - - Overloaded",
    ],
    errors.ThinkingUnbound: [
        "400 - - messages.1.content.0: Invalid `signature` in `thinking` block",
    ],
}
"""Error sentences of providers by their class. Each line has status, tokens, window and words."""

BODIES: dict[str, Callable[[str], object]] = {
    "Anthropic's": lambda words: {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": words},
        "request_id": "req_1",
    },
    "OpenAI's": lambda words: {"error": {"message": words, "code": None, "param": None}},
    "flat": lambda words: {"message": words},
    "a list": lambda words: [{"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}],
    "JSON in JSON": lambda words: {"error": {"message": json.dumps({"error": {"message": words}})}},
    "status and JSON": lambda words: {
        "error": {"message": "413 " + json.dumps({"error": {"message": words}})}
    },
    "text": lambda words: words,
}


@pytest.mark.parametrize(("kind", "sentences"), SENTENCES.items())
def test_a_sentence_has_its_meaning_in_every_form(kind: Kind, sentences: list[str]) -> None:
    for sentence, (form, body) in itertools.product(sentences, BODIES.items()):
        code, tokens, window, words = sentence.split(" ", 3)
        status, figures = int(code), tuple(None if one == "-" else int(one) for one in (tokens, window))
        error = classify.classify(status, body(words) if words else "<html><title>no</title></html>")
        assert type(error) is kind, (form, sentence)
        assert error.status == status
        if isinstance(error, errors.ContextOverflow):
            assert (error.tokens, error.window) == figures, (form, sentence)


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens", 128_000),
        ("max_tokens: 200000 > 128,000, which is the maximum allowed number of output tokens", 128_000),
        ("max_completion_tokens is too large: 99999", None),
    ],
)
def test_the_longest_answer_is_learnt_from_the_refusal_of_a_longer_one(words: str, limit: int | None) -> None:
    error = classify.classify(400, {"error": {"message": words}})
    assert isinstance(error, errors.OutputOverflow)
    assert error.limit == limit


@pytest.mark.parametrize(
    ("kind", "code", "status", "expected"),
    [
        ("overloaded_error", None, 200, errors.Overloaded),
        ("api_error", None, 200, errors.ProviderFailing),
        ("timeout_error", None, 200, errors.ProviderFailing),
        ("rate_limit_error", None, 200, errors.RateLimited),
        ("authentication_error", None, 200, errors.ModelRefused),
        ("permission_error", None, 200, errors.ModelRefused),
        ("billing_error", None, 200, errors.SpendLimit),
        ("invalid_request_error", None, 200, errors.RequestInvalid),
        ("request_too_large", None, 200, errors.RequestTooLarge),
        ("never_heard_of", None, 200, errors.StreamBroken),
        (None, None, 200, errors.StreamBroken),
        ("rate_limit_error", "ramp_limit_exceeded", 429, errors.RateLimited),
        ("rate_limit_error", "contract_spend_limit_reached", 429, errors.SpendLimit),
        ("rate_limit_error", "enforced_spend_limit_reached", 429, errors.SpendLimit),
        ("billing_error", "linked_organization_spend_limit_reached", 402, errors.SpendLimit),
        ("invalid_request_error", "context_length_exceeded", 400, errors.ContextOverflow),
        ("request_too_large", "request_body_too_large_after_decoding", 413, errors.RequestTooLarge),
        # A proxy may use one status for all errors. The type then decides.
        ("rate_limit_error", None, 500, errors.RateLimited),
        ("authentication_error", None, 400, errors.ModelRefused),
        ("invalid_request_error", None, 413, errors.RequestTooLarge),
    ],
)
def test_type_and_code_decide_where_there_are_no_words(
    kind: str | None, code: str | None, status: int, expected: Kind
) -> None:
    body: dict[str, Any] = {
        "type": "error",
        "error": {"type": kind, "message": "", "details": {"error_code": code}},
    }
    assert type(classify.classify(status, body)) is expected


def test_the_page_of_a_proxy_counts_by_its_status_alone() -> None:
    page = "<html><body>prompt is too long, rate limit, timed out</body></html>"
    assert type(classify.classify(400, page)) is errors.RequestInvalid
    assert type(classify.classify(413, page)) is errors.RequestTooLarge


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "1"}, 1.0),
        ({"retry-after": "30.5"}, 30.5),
        ({"retry-after": "3600"}, 3600.0),
        ({"retry-after": "abc"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e300"}, classify.MAX_WAIT),
        ({"retry-after": "Fri, 15 Jan 2027 08:00:30 GMT"}, 30.0),
        ({"retry-after": "Fri, 15 Jan 2027 07:00:00 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    error = classify.classify(429, {}, headers, now=1_800_000_000.0)
    assert isinstance(error, errors.RateLimited)
    assert error.retry_after == seconds
    busy = classify.classify(529, {}, headers, now=1_800_000_000.0)
    assert isinstance(busy, errors.Overloaded)
    assert busy.retry_after == seconds


@pytest.mark.parametrize(("header", "retryable"), [("false", False), ("true", True), ("maybe", True)])
def test_the_provider_may_forbid_to_retry(header: str, retryable: bool) -> None:
    error = classify.classify(529, {}, {"x-should-retry": header})
    assert error.retryable is retryable
    assert errors.Overloaded.retryable


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "type", "code", "details", "error_code"]), inner
        )
    ),
    max_leaves=12,
)


@settings(derandomize=True, deadline=None)
@given(status=st.none() | st.integers(200, 599), body=json_values, wait=st.text(max_size=8))
def test_any_body_at_all_is_some_model_error(status: int | None, body: object, wait: str) -> None:
    error = classify.classify(status, body, {"retry-after": wait})
    assert isinstance(error, errors.ModelError)
    assert len(str(error)) < 1_000


def test_without_quotes_and_secrets_the_line_has_status_type_and_code_alone() -> None:
    body = {"error": {"type": "invalid_request_error", "message": "cannot read 'my cat' with key sk-1"}}
    line = "The provider answered 400 invalid_request_error: "
    assert str(classify.classify(400, body, secret="sk-1")) == f"{line}cannot read 'my cat' with key …"
    assert str(classify.classify(400, body, quotes=False)) == f"{line}(withheld: llm.logMessages is off)"
