"""A tool that asks the person while it runs."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.questions import Answer, Question
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.mcp.elicitation import TRIES, kind, read
from tests.timers import leap, leap_until_done
from tests.unit.tools.mcp.conftest import Rig, Start, friendly, until

TURN = ToolExecutionContext(ChatKey.parse("slack:chat:C1"), "R1", "U1", None, cast("Any", None))


class Person:
    """`contracts.questions.Questions` whose answers are given, or who says nothing."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked: list[Question] = []
        self.left = False

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        if self.answers:
            return Answer("answered", self.answers.pop(0))
        try:
            await asyncio.Event().wait()
        finally:
            self.left = True
        return Answer("nobody")


async def book(rig: Rig, person: Person) -> str:
    rig.person = person
    with tool_scope(TURN):
        return await rig.call("mcp__one__book")


async def test_the_answer_reaches_the_tool_and_what_does_not_fit_is_asked_again(start: Start) -> None:
    rig = await start(one=friendly())
    person = Person("a few", "4")
    assert await book(rig, person) == "booked for 4"
    assert [one.chat_key for one in person.asked] == [ChatKey.parse("slack:chat:C1")] * 2
    first, again = (one.words for one in person.asked)
    assert "`book` (one) asks:\n```\nHow many people?" in first
    assert "a whole number" in first
    assert again.startswith("That doesn't fit.")
    assert await book(rig, Person("skip")) == "not booked: decline"
    assert await book(rig, Person(*["?"] * TRIES)) == "not booked: decline"
    outside = Person("4")
    rig.person = outside
    assert await rig.call("mcp__one__book") == "not booked: decline", "nobody is asked outside of a turn"
    assert outside.asked == []


async def test_while_a_person_is_waited_for_the_clock_stands_still(start: Start) -> None:
    rig = await start(one=friendly(timeoutMs=600_000))
    person = Person()
    calling = asyncio.create_task(book(rig, person))
    await until(lambda: person.asked)
    leap(601.0)
    done, _ = await asyncio.wait([calling], timeout=0.1)
    assert not done
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)
    await until(lambda: person.left)
    with tool_scope(TURN):
        waiting = asyncio.create_task(rig.call("mcp__one__wait"))
    await leap_until_done(waiting, 601.0)
    with pytest.raises(errors.ToolError, match="did not answer"):
        await waiting


@pytest.mark.parametrize(
    ("field", "words", "value"),
    [
        ({"type": "string"}, "花子", "花子"),
        ({"type": "integer"}, "12", 12),
        ({"type": "integer"}, "1.5", None),
        ({"type": "integer"}, "１２", 12),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, "inf", None),
        ({"type": "boolean"}, "Yes!", True),
        ({"type": "boolean"}, "いいえ", False),
        ({"type": "boolean"}, "perhaps", None),
        ({"type": "string", "enum": ["red", "blau"]}, "BLAU", "blau"),
        ({"type": "string", "enum": ["red", "blau"]}, "1", "red"),
        ({"type": "string", "enum": ["red", "blau"]}, "green", None),
        ({"oneOf": [{"const": "r", "title": "Rot"}, {"const": "b"}]}, "rot", "r"),
        ({"type": "object"}, "x", None),
    ],
)
def test_words_become_values(field: dict[str, Any], words: str, value: Any) -> None:
    assert read(field, words) == value
    assert kind(field)
