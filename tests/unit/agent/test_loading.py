"""A chat that comes back into memory costs what it keeps, not what its session has come to on file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.agent import TurnRequest
from bot.contracts.environment import OpenFile
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.model import ModelRequest
from bot.contracts.transcript import Boundary, TranscriptLine
from bot.core import jsonl, removal
from bot.history.transcript import reading
from bot.system import SystemDisk
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.test_damage import file_of
from tests.unit.agent.test_random import as_from_the_beginning, restarted


class Counted:
    """A file that tells how much of it was read."""

    def __init__(self, file: OpenFile, disk: CountingDisk) -> None:
        self._file, self._disk = file, disk
        self.size = file.size

    def read(self, offset: int, count: int) -> bytes:
        found = self._file.read(offset, count)
        self._disk.bytes += len(found)
        return found

    def close(self) -> None:
        self._file.close()


class CountingDisk(SystemDisk):
    def __init__(self) -> None:
        self.bytes = 0

    def open(self, path: Path) -> OpenFile:  # type: ignore[override]
        return Counted(super().open(path), self)


async def talk(bench: Bench, turns: int, words: str = "answer") -> None:
    for number in range(turns):
        bench.model.answers += [reply(text(f"{words} {number}"))]
        await bench.say(f"question {number}", archive=False)
    await bench.pool.flush()


async def test_what_is_read_does_not_grow_with_the_session(tmp_path: Path) -> None:
    disk = CountingDisk()
    bench = Bench(tmp_path, disk)
    bench.configure(max_messages=8)
    read: list[int] = []
    for _ in range(4):
        await talk(bench, 12, "x" * 8_000)
        bench.restart()
        disk.bytes = 0
        await bench.pool.describe(KEY)
        read.append(disk.bytes)
        await as_from_the_beginning(bench)
    assert file_of(bench).stat().st_size > 6 * jsonl.PIECE
    assert max(read) <= read[0] + jsonl.PIECE
    await bench.close()


async def test_a_new_chat_asks_threads_for_no_files_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    bench.model.answers += [reply(text("hello")), reply(text("hello again"))]
    asked: list[int] = []
    to_thread = asyncio.to_thread

    async def counted(work: Any, /, *given: Any, **named: Any) -> Any:
        asked[-1] += 1
        return await to_thread(work, *given, **named)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    for words in ("hi", "and again"):
        asked.append(0)
        await bench.say(words)
    # What the archive holds, and what was removed of it; then nothing.
    assert asked == [2, 0]
    await bench.close()


async def test_where_a_kept_message_is_gone_all_is_read(bench: Bench) -> None:
    bench.configure(max_messages=8)
    await talk(bench, 7)
    kept = bench.pool.runtime(KEY).store.turns[0].entries[0].uuid
    lines = file_of(bench).read_bytes().splitlines(keepends=True)
    boundary = max(at for at, line in enumerate(lines) if b'"type":"boundary"' in line)
    assert kept in json.loads(lines[boundary])["data"]["kept"]["turns"][0]["uuids"]
    gone = [line for line in lines if not line.startswith(f'{{"v":3,"uuid":"{kept}"'.encode())]
    file_of(bench).write_bytes(b"".join(gone))
    loaded = await bench.transcript.read(KEY)
    assert (loaded.base, len(loaded.lines)) == (None, len(gone))
    await restarted_without(bench, kept)


async def test_where_a_kept_message_is_another_one_all_is_read(bench: Bench) -> None:
    bench.configure(max_messages=8)
    await talk(bench, 7)
    first = bench.pool.runtime(KEY).store.turns[0].entries[0]
    changed = file_of(bench).read_text("utf-8").replace("question 3", "question three")
    file_of(bench).write_text(changed, "utf-8")
    bench.restart()
    await bench.pool.describe(KEY)
    again = bench.pool.runtime(KEY).store.turns[0].entries[0]
    assert again.uuid == first.uuid
    assert "question three" in json.dumps(again.message)


async def restarted_without(bench: Bench, uuid: str) -> None:
    bench.restart()
    await bench.pool.describe(KEY)
    runtime = bench.pool.runtime(KEY)
    assert uuid not in [entry.uuid for turn in runtime.store.turns for entry in turn.entries]
    assert runtime.store.turns


async def test_a_turn_that_ended_before_the_boundary_is_not_run_again(bench: Bench) -> None:
    bench.configure(max_messages=4)
    bench.model.answers += [reply(text("the first"))]
    first = bench.inbound("do it once")
    asked = await _run(bench, first)
    assert asked == "done"
    await talk(bench, 6)
    bench.restart()
    loaded = await bench.transcript.read(KEY)
    assert first.request_id not in [line.request_id for line in loaded.lines]
    requests = len(bench.model.requests)
    assert await _run(bench, first) == "done"
    assert len(bench.model.requests) == requests, "it has ended long ago"


async def _run(bench: Bench, inbound: Inbound) -> str:
    request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat)
    return (await bench.pool.run(request)).status


async def test_totals_and_frame_outlive_the_boundary_that_hides_them(bench: Bench) -> None:
    bench.configure(max_messages=4)
    await talk(bench, 7)
    before = await bench.pool.stats(KEY)
    frame = bench.pool.runtime(KEY).view_changes.frame
    assert before.turns == 7
    bench.restart()
    assert await bench.pool.stats(KEY) == before
    assert bench.pool.runtime(KEY).view_changes.frame == frame


async def test_a_crash_behind_a_boundary_within_a_turn_loses_nothing_of_the_turn(bench: Bench) -> None:
    await talk(bench, 2)
    bench.model.answers += [
        reply(text("first I look"), tool_use("skills_list")),
        reply(text("that is it")),
    ]
    await bench.say("look", archive=False)
    lines = file_of(bench).read_bytes().splitlines(keepends=True)
    end = max(at for at, line in enumerate(lines) if b'"turn_end"' in line)
    file_of(bench).write_bytes(b"".join(lines[:end]))
    bench.restart()
    runtime = bench.pool.runtime(KEY)
    await runtime.fill()
    # As an overflow would: the history goes, the turn that was running stays.
    runtime.view_changes.apply("overflow", Boundary(dropped="all"))
    await runtime.flush()
    bench.restart()
    await bench.pool.describe(KEY)
    loaded = await bench.transcript.read(KEY)
    assert loaded.base is not None
    assert loaded.lines[0].type == "turn_start"
    await as_from_the_beginning(bench)
    cut_off = bench.pool.runtime(KEY).store.running
    assert cut_off is not None
    assert len(cut_off.entries) == 4


async def test_a_turn_that_goes_on_behind_a_boundary_does_not_reach_over_it(bench: Bench) -> None:
    await talk(bench, 1)
    asked, stream = asyncio.Event(), bench.model.stream

    async def silent(request: ModelRequest) -> AsyncIterator[Any]:
        del request
        asked.set()
        yield await asyncio.get_running_loop().create_future()

    bench.model.stream = silent  # type: ignore[method-assign]
    inbound = bench.inbound("look")
    request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat)
    running = asyncio.create_task(bench.pool.run(request))
    await asked.wait()
    bench.pool.runtime(KEY).view_changes.apply("overflow", Boundary(dropped="all"))
    running.cancel()
    await asyncio.wait([running])
    await bench.pool.flush()
    bench.restart()
    bench.model.stream = stream  # type: ignore[method-assign]
    await bench.pool.run(request)
    await bench.pool.flush()
    lines = await bench.transcript.load(KEY)
    answer = [line for line in lines if line.type == "assistant"][-1]
    assert answer.request_id == inbound.request_id
    assert answer.parent_uuid is None
    await as_from_the_beginning(bench)


async def test_what_was_removed_stays_so_and_is_no_reason_to_read_more(bench: Bench) -> None:
    await talk(bench, 3)
    runtime = bench.pool.runtime(KEY)
    gone = runtime.store.turns[1].entries[0].uuid
    runtime.view_changes.apply("edit", Boundary(blank=(gone,)))
    runtime.view_changes.apply(
        "undo", Boundary(dropped=tuple(one.uuid for one in runtime.store.turns[0].entries))
    )
    await runtime.flush()
    await restarted(bench)
    assert bench.pool.runtime(KEY).ledger.begins_at is not None
    said = json.dumps(bench.pool.runtime(KEY).store.messages())
    assert removal.REMOVED in said
    assert "question 1" not in said


async def test_a_line_from_before_the_boundary_written_once_more_counts_once(bench: Bench) -> None:
    bench.configure(max_messages=8)
    await talk(bench, 7)
    lines = file_of(bench).read_bytes().splitlines(keepends=True)
    with file_of(bench).open("ab") as file:
        file.write(lines[1])
    loaded = await bench.transcript.read(KEY)
    assert (loaded.base, len(loaded.lines)) == (None, len(lines))
    await restarted(bench)


@pytest.mark.parametrize("again", [False, True])
async def test_what_follows_a_turn_that_was_withdrawn_follows_what_stood_before_it(
    bench: Bench, *, again: bool
) -> None:
    await talk(bench, 1)
    bench.model.answers += [reply(stop_reason="refusal")]
    await bench.say("no", archive=False)
    if again:
        await bench.pool.flush()
        bench.restart()
    await talk(bench, 1)
    messages = [line for line in await bench.transcript.load(KEY) if line.message is not None]
    first, answer, withdrawn, second, last = messages
    links = [(withdrawn.parent_uuid, answer.uuid), (second.parent_uuid, answer.uuid)]
    assert all(parent == uuid for parent, uuid in [*links, (answer.parent_uuid, first.uuid)])
    assert (first.parent_uuid, last.parent_uuid) == (None, second.uuid)


async def test_a_boundary_breaks_the_chain_and_what_is_no_message_is_never_a_parent(bench: Bench) -> None:
    bench.configure(max_messages=4)
    bench.model.answers += [reply(text("I look"), tool_use("skills_list"), tool_use("skills_list"))]
    await talk(bench, 5)
    lines = await bench.transcript.load(KEY)
    messages = {line.uuid: line for line in lines if line.message is not None}
    parents = [line.parent_uuid for line in lines if line.parent_uuid is not None]
    assert set(parents) <= messages.keys()
    cut = max(at for at, line in enumerate(lines) if line.type == "boundary")
    assert lines[cut].parent_uuid is None
    before = {line.uuid for line in lines[:cut]}
    assert not before & {line.parent_uuid for line in lines[cut:] if line.message is not None}


async def test_what_the_first_line_after_a_restart_costs_does_not_grow_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = CountingDisk()
    bench = Bench(tmp_path, disk)
    await talk(bench, 1, "x" * 4_000_000)
    await talk(bench, 4)
    monkeypatch.setattr(jsonl, "RECENT", 10)
    disk.bytes = 0
    jsonl.Files(disk, log=bench.log, clock=bench.clock, index=reading.uuid_of).tail(file_of(bench))
    assert disk.bytes < 10 * jsonl.PIECE
    await bench.close()


async def test_a_turn_stopped_while_it_takes_up_the_archive_leaves_it_taken_up_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.store(1, "user", "old")
    await bench.store(2, "assistant", "answer")
    writing, gate, append = asyncio.Event(), asyncio.Event(), bench.transcript.append

    async def slow(chat_key: ChatKey, lines: Sequence[TranscriptLine], **how: Any) -> None:
        writing.set()
        await gate.wait()
        await append(chat_key, lines, **how)

    monkeypatch.setattr(bench.transcript, "append", slow)
    stopped = asyncio.create_task(bench.say("wait"))
    await writing.wait()
    assert await bench.pool.stop(KEY)
    assert (await stopped).status == "stopped"
    bench.model.answers.append(reply(text("here")))
    going = asyncio.create_task(bench.say("go on"))
    gate.set()
    assert (await going).status == "done"
    said = [line.message["content"] for line in await bench.transcript.load(KEY) if line.message]
    assert sum("old" in json.dumps(one) for one in said) == 1
