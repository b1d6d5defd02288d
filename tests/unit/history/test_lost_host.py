"""Where a host is lost with its disk, in the middle of any change, the next one has all that history had confirmed."""

from __future__ import annotations

import asyncio
import errno
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.memory_files import MemoryOwner, Written
from bot.contracts.transcript import MessageEvent, TranscriptLine
from bot.core.notes.files import NoteStore
from bot.history.archive.store import ChatStore
from bot.history.transcript.store import Transcript
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk, When
from bot.testing.log import MemoryLog
from tests import postgres
from tests.shares import one_in
from tests.torture.engines import PostgresEngine

pytestmark = pytest.mark.skipif(postgres.programs() is None, reason=postgres.MISSING)

if postgres.programs() is not None:
    from bot.journal import shared_disk
    from bot.journal.leadership import PostgresLeadership
    from bot.journal.shared_disk import Copies, SharedDisk

KEY = ChatKey.parse("web:chat:1")
NOTES = MemoryOwner("chat", str(KEY))
COUNT = 7
LIMIT = 4
"""Lines of a file of the archive."""


class Rooms:
    """What writes history on one host."""

    def __init__(self, home: Path, disk: Disk) -> None:
        clock, log = FakeClock(), MemoryLog()
        self.chats = ChatStore(home / "chats", disk=disk, log=log, clock=clock, archive_after_lines=LIMIT)
        self.transcript = Transcript(
            home / "transcripts", disk=disk, ids=UlidSource(clock), clock=clock, log=log
        )
        self.notes = NoteStore(home / "memory", disk=disk)

    async def archive(self, number: int) -> None:
        line = {"ts": 1_800_000_000_000, "channel": "web", "chatId": "1", "role": "user"}
        await self.chats.append(ArchiveLine.model_validate({**line, "chatKey": KEY, "text": f"{number}"}))

    async def archived(self) -> list[str]:
        page = await self.chats.search(KEY, HistoryQuery(limit=100))
        assert not page.unreadable
        return [line.text for line in page.lines]

    async def record(self, number: int) -> None:
        event = MessageEvent(role="user", message={"text": f"{number}"})
        await self.transcript.append(KEY, [TranscriptLine(uuid=f"{number}", event=event, ts=1, chat_key=KEY)])

    async def recorded(self) -> list[str]:
        return [line.uuid for line in await self.transcript.load(KEY)]

    async def note(self, number: int) -> None:
        """One file that grows, and is written anew each time."""
        await self.notes.change(
            NOTES, "notes.md", lambda had: f"{had or ''}{number}\n", Written(1, "R", KEY, "U1")
        )

    async def noted(self) -> list[str]:
        file = await self.notes.read(NOTES, "notes.md")
        return [] if file is None else file.text.split()


class Host:
    """One that leads, until it is lost before, in or after the `at`-th change of its disk."""

    def __init__(self, url: str, home: Path, at: int | None = None, when: When = "before") -> None:
        home.mkdir()
        self._engine = PostgresEngine(url, lasts=False)
        self.inner = FaultyDisk(SystemDisk(), die=self._die)
        if at is not None:
            self.inner.fail(Failure(at=at, when=when, then="kill", error=errno.EIO))
        self._leadership = PostgresLeadership(url, clock=SystemClock(), log=MemoryLog())
        self._disk = SharedDisk(self.inner, home, url, log=MemoryLog(), leadership=self._leadership)
        self._copies = Copies(home, SystemDisk(), MemoryLog())
        self.rooms = Rooms(home, self._disk)

    async def lead(self) -> Rooms:
        await self._leadership.lead(asyncio.Event(), lambda _: None)
        await asyncio.to_thread(self._disk.begin, self._copies)
        return self.rooms

    def _die(self) -> None:
        self.inner.fail(Failure("*", times=None, error=errno.EIO))
        self._engine.depose()

    async def lose(self) -> None:
        """Its end, which brings nothing more to the database."""
        self._die()
        await asyncio.to_thread(self._disk.close)
        await self._leadership.close()


async def confirmed(write: Callable[[int], Awaitable[None]], numbers: range) -> int:
    """Write until it is refused; how many were confirmed."""
    for done, number in enumerate(numbers):
        try:
            await write(number)
        except errors.StorageError:
            return done
    return len(numbers)


STORES = {
    "archive": (Rooms.archive, Rooms.archived),
    "transcript": (Rooms.record, Rooms.recorded),
    "memory": (Rooms.note, Rooms.noted),
}
WHENS: tuple[When, ...] = ("torn", "before", "after")


@pytest.mark.parametrize(("store", "when"), one_in(4, [(store, when) for when in WHENS for store in STORES]))
async def test_what_was_confirmed_is_on_the_next_host_and_nothing_stands_there_twice(
    store: str, when: When, stride: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_disk, "WRITE_BACK_SECONDS", 1e6)  # nothing goes there by itself
    write, read = STORES[store]
    at = 1 - stride
    while True:
        at += stride
        url = postgres.shared().journal()
        host = Host(url, tmp_path / f"{at}", at, when)
        rooms = await host.lead()
        count = await confirmed(functools.partial(write, rooms), range(COUNT))
        changes = host.inner.writes
        await host.lose()
        following = Host(url, tmp_path / f"{at}b")
        rooms = await following.lead()
        seen = await read(rooms)
        numbers = [str(number) for number in range(COUNT + 3)]
        assert seen in (numbers[:count], numbers[: count + 1]), at
        rest = range(len(seen), COUNT + 3)
        assert await confirmed(functools.partial(write, rooms), rest) == len(rest)
        await following.lose()
        last = Host(url, tmp_path / f"{at}c")
        assert await read(await last.lead()) == numbers, at
        await last.lose()
        if changes < at:
            break
    assert at > COUNT
