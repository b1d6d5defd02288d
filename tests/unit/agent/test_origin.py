"""A summary says whose words it stands for, as long as that is known."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from bot.agent.recollection import Recollection
from bot.context import memory, prompt
from bot.context.store import AgentContextStore, Entry, Turn
from bot.contracts.agent import TurnRequest
from bot.contracts.base import Message
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.provenance import WORKSPACES, Provenance, Taint
from bot.history.memories import SavedMemory
from bot.testing.clock import FakeClock
from bot.testing.model import tool_use
from bot.tools.permissions import taint

KEY = ChatKey.parse("slack:chat:C1")


def said(user: str) -> Message:
    inbound = Inbound(
        channel="slack",
        chat_id="C1",
        chat_key=KEY,
        chat_type="group",
        user_id=user,
        keys=("k",),
        ts=1,
        target={},
        text="hi",
    )
    return prompt.user_message(TurnRequest("R", KEY, inbound=inbound), 1, "0a1b2c3d")


def fetched() -> list[Message]:
    call = tool_use("web_fetch")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "words"}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


def looked() -> list[Message]:
    call = tool_use("list_dir")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "a", "origin": WORKSPACES.packed()}
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


class Files:
    """`Memories` of one chat."""

    def __init__(self, kept: SavedMemory | None = None) -> None:
        self.kept = kept

    async def load(self, _: str) -> SavedMemory | None:
        return self.kept

    async def save(self, _: str, kept: SavedMemory) -> None:
        self.kept = kept

    async def forget(self, _: str) -> None:
        self.kept = None


def recollection(files: Files | None = None) -> Recollection:
    return Recollection(
        KEY, cast("Any", SimpleNamespace(history=SimpleNamespace(memories=files), clock=FakeClock()))
    )


def test_a_summary_of_people_names_them() -> None:
    origin = recollection().origin([said("U1"), said("U2")])
    assert taint.seen([memory.head("sum", nonce="0a1b2c3d", origin=origin)]) == Provenance(
        frozenset({"U1", "U2"})
    )


def test_what_anybody_may_have_written_stays_so_until_a_new_conversation() -> None:
    lines = recollection()
    assert lines.origin([said("U1"), *fetched()]) == ""
    assert lines.origin([said("U1")]) == "", "the memory may have it from before"


async def test_the_memory_carries_whom_it_is_from() -> None:
    lines = recollection(Files())
    await lines.load()
    turn = Turn("R", ("R",), tuple(Entry(str(at), one) for at, one in enumerate([said("U1"), *fetched()])))
    store = AgentContextStore(10)
    store.commit(turn)
    await lines.save("## Facts\n- x", None, 1, store)
    assert lines.origin([said("U1")]) == ""
    await lines.forget()
    assert lines.origin([said("U1")]) == taint.summed(Provenance(frozenset({"U1"})))


async def test_after_a_restart_the_file_says_whom_a_memory_is_from() -> None:
    files, lines = Files(), recollection()
    lines = recollection(files)
    turn = Turn(
        "R", ("R",), (Entry("1", said("U1")), *(Entry(str(at), one) for at, one in enumerate(looked(), 2)))
    )
    store = AgentContextStore(10)
    store.commit(turn)
    await lines.save("## Facts\n- x", None, 1, store)
    again = recollection(files)
    await again.load()
    assert again.origin([]) == taint.summed(Provenance(frozenset({"U1"}), Taint.WORKSPACE))


async def test_of_an_older_file_nobody_knows_whom_the_memory_is_from() -> None:
    kept = SavedMemory("## Facts\n- x", None, 1, 1, ())
    assert await recollection(Files(kept)).load() == kept
    lines = recollection(Files(kept))
    await lines.load()
    assert lines.origin([said("U1")]) == ""
    fresh = recollection(Files())
    await fresh.load()
    assert fresh.origin([said("U1")]) != ""
