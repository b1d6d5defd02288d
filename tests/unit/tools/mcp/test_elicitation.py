"""A tool that asks the person a question while it runs."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.tools.context import ToolExecutionContext, tool_scope
from tests.timers import leap, leap_until_done
from tests.unit.tools.mcp.conftest import Rig, Start, friendly, until

TURN = ToolExecutionContext(ChatKey.parse("slack:chat:C1"), "R1", "U1", None, cast("Any", None))


class Person:
    """A person who never answers the question."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.left = False

    async def ask(self, _: ChatKey, __: str, words: str) -> str | None:
        self.asked.append(words)
        try:
            await asyncio.Event().wait()
        finally:
            self.left = True
        return None


async def book(rig: Rig, person: Person) -> str:
    rig.person = person.ask
    with tool_scope(TURN):
        return await rig.call("mcp__one__book")


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
