"""Keys of chats and people: parsing reverses formatting, and invalid keys are refused."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.base import Frozen
from bot.contracts.identity import ChatKey, UserRef
from tests.shares import examples

PARTS = st.text(st.characters(exclude_characters=":"), min_size=1)
KEYS = st.builds(ChatKey, PARTS, PARTS, st.none() | PARTS, PARTS)


class Kept(Frozen):
    chat_key: ChatKey
    person: UserRef


@settings(derandomize=True, deadline=None, max_examples=examples(500))
@given(KEYS)
@example(ChatKey("slack", "C1", "1718.000200"))
@example(ChatKey("telegram", "-100", "7", "topic"))
@example(ChatKey("飞书", "群聊 \u200f👩‍👩‍👧", "chat"))
@example(ChatKey("web", "\n\x00"))
def test_a_key_is_read_as_it_was_written(key: ChatKey) -> None:
    read = ChatKey.parse(str(key))
    assert (read, str(read), hash(read)) == (key, str(key), hash(key))
    assert read.contains(key)
    assert read.chat.contains(key)
    assert key.contains(key.chat) == (key.thread is None)


@settings(derandomize=True, deadline=None, max_examples=examples(500))
@given(st.text(st.sampled_from(":chat1"), max_size=20) | st.text())
def test_a_text_is_the_key_that_it_reads_as_or_none(text: str) -> None:
    try:
        key = ChatKey.parse(text)
    except errors.IdentityInvalid:
        return
    assert str(key) == text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            ":",
            "slack",
            "slack:C1",
            "slack:chat:",
            ":chat:1",
            "slack:room:C1",
            " :chat",
            "slack:chat:C1:",
        ),
        *("slack:chat:C1:7", "slack:chat:C1:thread:", "slack:chat:C1::7", "slack:chat:C1:thread:7:8"),
    ],
)
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(errors.IdentityInvalid, match="No chat is named by"):
        ChatKey.parse(text)


@pytest.mark.parametrize(
    "parts", [("", "1"), ("web", ""), ("a:b", "1"), ("web", "1:2"), ("web", "1", ""), ("web", "1", "2", "")]
)
def test_no_key_is_made_of_parts_that_could_not_be_told_apart(parts: tuple[str, ...]) -> None:
    with pytest.raises(errors.IdentityInvalid):
        ChatKey(*parts)


def test_a_chat_contains_its_threads_and_no_chat_that_begins_alike() -> None:
    chat, thread = ChatKey("slack", "C1"), ChatKey("slack", "C1", "1.2")
    assert chat.contains(thread)
    assert not thread.contains(chat)
    assert not thread.contains(ChatKey("slack", "C1", "1.23"))
    assert not chat.contains(ChatKey("slack", "C10"))
    assert not chat.contains(ChatKey("web", "C1"))
    assert ChatKey("slack", "C1", kind="topic") == chat, (
        "the word for a thread says nothing where there is none"
    )


def test_a_model_keeps_the_text_and_holds_the_type() -> None:
    kept = Kept.model_validate_json('{"chatKey":"web:chat:1","person":"web:a:b"}')
    assert kept == Kept(chat_key=ChatKey("web", "1"), person=UserRef("web", "a:b"))
    assert kept.model_dump(by_alias=True) == {"chatKey": "web:chat:1", "person": "web:a:b"}
    assert kept.model_dump_json(by_alias=True) == '{"chatKey":"web:chat:1","person":"web:a:b"}'
    for wrong in ('"web"', "7", "null"):
        with pytest.raises(ValueError, match="chatKey"):
            Kept.model_validate_json(f'{{"chatKey":{wrong},"person":"web:a"}}')


@settings(derandomize=True, deadline=None)
@given(PARTS, st.text(min_size=1))
def test_a_person_is_read_as_they_were_written(channel: str, user_id: str) -> None:
    assert UserRef.parse(str(UserRef(channel, user_id))) == UserRef(channel, user_id)


@pytest.mark.parametrize("text", ["", ":", "telegram", "telegram:", ":9001"])
def test_what_names_no_person_is_refused(text: str) -> None:
    with pytest.raises(errors.IdentityInvalid, match="No person"):
        UserRef.parse(text)
