"""Files that a browser uploads: limited in size, visible only to their owner, and recognised by their bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.channel import Channel
from bot.contracts.messages import ArchiveLine
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.intake import RecordingIntake
from channels.web import files
from channels.web.manifest import MANIFEST, WebSettings
from tests.contracts.channel_contract import surroundings
from tests.contracts.web_rig import Browser

DATA = bytes(range(256)) * 4_000


def kept(folder: Path) -> list[Path]:
    return sorted((folder / ".ship" / "received").glob("*/*.bin"))


async def said(browser: Browser, *files: str, text: str = "", key: str = "m1") -> tuple[int, Any]:
    return await browser.post("/api/messages", {"text": text, "clientId": key, "files": list(files)})


async def test_a_message_may_be_files_alone_and_the_page_shows_them_with_links(
    browser: Browser, channel: Channel, intake: RecordingIntake, tmp_path: Path
) -> None:
    first = await browser.give(DATA, "日志.log", "text/plain")
    second = await browser.give(b"\x89PNG", "a.png", "image/png")
    assert (await said(browser, first, second))[0] == 202
    (inbound,) = intake.accepted
    shown = [(one.kind, one.name, one.size, one.mime) for one in inbound.attachments]
    assert shown == [("file", "日志.log", len(DATA), "text/plain"), ("photo", "a.png", 4, "image/png")]
    pieces = [piece async for piece in channel.fetch(inbound.attachments[0], most=len(DATA))]
    assert b"".join(pieces) == DATA
    (message,) = await browser.page()
    assert (message["role"], message["text"]) == ("user", "")
    assert [one["name"] for one in message["files"]] == ["日志.log", "a.png"]
    assert await browser.file(message["files"][0]["id"], "日志.log") == DATA
    assert len(kept(tmp_path)) == 2
    assert {path.stat().st_mode & 0o777 for path in kept(tmp_path)} == {0o600}
    assert not list((tmp_path / ".ship" / "cache" / "uploads").iterdir())


async def test_what_is_on_file_is_shown_with_its_files_after_a_restart(tmp_path: Path) -> None:
    intake, around = RecordingIntake(), surroundings(tmp_path)
    channel = MANIFEST.build(WebSettings(port=0), around)
    await channel.start(intake)
    async with Browser(channel) as browser:
        file = await browser.give(b"one", "one.txt")
        await said(browser, file, text="look")
        (inbound,) = intake.accepted
        meta = {"attachments": [one.model_dump(exclude_none=True) for one in inbound.attachments]}
        intake.lines[inbound.chat_key] = [ArchiveLine.of(inbound, text="look", meta=meta)]
        await channel.stop()
        port = int(channel.addresses[0].rpartition(":")[2])
        channel = MANIFEST.build(WebSettings(port=port), around)
        await channel.start(intake)
        (message,) = await browser.page()
        assert message["files"] == [{"id": file, "name": "one.txt", "size": 3}]
        (path,) = kept(tmp_path)
        path.unlink()
        (message,) = await browser.page()
        assert message["files"] == [{"id": "", "name": "one.txt", "size": 3}]
    await channel.stop()


async def test_one_that_is_too_large_is_refused_before_it_comes(browser: Browser) -> None:
    body = {"name": "a.iso", "type": "", "size": files.LARGEST + 1}
    status, told = await browser.post("/api/files", body)
    assert (status, told) == (413, {"error": "That file is too large: the most is 20 MB."})
    status, told = await browser.post("/api/files", body | {"size": 3})
    assert status == 201
    assert (await browser.piece(told["id"], 0, b"four"))[0] == 400


@pytest.mark.parametrize(
    "body",
    [
        {"name": "a", "type": "", "size": -1},
        {"name": "a", "type": "", "size": True},
        {"name": "a", "type": "", "size": "3"},
        {"name": 1, "type": "", "size": 3},
        {"name": "a", "type": [], "size": 3},
        {},
        [],
    ],
)
async def test_what_announces_no_file_is_refused(browser: Browser, body: object) -> None:
    assert (await browser.post("/api/files", body))[0] == 400


async def test_a_lost_piece_is_sent_again_and_none_counts_twice(browser: Browser) -> None:
    _, told = await browser.post("/api/files", {"name": "a", "type": "", "size": 6})
    name = told["id"]
    assert await browser.piece(name, 0, b"abc") == (200, {"have": 3, "whole": False})
    for at, status in ((0, 200), (2, 409), (4, 409)):
        assert await browser.piece(name, at, b"abc") == (status, {"have": 3, "whole": False})
    whole = {"have": 6, "whole": True, "file": {"id": name, "name": "a", "size": 6}}
    assert await browser.piece(name, 3, b"def") == (200, whole)
    # The response to the last piece may be lost too.
    for at in (0, 3, 6):
        assert await browser.piece(name, at, b"def") == (200, whole)
    assert await browser.file(name, "a") == b"abcdef"


async def test_another_browser_has_no_way_to_a_file(browser: Browser, channel: Channel) -> None:
    file = await browser.give(b"mine", "mine.txt")
    _, begun = await browser.post("/api/files", {"name": "a", "type": "", "size": 3})
    async with Browser(channel) as other:
        assert (await said(other, file))[0] == 410
        assert (await other.get(f"/api/files/{file}"))[0] == 404
        assert (await other.piece(begun["id"], 0, b"abc"))[0] == 404
        async with other.http.delete(f"{other.url}/api/files/{file}") as answer:
            assert answer.status == 204
    assert await browser.file(file, "mine.txt") == b"mine"


async def test_a_file_that_was_taken_out_of_the_message_is_gone(browser: Browser, tmp_path: Path) -> None:
    file = await browser.give(b"mine", "mine.txt")
    async with browser.http.delete(f"{browser.url}/api/files/{file}") as answer:
        assert answer.status == 204
    assert kept(tmp_path) == []
    status, told = await said(browser, file, text="look")
    assert (status, told) == (410, {"error": "A file is gone. Please attach it again."})


@pytest.mark.parametrize("names", ["x", [1], [str(n) for n in range(11)], {"a": 1}])
async def test_what_is_no_list_of_files_is_refused(browser: Browser, names: object) -> None:
    body = {"text": "hi", "clientId": "m1", "files": names}
    assert (await browser.post("/api/messages", body))[0] == 400


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\u202egpj.exe", "x" * 5_000, "\ud800a\n", "", "a\\b"])
async def test_a_name_is_no_path_and_reads_as_it_is_written(
    browser: Browser, intake: RecordingIntake, tmp_path: Path, name: str
) -> None:
    file = await browser.give(b"one", name, "no/type/at\nall")
    assert (await said(browser, file))[0] == 202
    (attachment,) = intake.accepted[0].attachments
    assert not {*"/\\\n\u202e\ud800"} & {*(attachment.name or "")}
    assert len(attachment.name or "") <= 200
    assert (attachment.kind, attachment.mime) == ("file", None)
    (path,) = kept(tmp_path)
    assert path.name == f"{file}.bin"


async def test_uploads_that_were_left_make_room_for_new_ones(browser: Browser, tmp_path: Path) -> None:
    names = []
    for _ in range(files.PARTS_OF_CHAT + 1):
        _, told = await browser.post("/api/files", {"name": "a", "type": "", "size": 3})
        names.append(told["id"])
    assert (await browser.piece(names[0], 0, b"abc"))[0] == 404
    for name in names[1:]:
        assert (await browser.piece(name, 0, b"abc"))[0] == 200
    assert not list((tmp_path / ".ship" / "cache" / "uploads").iterdir())


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(SystemDisk())


@pytest.fixture
def giving(tmp_path: Path, disk: FaultyDisk) -> files.Uploads:
    return files.Uploads(tmp_path, disk)


def parts(folder: Path) -> list[Path]:
    return sorted((folder / files.PARTS).glob("*"))


def test_nothing_is_left_of_one_that_the_disk_refused(
    giving: files.Uploads, disk: FaultyDisk, tmp_path: Path
) -> None:
    id_ = giving.begin("one", "a", "", 6)
    assert giving.add("one", id_, 0, b"abc") == 3
    disk.fail(Failure("append", when="torn"))
    with pytest.raises(OSError, match="space"):
        giving.add("one", id_, 3, b"def")
    assert (parts(tmp_path), giving.add("one", id_, 3, b"def")) == ([], None)
    disk.fail(Failure("append", when="torn"))
    with pytest.raises(OSError, match="space"):
        giving.begin("one", "a", "", 6)
    id_ = giving.begin("one", "a", "", 3)
    disk.fail(Failure("sync"))
    with pytest.raises(OSError, match="space"):
        giving.add("one", id_, 0, b"abc")
    assert (parts(tmp_path), giving.of_user("one", [id_])) == ([], [None])


def test_of_many_small_files_the_oldest_go_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, giving: files.Uploads
) -> None:
    def given(chat: str) -> str:
        id_ = giving.begin(chat, "a", "", 1)
        assert giving.add(chat, id_, 0, b"x") == 1
        return id_

    monkeypatch.setattr(files, "MOST_OF_CHAT", 2)
    monkeypatch.setattr(files, "MOST", 3)
    ids = [given("one") for _ in range(3)]
    assert [one is not None for one in giving.of_user("one", ids)] == [False, True, True]
    for chat in ("two", "three"):
        given(chat)
    assert [one is not None for one in giving.of_user("one", ids)] == [False, False, True]
    assert len(list((tmp_path / "received").glob("*/*"))) == 3


async def test_a_disk_that_takes_nothing_is_told_of_and_the_upload_given_up(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, told = await browser.post("/api/files", {"name": "a", "type": "", "size": 3})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SystemDisk, "append", full)
    status, answer = await browser.piece(told["id"], 0, b"abc")
    assert (status, answer["error"][:7]) == (503, "I can't")
    assert (await browser.post("/api/files", {"name": "a", "type": "", "size": 3}))[0] == 503
    assert kept(tmp_path) == []


async def test_what_came_of_a_file_before_a_restart_goes_at_the_start(tmp_path: Path) -> None:
    channel = MANIFEST.build(WebSettings(port=0), surroundings(tmp_path))
    parts = tmp_path / ".ship" / files.PARTS
    parts.mkdir(parents=True)
    (parts / "01J00000000000000000000000.bin").write_bytes(json.dumps({}).encode())
    await channel.start(RecordingIntake())
    assert list(parts.iterdir()) == []
    await channel.stop()
