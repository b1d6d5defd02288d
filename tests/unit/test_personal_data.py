"""What is of a person is found in each place that keeps something, and nothing else goes with it."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bot import errors, instance
from bot.access_list import AccessList
from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound, Quoted
from bot.contracts.journal import ANSWERED, Job, Locale
from bot.contracts.memory_files import MemoryOwner, Written
from bot.contracts.outbound import OutboxRow
from bot.core.artifacts import ArtifactStore
from bot.core.notes.files import NoteStore
from bot.history.archive.store import ChatStore
from bot.history.search.index import Index
from bot.history.usage.sums import UsageSums
from bot.journal import SqliteJournal
from bot.personal_data import PARTS, Kept, PersonalData
from bot.system import SystemClock, SystemDisk, UlidSource
from bot.testing.log import MemoryLog

ANN, BOB = "7310001", "7310002"
ALONE, GROUP, OTHER = ChatKey("telegram", ANN), ChatKey("telegram", "-5"), ChatKey("telegram", BOB)
DISK, CLOCK, IDS = SystemDisk(), SystemClock(), UlidSource()
OWN = Written(1, "ANN1", ALONE, ANN)
BOBS = Written(1, "BOB1", GROUP, BOB)


def data(home: Path, disk: SystemDisk = DISK, person: str = ANN) -> PersonalData:
    return PersonalData(home, UserRef("telegram", person), disk=disk, clock=CLOCK, ids=IDS, log=MemoryLog())


def said(key: ChatKey, text: str, request_id: str, user_id: str | None = None, **fields: Any) -> ArchiveLine:
    role = {"role": "user" if user_id is not None else "assistant"}
    return ArchiveLine(
        **(
            {
                "ts": 1,
                "channel": "telegram",
                "chat_id": key.chat_id,
                "chat_key": key,
                "user_id": user_id,
                "text": text,
                "meta": {"requestId": request_id},
            }
            | role
            | fields
        )
    )


def inbound(name: str, key: ChatKey, user_id: str, **fields: Any) -> Inbound:
    return Inbound(
        request_id=name,
        channel="telegram",
        chat_id=key.chat_id,
        chat_key=key,
        chat_type="group",
        user_id=user_id,
        ts=1,
        keys=(f"key {name}",),
        target={},
        text=f"words of {name}",
        **fields,
    )


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    """A `.ship` in which Ann wrote alone and beside Bob, and Bob alone."""
    folder = tmp_path / ".ship"
    instance.prepare_home(folder)
    archive = ChatStore(folder / "chats", disk=DISK, log=MemoryLog(), archive_after_lines=4)
    for number in range(8):
        await archive.append(said(ALONE, f"alone {number}", f"ANN0{number}", ANN))
    for line in (
        said(GROUP, "ann in the group", "ANN1", ANN),
        said(GROUP, "answer to ann", "ANN1"),
        said(GROUP, "bob in the group", "BOB1", BOB),
        said(GROUP, "answer to bob", "BOB1"),
        said(GROUP, "", "ANN2", ANN, role="system", meta={"deleted": True, "requestId": "ANN2"}),
        said(GROUP, "bob once more", "BOB2", BOB),
        said(OTHER, "may ann?", "ANN1"),
        said(OTHER, "bob alone", "BOB3", BOB),
        said(OTHER, "bob with the id of another", "ANN1", BOB),
    ):
        await archive.append(line)
    await archive.close()
    (folder / "chats" / "telegram%3Achat%3A-5.jsonl.corrupt-1").write_bytes(b"torn words of ann")
    journal = SqliteJournal(folder / "journal.db", clock=CLOCK, log=MemoryLog())
    for one in (
        inbound("ANN1", GROUP, ANN),
        inbound("BOB1", GROUP, BOB),
        inbound("BOB4", OTHER, BOB, quoted=(Quoted(user_id=ANN, text="quoted ann", user_name="Ann"),)),
        inbound("ANN3", ChatKey("telegram", "-6"), ANN),
    ):
        await journal.receive(one)
        await journal.finish(one.request_id, ANSWERED)
        await journal.put_outbox([OutboxRow(one.request_id, one.request_id, one.chat_key, {}, "answer")])
    await journal.put_locale(UserRef("telegram", ANN), Locale("en", zone="UTC"))
    await journal.put_locale(UserRef("telegram", BOB), Locale("zh", zone="Asia/Tokyo"))
    await journal.put_job(Job("of ann", GROUP, {"channel": "telegram", "userId": ANN}))
    await journal.put_job(Job("of bob", GROUP, {"channel": "telegram", "userId": BOB}))
    await journal.keep_dead_letter("telegram", "1", f'{{"from": {ANN}}}', "damaged")
    await journal.keep_dead_letter("telegram", "2", f'{{"from": {BOB}}}', "damaged")
    await journal.once(f"stranger:telegram:{ANN}", 1.0, 60.0)
    await journal.once(f"stranger:telegram:{BOB}", 1.0, 60.0)
    await journal.close()
    notes = NoteStore(folder / "memory", disk=DISK)
    await notes.change(MemoryOwner("person", f"telegram:{ANN}"), "a.md", lambda _: "of ann", OWN)
    await notes.change(MemoryOwner("chat", str(ALONE)), "a.md", lambda _: "of ann", OWN)
    await notes.change(MemoryOwner("chat", str(GROUP)), "a.md", lambda _: "of bob", BOBS)
    await notes.change(MemoryOwner("chat", str(GROUP)), "a.md", lambda old: f"{old}\nof ann", OWN)
    (folder / "memory" / "telegram%3Achat%3A-5" / "session.md").write_text("ann and bob", encoding="utf-8")
    artifacts = ArtifactStore(folder / "artifacts", disk=DISK, ids=IDS, clock=CLOCK, log=MemoryLog())
    for key, request_id in ((ALONE, "ANN01"), (GROUP, "ANN1"), (GROUP, "BOB1")):
        await artifacts.put(
            f"of {request_id}", chat_key=key, request_id=request_id, tool="read_file", tool_use_id="a"
        )
    for name in ("sent", "received"):
        (folder / name / f"telegram%3Achat%3A{ANN}").mkdir(parents=True)
        file = folder / name / f"telegram%3Achat%3A{ANN}" / "01HZZZZZZZZZZZZZZZZZZZZZZZ.bin"
        file.write_bytes(b'{"v": 1, "name": "of ann", "mimeType": ""}\nof ann')
    for key in (ALONE, GROUP, OTHER):
        place = folder / "transcripts" / f"telegram%3Achat%3A{key.chat_id}"
        place.mkdir(parents=True)
        lines = [json.dumps({"uuid": "a", "requestId": one, "message": one}) for one in ("ANN1", "BOB1")]
        (place / "01HZZZZZZZZZZZZZZZZZZZZZZZ.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lists = AccessList(folder / "access.json", DISK, CLOCK)
    for name in (ANN, BOB):
        lists.allow("telegram", name)
        lists.appoint(UserRef("telegram", name))
    log = [
        {"kind": "inbound", "requestId": "ANN9", "details": {"channel": "telegram", "userId": ANN}},
        {"kind": "turn_end", "requestId": "ANN9", "details": {}},
        {"kind": "tool_call", "chatKey": str(ALONE), "details": {"input": "of ann"}},
        {"kind": "approval", "details": {"by": f"telegram:{ANN}"}},
        {
            "kind": "llm_request",
            "requestId": "BOB1",
            "chatKey": str(GROUP),
            "details": {"messages": ["ann"], "model": "m"},
        },
        {"kind": "llm_request", "requestId": "BOB3", "chatKey": "x", "details": {"messages": ["bob"]}},
    ]
    (folder / "logs").mkdir()
    data = "".join(json.dumps(line) + "\n" for line in log).encode()
    (folder / "logs" / "2026-11-24.jsonl").write_bytes(data)
    (folder / "logs" / "2026-11-23.jsonl.gz").write_bytes(gzip.compress(data))
    return folder


async def test_the_same_id_on_another_channel_is_another_person_in_the_log(home: Path) -> None:
    other = {"kind": "admission", "details": {"channel": "web", "userId": ANN, "by": "telegram:1"}}
    with (home / "logs" / "2026-11-24.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(other) + "\n")
    assert other not in [item["value"] async for item in data(home).export() if item["from"] == "logs"]
    await data(home).erase()
    assert json.dumps(other).encode() in (home / "logs" / "2026-11-24.jsonl").read_bytes()


async def test_sums_of_usage_stay_without_names(home: Path) -> None:
    usage = {"inputTokens": 1, "outputTokens": 1, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    for key, person in ((ALONE, ANN), (GROUP, ANN), (GROUP, BOB)):
        details = {
            "model": "m",
            "person": f"telegram:{person}",
            "usage": usage,
            "costUsd": 1.0,
            "latencyMs": 5,
        }
        told = {"kind": "llm_response", "chatKey": str(key), "timestamp": "2026-11-24T12:00:00Z"}
        with (home / "logs" / "2026-11-24.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(told | {"details": details}) + "\n")
    sums = UsageSums(home, DISK)
    sums.catch_up()
    assert [item async for item in data(home).export() if item["from"] == "usage.db"] != []
    gone = await data(home).erase()
    assert gone[Kept.USAGE] == 3
    assert sums.total().cost == 3.0
    sums.catch_up()
    assert sums.total().cost == 3.0
    assert {person for person, _ in sums.by("person")} == {"", f"telegram:{BOB}"}
    assert ANN.encode() not in everything(home)


async def test_an_erasure_that_is_cut_off_costs_no_sums(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = {"inputTokens": 1, "outputTokens": 1, "cacheReadTokens": 0, "cacheWriteTokens": 0}
    details = {"model": "m", "person": f"telegram:{BOB}", "costUsd": 1.0, "usage": usage, "latencyMs": 5}
    bobs = {
        "kind": "llm_response",
        "chatKey": str(GROUP),
        "timestamp": "2026-11-24T12:00:00Z",
        "details": details,
    }
    anns = bobs | {"chatKey": str(ALONE), "details": details | {"person": f"telegram:{ANN}"}}
    with (home / "logs" / "2026-11-24.jsonl").open("a", encoding="utf-8") as file:
        file.write(f"{json.dumps(bobs)}\n{json.dumps(anns)}\n")
    sums = UsageSums(home, DISK)
    sums.catch_up()

    def killed(*_: Any) -> int:
        raise OSError("cut off")

    with monkeypatch.context() as patched:
        patched.setattr(UsageSums, "erase", killed)
        with pytest.raises(OSError, match="cut off"):
            await data(home).erase()
    await data(home).erase()
    assert sums.total().cost == 2.0


def texts(home: Path) -> set[str]:
    files = [path for path in (home / "chats").iterdir() if path.suffix == ".jsonl"]
    return {json.loads(line)["text"] for path in files for line in path.read_bytes().splitlines()}


BOBS_TEXTS = {"bob in the group", "answer to bob", "bob once more", "bob alone", "bob with the id of another"}


def everything(home: Path) -> bytes:
    found = [path.read_bytes() for path in sorted(home.rglob("*")) if path.is_file()]
    found += [gzip.decompress(path.read_bytes()) for path in home.rglob("*.gz")]
    return b"\0".join([*found, *(str(path).encode() for path in home.rglob("*"))])


async def test_all_that_is_of_a_person_goes_and_is_counted(home: Path) -> None:
    gone = await data(home).erase()
    assert texts(home) == BOBS_TEXTS
    assert gone == {
        Kept.CHATS: 12,
        Kept.TRANSCRIPTS: 1,
        Kept.SHARED_TRANSCRIPTS: 2,
        Kept.ARTIFACTS: 2,
        Kept.WEB_FILES: 2,
        Kept.NOTES: 3,
        Kept.NOTE_LINES: 1,
        Kept.JOURNAL: 9,
        Kept.ACCESS: 2,
        Kept.LOGS: 8,
    }
    left = everything(home)
    assert b"of ann" not in left
    assert b"alone 3" not in left
    assert b"quoted ann" not in left
    assert ANN.encode() not in left
    assert (home / "memory" / "telegram%3Achat%3A-5" / "files" / "a%2Emd.md").read_bytes() == b"of bob"
    assert not list((home / "memory" / "people").glob("*"))
    assert sorted(path.name for path in (home / "transcripts").iterdir()) == []
    assert {path.parent.name for path in (home / "artifacts").rglob("*.txt")} == {"telegram%3Achat%3A-5"}
    with closing(Index.opened(home / "index.db", home / "chats", DISK)) as index:
        assert index.counted() == (2, 5)
    for raw in (
        (home / "logs" / "2026-11-24.jsonl").read_bytes(),
        gzip.decompress((home / "logs" / "2026-11-23.jsonl.gz").read_bytes()),
    ):
        assert [json.loads(line)["details"] for line in raw.splitlines()] == [
            {"model": "m"},
            {"messages": ["bob"]},
        ]
    lists = AccessList(home / "access.json", DISK, CLOCK)
    assert lists.lists_with("telegram", ANN) == []
    assert lists.lists_with("telegram", BOB) == ["allow", "operators"]
    assert not (home / "erasing.json").exists()
    assert await data(home).erase() == {}


async def test_what_came_of_files_that_were_never_whole_goes_too(home: Path) -> None:
    part = home / PARTS / "01J00000000000000000000000.bin"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"of ann")
    await data(home).erase()
    assert not part.exists()


async def test_what_is_of_others_stays_in_the_journal(home: Path) -> None:
    await data(home).erase()
    journal = SqliteJournal(home / "journal.db", clock=CLOCK, log=MemoryLog())
    assert await journal.inbound("ANN1") is None
    assert await journal.inbound("BOB1") is not None
    quoting = await journal.inbound("BOB4")
    assert quoting is not None
    assert quoting.inbound.text == "words of BOB4"
    assert [(one.text, one.user_name) for one in quoting.inbound.quoted] == [("", None)]
    assert [job.id for job in await journal.jobs()] == ["of bob"]
    assert await journal.locales() == {UserRef("telegram", BOB): Locale("zh", zone="Asia/Tokyo")}
    assert await journal.deliveries("ANN1") == []
    assert len(await journal.deliveries("BOB1")) == 1
    # An old event that its platform brings again is answered no second time.
    assert (
        await journal.receive(inbound("NEW", GROUP, ANN).model_copy(update={"keys": ("key ANN1",)})) is False
    )
    assert await journal.once(f"stranger:telegram:{ANN}", 2.0, 60.0)
    assert not await journal.once(f"stranger:telegram:{BOB}", 2.0, 60.0)
    await journal.close()


async def test_who_is_kept_out_stays_so(home: Path) -> None:
    AccessList(home / "access.json", DISK, CLOCK).block("telegram", ANN)
    gone = await data(home).erase()
    assert Kept.ACCESS not in gone
    assert AccessList(home / "access.json", DISK, CLOCK).lists_with("telegram", ANN) == ["block"]


async def test_what_is_given_out_is_what_would_go(home: Path) -> None:
    given = [item async for item in data(home).export()]
    found: dict[str, list[Any]] = {}
    for item in given:
        found.setdefault(item["from"], []).append(item["value"])
    assert {line["text"] for line in found["chats"]} == {
        *(f"alone {number}" for number in range(8)),
        "ann in the group",
        "answer to ann",
        "may ann?",
        "",
    }
    assert found["memory"] == ["of ann", "of ann"]
    assert sorted(found["artifacts"]) == ["of ANN01", "of ANN1"]
    assert [line["requestId"] for line in found["transcripts"]].count("BOB1") == 1  # in the chat of Ann alone
    assert {row["request_id"] for row in found["journal.inbox"]} == {"ANN1", "ANN3"}
    assert {row["id"] for row in found["journal.jobs"]} == {"of ann"}
    assert {row["zone"] for row in found["journal.locales"]} == {"UTC"}
    assert found["access.json"] == ["allow", "operators"]
    assert len(found["logs"]) == 8
    assert texts(home) > BOBS_TEXTS


class Refusing(SystemDisk):
    """A disk that refuses the write with a number, and each one after it."""

    def __init__(self, left: int) -> None:
        self._left = left

    def replace(self, path: Path, data: bytes) -> None:
        self._left -= 1
        if self._left < 0:
            raise OSError(28, "No space left on device", str(path))
        super().replace(path, data)


@pytest.mark.parametrize("gone", [False, True])
async def test_lines_that_a_killed_process_left_in_the_journal_are_given_out_and_erased(
    home: Path, gone: bool
) -> None:
    journal = SqliteJournal(home / "journal.db", clock=CLOCK, log=MemoryLog())
    told = {
        "chats/telegram%3Achat%3A-5": [
            {
                "channel": "telegram",
                "chatKey": str(GROUP),
                "role": "user",
                "userId": who,
                "text": f"late {who}",
            }
            for who in (ANN, BOB)
        ],
        f"transcripts/telegram%3Achat%3A{ALONE.chat_id}/01HZZZZZZZZZZZZZZZZZZZZZZZ.jsonl": [
            {"uuid": "late", "requestId": "ANN1", "message": f"late {ANN}"}
        ],
    }
    for number, (file, lines) in enumerate(told.items(), 1):
        raw = "".join(json.dumps(line) + "\n" for line in lines).encode()
        await journal.post.put_lines([(number, file, partial(bytes, raw))])
    await journal.close()
    if gone:
        await data(home).erase()
        assert f"late {ANN}".encode() not in everything(home)
    else:
        given = [json.dumps(one) async for one in data(home).export()]
        assert sum(f"late {ANN}" in one for one in given) == 2
    kept = home / "chats" / "telegram%3Achat%3A-5.jsonl"
    assert kept.read_text("utf-8").count(f"late {BOB}") == 1
    with closing(sqlite3.connect(home / "journal.db")) as db:
        assert db.execute("SELECT * FROM lines").fetchall() == []


async def test_an_erasure_that_was_cut_off_is_finished_by_another_one(home: Path) -> None:
    cut = 0
    while True:
        try:
            await data(home, Refusing(cut)).erase()
        except (OSError, errors.StorageError):
            cut += 1
        else:
            break
    assert cut > 3
    left = everything(home)
    assert texts(home) == BOBS_TEXTS
    assert b"of ann" not in left
    assert ANN.encode() not in left
    assert not (home / "erasing.json").exists()


async def test_a_half_erased_person_is_found_by_what_was_noted(home: Path) -> None:
    """The archive and the journal that named their turns are gone by then."""
    note = {"v": 1, "person": f"telegram:{ANN}", "requests": ["BOB1"], "own": [], "shared": [str(OTHER)]}
    (home / "erasing.json").write_text(json.dumps(note), encoding="utf-8")
    await data(home).erase()
    assert texts(home) == BOBS_TEXTS - {"answer to bob"}


async def test_a_running_gateway_and_a_restore_that_was_cut_off_are_left_alone(home: Path) -> None:
    before = texts(home)
    with instance.held(home), pytest.raises(errors.Unavailable, match="held by process"):
        await data(home).erase()
    (home / instance.RESTORING).mkdir()
    with pytest.raises(errors.ConfigError, match="restore"):
        await data(home).erase()
    assert texts(home) == before


async def test_a_compressed_day_that_is_damaged_is_told(home: Path) -> None:
    path = home / "logs" / "2026-11-23.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(errors.StorageError, match="2026-11-23"):
        await data(home).erase()


async def test_damaged_lines_go_where_they_may_be_theirs_and_stay_elsewhere(home: Path) -> None:
    for key in (GROUP, OTHER):
        with (home / "chats" / f"telegram%3Achat%3A{key.chat_id}.jsonl").open("ab") as file:
            file.write(b'{"damaged\n')
    await data(home).erase()
    # Bob has quoted Ann where they are alone with the bot.
    assert not any(b"damaged" in path.read_bytes() for path in (home / "chats").iterdir())
    await data(home, person=BOB).erase()
    assert list((home / "chats").glob("*.jsonl")) == []


async def test_a_folder_without_anything_has_nothing_of_anybody(tmp_path: Path) -> None:
    instance.prepare_home(tmp_path / ".ship")
    assert [item async for item in data(tmp_path / ".ship").export()] == []
    assert await data(tmp_path / ".ship").erase() == {}
