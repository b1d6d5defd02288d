"""What is older than the days of its chat goes, and nothing else; a kill between two changes leaves the rest to the next run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bot.history.search.searched_archive import SearchedArchive

from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.identity import ChatKey
from bot.contracts.outbound import OutgoingFile
from bot.contracts.recall import RecallQuery
from bot.contracts.transcript import MessageEvent, TranscriptLine
from bot.core.file_names import encode
from bot.history.archive.store import ChatStore
from bot.history.retention import Expired, Retention
from bot.history.transcript.requests import RequestLog, SentRequest
from bot.history.transcript.store import Transcript
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog
from channels.web.chat_files import RECEIVED, SENT, ChatFiles

KEY = ChatKey.parse("telegram:chat:-100")
TOPIC = ChatKey.parse("telegram:chat:-100:topic:7")
OTHER = ChatKey.parse("telegram:chat:5")
LONG = ChatKey("web", "x" * 300)
DAY = 86_400.0


class Home:
    """A `.ship` whose clock a test sets."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock, self.log = path, FakeClock(), MemoryLog()
        self.disk = SystemDisk()
        self.ids = UlidSource(self.clock)
        self.archive = self._archive()
        self.transcript = Transcript(
            path / "transcripts", disk=self.disk, ids=self.ids, clock=self.clock, log=self.log
        )
        self.requests = RequestLog(path / "transcripts", disk=self.disk, log=self.log)

    def _archive(self) -> SearchedArchive:
        folder = self.path / "chats"
        store = ChatStore(folder, disk=self.disk, log=self.log, archive_after_lines=4)
        return SearchedArchive(
            store, self.path / "index.db", folder=folder, disk=self.disk, log=self.log, wait_bytes=1 << 40
        )

    async def say(self, key: ChatKey, words: str) -> None:
        """A line of the archive, one of the transcript and a recorded request, now."""
        ts = int(self.clock.now() * 1000)
        fields: dict[str, Any] = {"channel": key.channel, "chat_id": key.chat_id, "chat_key": key}
        await self.archive.append(ArchiveLine(ts=ts, role="user", user_id="1", text=words, **fields))
        event = MessageEvent(role="user", message={"text": words})
        await self.transcript.append(
            key, [TranscriptLine(uuid=self.ids.ulid(), event=event, ts=ts, chat_key=key)]
        )
        body = f'{{"messages": ["{words}"]}}'.encode()
        sent = SentRequest(self.ids.ulid(), key, None, None, "turn", "m", lambda: (body, body))
        self.requests.record(sent)

    def expire(self, days: dict[str, int], *held: ChatKey, disk: Any = None) -> list[Expired]:
        retention = Retention(self.path, days, disk or self.disk)
        return list(retention.expire(self.clock.now(), held.__contains__))

    async def said(self, key: ChatKey) -> list[str]:
        page = await self.archive.search(key, HistoryQuery(limit=100))
        return [line.text for line in page.lines]

    async def found(self, key: ChatKey, words: str) -> list[str]:
        query = RecallQuery((words,), int(self.clock.now() * 1000), limit=100)
        return [hit.line.text for hit in (await self.archive.recall([key], query)).hits]

    async def settle(self) -> None:
        await self.requests.sweep(0)
        await self.archive.caught_up()

    async def close(self) -> None:
        await self.archive.close()
        await self.transcript.close()
        await self.requests.close()


@pytest.fixture
async def home(tmp_path: Path) -> Any:
    made = Home(tmp_path)
    yield made
    await made.close()


async def test_days_count_for_a_chat_with_its_threads_and_for_all_others(home: Home) -> None:
    retention = Retention(home.path, {"telegram:chat:-100": 30, str(TOPIC): 7, "*": 365}, home.disk)
    assert [retention.days(key) for key in (KEY, TOPIC, OTHER)] == [30, 7, 365]
    assert retention.days(ChatKey.parse("telegram:chat:-100:topic:8")) == 30
    retention = Retention(home.path, {str(KEY): 30}, home.disk)
    assert retention.days(OTHER) is None
    assert not retention.kept_without_end
    assert Retention(home.path, {}, home.disk).kept_without_end


async def test_lines_beyond_their_days_go_from_archive_and_index_and_others_stay(home: Home) -> None:
    for n in range(14):
        await home.say(KEY, f"heron number {n}")
        await home.say(OTHER, f"otter number {n}")
        await home.clock.advance(DAY)
    await home.settle()
    assert len(await home.found(KEY, "heron")) == 14
    (gone,) = home.expire({str(KEY): 5}, KEY)
    assert (gone.chat_key, gone.name, gone.days, gone.lines) == (KEY, encode(KEY), 5, 9)
    home.archive.changed(gone.name)
    await home.archive.caught_up()
    left = [f"heron number {n}" for n in range(9, 14)]
    assert await home.said(KEY) == left
    assert sorted(await home.found(KEY, "heron")) == sorted(left)
    assert len(await home.said(OTHER)) == 14
    assert home.expire({str(KEY): 5}, KEY) == []
    for n in range(14, 24):  # it goes on, and moves its older half away as before
        await home.say(KEY, f"heron number {n}")
    assert await home.said(KEY) == left + [f"heron number {n}" for n in range(14, 24)]
    everything = b"".join(path.read_bytes() for path in (home.path / "chats").iterdir() if path.is_file())
    assert b"heron number 3" not in everything


@pytest.mark.parametrize("folder", [SENT, RECEIVED])
async def test_files_of_the_web_page_go_with_the_days_of_its_chat(home: Home, folder: str) -> None:
    key, files = ChatKey.parse("web:chat:Ann-1"), ChatFiles(home.path, home.disk, folder)
    file, stays = OutgoingFile("table.csv", "text/csv", b"1,2"), ChatKey.parse("web:chat:Ben-2")
    kept: dict[str, ChatKey] = {}
    for _ in range(4):
        for chat in (key, stays):
            kept[files.put(chat, home.ids.ulid(), file).id] = chat
        await home.clock.advance(DAY)
    (gone,) = home.expire({str(key): 2})
    assert (gone.chat_key, gone.files, gone.lines) == (key, 2, 0)
    left = [chat for name, chat in kept.items() if files.find(chat, name) is not None]
    assert (left.count(key), left.count(stays)) == (2, 4)
    assert home.expire({str(key): 2}) == []


async def test_a_quiet_chat_goes_whole_and_begins_anew(home: Home) -> None:
    for key in (KEY, LONG):
        await home.say(key, "heron")
        await home.transcript.new_session(key)
        await home.say(key, "heron again")
    await home.settle()
    await home.clock.advance(6 * DAY)
    gone = home.expire({"*": 5})
    assert {(one.chat_key, one.lines, one.sessions, one.requests) for one in gone} == {
        (KEY, 2, 2, 1),
        (LONG, 2, 2, 1),
    }
    for one in gone:
        home.archive.changed(one.name)
    await home.archive.caught_up()
    assert await home.said(KEY) == await home.found(KEY, "heron") == []
    assert await home.transcript.load(KEY) == []
    await home.say(KEY, "back again")
    assert await home.said(KEY) == ["back again"]
    assert len(await home.transcript.load(KEY)) == 1


async def test_the_current_session_stays_while_it_is_used_or_in_memory(home: Home) -> None:
    await home.say(KEY, "first")
    old = await home.transcript.current(KEY)
    await home.clock.advance(6 * DAY)
    await home.transcript.new_session(KEY)
    await home.say(KEY, "second")
    assert [one.sessions for one in home.expire({str(KEY): 5})] == [1]
    assert old not in await home.transcript.sessions(KEY)
    await home.clock.advance(6 * DAY)
    (gone,) = home.expire({str(KEY): 5}, KEY)
    assert (gone.lines, gone.sessions) == (1, 0)
    assert len(await home.transcript.load(KEY)) == 1
    assert [one.sessions for one in home.expire({str(KEY): 5})] == [1]


async def test_a_session_that_was_gone_back_to_stays_the_current_one(home: Home) -> None:
    await home.say(KEY, "first")
    first = await home.transcript.current(KEY)
    await home.transcript.new_session(KEY)
    await home.say(KEY, "second")
    await home.clock.advance(6 * DAY)
    event = MessageEvent(role="user", message={"text": "back"})
    line = TranscriptLine(uuid=home.ids.ulid(), event=event, ts=int(home.clock.now() * 1000), chat_key=KEY)
    assert first is not None
    await home.transcript.resume(KEY, first, line)
    home.expire({str(KEY): 5})
    assert await home.transcript.current(KEY) == first


async def test_a_line_that_cannot_be_read_goes_with_an_older_one_behind_it(home: Home) -> None:
    path = home.path / "chats" / f"{encode(KEY)}.jsonl"
    path.parent.mkdir()
    now = int(home.clock.now() * 1000)
    path.write_bytes(b'torn\n{"ts": 1}\nold too\n{"ts": %d}\n{"ts": "x"}\n' % now)
    (path.parent / "no chat.jsonl").write_bytes(b'{"ts": 1}\n')
    assert [one.lines for one in home.expire({"*": 5})] == [2]
    assert path.read_bytes() == b'old too\n{"ts": %d}\n{"ts": "x"}\n' % now
    assert home.expire({"*": 5}) == []
    await home.clock.advance(6 * DAY)
    assert [one.lines for one in home.expire({"*": 5})] == [3]
    assert not path.exists()
    assert (path.parent / "no chat.jsonl").exists()


async def test_whatever_change_a_kill_comes_before_or_after_the_next_run_ends_it(home: Home) -> None:
    for n in range(14):
        await home.say(KEY, f"heron {n}")
        await home.clock.advance(DAY)
    await home.clock.advance(1)
    await home.settle()
    whole = {path: path.read_bytes() for path in home.path.rglob("*.jsonl")}
    changes = 0
    while True:
        changes += 1
        for path, data in whole.items():
            path.write_bytes(data)
        disk = FaultyDisk(SystemDisk())
        disk.fail(Failure(at=changes, times=None, then="exit"))
        try:
            home.expire({str(KEY): 5}, disk=disk)
        except SystemExit:
            home.expire({str(KEY): 5})
            assert await home.said(KEY) == [f"heron {n}" for n in range(10, 14)]
        else:
            break
    assert changes > 3
