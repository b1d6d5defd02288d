"""A turn that is stopped at any point leaves memory and disk with the same history, and a valid one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import TurnRequest
from bot.contracts.archive import ArchiveLine, HistoryPage, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply, ModelRequest
from bot.contracts.transcript import TranscriptLine
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench, words
from tests.unit.gateway.outgoing import until


def history(bench: Bench) -> str:
    return json.dumps(bench.pool.runtime(KEY).store.messages())


async def after_restart(bench: Bench) -> str:
    bench.restart()
    await bench.pool.describe(KEY)
    return history(bench)


class StopsAtWrite:
    """Stops the running turn at its n-th write to the transcript, before or after the line is on disk."""

    def __init__(self, bench: Bench, at: int, *, after: bool) -> None:
        self._bench, self._left, self._after = bench, at, after
        self._append = bench.transcript.append

    async def __call__(self, chat_key: ChatKey, lines: Sequence[Any], **how: Any) -> str:
        self._left -= 1
        if self._left == 0 and not self._after:
            await self._bench.pool.stop(chat_key)
        session = await self._append(chat_key, lines, **how)
        if self._left == 0 and self._after:
            await self._bench.pool.stop(chat_key)
        return session


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(1, 9))
async def test_a_stop_at_any_write_leaves_the_same_valid_history_in_memory_and_on_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, at: int, after: bool
) -> None:
    await bench.store(1, "user", "昔の話")
    await bench.say("before")
    bench.model.answers.extend(
        [
            reply(text("Let me look."), tool_use("chat_load_history", keyword="昔")),
            reply(tool_use("chat_send", text="found")),
            reply(),
        ]
    )
    monkeypatch.setattr(bench.transcript, "append", StopsAtWrite(bench, at, after=after))

    await bench.say("the turn that is stopped")
    monkeypatch.undo()

    live = history(bench)
    assert await after_restart(bench) == live
    assert (await bench.say("and on")).status == "done"


async def test_a_second_stop_lets_the_first_one_close_the_turn(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.model.hold = asyncio.Event()
    running = asyncio.create_task(bench.say("work"))
    await bench.model.asked.wait()
    append, ending, go_on = bench.transcript.append, asyncio.Event(), asyncio.Event()

    async def slow(chat_key: ChatKey, lines: Sequence[Any], **how: Any) -> str:
        ending.set()
        await go_on.wait()
        return await append(chat_key, lines, **how)

    monkeypatch.setattr(bench.transcript, "append", slow)

    assert await bench.pool.stop(KEY)
    await ending.wait()
    assert await bench.pool.stop(KEY), "it is being stopped, and that is what is asked for"
    await asyncio.wait([running], timeout=0.05)
    assert not running.done(), "the next turn must not begin before this one is closed"
    go_on.set()

    assert (await running).status == "stopped"
    assert [line.type for line in await bench.transcript.load(KEY)][-1] == "turn_end", "before it is said"


@pytest.mark.parametrize("call", [False, True])
async def test_a_stop_while_the_answer_is_written_down_just_before_it_is_sent_does_not_cost_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, call: bool
) -> None:
    said = tool_use("chat_send", text="the whole answer") if call else text("the whole answer")
    bench.model.answers.append(reply(said))
    append, writing, go_on = bench.transcript.append, asyncio.Event(), asyncio.Event()

    async def slow(chat_key: ChatKey, lines: Sequence[Any], **how: Any) -> str:
        if "the whole answer" in str(lines) and not go_on.is_set():
            writing.set()
            await go_on.wait()
        return await append(chat_key, lines, **how)

    monkeypatch.setattr(bench.transcript, "append", slow)
    running = asyncio.create_task(bench.say("work"))
    await writing.wait()
    assert await bench.pool.stop(KEY)
    asyncio.get_running_loop().call_soon(go_on.set)

    assert (await running).status == "stopped"
    assert bench.chat.seen == ["the whole answer"]
    live = history(bench)
    assert await after_restart(bench) == live


async def test_a_stop_before_an_answer_goes_on_shows_what_there_is_of_it(bench: Bench) -> None:
    def half(_: ModelRequest) -> ModelReply:
        bench.model.hold = asyncio.Event()
        return reply(text("the first half"), stop_reason="max_tokens")

    bench.model.answers.append(half)
    running = asyncio.create_task(bench.say("work"))
    await until(lambda: len(bench.model.requests) == 2)
    assert await bench.pool.stop(KEY)

    assert (await running).status == "stopped"
    assert bench.chat.seen == ["the first half\n\n(stopped)"]
    assert (await bench.pool.stats(KEY)).turns == 0, "it is no answer"


async def test_a_question_for_the_status_while_a_turn_begins_does_not_fill_the_store_twice(
    bench: Bench,
) -> None:
    await bench.say("one")
    live = history(bench)
    bench.restart()

    inbound = bench.inbound("two")
    turn = bench.pool.run(TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat))
    await asyncio.gather(turn, *(bench.pool.describe(KEY) for _ in range(3)))

    assert history(bench).startswith(live[:-1])
    assert history(bench).count('"one"') == 1


async def test_a_stop_while_the_archive_is_adopted_does_not_cost_the_old_conversation(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await bench.store(number, "user", f"question {number}")
        await bench.store(number, "assistant", f"answer {number}")
    search, searching = bench.archive.search, asyncio.Event()

    async def slow(chat_key: ChatKey, query: HistoryQuery) -> HistoryPage:
        searching.set()
        await asyncio.Event().wait()
        return await search(chat_key, query)

    monkeypatch.setattr(bench.archive, "search", slow)
    stopped = asyncio.create_task(bench.say("never begun"))
    await searching.wait()
    assert await bench.pool.stop(KEY)
    assert (await stopped).status == "stopped"
    monkeypatch.undo()

    await bench.say("hello again")

    assert [words(message)[-1] for message in bench.model.requests[0].messages][:2] == [
        "question 0",
        "answer 0",
    ]


async def test_an_adoption_is_one_write_so_that_a_crash_leaves_all_of_it_or_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        await bench.store(number, "user", f"question {number}")
        await bench.store(number, "assistant", f"answer {number}")
    append, batches = bench.transcript.append, list[list[str]]()

    async def seen(chat_key: ChatKey, lines: Sequence[Any], **how: Any) -> str:
        batches.append([line.type for line in lines])
        return await append(chat_key, lines, **how)

    monkeypatch.setattr(bench.transcript, "append", seen)
    await bench.say("hello")

    assert batches[0] == ["turn_start", "user", "assistant", "turn_end"] * 3


class TestARefusingDisk:
    @pytest.fixture(autouse=True)
    def _refusing(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        append, new_session = bench.transcript.append, bench.transcript.new_session

        async def refused(chat_key: ChatKey, lines: Sequence[Any], **how: Any) -> str:
            if self.full:
                raise errors.StorageError("no space left")
            return await append(chat_key, lines, **how)

        async def no_session(chat_key: ChatKey, line: TranscriptLine | None = None) -> str:
            if self.full:
                raise errors.StorageError("no space left")
            return await new_session(chat_key, line)

        monkeypatch.setattr(bench.transcript, "append", refused)
        monkeypatch.setattr(bench.transcript, "new_session", no_session)

    async def test_a_chat_whose_lines_are_in_memory_alone_is_not_put_away(self, bench: Bench) -> None:
        self.full = True
        await bench.say("kept in memory")
        await bench.clock.advance(10_000)
        assert bench.pool.evict(1_800) == 0

        self.full = False
        await bench.pool.flush()

        assert bench.pool.evict(1_800) == 1
        await bench.say("and on")
        assert words(bench.sent[0]) == ["kept in memory"]

    async def test_a_new_conversation_that_cannot_be_written_down_has_not_begun(self, bench: Bench) -> None:
        await bench.say("old")
        live = history(bench)
        self.full = True

        with pytest.raises(errors.StorageError):
            await bench.pool.reset(KEY)

        assert history(bench) == live
        self.full = False
        assert await after_restart(bench) == live

    async def test_lines_that_are_owed_belong_to_the_conversation_before_the_new_one(
        self, bench: Bench
    ) -> None:
        self.full = True
        await bench.say("owed")
        self.full = False

        await bench.pool.reset(KEY)

        # The new one begins with what the chat has come to so far, and no word of the old.
        assert [line.message for line in await bench.transcript.load(KEY)] == [None]
        first = min((bench.root / "transcripts").rglob("*.jsonl"))
        assert "owed" in first.read_text()


async def test_thinking_of_a_turn_whose_history_was_cut_meanwhile_is_in_no_later_request(
    bench: Bench,
) -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    for number in range(3):
        await bench.say(f"older {number}")
    bench.model.answers.extend(
        [
            reply(thought, tool_use("skills_list")),
            errors.ContextOverflow("prompt is too long", tokens=300_000, window=200_000),
            reply(tool_use("chat_send", text="done")),
            reply(),
        ]
    )
    await bench.say("look it up " + "x" * 10)

    await bench.say("next")

    assert "thinking" not in json.dumps(bench.sent)
    live = history(bench)
    assert await after_restart(bench) == live


async def test_a_line_of_an_archive_without_ids_is_not_loaded_where_it_is_in_view_already(
    bench: Bench,
) -> None:
    line = ArchiveLine(
        ts=5, channel="telegram", chat_id="1", chat_key=KEY, role="user", text="from elsewhere"
    )
    await bench.archive.append(line)
    bench.model.answers.append(reply(tool_use("chat_load_history")))

    await bench.say("what was that?")

    assert json.dumps(bench.sent).count("from elsewhere") == 1
