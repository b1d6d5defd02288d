"""Whose words a note repeats: known where a message in view has what the writing turn itself does not say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.contracts.base import Json, Message
from bot.tools.builtin.memory import NoteSources


def said(request_id: str, words: str, user_id: str | None = "U1") -> Message:
    facts: Json = {"requestId": request_id, "userId": user_id}
    head = {"type": "text", "text": f"<turn_context>{json.dumps(facts)}</turn_context>"}
    return {"role": "user", "content": [head, {"type": "text", "text": words}]}


def found(line: str, *view: Message) -> list[str]:
    return [name for name, _ in NoteSources(view, "OWN").of(line)]


@pytest.mark.parametrize(
    ("before", "asked", "line"),
    [
        ("I love teal", "please note my favourite colour", "- Favourite colour: teal"),
        ("my IBAN is DE12 3456", "save that", "Ann's IBAN: DE12 3456"),
        ("我最喜欢的颜色是青色", "记住我最喜欢的颜色", "最喜欢的颜色：青色"),
        ("my secret is 鯨", "remember it", "secret: 鯨"),
        ("ｐｉｎ 4711", "note", "PIN 4711"),
        ("the door opens with 42", "note it", "42"),
    ],
)
def test_a_note_of_what_was_said_before_names_it(before: str, asked: str, line: str) -> None:
    view = [said("A", before), said("B", "how is the weather in 東京?"), said("OWN", asked)]
    assert found(line, *view) == ["A"]


def test_what_the_turn_says_itself_names_nobody_else() -> None:
    view = [said("A", "my dog is called Rex"), said("OWN", "note that my dog is called Rex and is two")]
    assert found("dog: Rex, two", *view) == []
    assert found("", *view) == []


def test_it_says_who_said_it_as_far_as_that_is_known() -> None:
    sources = NoteSources([said("A", "teal is best", "U7"), said("B", "teal!", None)], "OWN")
    assert list(sources.of("teal")) == [("A", "U7"), ("B", None)]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": [{"type": "text", "text": "teal"}]},
        {"role": "user", "content": "teal"},
        {"role": "user", "content": [{"type": "text", "text": "teal"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "teal"}]},
        *(
            {"role": "user", "content": [{"type": "text", "text": head}, {"type": "text", "text": "teal"}]}
            for head in (
                "<turn_context>{</turn_context>",
                "<turn_context>[]</turn_context>",
                f"<turn_context>{'[' * 100_000}</turn_context>",
                '<turn_context>{"requestId": 5}</turn_context>',
                "<turn_context>{}",
            )
        ),
    ],
)
def test_what_no_person_said_is_nobodys(message: dict[str, Any]) -> None:
    assert found("teal", message) == []
