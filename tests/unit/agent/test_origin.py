"""A summary says whose words it stands for, as long as that is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bot.agent.assistant_text import without_pause
from bot.agent.memory_writer import Recollection
from bot.context import replay
from bot.context.store import AgentContextStore, Turn
from bot.contracts.agent import TurnRequest
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Message
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, Quoted
from bot.contracts.provenance import ANYBODYS, WORKSPACES, Provenance, Taint
from bot.core import memory, prompt
from bot.core.found_tools import declared
from bot.core.notes.memories import SavedMemory
from bot.core.repair import Entry, mended_entries
from bot.testing.clock import FakeClock
from bot.testing.model import reply, text, tool_use
from bot.tools.permissions import taint

from .conftest import KEY as BENCH_KEY
from .conftest import Bench

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


def quoting(*quoted: Quoted) -> Message:
    inbound = Inbound(
        channel="slack",
        chat_id="D1",
        chat_key=KEY,
        chat_type="direct",
        user_id="U1",
        keys=("k",),
        ts=1,
        target={},
        text="hi",
    )
    return prompt.user_message(TurnRequest("R", KEY, inbound=inbound, context=quoted), 1, "0a1b2c3d")


def test_quotes_whose_words_are_known_count_as_theirs_and_others_as_anybodys() -> None:
    own = Quoted(user_id="U2", text="words", words_of=("U2",))
    looked_at = Quoted(user_id=None, text="words", from_self=True, words_of=(), taint=Taint.WORKSPACE)
    assert taint.seen([quoting(own)]) == Provenance(frozenset({"U1", "U2"}))
    assert taint.seen([quoting(own, looked_at)]) == Provenance(frozenset({"U1", "U2"}), Taint.WORKSPACE)
    assert taint.seen([quoting(own, Quoted(user_id="U2", text="words", kind="poll"))]) == ANYBODYS
    fetched_words = Quoted(user_id=None, text="words", words_of=(), taint=Taint.FOREIGN)
    assert taint.seen([quoting(own, fetched_words)]) == ANYBODYS


async def test_the_last_turn_in_mind_tells_whose_words_it_holds(bench: Bench) -> None:
    assert await bench.pool.last_turn(BENCH_KEY) is None
    bench.model.answers.append(reply(text("Hello.")))
    await bench.say("hi")
    last = await bench.pool.last_turn(BENCH_KEY)
    assert last is not None
    assert (len(last.sources), last.origin) == (1, Provenance(frozenset({"77"})))
    bench.restart()
    assert await bench.pool.last_turn(BENCH_KEY) == last
    await bench.pool.reset(BENCH_KEY)
    assert await bench.pool.last_turn(BENCH_KEY) is None


def fetched() -> list[Message]:
    call = tool_use("web_fetch")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "words of a page"}
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


@pytest.mark.parametrize(
    ("before", "level"), [((), Taint.NONE), (looked(), Taint.WORKSPACE), (fetched(), Taint.FOREIGN)]
)
def test_an_answer_has_the_level_of_what_was_in_view_when_that_is_gone(
    before: Sequence[Message], level: Taint
) -> None:
    answer: Message = {"role": "assistant", "content": [{"type": "text", "text": "It says: WORDS of a page"}]}
    kept = json.loads(json.dumps(taint.stamped(answer, [said("U1"), *before])))
    assert taint.seen([kept]).taint is level
    second = json.loads(json.dumps(taint.stamped(answer, [kept, said("U2")])))
    assert taint.seen([second]).taint is level, "and so has what is written with only that answer in view"
    assert "origin" not in json.dumps(declared([second])[0]), "which no provider sees"


def test_words_of_more_people_than_are_counted_are_anybodys() -> None:
    answer: Message = {"role": "assistant", "content": [{"type": "text", "text": "So."}]}
    view = [said(f"U{number}") for number in range(taint.MOST_PEOPLE + 1)]
    assert taint.seen([taint.stamped(answer, view[:-1])]).taint is Taint.NONE
    assert taint.seen([taint.stamped(answer, view)]).taint is Taint.FOREIGN


def test_an_answer_out_of_the_archive_is_anybodys() -> None:
    base = {"channel": "slack", "chat_id": "C1", "chat_key": KEY}
    lines = [
        ArchiveLine(ts=1, role="user", user_id="U1", text="hello", **base),
        ArchiveLine(ts=2, role="assistant", text="It says …", **base),
    ]
    ((_, (_, answer)),) = replay.from_archive(lines, 60, "0a1b2c3d")
    assert taint.seen([answer.message]).taint is Taint.FOREIGN


def test_an_answer_without_its_pause_keeps_what_it_was_written_from() -> None:
    asked = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    paused: Message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "I see words of a page."}, asked],
    }
    without = without_pause(taint.stamped(paused, fetched()))
    assert without is not None
    assert without["origin"] == ANYBODYS.packed()


def test_pieces_that_are_one_answer_have_all_their_origins() -> None:
    first: Message = {"role": "assistant", "content": [tool_use("list_dir")], "origin": []}
    second: Message = {
        "role": "assistant",
        "content": [tool_use("list_dir")],
        "origin": ANYBODYS.packed(),
    }
    mended = mended_entries([Entry("a", first), Entry("b", second)], running=True)
    (answer,) = [one.message for one in mended if one.message["role"] == "assistant"]
    assert len(answer["content"]) == 2
    assert answer["origin"] == ANYBODYS.packed()
