"""What decides where there are no words: status, type, code, headers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.llm import classify

Kind = type[errors.ModelError]


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
        ("overloaded_error", "compaction_unavailable", 529, errors.SummaryUnavailable),
        ("invalid_request_error", "compaction_signature_invalid", 400, errors.SummaryRefused),
        # A proxy carries everything with one status: the type counts.
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


@pytest.mark.parametrize(
    ("status", "expected"),
    [(400, errors.ContextOverflow), (413, errors.RequestTooLarge), (500, errors.ProviderFailing)],
)
@pytest.mark.parametrize("body", ["", None])
def test_an_answer_without_a_body(status: int, expected: Kind, body: str | None) -> None:
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


def test_the_line_for_the_operator_is_bounded_and_names_the_cause() -> None:
    body = {"error": {"type": "invalid_request_error", "message": "bad\n" * 50_000}, "request_id": "req_9"}
    error = classify.classify(400, body)
    assert str(error).startswith("The provider answered 400 invalid_request_error: bad bad")
    assert len(str(error)) < 500
    assert "\n" not in str(error)
    assert error.request_id == "req_9"


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
