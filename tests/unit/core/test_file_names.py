from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot.storage import jsonl
from tests.shares import examples

ANY_TEXT = st.text(
    st.characters(min_codepoint=0, max_codepoint=0x10FFFF, exclude_categories=()), max_size=120
)


@pytest.mark.parametrize(
    ("chat_key", "name"),
    [
        ("telegram:chat:-100123:topic:7", "telegram%3Achat%3A-100123%3Atopic%3A7"),
        ("slack:chat:C1:thread:1700000000.000100", "slack%3Achat%3AC1%3Athread%3A1700000000%2E000100"),
        ("a/../b\0", "a%2F%2E%2E%2Fb%00"),
        ("web:chat:你", "web%3Achat%3A%E4%BD%A0"),
        ("👩‍👩‍👧", "%F0%9F%91%A9%E2%80%8D%F0%9F%91%A9%E2%80%8D%F0%9F%91%A7"),
        ("\ud800", "%ED%A0%80"),
        ("x.archive-1", "x%2Earchive-1"),
        ("~", "%7E"),
        ("", ""),
        ("a" * 200, "a" * 200),
    ],
)
def test_every_byte_outside_the_plain_ones_is_escaped(chat_key: str, name: str) -> None:
    assert jsonl.file_name(chat_key) == name
    assert jsonl.text_of(name) == chat_key


def test_a_name_of_more_than_200_bytes_is_cut_and_hashed() -> None:
    key = "web:chat:" + "長" * 50
    encoded = "web%3Achat%3A" + "%E9%95%B7" * 50
    assert jsonl.file_name(key) == encoded[:120] + "~" + hashlib.sha256(key.encode()).hexdigest()[:16]
    assert jsonl.text_of(jsonl.file_name(key)) is None
    assert jsonl.is_hashed(jsonl.file_name(key))
    assert not jsonl.is_hashed(encoded[:120])
    assert not jsonl.is_hashed(key)


@pytest.mark.parametrize("name", ["a.b", "a%2f", "%41", "%", "%ZZ", "%FF", "ü", "a~0123456789abcdef", "a\n"])
def test_what_is_no_name_of_ours_is_not_decoded(name: str) -> None:
    assert jsonl.text_of(name) is None


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(ANY_TEXT, ANY_TEXT)
@example("a", "a%")
@example("\ud83d\ude00", "😀")
@example("%ED%A0%80", "\ud800")
def test_two_keys_never_share_a_name_and_every_name_is_safe(one: str, other: str) -> None:
    name = jsonl.file_name(one)
    assert re.fullmatch(r"[A-Za-z0-9_%-]*(~[0-9a-f]{16})?", name)
    assert len(name) <= jsonl.LONGEST_NAME
    assert (name == jsonl.file_name(other)) == (one == other)
    assert jsonl.text_of(name) in ({one} if "~" not in name else {None})
