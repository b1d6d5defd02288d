"""Requests are recorded byte for byte in little room; what is lost or removed costs no more than itself."""

from __future__ import annotations

import hashlib
import json
import random
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.core import file_names
from bot.core.recording import Call
from bot.history.transcript import requests
from bot.history.transcript.requests import RequestLog, SentRequest
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog

KEY = ChatKey.parse("telegram:chat:1")
TURN, OTHER = UlidSource().ulid(), UlidSource().ulid()


class Desk:
    """A log of requests in a folder, and what it was told."""

    def __init__(self, folder: Path, disk: Disk | None = None) -> None:
        self.folder = folder
        self.disk = disk or SystemDisk()
        self.told = MemoryLog()
        self.ids = UlidSource()
        self.log = RequestLog(folder, disk=self.disk, log=self.told)

    def ask(
        self,
        body: bytes,
        *,
        turn: str = TURN,
        purpose: str = "turn",
        task: str | None = None,
        key: ChatKey = KEY,
    ) -> SentRequest:
        asked = SentRequest(self.ids.ulid(), key, turn, task, purpose, "m", lambda: (body, body))
        self.log.record(asked)
        return asked

    async def asks(self, *bodies: bytes) -> list[SentRequest]:
        asked = [self.ask(body) for body in bodies]
        await self.log.close()
        return asked

    @property
    def files(self) -> list[Path]:
        return sorted((self.folder / file_names.encode(KEY)).glob("*.requests"))

    def bodies(self, name: str = TURN) -> list[bytes | None]:
        return [one.body for one in self.found(name)]

    def found(self, name: str = TURN) -> list[requests.RecordedRequest]:
        found = requests.find(SystemDisk(), self.folder, name)
        return found.requests if found is not None else []


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def _said(words: str) -> Json:
    return {"role": "user", "content": [{"type": "text", "text": words}]}


def body(*messages: str, system: str = "s" * 3_000, most: int = 100) -> bytes:
    told = {
        "model": "m",
        "max_tokens": most,
        "system": [system],
        "messages": [_said(one) for one in messages],
        "stream": True,
    }
    return json.dumps(told, separators=(",", ":")).encode()


def talk(rng: random.Random, count: int) -> Iterator[bytes]:
    """A conversation that grows, and now and then begins otherwise or changes in the middle."""
    said = [rng.randbytes(40).hex()]
    for _ in range(count):
        said.append(rng.randbytes(rng.randrange(5, 200)).hex())
        if rng.random() < 0.1:
            said[rng.randrange(len(said))] = "[hidden]"
        if rng.random() < 0.05:
            said = said[-2:]
        yield body(*said, most=rng.choice([100, 100, 8_192]))


@pytest.mark.parametrize("seed", range(5))
async def test_bodies_come_back_byte_for_byte(desk: Desk, seed: int) -> None:
    sent = list(talk(random.Random(seed), 60))
    asked = await desk.asks(*sent)
    assert desk.bodies() == sent
    assert [one.wrong for one in desk.found()] == [None] * 60
    assert [one.sha256 for one in desk.found()] == [hashlib.sha256(one).hexdigest() for one in sent]
    assert [one.id for one in desk.found()] == [one.id for one in asked]
    (file,) = desk.files
    assert file.stat().st_mode & 0o777 == 0o600


async def test_what_is_shared_is_not_written_again(desk: Desk) -> None:
    rng = random.Random(1)
    said = [rng.randbytes(50).hex() for _ in range(1_000)]
    await desk.asks(body(*said))
    first = desk.files[0].stat().st_size
    await desk.asks(body(*said, "more", most=8_192))
    assert desk.bodies()[1] == body(*said, "more", most=8_192), "and other limits before it cost nothing"
    assert first > 50_000
    assert desk.files[0].stat().st_size - first < 600


async def test_a_summary_is_built_on_the_turn_and_the_turn_not_on_the_summary(desk: Desk) -> None:
    """So do tasks that go on from it, side by side."""
    said = [random.Random(2).randbytes(50).hex() for _ in range(200)]
    desk.ask(body(*said))
    desk.ask(body(*said, "sum it up"), purpose="compaction")
    for number in range(4):
        desk.ask(body(*said, f"task {number % 2}", "x" * number), purpose="subagent", task=f"T{number % 2}")
    desk.ask(body(*said, "and on"))
    await desk.log.close()
    lines = [json.loads(raw) for raw in desk.files[0].read_bytes().splitlines()]
    first, summary, one, two, third, _, last = lines
    assert "base" not in first
    assert summary["base"] == first["id"]
    assert third["base"] == one["id"]
    assert two["base"] in {first["id"], one["id"]}
    assert last["base"] != summary["id"]
    assert len(desk.bodies()) == 7
    assert all(one.wrong is None for one in desk.found())


async def test_a_new_process_and_one_that_was_short_of_memory_begin_anew(desk: Desk) -> None:
    sent = list(talk(random.Random(3), 6))
    await desk.asks(*sent[:2])
    desk.log.shrink()
    await desk.log.close()
    assert desk.log.bytes_in_memory == 0
    await desk.asks(*sent[2:4])
    assert desk.log.bytes_in_memory == len(sent[3])
    again = Desk(desk.folder)
    await again.asks(*sent[4:])
    assert desk.bodies() == sent
    lines = [json.loads(raw) for raw in desk.files[0].read_bytes().splitlines()]
    assert ["base" in line for line in lines] == [False, True] * 3


async def test_a_record_that_a_kill_cut_off_is_skipped_wherever_the_cut_is(desk: Desk) -> None:
    sent = list(talk(random.Random(4), 4))
    await desk.asks(*sent[:3])
    raw = desk.files[0].read_bytes()
    last = raw.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(raw) - 1):
        desk.files[0].write_bytes(raw[:end])
        assert desk.bodies() == sent[:2]
    for end in (last, last + 1, last + 30, len(raw) - 2):
        desk.files[0].write_bytes(raw[:end])
        await Desk(desk.folder).asks(sent[3])
        assert desk.bodies() == [sent[0], sent[1], sent[3]]


async def test_a_damaged_record_costs_what_is_built_on_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "CHAIN", 3)
    await desk.asks(*(body(*(str(number) for number in range(most))) for most in range(12)))
    raws = desk.files[0].read_bytes().splitlines(keepends=True)
    raws[5] = b"{broken\n"
    line = json.loads(raws[9])
    raws[9] = json.dumps(line | {"body": line["body"][:-8]}, separators=(",", ":")).encode() + b"\n"
    raws[8] = raws[8].replace(b'"sha256":"', b'"sha256":"0')
    desk.files[0].write_bytes(b"".join(raws))
    assert [one.wrong for one in desk.found()] == [
        *[None] * 5,
        requests.MISSING,
        requests.MISSING,
        requests.DIFFERENT,
        *[requests.DAMAGED] * 3,
    ]


async def test_a_chat_keeps_its_newest_files(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "FILE_BYTES", 4_000)
    monkeypatch.setattr(requests, "CHAT_BYTES", 14_000)
    sent = list(talk(random.Random(5), 200))
    await desk.asks(*sent)
    kept = desk.bodies()
    assert 2 <= len(desk.files) <= 3
    assert sum(file.stat().st_size for file in desk.files) <= 14_000
    assert 3 < len(kept) < 190
    assert kept == sent[-len(kept) :], "each file stands by itself"


async def test_what_is_old_goes_and_nothing_newer(desk: Desk) -> None:
    """A quiet chat's file is old as a whole at some time; one that goes on begins another file before that."""
    clock = FakeClock()
    desk.ids = UlidSource(clock)
    (desk.folder / ".lock").touch()  # that of the transcripts beside them
    (desk.folder / "of-an-operator.txt").touch()
    began, sent = clock.now(), [body(str(number)) for number in range(4)]
    for one in sent:
        await desk.asks(one)
        clock.jump(requests.FILE_SECONDS * 0.6)
    assert len(desk.files) == 2
    assert await desk.log.sweep(began + requests.FILE_SECONDS) == 0
    assert await desk.log.sweep(began + requests.FILE_SECONDS + 1) == 1
    assert desk.bodies() == sent[2:]
    await desk.asks(body("more"))
    assert desk.bodies() == [*sent[2:], body("more")]
    assert await desk.log.sweep(clock.now() + 2 * requests.FILE_SECONDS) == 2
    await desk.log.close()
    assert desk.bodies() == []


async def test_large_bodies_share_as_small_ones_do(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """What they are built on does not fill the file, else each would stand by itself in a file of its own."""
    monkeypatch.setattr(requests, "FILE_BYTES", 12_000)
    monkeypatch.setattr(requests, "CHAT_BYTES", 70_000)
    rng = random.Random(9)
    picture = rng.randbytes(30_000).hex()
    sent = [body(picture, *(str(said) for said in range(most))) for most in range(60)]
    await desk.asks(*sent)
    first, *others = desk.files
    assert len(others) == 1
    assert sum(file.stat().st_size for file in desk.files) < 120_000
    assert desk.bodies() == sent
    await desk.asks(*(body(rng.randbytes(30_000).hex()) for _ in range(8)))
    assert first not in desk.files, "the oldest go"
    assert sum(file.stat().st_size for file in desk.files) < 300_000


async def test_bodies_in_memory_stay_within_their_budget(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many chats ask, of a slow disk too, and whatever tasks one of them has."""
    monkeypatch.setattr(requests, "MEMORY_BYTES", 20_000)
    monkeypatch.setattr(requests, "MOST_CHATS", 10)
    keys = [ChatKey("telegram", str(number)) for number in range(30)]
    for key in keys:
        desk.ask(body(str(key)), key=key)
    for number in range(8):
        desk.ask(body(str(number)), task=f"T{number}", purpose="subagent")
    await desk.log.close()
    held = desk.log.bytes_in_memory
    assert 15_000 < held <= 20_000
    desk.ask(body("7", "and"), task="T7", purpose="subagent")
    desk.ask(body(str(keys[0]), "and"), key=keys[0])
    await desk.log.close()
    assert "base" in newest(desk, KEY)
    assert "base" not in newest(desk, keys[0]), "one that asked long ago stands by itself again"
    monkeypatch.setattr(requests, "MEMORY_BYTES", 100)
    await desk.asks(body("x" * 5_000))
    assert desk.log.bytes_in_memory < 9_000, "of others there is nothing"


def newest(desk: Desk, key: ChatKey) -> Json:
    """The last record of a chat."""
    (file,) = (desk.folder / file_names.encode(key)).glob("*.requests")
    line: Json = json.loads(file.read_bytes().splitlines()[-1])
    return line


async def test_an_answer_in_the_next_file_is_found_with_its_task(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "FILE_BYTES", 1)
    asked = [
        desk.ask(body(str(number), system=name), task=OTHER, purpose="subagent")
        for number, name in enumerate(["a" * 600, "b" * 600])
    ]
    for one in asked:
        desk.log.record_answer(one, {"stopReason": "end_turn"}, partial(said, "done"))
        desk.log.record_task(desk.ids.ulid(), KEY, TURN, {})
    await desk.log.close()
    assert len(desk.files) > 2
    assert [bool(one.answer) for one in desk.found(OTHER)] == [True, True]


def said(words: str) -> list[Json]:
    return [{"type": "text", "text": words}]


async def test_what_was_removed_is_on_no_disk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "FILE_BYTES", 3_000)
    words = [f"word{number}" for number in range(9)]
    asked = []
    for number in range(1, 10):
        asked.append(desk.ask(body(*words[:number], system=random.Random(6).randbytes(800).hex())))
        desk.log.record_answer(asked[-1], {"stopReason": "end_turn"}, partial(said, f"re{number}"))
        desk.log.record_task(desk.ids.ulid(), KEY, TURN, {"label": f"task{number}"})
    await desk.log.close()
    assert len(desk.files) > 1
    before = [file.read_bytes() for file in desk.files]
    span = (asked[3].id, asked[6].id)
    assert await desk.log.remove(KEY, [span]) > 0
    await desk.log.close()
    gone = [requests.REMOVED] * 4
    found = desk.found()
    assert [one.wrong for one in found][:7] == [None] * 3 + gone
    assert all(one.wrong in {None, requests.REMOVED} for one in found[7:]), (
        "what was built on it goes with it"
    )
    assert [one.answer["content"] for one in found[3:7] if one.answer is not None] == [[]] * 4
    assert {word.decode() for word in re.findall(rb"word\d|re\d|task\d", written(desk))}.isdisjoint(
        {"re4", "re5", "re6", "re7", "task4", "task5", "task6"}
    )
    assert before != [file.read_bytes() for file in desk.files]
    assert await desk.log.remove(KEY, [span]) == 0, "once"
    (later,) = await desk.asks(body(*words))
    assert desk.found()[-1].id == later.id
    assert desk.bodies()[-1] == body(*words)


def written(desk: Desk) -> bytes:
    """All that can be read in the files."""
    found = []
    for file in desk.files:
        for raw in file.read_bytes().splitlines():
            line = json.loads(raw)
            found.append(raw)
            if "said" in line:
                found.append(zlib.decompress(b64decode(line["said"])))
    return b"".join(found)


async def test_a_damaged_record_does_not_keep_a_removal_away(desk: Desk) -> None:
    asked = await desk.asks(body("plum"), body("plum", "pear"), body("fig", system="t" * 3_000))
    raws = desk.files[0].read_bytes().splitlines(keepends=True)
    raws[1] = raws[1].replace(asked[1].id.encode(), b"\xff" * 26)
    desk.files[0].write_bytes(b"".join([*raws, raws[2][:-9]]))
    assert await desk.log.remove(KEY, [(asked[0].id, asked[1].id)]) == 1
    assert [one.wrong for one in desk.found()] == [requests.REMOVED, None]
    assert len(desk.files[0].read_bytes().splitlines()) == 3, "and nobody can say whose words it had"
    assert await desk.log.remove(KEY, [(asked[0].id, asked[1].id)]) == 0


async def test_whatever_byte_is_damaged_the_rest_is_read_and_removed(desk: Desk) -> None:
    rng = random.Random(10)
    for number, sent in enumerate(talk(rng, 4)):
        asked = desk.ask(sent, task=OTHER if number % 2 else None)
        desk.log.record_answer(asked, {"stopReason": "end_turn"}, partial(said, "well"))
    desk.log.record_task(OTHER, KEY, TURN, {"label": "x"})
    await desk.log.close()
    (file,) = desk.files
    raw = file.read_bytes()
    for at in range(0, len(raw), 7):
        file.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :])
        for one in [*desk.found(TURN), *desk.found(OTHER)]:
            assert one.body is None or Call(one).request is None or json.loads(one.body)
    for at in range(0, len(raw), 97):
        file.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << rng.randrange(8)]) + raw[at + 1 :])
        assert await desk.log.remove(KEY, [("", "Z")]) == 1
        assert b'"body"' not in file.read_bytes()
        assert b'"said"' not in file.read_bytes()


async def test_records_that_are_built_on_one_another_are_damaged(desk: Desk) -> None:
    first, second = await desk.asks(body("a"), body("a", "b"))
    raws = desk.files[0].read_bytes().splitlines(keepends=True)
    raws[1] = raws[1].replace(f'"base":"{first.id}'.encode(), f'"base":"{second.id}'.encode())
    desk.files[0].write_bytes(b"".join(raws))
    assert [one.wrong for one in desk.found()] == [None, requests.DAMAGED]


async def test_a_disk_that_refuses_costs_what_it_refused(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    desk = Desk(tmp_path, disk)
    sent = list(talk(random.Random(7), 5))
    await desk.asks(sent[0])
    disk.fail(Failure("append"))
    disk.fail(Failure("append"))
    await desk.asks(sent[1], sent[2])
    await desk.asks(sent[3], sent[4])
    assert desk.bodies() == [sent[0], sent[3], sent[4]]
    (told,) = desk.told.of("storage")
    assert told.level == "error"
    disk.fail(Failure("replace"))
    with pytest.raises(errors.StorageError):
        await desk.log.remove(KEY, [("", "Z")])
    assert desk.bodies() == [sent[0], sent[3], sent[4]]


async def test_too_much_that_waits_is_given_up(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MOST_WAITING", 3)
    await desk.asks(*(body(str(number)) for number in range(5)))
    await desk.asks(body("later"))
    assert desk.bodies() == [body("0"), body("1"), body("2"), body("later")]
    assert len(desk.told.of("storage")) == 1


async def test_a_secret_is_not_kept_and_that_is_said(desk: Desk) -> None:
    clean, sent = body("x"), body("x", system="hunter22")
    desk.log.record(SentRequest(desk.ids.ulid(), KEY, TURN, None, "turn", "m", lambda: (sent, clean)))
    await desk.log.close()
    (one,) = desk.found()
    assert (one.body, one.wrong, one.sha256) == (clean, requests.REDACTED, hashlib.sha256(sent).hexdigest())


async def test_what_is_no_json_is_not_recorded(desk: Desk) -> None:
    for wrong in (ValueError("no JSON"), RecursionError("too deep")):

        def bad(error: Exception = wrong) -> tuple[bytes, bytes]:
            raise error

        desk.log.record(SentRequest(desk.ids.ulid(), KEY, TURN, None, "turn", "m", bad))
    await desk.asks(body("x"))
    assert desk.bodies() == [body("x")]


async def test_a_chat_whose_name_is_too_long_for_a_file_is_found(tmp_path: Path) -> None:
    log, key = RequestLog(tmp_path, disk=SystemDisk(), log=MemoryLog()), ChatKey("telegram", "x" * 300)
    log.record(SentRequest(OTHER, key, TURN, None, "turn", "m", lambda: (b"[]", b"[]")))
    await log.close()
    found = requests.find(SystemDisk(), tmp_path, TURN)
    assert found is not None
    assert found.chat_key == str(key)
    assert requests.find(SystemDisk(), tmp_path, "../etc") is None


async def test_a_file_that_an_operator_took_away_is_begun_anew(desk: Desk) -> None:
    sent = list(talk(random.Random(8), 3))
    await desk.asks(*sent[:2])
    desk.files[0].unlink()
    await desk.asks(sent[2])
    assert desk.bodies() == sent[2:]
