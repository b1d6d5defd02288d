from __future__ import annotations

import base64
import json
import string
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.telemetry import LogRedactor, Redactor

# What real tokens are made of, and some of what people put into passwords.
SECRETS = st.text(
    alphabet=string.ascii_letters + string.digits + '-_:+/=@!&%"\\ é密🔑', min_size=8, max_size=60
)
AROUND = st.text(max_size=40)


def appearances(secret: str, before: str, after: str) -> list[str]:
    raw = secret.encode()
    inside = base64.b64encode(before.encode("utf-8", "replace") + raw + after.encode("utf-8", "replace"))
    return [
        secret,
        quote(secret, safe=""),
        quote_plus(secret),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        inside.decode(),
        raw.hex(),
        json.dumps(secret)[1:-1],
    ]


@settings(derandomize=True, deadline=None, max_examples=300)
@given(SECRETS, AROUND, AROUND)
def test_no_known_secret_survives_in_any_form(secret: str, before: str, after: str) -> None:
    redact = Redactor([secret])
    for shape in appearances(secret, before, after):
        shown = redact(f"{before} {shape} {after}")
        assert "[redacted]" in shown
        if shape not in f"{before} [redacted] {after}":
            assert shape not in shown


@settings(derandomize=True, deadline=None)
@given(st.text())
def test_text_without_a_secret_stays_as_it_is(text: str) -> None:
    assert Redactor(["correct-horse-battery-staple"])(text) == text


def test_what_stands_around_a_secret_stays() -> None:
    assert Redactor(["s3cr3t-value"])("密码是s3cr3t-value。😀") == "密码是[redacted]。😀"


def test_a_secret_that_contains_another_goes_as_a_whole() -> None:
    redact = Redactor(["abcdefgh", "abcdefgh-ijklmnop"])
    assert redact("x abcdefgh-ijklmnop y abcdefgh z") == "x [redacted] y [redacted] z"


def test_short_values_are_no_secrets() -> None:
    assert Redactor(["port", "1234567"])("port 1234567") == "port 1234567"


def test_without_secrets_nothing_is_replaced() -> None:
    assert Redactor()("anything") == "anything"


def test_json_values_are_redacted_at_every_depth_keys_too() -> None:
    value = {"a": [{"s3cr3t-value": ("x s3cr3t-value", 1, None, True)}], 7: 1.5}
    assert Redactor(["s3cr3t-value"]).deep(value) == {
        "a": [{"[redacted]": ["x [redacted]", 1, None, True]}],
        7: 1.5,
    }


@pytest.mark.parametrize(
    "token",
    [
        "xoxb-" + "1234567890-abcdefghij",
        "xoxe.xoxp-" + "1-Mi0yLTEyMzQ1",
        "xapp-" + "1-A012345-6789-abcdef",
        "123456789:" + "AAFakeTokenFakeTokenFakeTokenFakeTok",
        "sk-ant-" + "api03-abcdefghijkl",
        "ghp_" + "abcdefghijklmnopqrstuvwx0123456789AB",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\ncut off",
    ],
)
def test_the_log_also_hides_what_looks_like_a_token(token: str) -> None:
    sentence = f"GET https://host/bot{token}/getMe"
    shown = LogRedactor()(sentence)
    assert token not in shown
    assert shown.startswith("GET https://host/bot[redacted]")
    assert Redactor()(sentence) == sentence


@pytest.mark.parametrize(
    "harmless",
    ["10:30 at 2026-01-01", "1699999999.000100", "xoxb-", "sk-ant", "01J9Z6K3Q0ABCDEFGHJKMNPQRS", "eyJ.a.b"],
)
def test_the_log_leaves_ordinary_text_alone(harmless: str) -> None:
    assert LogRedactor()(harmless) == harmless
