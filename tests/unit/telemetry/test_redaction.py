from __future__ import annotations

import base64
import itertools
import json
import string
import time
from urllib.parse import quote, quote_plus

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import text
from bot.telemetry.redaction import MARK, LogRedactor, Redactor, forms
from tests.shares import examples

# Characters of real tokens, and some characters of people's passwords.
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


@settings(derandomize=True, deadline=None, max_examples=examples(300))
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


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(SECRETS, st.lists(AROUND, max_size=4), st.data())
def test_what_any_of_many_texts_shows_all_of_them_show_together(
    secret: str, others: list[str], data: st.DataObject
) -> None:
    redact = LogRedactor([secret])
    shape = data.draw(st.sampled_from(appearances(secret, "", "")))
    cut = data.draw(st.integers(0, len(shape)))
    wrapped = data.draw(
        st.sampled_from([shape, f"{shape[:cut]}\n{shape[cut:]}", f"**{shape[:cut]}**{shape[cut:]}"])
    )
    texts = [*others, wrapped]
    if any(redact(one) != one for one in texts):
        assert redact.finds(texts)
        assert redact.finds(texts[::-1])


@pytest.mark.parametrize(
    ("opening", "closing"),
    [
        ("<!--", "-->"),
        ("\x1b]", "\x07"),
        ("\x9d", "\x9c"),
        ("](", ")"),
        ("](", '"hidden")'),
        ("<https://a.example/", "|"),
    ],
)
def test_no_text_hides_a_secret_of_another(opening: str, closing: str) -> None:
    redact = LogRedactor(["correct-horse-battery"])
    assert redact.finds([f"words {opening}", "correct-**horse**-battery", f"{closing} words"])
    assert redact.finds([f"words {opening}", f'"correct-**horse**-battery"{closing}', f"{closing} words"])
    assert not redact.finds([f"words {opening}", "correct", "-horse-battery", f"{closing} words"])


@pytest.mark.parametrize(
    ("secrets", "said", "shown"),
    [
        (["s3cr3t-value"], "密码是s3cr3t-value。😀", "密码是[redacted]。😀"),
        (
            ["abcdefgh", "abcdefgh-ijklmnop"],
            "x abcdefgh-ijklmnop y abcdefgh z",
            "x [redacted] y [redacted] z",
        ),
        (["port", "1234567"], "port 1234567", "port 1234567"),
        ([], "anything", "anything"),
    ],
)
def test_a_secret_is_replaced_whole_and_what_is_around_it_stays(
    secrets: list[str], said: str, shown: str
) -> None:
    assert Redactor(secrets)(said) == shown


def test_json_values_are_redacted_at_every_depth_keys_too() -> None:
    value = {"a": [{"s3cr3t-value": ["x s3cr3t-value", 1, None, True]}], "b": 1.5}
    assert text.deep(value, Redactor(["s3cr3t-value"])) == {
        "a": [{"[redacted]": ["x [redacted]", 1, None, True]}],
        "b": 1.5,
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


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(
    st.lists(SECRETS, min_size=1, max_size=3),
    st.lists(st.one_of(AROUND, st.integers(0, 2)), min_size=1, max_size=6),
    st.lists(st.floats(0, 1), min_size=1, max_size=8),
)
def test_of_a_text_that_goes_on_no_secret_shows_even_partly(
    secrets: list[str], pieces: list[str | int], cuts: list[float]
) -> None:
    """Texts contain secrets in any form and beginnings of secrets, cut anywhere. Each preview must be a beginning of the
    final text.
    """
    secrets = [text.clean(one) for one in secrets]
    redact = Redactor(secrets)
    known = [form for one in secrets if len(one) >= 8 for form in sorted(forms(one))]
    whole = "".join(
        one if isinstance(one, str) else known[(one * 7 + number) % len(known)]
        for number, one in enumerate(pieces)
    )
    whole = text.clean(whole)
    said = redact(whole)
    for cut in cuts:
        assert said.startswith(redact.settled(whole[: int(cut * len(whole))]))


@pytest.mark.parametrize(
    ("secrets", "so_far", "shown"),
    [
        (["abcdefgh"], "see abcdefg", "see "),
        (["abcdefgh"], "see abcdefx", "see abcdefx"),
        (["abcdefgh"], "see abcdefgh.", "see [redacted]."),
        (["abcdefgh"], "see abcdefgha", "see [redacted]"),
        (["abcdefgh", "abcdefgh-ijklmnop"], "see abcdefgh-ijk", "see "),
        (["abcdefgh", "abcdefgh-ijklmnop"], "see abcdefgh-x", "see [redacted]-x"),
        (["abcdefgh", "ghijklmn"], "see abcdefgh", "see [redacted]"),
        (["abcdefgh"], "", ""),
        ([], "all of it", "all of it"),
    ],
)
def test_what_could_become_a_secret_is_held_back(secrets: list[str], so_far: str, shown: str) -> None:
    assert Redactor(secrets).settled(so_far) == shown


HIDDEN = "hunter2-_correct*horse/battery"


def _apart(secret: str, between: str) -> str:
    return between.join(secret)


DISGUISED = {
    "every byte in percent": "".join(f"%{byte:02X}" for byte in HIDDEN.encode()),
    "in small letters": "".join(f"%{byte:02x}" for byte in HIDDEN.encode()),
    "in both": "".join(
        f"%{byte:02x}" if at % 2 else f"%{byte:02X}" for at, byte in enumerate(HIDDEN.encode())
    ),
    "some bytes in percent": "".join(
        f"%{ord(sign):02X}" if at % 3 else sign for at, sign in enumerate(HIDDEN)
    ),
    "decimal entities": "".join(f"&#{ord(sign)};" for sign in HIDDEN),
    "hex entities": "".join(f"&#x{ord(sign):x};" for sign in HIDDEN),
    "long hex entities": "".join(f"&#X{ord(sign):06X};" for sign in HIDDEN),
    "named entities": HIDDEN.replace("_", "&lowbar;").replace("*", "&ast;").replace("/", "&sol;"),
    "some entities": HIDDEN.replace("r", "&#114;").replace("_", "&lowbar;"),
    "bold inside": HIDDEN.replace("correct", "**corr**ect"),
    "every letter in italics": "".join(f"*{sign}*" for sign in HIDDEN),
    "code inside": HIDDEN.replace("horse", "`horse`"),
    "escapes": HIDDEN.replace("-", r"\-").replace("_", r"\_").replace("*", r"\*"),
    "a link inside": HIDDEN.replace("correct", "[correct](https://example.org/x)"),
    "a reference inside": HIDDEN.replace("correct", "[correct][1]"),
    "an image inside": HIDDEN.replace("correct", "![correct](https://example.org/x.png)"),
    "Slack's own link": HIDDEN.replace("correct", "<https://example.org|correct>"),
    "struck out": HIDDEN.replace("correct", "~~correct~~"),
    "spoilers": HIDDEN.replace("correct", "||correct||"),
    "zero width": _apart(HIDDEN, "\u200b"),
    "joiners and soft hyphens": _apart(HIDDEN, "\u2060\u00ad"),
    "isolates": _apart(HIDDEN, "\u2066"),
    "variation selectors and fillers": _apart(HIDDEN, "\ufe00\u3164"),
    "tags": _apart(HIDDEN, "\U000e0041"),
    "colours of a terminal": HIDDEN.replace("correct", "\x1b[31mcorrect\x1b[0m"),
    "a title of a link": HIDDEN.replace("correct", '[correct](https://example.org "a b")'),
    "a target in brackets": HIDDEN.replace("correct", "[correct](<https://example.org/(a b)>)"),
    "a comment": HIDDEN.replace("correct", "correct<!-- a comment -->"),
}


@pytest.mark.parametrize("how", DISGUISED)
def test_what_is_a_secret_once_rendered_is_one(how: str) -> None:
    redact = Redactor([HIDDEN, "another-secret"])
    assert redact(f"before\nbeside {DISGUISED[how]} it\nafter") == "before\n[redacted]\nafter"


@pytest.mark.parametrize("begun", ["\x9d", "\x90a", "\x1b]", "eyJ", "eyJ-"])
def test_what_begins_very_often_and_never_ends_takes_no_time(begun: str) -> None:
    """Many beginnings of terminal strings or tokens. Every received text is redacted, so redaction must be fast."""
    words = begun * (60_000 // len(begun))
    began = time.process_time()
    assert LogRedactor([HIDDEN])(words).startswith(begun[:3])
    assert LogRedactor([HIDDEN])(f"{words}{HIDDEN}").endswith(MARK)
    assert time.process_time() - began < 2


def test_what_stands_around_a_string_for_a_terminal_does_not_become_a_sequence() -> None:
    """Otherwise the new sequence would be removed together with a letter of the secret."""
    disguised = HIDDEN.replace("correct", "co\x9b\x9d\x07rrect")
    assert Redactor([HIDDEN])(disguised) == MARK
    assert text.for_terminal("a\x9b\x9d\x07b") == "a\N{REPLACEMENT CHARACTER}b"


def test_a_token_that_begins_within_another_word_is_one() -> None:
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
    assert (
        LogRedactor()(f"a_{token} eyJ{token} eyJaaaaaaaaa.b {token}")
        == f"a_{MARK} {MARK} eyJaaaaaaaaa.b {MARK}"
    )


@pytest.mark.parametrize("zeros", [0, 5, 5_000])
def test_a_number_of_any_length_is_one_character(zeros: int) -> None:
    """Python refuses to parse thousands of digits."""
    numbered = HIDDEN.replace("correct", f"&#{'0' * zeros}99;orrect")
    assert HIDDEN not in Redactor([HIDDEN])(numbered)
    assert "orrect" not in Redactor([HIDDEN])(numbered)
    assert text.unescaped(f"&#{'9' * 5_000};&#x41;&#{'0' * 5_000}65;&amp;") == "\ufffdAA&"


def test_a_secret_that_json_escaped_twice_is_found() -> None:
    """Markdown removes one of two backslashes, so the rendered text would show the secret as JSON escapes it once."""
    secret = 'pass"wörd\\of{a}server'
    twice = json.dumps(json.dumps(secret), ensure_ascii=False)
    assert Redactor([secret])(f"before\n{twice}\nafter") == "before\n[redacted]\nafter"


def test_a_character_that_nobody_sees_hides_no_secret() -> None:
    """The terminal and labels of links omit the character, so the secret would be shown."""
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    unseen = regex.findall(r"[\p{Default_Ignorable_Code_Point}\p{Bidi_Control}\p{Zl}\p{Zp}]", every)
    taken = {sign for sign in regex.findall(r"\p{Cf}", every) if not text.for_terminal(sign)}
    assert taken
    assert taken <= set(unseen)
    redact = Redactor([HIDDEN])
    assert [f"{ord(sign):x}" for sign in unseen if redact(_apart(HIDDEN, sign)) != "[redacted]"] == []


@pytest.mark.parametrize(
    "end",
    [
        "\n",
        "\r\n",
        "\n> ",
        "\n    ",
        "\\n",
        "\n- ",
        "\n  + ",
        "\\\n",
        '"\n"',
        '" +\n  "',
        "|\n|",
        "\u2028",
        "'\r\n+ '",
    ],
)
def test_wrapped_base64_is_found(end: str) -> None:
    secret = "sk-ant-~~~???-api03-" + HIDDEN * 2
    redactor = Redactor([secret])
    for lead, width, encode in itertools.product(
        range(3), (4, 19, 64, 76), (base64.b64encode, base64.urlsafe_b64encode)
    ):
        packed = encode(b"xy"[:lead] + b"\xff" * 3 + secret.encode() + b"trailing").decode()
        wrapped = end.join(packed[at : at + width] for at in range(0, len(packed), width))
        assert "[redacted]" in redactor(f"here:\n{wrapped}\nthat was it")


def test_what_is_packed_twice_does_not_go_on_at_all() -> None:
    percent = "".join(f"%{byte:02X}" for byte in HIDDEN.encode())
    assert Redactor([HIDDEN])("x " + "".join(f"&#{ord(sign)};" for sign in percent)) == "[redacted]"
    entities = "".join(f"%26%23{ord(sign)}%3B" for sign in HIDDEN)
    assert Redactor([HIDDEN])(f"x {entities}") == "[redacted]"


@settings(derandomize=True, deadline=None)
@given(st.text(alphabet="*_~`\\[]()<>|!&#;%41 ab\n\u200b>", max_size=80))
def test_form_alone_is_left_as_it_is(words: str) -> None:
    assert Redactor([HIDDEN])(words) == words


def test_a_token_with_punctuation_is_found_on_two_lines() -> None:
    token = "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"
    shown = [f"{token[:at]}\n{token[at:]}" for at in range(1, len(token))]
    assert {Redactor([token])(one) for one in shown} == {"[redacted]"}
