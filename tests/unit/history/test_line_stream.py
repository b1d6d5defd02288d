"""Lines that go to disk with the journal: what a kill or a power failure takes of their files comes back at the next start, once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from bot import errors
from bot.agent.ledger import Ledger
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.outbound import OutboxRow
from bot.contracts.recall import RecallQuery
from bot.contracts.transcript import MessageEvent, Meta, TranscriptLine, TurnEnd, TurnStart
from bot.history.archive import store as archive
from bot.history.archive.store import ChatStore
from bot.history.line_stream import SETTLE_SECONDS, LineStream
from bot.history.search.searched_archive import SearchedArchive
from bot.history.transcript import reading
from bot.history.transcript import store as transcript
from bot.history.transcript.store import Transcript
from bot.journal import SqliteJournal
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.testing.log import MemoryLog

HERE = ChatKey.parse("web:chat:1")
Say = Callable[..., ArchiveLine]


class Watched(SystemDisk):
    """Notes what is brought to the disk."""

    def __init__(self) -> None:
        self.synced: list[str] = []

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        if sync:
            self.synced.append(path.name)
        super().append(path, data, sync=sync)

    def replace(self, path: Path, data: bytes) -> None:
        self.synced.append(path.name)
        super().replace(path, data)

    def sync(self, path: Path) -> None:
        self.synced.append(path.name)
        super().sync(path)


@dataclass
class Home:
    journal: FaultyJournal
    stream: LineStream
    chats: ChatStore
    transcript: Transcript
    clock: FakeClock
    log: MemoryLog

    async def read(self) -> None:
        """As a conversation does before its first line."""
        await self.transcript.load(HERE)


@asynccontextmanager
async def started(
    root: Path, disk: Disk | None = None, *, limit: int = 1000, follows: bool = True
) -> AsyncIterator[Home]:
    """A life that ends by a kill: nothing is closed but the journal's thread."""
    disk, clock, log = disk or SystemDisk(), FakeClock(), MemoryLog()
    journal = FaultyJournal(SqliteJournal(root / "journal.db", clock=clock, log=log))
    stream = LineStream(journal, disk=disk, clock=clock, log=log)
    chats = ChatStore(
        root / "chats", disk=disk, log=log, clock=clock, archive_after_lines=limit, stream=stream
    )
    kept = Transcript(
        root / "transcripts", disk=disk, ids=UlidSource(clock), clock=clock, log=log, stream=stream
    )
    home = Home(journal, stream, chats, kept, clock, log)
    try:
        if follows:
            await stream.replay({archive.FILES: chats, transcript.FILES: kept})
            await home.read()
        yield home
    finally:
        await journal.close()


def turn(number: int) -> list[TranscriptLine]:
    said = MessageEvent(role="user", message={"role": "user", "content": f"语音 {number} 😀"})
    start = TranscriptLine(
        uuid=f"{number}a", ts=1_800_000_000_000, event=TurnStart(), chat_key=HERE, request_id=f"R{number}"
    )
    return [start, replace(start, uuid=f"{number}b", event=said)]


def files(root: Path) -> dict[str, bytes]:
    found = [*root.glob("chats/*.jsonl"), *root.glob("transcripts/*/*.jsonl")]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


async def until_dropped(home: Home) -> None:
    async with asyncio.timeout(90):
        while await home.journal.kept_lines():  # noqa: ASYNC110 - rows set no event
            await asyncio.sleep(0)


async def test_lines_are_in_their_files_at_once_which_are_flushed_together_later_and_leave_the_journal(
    tmp_path: Path, said: Say
) -> None:
    disk = Watched()
    async with started(tmp_path, disk) as home:
        for number in range(5):
            await asyncio.gather(
                home.chats.append(said(f"{number}")), home.transcript.append(HERE, turn(number))
            )
        assert not disk.synced
        assert len(await home.journal.kept_lines()) == 10
        assert len(await home.transcript.load(HERE)) == 10
        assert (await home.chats.search(HERE, HistoryQuery())).total == 5
        await home.clock.advance(SETTLE_SECONDS)
        await until_dropped(home)
        assert len([name for name in disk.synced if name.endswith(".jsonl")]) == 2


@pytest.mark.usefixtures("files_wait")
async def test_whoever_reads_finds_lines_that_wait_for_others(tmp_path: Path, said: Say) -> None:
    async with started(tmp_path) as home:
        writing = [
            asyncio.ensure_future(home.chats.append(said("你好"), hurry=False)),
            asyncio.ensure_future(home.transcript.append(HERE, turn(1))),
        ]
        await asyncio.sleep(0)
        assert not any(files(tmp_path).values())
        assert (await home.chats.search(HERE, HistoryQuery())).total == 1
        assert len(await home.transcript.load(HERE)) == 2
        await asyncio.gather(*writing)


@pytest.mark.usefixtures("files_wait")
@pytest.mark.parametrize("look", ["chats", "recent", "kept"])
async def test_a_chat_is_listed_whose_first_line_waits_for_others(
    tmp_path: Path, said: Say, look: str
) -> None:
    async with started(tmp_path) as home:
        searched = SearchedArchive(
            home.chats, tmp_path / "index.db", folder=tmp_path / "chats", disk=SystemDisk(), log=home.log
        )
        writing = asyncio.ensure_future(searched.append(said("你好"), hurry=False))
        await asyncio.sleep(0)
        looks: dict[str, Callable[[], Awaitable[object]]] = {
            "chats": searched.chats,
            "recent": lambda: searched.recent(0, 5),
            "kept": lambda: searched.kept(HERE.channel),
        }
        found = str(await looks[look]())
        assert str(HERE) in found or repr(HERE) in found
        await writing
        await searched.close()


@pytest.mark.usefixtures("files_wait")
@pytest.mark.parametrize("look", ["keyword", "recall", "removals", "chats"])
async def test_what_is_found_counts_a_line_that_waits_for_others(
    tmp_path: Path, said: Say, look: str
) -> None:
    async with started(tmp_path) as home:
        searched = SearchedArchive(
            home.chats, tmp_path / "index.db", folder=tmp_path / "chats", disk=SystemDisk(), log=home.log
        )
        await searched.append(said("the first"))
        await searched.caught_up()
        line = said("a 鯨 comes")
        if look == "removals":
            line = said("", role="system", messageId="7", meta={"deleted": True})
        writing = asyncio.ensure_future(searched.append(line, hurry=False))
        await asyncio.sleep(0)
        found = 0
        match look:
            case "keyword":
                found = (await searched.search(HERE, HistoryQuery(keyword="鯨"))).total
            case "recall":
                asked = RecallQuery(queries=("鯨",), now=1_800_000_000_001)
                found = sum("鯨" in hit.line.text for hit in (await searched.recall([HERE], asked)).hits)
            case "removals":
                found = len(await searched.removals(HERE))
            case "chats":
                found = (await searched.chats())[0].lines - 1
        assert found == 1
        await writing
        await searched.close()


async def test_nothing_rests_on_the_journal_alone_once_the_file_refuses_lines(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    async with started(tmp_path, disk) as home:
        ledger = Ledger(HERE, home.transcript, ids=UlidSource(), clock=home.clock, log=home.log)
        disk.fail(Failure(kind="write", times=None, named=".jsonl"))
        ledger.add(TurnStart(), "R1")
        assert not await ledger.flush()
        assert not await ledger.durable()
        disk.mend()
        assert await ledger.durable()
        assert not ledger.has_unwritten_lines


@pytest.mark.usefixtures("files_wait")
async def test_what_was_confirmed_is_never_given_up_however_many_lines_the_file_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.agent.ledger.BACKLOG_LIMIT", 5)
    disk = FaultyDisk(SystemDisk())
    async with started(tmp_path, disk) as home:
        ledger = Ledger(HERE, home.transcript, ids=UlidSource(), clock=home.clock, log=home.log)
        confirmed = [ledger.add(TurnStart(), "R1"), ledger.add(said_by_a_person("R1"), "R1")]
        assert await ledger.durable()
        disk.fail(Failure(kind="write", times=None, named=".jsonl"))
        later = [ledger.add(said_by_a_person(f"{number}"), "R1") for number in range(12)]
        assert not await ledger.flush()
        disk.mend()
        assert await ledger.flush()
        found = [line.uuid for line in await home.transcript.load(HERE)]
        assert found == [line.uuid for line in [*confirmed, *later[-5:]]]


async def test_what_is_given_up_while_the_journal_writes_it_was_not_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.agent.ledger.BACKLOG_LIMIT", 5)
    disk = FaultyDisk(SystemDisk())
    async with started(tmp_path, disk) as home:
        kept, asked, answer = home.transcript.kept, asyncio.Event(), asyncio.Event()

        async def slow(lines: Sequence[TranscriptLine]) -> bool:
            asked.set()
            await answer.wait()
            return await kept(lines)

        monkeypatch.setattr(home.transcript, "kept", slow)
        ledger = Ledger(HERE, home.transcript, ids=UlidSource(), clock=home.clock, log=home.log)
        disk.fail(Failure(kind="write", times=None, named=".jsonl"))
        line = ledger.add(said_by_a_person("first"), "R1")
        confirming = asyncio.ensure_future(ledger.durable())
        async with asyncio.timeout(90):
            await asked.wait()
            for number in range(12):
                ledger.add(said_by_a_person(f"{number}"), "R1")
            assert not await ledger.flush()
            disk.mend()
            assert await ledger.flush()
            answer.set()
            confirmed = await confirming
        there = line.uuid in [one.uuid for one in await home.transcript.load(HERE)]
        assert confirmed == there


@pytest.mark.usefixtures("files_wait")
async def test_a_file_that_has_fallen_far_behind_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.agent.ledger.BACKLOG_LIMIT", 5)
    async with started(tmp_path) as home:
        ledger = Ledger(HERE, home.transcript, ids=UlidSource(), clock=home.clock, log=home.log)
        waiting = []
        for number in range(12):
            ledger.add(said_by_a_person(f"{number}"), "R1")
            assert await ledger.durable()
            waiting.append(ledger.has_unwritten_lines)
        assert waiting == [True] * 5 + [False] + [True] * 5 + [False]


@pytest.mark.usefixtures("files_wait")
async def test_the_journal_confirms_nothing_that_cannot_be_written(tmp_path: Path) -> None:
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    call = {"type": "tool_use", "id": "t", "name": "x", "input": {"a": deep}}
    async with started(tmp_path) as home:
        ledger = Ledger(HERE, home.transcript, ids=UlidSource(), clock=home.clock, log=home.log)
        ledger.add(said_by_a_person("fine"), "R1")
        ledger.add(MessageEvent(role="assistant", message={"role": "assistant", "content": [call]}), "R1")
        assert not await ledger.durable()


def said_by_a_person(words: str) -> MessageEvent:
    return MessageEvent(role="user", message={"role": "user", "content": words})


@pytest.mark.usefixtures("files_wait")
async def test_lines_are_kept_before_their_file_has_them_and_a_hurried_write_comes_behind_that(
    tmp_path: Path,
) -> None:
    ids = UlidSource()
    async with started(tmp_path) as home:
        ledger = Ledger(HERE, home.transcript, ids=ids, clock=home.clock, log=home.log)
        ledger.add(TurnStart(), "R1")
        assert await ledger.durable()
        assert not any(files(tmp_path).values())
        assert ledger.has_unwritten_lines
        assert len(await home.journal.kept_lines()) == 1
    async with started(tmp_path) as home:  # a kill
        assert [line.type for line in await home.transcript.load(HERE)] == ["turn_start"]
        ledger = Ledger(HERE, home.transcript, ids=ids, clock=home.clock, log=home.log)
        ledger.add(TurnEnd(status="done"), "R1")
        assert await ledger.flush()
        assert not ledger.has_unwritten_lines
        assert b"turn_end" in b"".join(files(tmp_path).values())
        calls = [name for name in home.journal.done if name.endswith("put_lines")]
        assert calls


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.97, 1.0])
async def test_what_a_power_failure_takes_of_the_files_is_there_after_the_next_start_once(
    tmp_path: Path, said: Say, share: float
) -> None:
    async with started(tmp_path) as home:
        await home.chats.append(said("settled"))
        await home.transcript.append(HERE, turn(0))
        await home.stream.flush()
        safe = {name: len(held) for name, held in files(tmp_path).items()}
        for number in range(1, 8):
            await home.chats.append(said(f"{number // 2}"))  # the same words twice
            await home.transcript.append(HERE, turn(number))
        whole = files(tmp_path)
    for name, held in whole.items():
        (tmp_path / name).write_bytes(held[: safe[name] + int(share * (len(held) - safe[name]))])
    for _ in range(2):
        async with started(tmp_path) as home:
            assert files(tmp_path) == whole
            assert await home.journal.kept_lines() == []


async def test_files_that_a_power_failure_takes_whole_are_made_anew(tmp_path: Path, said: Say) -> None:
    async with started(tmp_path) as home:
        await home.chats.append(said("one"))
        session = await home.transcript.append(HERE, turn(1))
        whole = files(tmp_path)
    for name in whole:
        (tmp_path / name).unlink()
    async with started(tmp_path) as home:
        assert files(tmp_path) == whole
        assert await home.transcript.current(HERE) == session


async def test_lines_that_a_kill_kept_from_their_files_are_there_after_the_next_start(tmp_path: Path) -> None:
    async with started(tmp_path) as home:
        await home.transcript.append(HERE, turn(1))
        assert home.transcript.ahead(HERE, turn(2))
        await home.journal.flush()
        await home.journal.once("later", 0, 1)  # behind it
    async with started(tmp_path) as home:
        assert [line.uuid for line in await home.transcript.load(HERE)] == ["1a", "1b", "2a", "2b"]


async def test_lines_of_a_session_stay_there_though_another_one_has_begun(tmp_path: Path) -> None:
    async with started(tmp_path) as home:
        await home.transcript.append(HERE, turn(1))
        await home.transcript.new_session(HERE)
        await home.transcript.append(HERE, turn(2))
        whole = files(tmp_path)
    async with started(tmp_path) as home:
        assert files(tmp_path) == whole
        assert [line.uuid for line in await home.transcript.load(HERE)] == ["2a", "2b"]


async def test_archives_that_were_rotated_since_have_no_line_twice(tmp_path: Path, said: Say) -> None:
    async with started(tmp_path, limit=4) as home:
        for number in range(40):
            await home.chats.append(said(f"{number}"))
        whole = files(tmp_path)
    async with started(tmp_path, limit=4):
        assert files(tmp_path) == whole


@pytest.mark.parametrize("refusing", ["the journal cannot be opened", "one write"])
async def test_lines_that_the_journal_does_not_take_are_flushed_in_their_files(
    tmp_path: Path, said: Say, refusing: str
) -> None:
    disk = Watched()
    async with started(tmp_path, disk, follows=refusing == "one write") as home:
        home.journal.fail(JournalFailure("put_lines", times=None))
        await home.chats.append(said("one"))
        await home.transcript.append(HERE, turn(1))
        assert len([name for name in disk.synced if name.endswith(".jsonl")]) == 2
        assert not home.transcript.ahead(HERE, turn(2))
        home.journal.mend()
    assert len(files(tmp_path)) == 2
    assert all(files(tmp_path).values())


async def refused_twice(home: Home, disk: FaultyDisk, said: Say) -> None:
    """A turn and a line of the archive, which their files refuse."""
    await home.transcript.append(HERE, turn(1))
    await home.chats.append(said("one"))
    disk.fail(Failure("append", times=2))
    with pytest.raises(errors.StorageError):
        await home.transcript.append(HERE, turn(2))
    with pytest.raises(errors.StorageError):
        await home.chats.append(said("two"))
    await home.stream.flush()
    assert len(await home.journal.kept_lines()) == 2


async def told(home: Home) -> tuple[list[str], list[str]]:
    """What transcript and archive have."""
    page = await home.chats.search(HERE, HistoryQuery())
    return [line.uuid for line in await home.transcript.load(HERE)], [line.text for line in page.lines]


async def test_lines_that_their_file_refuses_stay_in_the_journal_until_their_caller_has_written_them(
    tmp_path: Path, said: Say
) -> None:
    disk = FaultyDisk(SystemDisk())
    async with started(tmp_path, disk) as home:
        await refused_twice(home, disk, said)
        assert home.transcript.ahead(HERE, turn(2))
        await home.transcript.append(HERE, [*turn(2), *turn(3)])
        await home.chats.append(said("three"))
        assert await told(home) == (["1a", "1b", "2a", "2b", "3a", "3b"], ["one", "two", "three"])
        await home.stream.flush()
        assert await home.journal.kept_lines() == []


async def test_lines_that_their_file_refuses_are_there_after_the_next_start(
    tmp_path: Path, said: Say
) -> None:
    disk = FaultyDisk(SystemDisk())
    async with started(tmp_path, disk) as home:
        await refused_twice(home, disk, said)
    async with started(tmp_path) as home:
        assert await told(home) == (["1a", "1b", "2a", "2b"], ["one", "two"])
        assert await home.journal.kept_lines() == []


@pytest.mark.parametrize("lost", [False, True])
async def test_a_line_that_the_journal_has_twice_is_in_its_file_once(tmp_path: Path, *, lost: bool) -> None:
    """Refused by the journal for a moment, and by the disk as its file is flushed; then written again."""
    disk = FaultyDisk(SystemDisk())
    async with started(tmp_path, disk) as home:
        home.journal.fail(JournalFailure("put_lines"))
        disk.fail(Failure("sync", named=".jsonl"))
        with pytest.raises(errors.StorageError):
            await home.transcript.append(HERE, turn(1))
        await home.transcript.append(HERE, turn(1))
        assert len(await home.journal.kept_lines()) == 2
    if lost:
        for name in files(tmp_path):
            (tmp_path / name).write_bytes(b"")
    async with started(tmp_path):
        (file,) = files(tmp_path).values()
        assert [reading.uuid_of(raw) for raw in file.splitlines()] == ["1a", "1b"]


async def test_lines_that_are_given_up_leave_the_journal(tmp_path: Path, said: Say) -> None:
    disk = FaultyDisk(SystemDisk())
    async with started(tmp_path, disk) as home:
        await refused_twice(home, disk, said)
        home.transcript.give_up([*turn(2), *turn(3)])
        await home.stream.flush()
        assert [row.file.partition("/")[0] for row in await home.journal.kept_lines()] == ["chats"]


async def test_a_line_that_is_written_by_itself_is_on_disk_or_nowhere(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    async with started(tmp_path, disk) as home:
        (first, second) = turn(1)
        await home.transcript.write(HERE, first)
        disk.fail(Failure("append"))
        with pytest.raises(errors.StorageError):
            await home.transcript.write(HERE, second)
        assert await home.journal.kept_lines() == []
    async with started(tmp_path) as home:
        assert [line.uuid for line in await home.transcript.load(HERE)] == ["1a"]


async def test_what_is_posted_behind_lines_that_the_disk_refuses_is_on_disk_with_them_alone(
    tmp_path: Path,
) -> None:
    async with started(tmp_path) as home:
        await home.transcript.append(HERE, turn(1))
        home.journal.fail(JournalFailure("put_lines", times=None))
        home.transcript.ahead(HERE, turn(2))
        await home.journal.post.put_outbox(
            [OutboxRow("a", "R2", HERE, {}, "words", "reply", state="sending")]
        )
        assert await home.journal.deliveries("R2") == []
        assert not home.transcript.ahead(HERE, turn(3))
        home.journal.mend()
        assert await home.journal.flush()
        assert len(await home.journal.deliveries("R2")) == 1
        assert len(await home.journal.kept_lines()) == 3


class Slow(SystemDisk):
    """Flushes begin, and do not end before `over`."""

    def __init__(self) -> None:
        self.began, self.over = threading.Event(), threading.Event()

    def sync(self, path: Path) -> None:
        self.began.set()
        assert self.over.wait(90)


async def test_lines_that_are_in_their_file_and_not_yet_on_disk_are_put_into_the_journal_once(
    tmp_path: Path,
) -> None:
    disk = Slow()
    async with started(tmp_path, disk) as home:
        home.journal.fail(JournalFailure("put_lines", times=None))
        writing = asyncio.ensure_future(home.transcript.append(HERE, turn(1)))
        assert await asyncio.to_thread(disk.began.wait, 90)
        home.transcript.ahead(HERE, turn(1))
        disk.over.set()
        await writing
        home.journal.mend()
        await home.journal.flush()
        assert len(await home.journal.kept_lines()) == 1


async def test_a_line_that_cannot_be_written_as_json_is_refused_and_no_other_one(tmp_path: Path) -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    (start, said) = turn(1)
    deep = MessageEvent(role="user", message={"role": "user", "content": nested})
    async with started(tmp_path) as home:
        with pytest.raises(errors.StorageError):
            await home.transcript.append(HERE, [start, replace(said, event=deep)])
        await home.transcript.append(HERE, turn(2))
        assert [line.uuid for line in await home.transcript.load(HERE)] == ["2a", "2b"]


async def test_files_that_cannot_be_flushed_keep_their_lines_in_the_journal_for_the_next_start(
    tmp_path: Path, said: Say
) -> None:
    disk = FaultyDisk(SystemDisk())
    async with started(tmp_path, disk) as home:
        disk.fail(Failure("sync"))
        await home.chats.append(said("one"))
        await home.stream.flush()
        await home.chats.append(said("two"))
        await home.stream.flush()
        assert len(await home.journal.kept_lines()) == 1
        assert "lines stay in the journal" in home.log.at("error")[-1].message
        whole = files(tmp_path)
    async with started(tmp_path) as home:
        assert files(tmp_path) == whole
        assert await home.journal.kept_lines() == []


async def test_rows_that_the_journal_does_not_drop_are_dropped_later(tmp_path: Path, said: Say) -> None:
    async with started(tmp_path) as home:
        home.journal.fail(JournalFailure("drop_lines"))
        await home.chats.append(said("one"))
        await home.stream.flush()
        assert len(await home.journal.kept_lines()) == 1
        assert await home.journal.flush()
        assert await home.journal.kept_lines() == []


async def test_files_that_cannot_be_written_at_a_start_get_their_lines_at_the_next_one(
    tmp_path: Path, said: Say
) -> None:
    async with started(tmp_path) as home:
        await home.chats.append(said("one"))
        await home.transcript.append(HERE, turn(1))
        whole = files(tmp_path)
    for name in whole:
        (tmp_path / name).unlink()
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure("append", named="web"))
    async with started(tmp_path, disk) as home:
        assert len(files(tmp_path)) == 1
        assert [row.file.partition("/")[0] for row in await home.journal.kept_lines()] == ["chats"]
        await home.chats.append(said("two"))
    async with started(tmp_path) as home:
        page = await home.chats.search(HERE, HistoryQuery())
        assert sorted(line.text for line in page.lines) == ["one", "two"]


async def test_a_session_that_is_gone_back_to_says_so_on_the_disk(tmp_path: Path) -> None:
    disk = Watched()
    async with started(tmp_path, disk) as home:
        first = await home.transcript.append(HERE, turn(1))
        await home.transcript.new_session(HERE)
        disk.synced.clear()
        (line, _) = turn(2)
        await home.transcript.resume(HERE, first, replace(line, event=Meta(reason="resume")))
        assert disk.synced == [f"{first}.jsonl", "current.json"]
        assert home.transcript.ahead(HERE, turn(3))
        assert [row.file for row in await home.journal.kept_lines()][-1].endswith(f"{first}.jsonl")
