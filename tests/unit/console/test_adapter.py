from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.channel import Channel
from bot.testing.intake import RecordingIntake
from channels.console import manifest
from channels.console.manifest import MANIFEST, ConsoleSettings
from tests.contracts.channel_contract import notice, reply, surroundings
from tests.contracts.console_rig import Terminal


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return surroundings(tmp_path).home


@pytest.fixture
def intake() -> RecordingIntake:
    return RecordingIntake()


def _build(folder: Path) -> Channel:
    return MANIFEST.build(ConsoleSettings(), surroundings(folder))


@pytest.fixture
async def channel(tmp_path: Path, intake: RecordingIntake) -> AsyncIterator[Channel]:
    channel = _build(tmp_path)
    await channel.start(intake)
    yield channel
    await channel.stop()


@pytest.fixture
async def terminal(channel: Channel, home: Path) -> AsyncIterator[Terminal]:
    terminal = await Terminal.attach(home)
    yield terminal
    terminal.close()


def _message(text: str, key: str = "m1") -> dict[str, Any]:
    return {"id": key, "text": text}


async def test_the_socket_is_for_this_user_only(channel: Channel, home: Path) -> None:
    assert stat.S_IMODE((home / "console.sock").stat().st_mode) == 0o600


async def test_a_start_that_is_cancelled_leaves_no_socket_that_listens(
    tmp_path: Path, home: Path, intake: RecordingIntake
) -> None:
    channel = _build(tmp_path)
    starting = asyncio.create_task(channel.start(intake))
    await asyncio.sleep(0)
    assert not starting.done()
    starting.cancel()
    await asyncio.wait([starting])
    await channel.stop()
    assert list(home.iterdir()) == []


async def test_a_path_too_long_for_a_socket_is_replaced_by_a_private_one(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    channel, home = _build(deep), deep / ".ship"
    await channel.start(RecordingIntake())
    path = manifest.socket_path(home)
    assert len(os.fsencode(path)) < manifest.LONGEST
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "console.path").stat().st_mode) == 0o600
    terminal = await Terminal.attach(home)
    terminal.close()
    await channel.stop()
    assert not path.parent.exists()
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("depth", [0, 60])
async def test_the_socket_of_a_dead_process_is_replaced(tmp_path: Path, depth: int) -> None:
    folder = tmp_path / ("d" * depth) / ("e" * depth)
    home = folder / ".ship"
    home.mkdir(parents=True, exist_ok=True)
    path = manifest.new_socket_path(home)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    channel = _build(folder)
    await channel.start(RecordingIntake())
    assert depth == 0 or not path.parent.exists()
    (await Terminal.attach(home)).close()
    await channel.stop()


async def test_a_folder_that_cannot_hold_a_socket_is_a_finding(tmp_path: Path) -> None:
    channel = _build(tmp_path)
    (tmp_path / ".ship").rmdir()
    with pytest.raises(errors.ConfigError, match=r"channels\.console"):
        await channel.start(RecordingIntake())


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"[]\n",
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
        b'{"id": "m1"}\n',
        b'{"id": "m1", "text": 5}\n',
        b'{"id": "no spaces", "text": "x"}\n',
        b'{"id": "m1", "text": "  "}\n',
        b'{"hello": {"chat": "../up"}}\n',
        b'{"hello": 5}\n',
    ],
)
async def test_bad_lines_are_answered_and_the_terminal_stays(
    terminal: Terminal, intake: RecordingIntake, line: bytes
) -> None:
    terminal.writer.write(line)
    assert (await terminal.read("error", "ok"))["error"]
    await terminal.ask(_message("hello", "m2"), "ok")
    assert [inbound.text for inbound in intake.offered] == ["hello"]


async def test_nothing_is_taken_before_hello(channel: Channel, home: Path, intake: RecordingIntake) -> None:
    terminal = Terminal(*await asyncio.open_unix_connection(home / "console.sock"))
    assert (await terminal.ask(_message("hello"), "ok", "error"))["error"] == "Say hello first."
    terminal.close()
    assert intake.offered == []


async def test_an_endless_line_ends_the_connection(terminal: Terminal, intake: RecordingIntake) -> None:
    terminal.writer.write(b"x" * (3 << 20))
    assert (await terminal.read("error"))["error"] == "That message is too long."
    with contextlib.suppress(ConnectionResetError):
        assert await terminal.reader.read() == b""


async def test_an_answer_waits_for_the_terminal_to_come_back(
    channel: Channel, terminal: Terminal, intake: RecordingIntake, home: Path
) -> None:
    await terminal.ask(_message("hello"), "ok")
    terminal.writer.write_eof()
    assert await terminal.reader.read() == b""
    await channel.send(reply(intake.accepted[0], "first"))
    await channel.send(notice(intake.accepted[0], "second"))
    back = await Terminal.attach(home)
    assert await back.visible() == ["first", "second"]
    assert [line["message"]["kind"] for line in back.heard if "message" in line] == ["reply", "notice"]
    back.close()


async def test_chats_are_kept_apart(
    channel: Channel, terminal: Terminal, intake: RecordingIntake, home: Path
) -> None:
    other = await Terminal.attach(home, "other")
    await other.ask(_message("hello"), "ok")
    await channel.send(reply(intake.accepted[0], "for the other"))
    assert await other.visible() == ["for the other"]
    assert await terminal.visible() == []
    other.close()


async def test_the_sign_of_work_reaches_those_who_attach_later(
    channel: Channel, terminal: Terminal, home: Path
) -> None:
    await channel.indicate({"chat": "local"}, working=True)
    assert await terminal.read("working") == {"working": True}
    late = await Terminal.attach(home)
    assert await late.read("working") == {"working": True}
    await channel.indicate({"chat": "local"}, working=False)
    assert await late.read("working") == {"working": False}
    await channel.indicate({"chat": "nobody-there"}, working=True)
    late.close()


async def test_idle_chats_are_forgotten_before_there_are_too_many(
    channel: Channel, terminal: Terminal, intake: RecordingIntake, home: Path
) -> None:
    await terminal.ask(_message("hello"), "ok")
    for number in range(150):
        inbound = intake.accepted[0].model_copy(update={"target": {"chat": f"c{number}"}})
        await channel.send(reply(inbound, f"answer {number}"))
    await channel.send(reply(intake.accepted[0], "still attached"))
    oldest, newest = await Terminal.attach(home, "c0"), await Terminal.attach(home, "c149")
    assert await oldest.visible() == []
    assert await newest.visible() == ["answer 149"]
    assert await terminal.visible() == ["still attached"]
    oldest.close()
    newest.close()


async def test_a_terminal_that_does_not_read_is_cut_off_and_blocks_nobody(
    channel: Channel, terminal: Terminal, intake: RecordingIntake, home: Path
) -> None:
    await terminal.ask(_message("hello"), "ok")
    stuck = await asyncio.open_unix_connection(home / "console.sock", limit=1024)
    stuck[1].write(json.dumps({"hello": {"chat": "stuck"}}).encode() + b"\n")
    await stuck[0].readline()
    inbound = intake.accepted[0].model_copy(update={"target": {"chat": "stuck"}})
    async with asyncio.timeout(90):
        for _ in range(400):
            await channel.send(reply(inbound, "x" * 32_000))
    await channel.send(reply(intake.accepted[0], "for the one who reads"))
    assert await terminal.visible() == ["for the one who reads"]
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(90):
            assert len(await stuck[0].read()) < 400 * 32_000
    stuck[1].close()


async def test_a_terminal_is_answered_in_the_language_and_the_zone_that_it_names(
    channel: Channel, intake: RecordingIntake, terminal: Terminal
) -> None:
    await terminal.ask({"hello": {"chat": "local", "language": "zh_CN.UTF-8", "zone": "Asia/Tokyo"}}, "ok")
    await terminal.ask(_message("hello"), "ok")
    assert (intake.accepted[0].language, intake.accepted[0].zone) == ("zh", "Asia/Tokyo")
    assert (await terminal.ask(_message(" ", "m2"), "error"))["error"] == "消息是空的。"
    await channel.pause()
    assert (await terminal.ask(_message("x", "m3"), "error"))["error"] == "我正在关闭，不再接收新消息。"
