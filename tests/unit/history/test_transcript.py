"""The transcript: every line once, in order, byte for byte, whatever the disk does."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import MessageEvent, Meta, TranscriptLine
from bot.history.transcript.store import Transcript
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk, When
from bot.testing.log import MemoryLog

KEY = ChatKey.parse("telegram:chat:-100:topic:7")
Make = Callable[..., Transcript]


class Numbered:
    """`contracts.environment.Ids` that a test can foresee."""

    def __init__(self, start: int = 0) -> None:
        self.number = start

    def ulid(self) -> str:
        self.number += 1
        return f"{self.number:026d}"

    def after(self, ulid: str) -> None:
        self.number = max(self.number, int(ulid))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "transcripts"


@pytest.fixture
def make(folder: Path, clock: FakeClock, log: MemoryLog) -> Make:
    def made(disk: Disk | None = None, start: int = 0) -> Transcript:
        return Transcript(folder, disk=disk or SystemDisk(), ids=Numbered(start), clock=clock, log=log)

    return made


def line(uuid: str, **fields: Any) -> TranscriptLine:
    event = MessageEvent(role="user", message=fields.pop("message", {"text": uuid}))
    return TranscriptLine(**{"uuid": uuid, "event": event, "ts": 1, "chat_key": KEY, **fields})


async def uuids(transcript: Transcript) -> list[str]:
    return [entry.uuid for entry in await transcript.load(KEY)]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.jsonl"))


async def test_a_chat_without_a_transcript_is_empty(make: Make, folder: Path) -> None:
    transcript = make()
    assert await transcript.load(KEY) == []
    assert not await transcript.has(KEY)
    await transcript.close()
    assert not folder.exists()


async def test_lines_stand_in_one_file_a_session_with_the_documented_fields(make: Make, folder: Path) -> None:
    transcript = make()
    message = {"role": "user", "content": [{"type": "text", "text": "你好 👩‍👩‍👧 שלום"}]}
    session = await transcript.append(
        KEY, [line("a", message=message, request_id="R"), line("b", parent_uuid="a", event=Meta())]
    )
    await transcript.close()
    path = folder / "telegram%3Achat%3A-100%3Atopic%3A7" / f"{session}.jsonl"
    first, second = (json.loads(raw) for raw in path.read_text("utf-8").splitlines())
    assert first == {
        "v": 3,
        "uuid": "a",
        "parentUuid": None,
        "type": "user",
        "ts": 1,
        "chatKey": str(KEY),
        "sessionId": session,
        "requestId": "R",
        "message": message,
    }
    assert (second["parentUuid"], "message" in second) == ("a", False)
    assert "你好" in path.read_text("utf-8")
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


async def test_what_utf8_cannot_carry_is_replaced_and_does_no_harm(make: Make) -> None:
    transcript = make()
    await transcript.append(ChatKey("tele", "k\ud800"), [line("a", message={"text": "x\udc00"})])
    assert (await transcript.load(ChatKey("tele", "k\ud800")))[0].message == {"text": "x\ufffd"}
    await transcript.close()


async def test_a_line_is_written_once_however_often_it_is_appended(make: Make, folder: Path) -> None:
    transcript = make()
    await transcript.append(KEY, [line("a", ts=5), line("b"), line("a", ts=6)])
    await transcript.append(KEY, [line("b"), line("c")])
    await transcript.close()
    again = make(start=50)
    await again.append(KEY, [line("a"), line("c"), line("d")])
    assert await uuids(again) == ["a", "b", "c", "d"]
    (path,) = folder.rglob("*.jsonl")
    assert path.read_bytes().count(b"\n") == 4
    assert (await again.load(KEY))[0].ts == 5
    await again.close()


async def test_a_new_session_is_empty_and_the_old_one_stays(make: Make, folder: Path) -> None:
    transcript = make()
    first = await transcript.append(KEY, [line("a")])
    second = await transcript.new_session(KEY)
    assert await transcript.load(KEY) == []
    assert await transcript.has(KEY)
    assert await transcript.append(KEY, [line("a"), line("b")]) == second
    assert await transcript.append(KEY, [line("a", session_id=first), line("c")]) == second
    # A turn that began before /new still belongs to the old session.
    assert await transcript.append(KEY, [line("late", session_id=first)]) == second
    loaded = await transcript.load(KEY)
    assert [(entry.uuid, entry.session_id) for entry in loaded] == [
        ("a", second),
        ("b", second),
        ("c", second),
    ]
    assert await transcript.sessions(KEY) == [first, second]
    assert files(folder) == [f"{first}.jsonl", f"{second}.jsonl"]
    await transcript.close()


@pytest.mark.parametrize(
    "newest",
    ["00000000000000000000000099", "0000000000000000000000009Z", "0" * 23 + "1ZZ"],
)
async def test_the_newest_session_is_the_last_by_name_though_the_clock_went_back(
    make: Make, newest: str
) -> None:
    transcript = make()
    await transcript.append(KEY, [line("old", session_id=newest)])
    session = await transcript.new_session(KEY)
    await transcript.append(KEY, [line("new")])
    assert session > newest
    assert len(session) == 26
    assert await uuids(transcript) == ["new"]
    await transcript.close()


@pytest.mark.parametrize("session", ["../../evil", "short", "i" * 26, "\ud800" * 26])
async def test_a_session_cannot_name_a_file_elsewhere(make: Make, tmp_path: Path, session: str) -> None:
    transcript = make()
    with pytest.raises(errors.StorageError):
        await transcript.append(KEY, [line("a", session_id=session)])
    await transcript.close()
    assert {path.name for path in tmp_path.iterdir()} - {"shared.json"} == {"transcripts"}


async def test_files_of_others_in_the_folder_are_no_sessions(make: Make, folder: Path) -> None:
    transcript = make()
    await transcript.append(KEY, [line("a")])
    (folder / "telegram%3Achat%3A-100%3Atopic%3A7" / "zz notes.jsonl").write_bytes(b"?")
    assert await uuids(transcript) == ["a"]
    await transcript.close()


async def test_the_chats_of_one_batch_are_written_in_one_hop_each_in_order(make: Make) -> None:
    disk = FaultyDisk(SystemDisk())
    transcript = make(disk)
    await asyncio.gather(
        *(transcript.append(KEY, [line(f"{n}a"), line(f"{n}b")]) for n in range(20)),
        *(transcript.append(ChatKey("tele", "other"), [line(f"{n}")]) for n in range(20)),
    )
    assert await uuids(transcript) == [f"{n}{half}" for n in range(20) for half in "ab"]
    assert [entry.uuid for entry in await transcript.load(ChatKey("tele", "other"))] == [
        f"{n}" for n in range(20)
    ]
    await transcript.close()


async def test_a_session_is_not_read_again_for_each_append(make: Make) -> None:
    disk = FaultyDisk(SystemDisk())
    transcript = make(disk)
    for number in range(10):
        await transcript.append(KEY, [line(f"{number}")])
    await transcript.close()
    assert [kind for kind, _ in disk.done].count("read") == 1


async def test_what_is_remembered_of_sessions_is_bounded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.core.jsonl._FILES", 5)
    monkeypatch.setattr("bot.core.jsonl._KEYS", 12)
    monkeypatch.setattr("bot.core.jsonl.RECENT", 4)
    transcript = make()
    files = transcript._files
    for number in range(40):
        await transcript.append(ChatKey("tele", str(number % 8)), [line(f"{number}a"), line(f"{number}b")])
        assert len(files._tails) <= 5
        assert all(len(keys) <= 4 for keys in files._keys.values())
        assert sum(map(len, files._keys.values())) == files._weight <= 12
    # What was forgotten is read again.
    await transcript.append(ChatKey("tele", "0"), [line("32a"), line("new")])
    loaded = await transcript.load(ChatKey("tele", "0"))
    assert [entry.uuid for entry in loaded][-3:] == ["32a", "32b", "new"]
    await transcript.close()


async def test_a_line_that_is_written_once_more_after_it_was_forgotten_counts_once(
    make: Make, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.core.jsonl.RECENT", 2)
    transcript = make()
    for uuid in ("a", "b", "c", "d", "d", "a"):
        await transcript.append(KEY, [line(uuid)])
    assert await uuids(transcript) == ["a", "b", "c", "d"]
    (file,) = folder.rglob("*.jsonl")
    assert file.read_bytes().count(b"\n") == 5
    await transcript.close()


async def test_many_long_sessions_side_by_side_are_not_read_again_for_each_append(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.core.jsonl._KEYS", 20)
    disk = FaultyDisk(SystemDisk())
    transcript = make(disk)
    for number in range(50):
        await transcript.append(
            ChatKey("tele", str(number % 10)), [line(f"{number}{part}") for part in range(10)]
        )
    await transcript.close()
    assert [kind for kind, _ in disk.done].count("read") == 10


async def test_lines_that_cannot_be_read_are_left_out_and_counted(
    make: Make, folder: Path, log: MemoryLog
) -> None:
    transcript = make()
    session = await transcript.append(KEY, [line("a")])
    path = folder / "telegram%3Achat%3A-100%3Atopic%3A7" / f"{session}.jsonl"
    good = path.read_bytes()
    other = (
        json.dumps({"type": "meta", "uuid": "b", "ts": 2, "chatKey": str(KEY), "future": 1}).encode() + b"\n"
    )
    path.write_bytes(b'no json\n[]\n{"uuid":"x","type":"unknown"}\n\n' + good + other + good + b'{"torn":')
    assert await uuids(transcript) == ["a", "b"]
    (warning,) = log.at("warn")
    assert (warning.chat_key, warning.details) == (
        KEY,
        {"unreadable": 3, "file": path.name, "offsets": [0, 8, path.stat().st_size - 8]},
    )
    await transcript.append(KEY, [line("b"), line("c")])
    assert await uuids(transcript) == ["a", "b", "c"]
    assert b"torn" not in path.read_bytes()
    await transcript.close()


async def test_a_tail_torn_at_any_byte_costs_that_line_alone(make: Make, folder: Path) -> None:
    transcript = make()
    session = await transcript.append(KEY, [line("a"), line("b", message={"text": "你"})])
    await transcript.close()
    path = folder / "telegram%3Achat%3A-100%3Atopic%3A7" / f"{session}.jsonl"
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:cut])
        survivor = make(start=90)
        kept = ["a", "b"] if cut == len(whole) - 1 else ["a"]
        assert await uuids(survivor) == kept
        await survivor.append(KEY, [line("b", message={"text": "你"}), line("c")])
        assert await uuids(survivor) == ["a", "b", "c"]
        await survivor.close()


@pytest.mark.parametrize("when", ["before", "torn", "after"])
async def test_any_operation_may_fail_and_appending_again_loses_and_doubles_nothing(
    make: Make, folder: Path, when: When
) -> None:
    at = 0
    while True:
        at += 1
        for path in folder.rglob("*"):
            if path.is_file():
                path.unlink()
        disk = FaultyDisk(SystemDisk())
        failure = Failure("*", at=at, when=when, error=errno.EIO)
        disk.fail(failure)
        transcript = make(disk)
        for number in range(5):
            lines = [line(f"{number}a"), line(f"{number}b")]
            try:
                await transcript.append(KEY, lines)
            except errors.StorageError:
                await transcript.append(KEY, lines)
        await transcript.close()
        assert await uuids(make()) == [f"{n}{half}" for n in range(5) for half in "ab"], at
        if failure.at > 0:
            break
    assert at > 10


async def test_lines_acknowledged_before_a_crash_are_there_after_it(make: Make, folder: Path) -> None:
    at = 0
    while True:
        at += 1
        for path in folder.rglob("*"):
            if path.is_file():
                path.unlink()
        disk = FaultyDisk(SystemDisk())
        disk.fail(Failure(at=at, when="torn"))
        disk.fail(Failure(at=at, times=None))
        transcript = make(disk)
        acknowledged: list[str] = []
        try:
            for number in range(4):
                await transcript.append(KEY, [line(f"{number}")])
                acknowledged.append(f"{number}")
        except errors.StorageError:
            pass
        await transcript.close()
        assert await uuids(make(start=90)) == acknowledged
        if disk.writes < at:
            break
    assert at > 4
    survivor = make(start=90)
    await survivor.new_session(KEY)
    await survivor.close()
    assert not list(folder.rglob("*.tmp"))


async def test_failures_are_storage_errors(make: Make, folder: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    transcript = make(disk)
    disk.fail(Failure("write", times=None))
    with pytest.raises(errors.StorageError, match="No space left"):
        await transcript.append(KEY, [line("a")])
    with pytest.raises(errors.StorageError, match="No space left"):
        await transcript.new_session(KEY)
    disk.mend()
    await transcript.append(KEY, [line("a")])
    disk.fail(Failure("names", times=None, error=errno.EIO))
    for asked in (transcript.load(KEY), transcript.has(KEY)):
        with pytest.raises(errors.StorageError, match="cannot be read"):
            await asked
    await transcript.close()


async def test_one_line_that_is_no_json_does_not_fail_the_others_of_its_batch(make: Make) -> None:
    transcript = make()
    results = await asyncio.gather(
        transcript.append(KEY, [line("a")]),
        transcript.append(KEY, [line("b", message={"x": {(1, 2): 3}})]),
        transcript.append(KEY, [line("c")]),
        return_exceptions=True,
    )
    assert [isinstance(result, errors.StorageError) for result in results] == [False, True, False]
    assert await uuids(transcript) == ["a", "c"]
    await transcript.close()


async def test_a_folder_that_cannot_be_made_is_a_storage_error(make: Make, folder: Path) -> None:
    folder.write_bytes(b"")
    transcript = make()
    with pytest.raises(errors.StorageError):
        await transcript.append(KEY, [line("a")])
    await transcript.close()


async def test_real_ids_name_sessions(folder: Path, clock: FakeClock, log: MemoryLog) -> None:
    transcript = Transcript(folder, disk=SystemDisk(), ids=UlidSource(), clock=clock, log=log)
    both = [await transcript.new_session(KEY), await transcript.new_session(KEY)]
    assert await transcript.sessions(KEY) == both
    await transcript.close()
