"""Files go out with a message: each one a row of the outbox, its bytes kept from the moment it was meant."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bot import errors
from bot.contracts.outbound import Outbound, OutgoingFile, Sent
from bot.core.leadership import SoleLeader
from bot.core.outgoing_files import PIECE, OutgoingLimits, shown_name
from bot.gateway.outbox import batch_sender, rows
from bot.system import SystemDisk
from bot.telemetry import Redactor
from bot.testing.clock import FakeClock
from bot.testing.disk import Failure, FaultyDisk
from bot.words import say
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.conftest import SECRET, FakeChannel
from tests.unit.gateway.outgoing import TO, Desk, until
from tests.unit.gateway.test_outbox_kills import FOREVER, Process, finish

T = TypeVar("T")
TABLE = OutgoingFile("表.csv", "text/csv", "名,值\n一,1\n".encode(), "out/表.csv")
CHART = OutgoingFile("chart.png", "image/png", bytes(range(256)) * 40, "out/chart.png")
REPEATED = f"{say('delivery.repeated')}\n\n"


def kept(root: Path) -> list[str]:
    folder = root / "outgoing"
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def shown(sent: Sequence[Outbound]) -> list[str]:
    return [message.text if message.file is None else message.file.name for message in sent]


@pytest.fixture
async def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    await desk.asked()
    return desk


async def test_a_message_with_files_is_its_text_and_below_it_each_file(desk: Desk, tmp_path: Path) -> None:
    sent = await desk.delivery.send(TO, "here they are", files=[TABLE, CHART], step_id="call")
    assert [one.message_id for one in sent] == ["m1", "m2", "m3"]
    assert shown(desk.tele.sent) == ["here they are", "表.csv", "chart.png"]
    assert [message.file for message in desk.tele.sent[1:]] == [TABLE, CHART]
    assert [(row.state, row.step_id) for row in await desk.rows()] == [("sent", "call")] * 3
    assert (await desk.archived())[0].text == "here they are\n[file: 表.csv]\n[file: chart.png]"
    assert kept(tmp_path) == []
    await desk.close()


async def test_people_are_asked_what_they_think_below_the_words(desk: Desk) -> None:
    await desk.delivery.send(TO, "words", files=[TABLE])
    assert [message.ends for message in desk.tele.sent] == [True, False]
    await desk.close()


async def test_what_is_sent_is_what_was_meant(tmp_path: Path) -> None:
    """The file changes and the process dies while its platform is not there."""
    desk = Desk(tmp_path)
    await desk.asked(finished=True)
    desk.tele.failures = [errors.DeliveryThrottled("429", retry_after=900.0)]
    with pytest.raises(errors.DeliveryDeferred):
        await desk.delivery.send(TO, "later", files=[TABLE])
    assert kept(tmp_path) == [hashlib.sha256(TABLE.data).hexdigest()]
    assert (tmp_path / "outgoing").stat().st_mode & 0o077 == 0
    await desk.close()
    second = Desk(tmp_path, clock=desk.clock)
    await second.delivery.open()
    async with second.passing(60.0):
        await until(lambda: len(second.tele.sent) == 2)
        await until(lambda: not second.delivery.outbox.deferred)
    assert second.tele.sent[1].file == TABLE
    assert kept(tmp_path) == []
    await second.close()


async def test_the_same_bytes_are_kept_once_and_until_the_last_row_has_ended(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.asked(finished=True)
    await desk.asked(replace(TO, request_id="02REQ"), finished=True)
    desk.tele.failures = [errors.DeliveryThrottled("429", retry_after=900.0)]
    for number in ("01REQ", "02REQ"):
        with pytest.raises(errors.DeliveryDeferred):
            await desk.delivery.send(
                replace(TO, request_id=number), "later", files=[replace(TABLE, name=f"{number}.csv")]
            )
    assert len(kept(tmp_path)) == 1
    desk.delivery.outbox.start()
    async with desk.passing(60.0):
        await until(lambda: not desk.delivery.outbox.deferred)
    assert shown(desk.tele.sent) == ["later", "01REQ.csv", "later", "02REQ.csv"]
    assert kept(tmp_path) == []
    await desk.close()


async def test_a_start_removes_what_no_row_is_of(tmp_path: Path) -> None:
    (tmp_path / "outgoing").mkdir()
    (tmp_path / "outgoing" / ("a" * 64)).write_bytes(b"left by a kill before its row")
    desk = Desk(tmp_path)
    await desk.delivery.open()
    await until(lambda: not kept(tmp_path))
    await desk.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.FileRefused("no scope", forbidden=True), "delivery.file_forbidden"),
        (errors.FileRefused("too large"), "delivery.file_refused"),
        (errors.DeliveryFailed("400"), "delivery.file_refused"),
    ],
)
async def test_a_file_that_is_refused_is_told_of_in_its_place_and_once(
    desk: Desk, tmp_path: Path, error: errors.DeliveryFailed, words: str
) -> None:
    plain = desk.tele.send

    async def send(message: Outbound) -> Sent:
        if message.file is not None and message.file.name == TABLE.name:
            raise error
        return await plain(message)

    desk.tele.send = send  # type: ignore[method-assign]
    with pytest.raises(errors.FilesMissing) as caught:
        await desk.delivery.send(TO, "here", files=[TABLE, CHART])
    assert caught.value.names == [TABLE.name]
    assert shown(desk.tele.sent) == ["here", say(words, name=TABLE.name), "chart.png"]
    assert [row.state for row in await desk.rows()] == ["sent", "failed", "sent", "sent"]
    assert kept(tmp_path) == []
    told = rows.prior_replies(await desk.rows())
    assert all(one.ids for one in told), "what was told is no failure that is said again"
    await desk.close()


async def test_a_file_that_may_be_there_comes_again_and_says_so(desk: Desk) -> None:
    desk.tele.failures = [errors.DeliveryUncertain("lost")]
    plain = desk.tele.send

    async def send(message: Outbound) -> Sent:
        if message.file is None:
            desk.tele.sent.append(message)
            return Sent("text")
        return await plain(message)

    desk.tele.send = send  # type: ignore[method-assign]
    async with desk.passing():
        await desk.delivery.send(TO, "here", files=[TABLE])
    again = desk.tele.sent[1]
    assert (again.text, again.file, again.repeat_of is not None) == (REPEATED, TABLE, True)
    assert [row.state for row in await desk.rows()] == ["sent", "unknown", "sent"]
    await desk.close()


class Deposed(SoleLeader):
    """Leads until another process does."""

    def __init__(self) -> None:
        self.over = asyncio.Event()

    async def confirmed(self) -> None:
        if self.over.is_set():
            await asyncio.Event().wait()

    async def while_leading(self, call: Coroutine[Any, Any, T]) -> T:
        working = asyncio.ensure_future(call)
        await asyncio.wait([working, asyncio.ensure_future(self.over.wait())], return_when="FIRST_COMPLETED")
        working.cancel()
        await asyncio.wait([working])
        if working.cancelled():
            raise errors.DeliveryUncertain("another process may lead by now")
        return working.result()


async def test_an_upload_ends_where_another_process_leads_before_it_is_shown(tmp_path: Path) -> None:
    lead, uploading, uploaded = Deposed(), asyncio.Event(), asyncio.Event()
    desk = Desk(tmp_path, leadership=lead)
    await desk.asked()
    desk.tele.finds = None
    plain = desk.tele.send

    async def send(message: Outbound) -> Sent:
        if message.file is not None:
            uploading.set()
            await uploaded.wait()
        return await plain(message)

    desk.tele.send = send  # type: ignore[method-assign]
    sending = asyncio.ensure_future(desk.delivery.send(TO, "here", files=[TABLE]))
    await uploading.wait()
    lead.over.set()
    async with desk.passing():
        await until(lambda: any("unknown outcome" in one.message for one in desk.log.entries))
        uploaded.set()
        await until(lambda: desk.clock.sleeping == 0)
    assert shown(desk.tele.sent) == ["here"]
    sending.cancel()
    await asyncio.wait([sending])
    await desk.close()


async def test_a_file_that_the_disk_has_lost_is_told_of(desk: Desk, tmp_path: Path) -> None:
    desk.tele.failures = [errors.DeliveryThrottled("429", retry_after=1.0)]
    sending = asyncio.ensure_future(desk.delivery.send(TO, "here", files=[TABLE]))
    await until(lambda: desk.clock.sleeping > 0)
    for name in kept(tmp_path):
        (tmp_path / "outgoing" / name).write_bytes(b"something else")
    async with desk.passing():
        with pytest.raises(errors.FilesMissing):
            await sending
    assert shown(desk.tele.sent) == ["here", say("delivery.file_refused", name=TABLE.name)]
    await desk.close()


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (replace(TABLE, data=f"key = {SECRET}".encode()), "holds a secret"),
        (replace(TABLE, data=f"key = {SECRET}".encode("utf-16")), "holds a secret"),
        (replace(CHART, data=b"\x89PNG\0" + SECRET.encode()), "holds a secret"),
        (replace(TABLE, data=b""), "0 bytes"),
        (replace(TABLE, data=b"x" * 1_001), "1,001 bytes"),
    ],
)
async def test_what_must_not_leave_is_refused_before_anything_is_sent(
    tmp_path: Path, file: OutgoingFile, why: str
) -> None:
    desk = Desk(tmp_path, file_limits=OutgoingLimits(file=1_000))
    await desk.asked()
    with pytest.raises(errors.FileRefused, match=why):
        await desk.delivery.send(TO, "here", files=[file])
    assert desk.tele.sent == []
    assert await desk.rows() == []
    assert kept(tmp_path) == []
    await desk.close()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
async def test_a_secret_of_any_letters_is_found_in_any_usual_encoding(tmp_path: Path, encoding: str) -> None:
    secret = "pässwörd-ÿ-4711"
    desk = Desk(tmp_path, redact=Redactor({secret}))
    await desk.asked()
    data = f"a,b\nkey,{secret}\n".encode(encoding)
    with pytest.raises(errors.FileRefused, match="holds a secret"):
        await desk.delivery.send(TO, "here", files=[replace(TABLE, data=data)])
    await desk.close()


async def test_a_secret_does_not_leave_as_the_name_of_a_file(desk: Desk) -> None:
    with pytest.raises(errors.FileRefused, match="holds a secret"):
        await desk.delivery.send(TO, "here", files=[replace(TABLE, name=f"{SECRET}.csv")])
    assert desk.tele.sent == []
    await desk.close()


async def test_a_large_file_is_searched_in_pieces_and_a_secret_between_two_is_found(tmp_path: Path) -> None:
    looked, redact = list[int](), Redactor({SECRET})

    def seen(words: str) -> str:
        looked.append(len(words))
        return redact(words)

    desk = Desk(tmp_path, redact=seen)
    await desk.asked()
    await desk.delivery.send(TO, "here", files=[replace(TABLE, data=b"1,2\n" * 100_000)])
    assert max(looked) < 50_000
    for at in range(PIECE - len(SECRET), PIECE + 2, 7):
        data = b"\n" * at + SECRET.encode() + b"\n" * PIECE
        with pytest.raises(errors.FileRefused, match="holds a secret"):
            await desk.delivery.send(TO, "here", files=[replace(TABLE, data=data)])
    await desk.close()


async def test_a_channel_without_files_refuses_them(tmp_path: Path) -> None:
    tele = FakeChannel("tele")
    del tele.largest_file
    desk = Desk(tmp_path, tele=tele)
    await desk.asked()
    with pytest.raises(errors.FileRefused, match="cannot show files"):
        await desk.delivery.send(TO, "here", files=[TABLE])
    await desk.delivery.send(TO, "here")
    assert shown(desk.tele.sent) == ["here"]
    await desk.close()


async def test_no_more_wait_than_there_is_room_for(tmp_path: Path) -> None:
    desk = Desk(tmp_path, file_limits=OutgoingLimits(total=len(CHART.data) + 1))
    await desk.asked(finished=True)
    desk.tele.failures = [errors.DeliveryThrottled("429", retry_after=900.0)]
    with pytest.raises(errors.DeliveryDeferred):
        await desk.delivery.send(TO, "later", files=[CHART])
    with pytest.raises(errors.FileRefused, match="too many"):
        await desk.delivery.send(TO, "later", files=[TABLE])
    await desk.close()


async def test_a_disk_that_is_full_refuses_the_file_and_nothing_is_sent(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure("replace"))
    desk = Desk(tmp_path, disk=disk)
    await desk.asked()
    with pytest.raises(errors.FileRefused, match="disk"):
        await desk.delivery.send(TO, "here", files=[TABLE])
    await desk.delivery.send(TO, "here", files=[TABLE])
    assert shown(desk.tele.sent) == ["here", TABLE.name]
    await desk.close()


async def test_of_files_of_which_one_is_refused_none_is_kept(tmp_path: Path) -> None:
    desk = Desk(tmp_path, file_limits=OutgoingLimits(total=len(CHART.data) + 1))
    await desk.asked()
    with pytest.raises(errors.FileRefused, match="too many"):
        await desk.delivery.send(TO, "here", files=[TABLE, CHART])
    assert kept(tmp_path) == []
    await desk.delivery.send(TO, "here", files=[CHART])
    assert shown(desk.tele.sent) == ["here", CHART.name]
    await desk.close()


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("数据 表.csv", "数据 表.csv"),
        ("תוצאה.pdf", "תוצאה.pdf"),
        ("cod\u202efdp.exe", "cod_fdp.exe"),
        ('a"b\\c/d\r\n.txt', "a_b_c_d__.txt"),
        ("", "file"),
        ("\ud800.txt", "\ufffd.txt"),
    ],
)
def test_names_keep_their_script_and_lose_what_misleads(name: str, safe: str) -> None:
    assert shown_name(name) == safe


def test_a_long_name_keeps_its_ending() -> None:
    assert shown_name("👩‍👩‍👧" * 100 + ".json").endswith("👩‍👩‍👧.json")


class World:
    """What people see, over the deaths of processes."""

    def __init__(self, root: Path, *, tells: bool) -> None:
        self.root = root
        self.clock = FakeClock()
        self.tells = tells
        self.seen: list[Outbound] = []

    async def send(self, message: Outbound) -> Sent:
        self.seen.append(message)
        return Sent(f"m{len(self.seen)}")

    async def find(self, message: Outbound) -> Sent | None:
        if not self.tells:
            raise errors.DeliveryUncertain("cannot tell")
        found = [n for n, one in enumerate(self.seen, 1) if one.id == message.id]
        return Sent(f"m{found[0]}") if found else None


async def _answer(desk: Desk) -> None:
    with contextlib.suppress(errors.DeliveryDeferred):
        await desk.delivery.send(TO, "here", files=[TABLE, CHART])
    await finish(desk)


async def _go_on(desk: Desk) -> None:
    open_ = [one.request_id for one in await still_open(desk.file)]
    if open_ and not await desk.delivery.resume(TO):
        with contextlib.suppress(errors.DeliveryDeferred):
            await desk.delivery.send(TO, "here", files=[TABLE, CHART])
    await finish(desk)


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_call_each_file_is_there_once_or_once_with_a_repeat_that_says_so(
    tmp_path: Path, when: str, tells: bool, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "GRACE_SECONDS", 0.0)
    lived, last = False, 1 - stride
    while not lived:
        last += stride
        world = World(tmp_path / str(last), tells=tells)
        first = Process(world, last, when)  # type: ignore[arg-type]
        await first.desk.asked()
        lived = await first.live(_answer)
        assert await Process(world, FOREVER, "before").live(_go_on)  # type: ignore[arg-type]
        files = Counter((one.file, one.text) for one in world.seen if one.file is not None)
        for file in (TABLE, CHART):
            assert files[file, ""] <= 1, "never twice in silence"
            assert files[file, ""] + files[file, REPEATED] >= 1, "never lost"
            assert not (tells and files[file, REPEATED])
        assert kept(world.root) == []
    assert last > 10
