"""Every sentence that a provider is known to say, and what it means."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bot import errors
from bot.llm import classify

Kind = type[errors.ModelError]
OVER = errors.ContextOverflow
OUT = errors.OutputOverflow
UNKNOWN = errors.ModelUnknown

SENTENCES: list[tuple[str, int, str, Kind, int | None, int | None]] = [
    ("Anthropic", 400, "prompt is too long: 213462 tokens > 200000 maximum", OVER, 213_462, 200_000),
    (
        "Anthropic, with the answer",
        400,
        (
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or "
            "`max_tokens` and try again"
        ),
        OUT,
        188_240,
        200_000,
    ),
    (
        "Anthropic, prompt alone too long",
        400,
        "input length and `max_tokens` exceed context limit: 200001 + 10 > 200000, decrease input length",
        OVER,
        200_001,
        200_000,
    ),
    ("Anthropic, other words", 400, "input is too long", OVER, None, None),
    ("Anthropic, other words 2", 400, "input length exceeds context window", OVER, None, None),
    ("Anthropic, other words 3", 400, "input and output tokens exceed your context limit", OUT, None, None),
    (
        "Anthropic, output limit",
        400,
        "max_tokens: 200000 > 128000, which is the maximum allowed number of output tokens for claude-opus-5-5",
        OUT,
        None,
        None,
    ),
    ("Bedrock", 400, "Input is too long for requested model", OVER, None, None),
    (
        "Bedrock, newer",
        400,
        "The model returned the following errors: prompt is too long: 903884 tokens > 200000 maximum",
        OVER,
        903_884,
        200_000,
    ),
    ("Bedrock, bytes", 400, "too many total text bytes: 25165824 > 20971520", OVER, None, None),
    (
        "Bedrock Mantle",
        400,
        (
            "This model's maximum context length is 202752 tokens. However, you requested 65536 output tokens and your "
            "prompt contains at least 137217 input tokens, for a total of at least 202753 tokens."
        ),
        OUT,
        137_217,
        202_752,
    ),
    ("Vertex", 400, "prompt is too long: 210000 tokens > 200000 maximum", OVER, 210_000, 200_000),
    (
        "Gemini",
        400,
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
        OVER,
        1_196_265,
        1_048_575,
    ),
    ("OpenAI", 400, "Your input exceeds the context window of this model", OVER, None, None),
    (
        "OpenAI, older",
        400,
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130500 tokens.",
        OVER,
        130_500,
        128_000,
    ),
    (
        "vLLM",
        400,
        (
            "This model's maximum context length is 262144 tokens. However, you requested 1 output tokens and your "
            "prompt contains at least 262145 input tokens, for a total of at least 262146 tokens. Please reduce the "
            "length of the input prompt. (parameter=input_tokens, value=262145)"
        ),
        OVER,
        262_145,
        262_144,
    ),
    (
        "DeepSeek",
        400,
        (
            "This model's maximum context length is 65536 tokens. However, you requested 190402 tokens (182402 in the "
            "messages, 8000 in the completion). Please reduce the length of the messages or completion."
        ),
        OVER,
        182_402,
        65_536,
    ),
    (
        "DeepSeek, answer too large",
        400,
        (
            "This model's maximum context length is 65536 tokens. However, you requested 68000 tokens (60000 in the "
            "messages, 8000 in the completion)."
        ),
        OUT,
        60_000,
        65_536,
    ),
    (
        "OpenRouter",
        400,
        (
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 141000 tokens "
            "(140000 of text input, 1000 in the output)."
        ),
        OVER,
        140_000,
        131_072,
    ),
    (
        "OpenRouter, short",
        400,
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 141000 tokens",
        OVER,
        141_000,
        131_072,
    ),
    (
        "Poolside",
        400,
        "Input length 140000 exceeds the maximum allowed input length of 131072 tokens.",
        OVER,
        140_000,
        131_072,
    ),
    ("Groq", 400, "Please reduce the length of the messages or completion", OVER, None, None),
    (
        "xAI",
        400,
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
        OVER,
        537_812,
        131_072,
    ),
    (
        "Together",
        400,
        "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
        OVER,
        9_000,
        8_192,
    ),
    (
        "Mistral",
        400,
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        OVER,
        40_000,
        32_768,
    ),
    ("Copilot", 400, "prompt token count of 150000 exceeds the limit of 128000", OVER, 150_000, 128_000),
    ("MiniMax", 400, "invalid params, context window exceeds limit", OVER, None, None),
    (
        "Kimi",
        400,
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
        OVER,
        300_000,
        262_144,
    ),
    (
        "LM Studio",
        400,
        (
            "Trying to keep the first 9000 tokens when context overflows. However, the number of tokens to keep from "
            "the initial prompt is greater than the context length"
        ),
        OVER,
        None,
        None,
    ),
    ("llama.cpp", 400, "the request exceeds the available context size, try increasing it", OVER, None, None),
    ("Ollama", 400, "prompt too long; exceeded max context length by 512 tokens", OVER, None, None),
    ("smaller than the window", 400, "prompt is too long: 100 tokens > 200 maximum", OVER, 100, 200),
    ("thousands", 400, "prompt is too long: 213,462 tokens > 200,000 maximum", OVER, 213_462, 200_000),
    ("not matched by the original", 400, "Input is too large", OVER, None, None),
    ("not matched by the original 2", 400, "ContextWindowExceededError: no", OVER, None, None),
    ("not matched by the original 3", 500, "the request exceeds the context size", OVER, None, None),
    # What must not be taken for an overflow.
    ("rate limit", 400, "rate limit: prompt is too long for your tier", errors.RateLimited, None, None),
    (
        "too many requests",
        400,
        "Too many requests; the input is too long to wait",
        errors.RateLimited,
        None,
        None,
    ),
    (
        "Bedrock throttling",
        400,
        "ThrottlingException: Too many tokens, please wait before trying again.",
        errors.RateLimited,
        None,
        None,
    ),
    ("429", 429, "prompt is too long for this minute", errors.RateLimited, None, None),
    ("took too long", 400, "Request took too long", errors.ProviderFailing, None, None),
    ("took too long 2", 500, "Request took too long: prompt is too long", errors.ProviderFailing, None, None),
    ("timed out", 400, "The request timed out", errors.ProviderFailing, None, None),
    ("gateway", 504, "upstream request timeout", errors.ProviderFailing, None, None),
    ("408", 408, "", errors.ProviderFailing, None, None),
    (
        "a field called timeout",
        400,
        "timeout: Extra inputs are not permitted",
        errors.RequestInvalid,
        None,
        None,
    ),
    ("a field", 400, "temperature: Extra inputs are not permitted", errors.RequestInvalid, None, None),
    (
        "pairing",
        400,
        "messages.167: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_01.",
        errors.RequestInvalid,
        None,
        None,
    ),
    ("404", 404, "model: claude-nothing", errors.ModelUnknown, None, None),
    ("404 of a page", 404, "Not Found", errors.ModelMisconfigured, None, None),
    (
        "OpenAI, no model",
        404,
        "The model `gpt-9` does not exist or you do not have access to it.",
        UNKNOWN,
        None,
        None,
    ),
    ("Ollama, no model", 404, 'model "llama9:7b" not found, try pulling it first', UNKNOWN, None, None),
    ("OpenRouter, no model", 400, "acme/none is not a valid model ID", UNKNOWN, None, None),
    ("Bedrock, no model", 400, "The provided model identifier is invalid.", UNKNOWN, None, None),
    ("no right to it", 403, "You do not have access to the model with this key.", UNKNOWN, None, None),
    (
        "a model and its field",
        400,
        "model: Input should be a valid string",
        errors.RequestInvalid,
        None,
        None,
    ),
    ("307", 307, "", errors.ModelMisconfigured, None, None),
    ("401", 401, "prompt is too long", errors.ModelRefused, None, None),
    ("403", 403, "Request not allowed", errors.ModelRefused, None, None),
    ("402", 402, "no money", errors.SpendLimit, None, None),
    (
        "credit",
        400,
        "Your credit balance is too low to access the Anthropic API.",
        errors.SpendLimit,
        None,
        None,
    ),
    ("quota", 429, "You exceeded your current quota, please check your plan", errors.SpendLimit, None, None),
    ("413", 413, "Request exceeds the maximum size", errors.RequestTooLarge, None, None),
    ("413 of Vertex", 413, "Prompt is too long", OVER, None, None),
    ("500", 500, "Internal server error", errors.ProviderFailing, None, None),
    ("529", 529, "Overloaded", errors.Overloaded, None, None),
    (
        "thinking",
        400,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        errors.ThinkingUnbound,
        None,
        None,
    ),
]

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


@pytest.mark.parametrize("form", BODIES)
@pytest.mark.parametrize("row", SENTENCES, ids=[row[0] for row in SENTENCES])
def test_a_sentence_has_its_meaning_in_every_form(
    form: str, row: tuple[str, int, str, Kind, int | None, int | None]
) -> None:
    _, status, words, kind, tokens, window = row
    body = BODIES[form](words) if words else "<html><title>no</title></html>"
    error = classify.classify(status, body)
    assert type(error) is kind
    assert error.status == status
    if isinstance(error, errors.ContextOverflow):
        assert (error.tokens, error.window) == (tokens, window)


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
