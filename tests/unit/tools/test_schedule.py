"""The tools for jobs take chat and person from the turn, never from the model."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ANYBODYS, Inbound, Provenance
from bot.contracts.tools import Tool
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import tool_use
from bot.tools.builtin import ToolPorts, work
from bot.tools.builtin.work import UNPLACED
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.dispatch import Dispatcher, Registry
from tests.tool_calls import run_blocks

KEY = ChatKey.parse("slack:chat:C1:thread:1.2")
ASKS = Inbound(
    channel="slack",
    chat_id="C1",
    chat_key=KEY,
    chat_type="group",
    user_id="U1",
    keys=("k",),
    ts=1,
    target={"channel": "C1", "thread_ts": "1.2"},
)


class Kept:
    """`Jobs` that records its calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.cancelled: list[tuple[Inbound, str]] = []
        self.origin = Provenance(frozenset({"U2"}))

    async def create(
        self, inbound: Inbound, prompt: str, when: str, *, timezone: str, origin: Provenance
    ) -> str:
        self.asked.append((inbound, prompt, when, timezone, origin))
        return "Scheduled as job ABC123"

    async def listed(self, inbound: Inbound) -> tuple[str, Provenance]:
        return f"jobs of {inbound.chat_key}", self.origin

    async def cancel(self, inbound: Inbound, job: str) -> str:
        self.cancelled.append((inbound, job))
        return "gone"


async def run(
    jobs: Kept | None, call: Json, inbound: Inbound | None = ASKS, view: Sequence[Message] = ()
) -> Json:
    ports = cast("ToolPorts", SimpleNamespace(jobs=jobs))
    tools: list[Tool] = [tool(ports) for tool in work.TOOLS]
    turn = ToolExecutionContext(KEY, "R1", "U1", None, cast("Any", None), view=lambda: view, inbound=inbound)
    with tool_scope(turn):
        (result,) = await run_blocks(Dispatcher(Registry(tools), clock=FakeClock(), log=MemoryLog()), [call])
    return result


def said(words: str, user: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": words}], "origin": [user]}


async def test_place_person_and_whose_words_were_in_view_come_from_the_turn() -> None:
    jobs = Kept()
    call = tool_use("schedule_create", prompt="tell 你好", when="every 2h", timezone="Asia/Tokyo")
    result = await run(jobs, call, view=[said("a", "U1"), said("b", "U2")])
    assert result["content"] == "Scheduled as job ABC123"
    assert jobs.asked == [(ASKS, "tell 你好", "every 2h", "Asia/Tokyo", Provenance(frozenset({"U1", "U2"})))]
    page = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "a page"}]}
    await run(jobs, tool_use("schedule_create", prompt="p", when="every 2h"), view=[page])
    assert jobs.asked[1][-1] == ANYBODYS


async def test_they_are_shown_and_taken_back_for_the_message_that_asks() -> None:
    jobs = Kept()
    listed = await run(jobs, tool_use("schedule_list"))
    assert (listed["content"], listed["origin"]) == (f"jobs of {KEY}", ["U2"])
    assert (await run(jobs, tool_use("schedule_cancel", job="ABC123")))["content"] == "gone"
    assert jobs.cancelled == [(ASKS, "ABC123")]
    assert UNPLACED in (await run(jobs, tool_use("schedule_list"), inbound=None))["content"]


@pytest.mark.parametrize("more", [{"chatId": "C2"}, {"userId": "U2"}, {"target": "x"}])
async def test_a_destination_cannot_be_named(more: dict[str, Any]) -> None:
    jobs = Kept()
    result = await run(jobs, tool_use("schedule_create", prompt="p", when="every 2h", **more))
    assert result["is_error"]
    assert jobs.asked == []
