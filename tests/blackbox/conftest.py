"""The real process among loopback servers. Tests start it, talk to it as the platforms do, kill it and start it again."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, Self

import aiohttp
import pytest

from bot.contracts.environment import Clock
from bot.features.live import GOES_ON
from bot.system import SystemClock
from bot.testing import telegram_service
from bot.testing.anthropic import KEY, AnthropicServer
from bot.testing.clock import FastClock
from bot.testing.slack import APP_TOKEN, BOT_TOKEN, PING_SECONDS, SlackServer
from bot.testing.telegram import TelegramServer
from tests import quick
from tests.log_lines import complaint

START_SECONDS = 90.0  # only a guard: on a busy machine the imports alone take seconds
LEAVING = """
    SELECT count(*) FROM events queued WHERE kind = 'queued' AND NOT EXISTS (SELECT 1 FROM events
    WHERE kind = 'row_ended' AND json_extract(data, '$.row') = json_extract(queued.data, '$.row'))
"""
"""SQL that counts the messages in the chats' log that are not sent yet."""
PERSON = 1001
ANN = "U0ANN"
BOB = "U0BOB"
ROOM = "C0ROOM"


class Process:
    """`shipmate run` as a process. `lines` is its stdout so far. A `fresh` process is not forked, so it imports all modules."""

    def __init__(self, root: Path, env: dict[str, str], *, fresh: bool = False) -> None:
        self.root = root
        self.env = env
        self.fresh = fresh
        self.module = ["bot"]
        self.speed: tuple[str, ...] = ()
        """Options of a clock that runs faster than real time."""
        self.before: list[str] = []
        """First words of the command that starts the process, such as a wrapper's name."""
        self.lines: list[str] = []
        self.stderr = ""
        self._process: asyncio.subprocess.Process | quick.Forked | None = None
        self._ready = asyncio.Event()
        self._readers: list[asyncio.Task[None]] = []

    def faked(self, *options: str) -> None:
        """Start the gateway through `bot.testing.run` with these options."""
        self.module = ["bot.testing.run", *self.speed, *options]

    async def start(self, *, wait: bool = True, command: tuple[str, ...] = ("run",)) -> Process:
        """Start the process. Unless `wait` is False, return when the process is ready."""
        self._ready = asyncio.Event()
        self.lines, self.stderr = [], ""
        command = () if self.module[0] == "bot.testing.run" else command
        argv = [*self.module, *command[:1], "--dir", str(self.root), *command[1:]]
        env = {**os.environ, **self.env}
        if self.fresh or self.before:
            self._process = await asyncio.create_subprocess_exec(
                *self.before,
                sys.executable,
                "-m",
                *argv,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                stdin=asyncio.subprocess.DEVNULL,
                env=env,
            )
        else:
            self._process = await quick.start(argv, env)
        self._readers = [asyncio.create_task(self._read_out()), asyncio.create_task(self._read_err())]
        if wait:
            async with asyncio.timeout(START_SECONDS):
                await self._ready.wait()
            assert any(line.startswith("ready ") for line in self.lines), [*self.lines, self.stderr]
        return self

    async def _read_out(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(line.decode().rstrip("\n"))
            if line.startswith(b"ready "):
                self._ready.set()
        self._ready.set()

    async def _read_err(self) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            self.stderr += line.decode()

    @property
    def ready_line(self) -> str:
        return next(line for line in self.lines if line.startswith("ready "))

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def ended(self, seconds: float = START_SECONDS) -> int:
        """Wait until the process ends by itself, and return the exit code."""
        assert self._process is not None
        async with asyncio.timeout(seconds):
            code = await self._process.wait()
            await asyncio.gather(*self._readers)
        return code

    async def stop(self, number: int = signal.SIGTERM) -> int:
        assert self._process is not None
        if self.running:
            self._process.send_signal(number)
        return await self.ended()

    async def kill(self) -> None:
        await self.stop(signal.SIGKILL)


def _complaint(line: bytes) -> str:
    """Return the reason why a line violates the table of log kinds; "" if it does not, or if a failing disk has cut it off."""
    try:
        found = json.loads(line)
        return complaint(found["kind"], found["level"], found["details"]) or ""
    except (ValueError, KeyError):
        return ""


class World:
    """Loopback servers of Slack, Telegram and the model, and one Shipmate that uses them."""

    def __init__(self, root: Path, speed: float = 1.0) -> None:
        self.root = root
        self.process = Process(root, {})
        clock: Clock | None = None
        if speed != 1.0:
            since = SystemClock().now()
            clock = FastClock(SystemClock(), speed, since)
            self.process.speed = ("--speed", str(speed), "--since", str(since))
            self.process.faked()
        self.telegram = TelegramServer(clock=clock)
        self.slack = SlackServer(clock=clock, ping_every=PING_SECONDS)
        self.model = AnthropicServer(clock=clock)
        self.config: dict[str, Any] = {}
        self.session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        for server in (self.telegram, self.slack, self.model):
            await server.start()
        self.slack.add_user(ANN, name="Ann")
        self.slack.add_user(BOB, name="Bob")
        self.slack.add_im(ANN)
        self.slack.add_channel(ROOM, members=[ANN, BOB])
        self.config = {
            "llm": {"provider": "anthropic", "baseUrl": self.model.url, "retrySeconds": 1},
            "channels": {
                "telegram": {"enabled": True, "baseUrl": self.telegram.url, "allow": [str(PERSON)]},
                "slack": {"enabled": True, "baseUrl": self.slack.api_url, "allow": [ANN, ROOM]},
                "web": {"enabled": False, "port": 0},
                "console": {"enabled": False},
            },
            "delivery": {"limits": False},
            "dashboard": {"enabled": False, "port": 0},
        }
        self.process.env = {
            "ANTHROPIC_API_KEY": KEY,
            "TELEGRAM_BOT_TOKEN": telegram_service.TEST_TOKEN,
            "SLACK_BOT_TOKEN": BOT_TOKEN,
            "SLACK_APP_TOKEN": APP_TOKEN,
            "NO_PROXY": "127.0.0.1",
        }
        self.session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.process.running:
            await self.process.kill()
        await self.session.close()
        for server in (self.telegram, self.slack, self.model):
            await server.stop()
        wrong = {found for line in self._raw("logs") if (found := _complaint(line))}
        assert wrong == set()

    async def start(self, *channels: str, **how: Any) -> Process:
        """Write ship.json and start the process. If channels are named, all others are off."""
        if channels:
            self.only(*channels)
        (self.root / "ship.json").write_text(json.dumps(self.config), encoding="utf-8")
        return await self.process.start(**how)

    def only(self, *channels: str) -> None:
        """Disable all other channels."""
        for name, settings in self.config["channels"].items():
            settings["enabled"] = name in channels

    def texts(self, chat_id: int = PERSON) -> list[str]:
        """Return the texts that the bot has sent to a Telegram chat."""
        return [message.text for message in self.telegram.visible(chat_id)]

    async def ask(self, text: str, count: int | None = None, **how: Any) -> str:
        """Send a text on Telegram, and wait until the bot has `count` messages in the chat; the default is one more than
        before. Return the last.
        """
        chat = how.get("chat_id", PERSON)
        count = len(self.texts(chat)) + 1 if count is None else count
        self.telegram.say(text, **how)
        await self.telegram.until(lambda: len(self.texts(chat)) == count)
        return self.texts(chat)[-1]

    async def shipmate(self, *words: str) -> str:
        """Run a `shipmate` command in this folder, check that it succeeds, and return its output."""
        code, out, err = await quick.run(*words, "--dir", str(self.root))
        assert code == 0, err
        return out.decode()

    async def heard(self, *texts: str, chat_id: int = PERSON) -> None:
        """Wait until the bot has sent exactly these texts to a Telegram chat."""
        await self.telegram.until(lambda: whole(self.texts(chat_id), len(texts)), START_SECONDS)
        assert self.texts(chat_id) == list(texts)

    def log(self) -> list[dict[str, Any]]:
        """Return all lines of the operator's log, including compressed days."""
        old = sorted((self.root / ".ship" / "logs").glob("*.jsonl.gz"))
        lines = [line for file in old for line in gzip.decompress(file.read_bytes()).splitlines()]
        return [*map(json.loads, lines), *self._lines("logs")]

    def archive(self) -> list[dict[str, Any]]:
        """Return all lines of the archives of all chats."""
        return self._lines("chats")

    def _lines(self, folder: str) -> list[dict[str, Any]]:
        """Return the complete lines of a folder's files. While the process runs, the last line may be incomplete."""
        return [json.loads(line) for line in self._raw(folder)]

    def _raw(self, folder: str) -> list[bytes]:
        files = sorted((self.root / ".ship" / folder).glob("*.jsonl"))
        whole = b"\n".join(file.read_bytes().rpartition(b"\n")[0] for file in files)
        return [line for line in whole.splitlines() if line]

    def everything_on_disk(self) -> bytes:
        return b"\0".join(p.read_bytes() for p in sorted((self.root / ".ship").rglob("*")) if p.is_file())

    def results_on_disk(self) -> int:
        """Return the number of tool results in the log on disk, which survive a kill."""
        with contextlib.closing(sqlite3.connect(self.root / ".ship" / "shipmate.db", timeout=5)) as file:
            (count,) = file.execute("SELECT count(*) FROM events WHERE kind = 'tool_ended'").fetchone()
        return int(count)

    async def turns(self, count: int) -> None:
        """Wait until the log contains the ends of this many turns."""
        await eventually(lambda: sum(line["kind"] == "turn_end" for line in self.log()) >= count)

    async def sent(self) -> None:
        """Wait until no message is left to send and the operator's log contains the end of the newest turn."""
        ended = [line["requestId"] for line in self.log() if line["kind"] == "turn_end"]
        await eventually(lambda: self._recorded_end(ended[-1:]) and not self._leaving())

    def recorded(self, words: str) -> bool:
        """Return True if the log or the table of facts contains these words."""
        folder = self.root / ".ship"
        with contextlib.closing(sqlite3.connect(folder / "shipmate.db", timeout=5)) as file:
            tables = "SELECT data FROM events UNION ALL SELECT value FROM facts"
            (count,) = file.execute(
                f"SELECT count(*) FROM ({tables}) WHERE instr(data, ?)",
                (words,),
            ).fetchone()
        return bool(count)

    def _recorded_end(self, turns: Sequence[str]) -> bool:
        ends = "SELECT count(*) FROM events WHERE kind = 'turn_ended' AND turn = ?"
        with contextlib.closing(sqlite3.connect(self.root / ".ship" / "shipmate.db", timeout=5)) as file:
            return all(file.execute(ends, (turn,)).fetchone()[0] for turn in turns)

    def _leaving(self) -> int:
        with contextlib.closing(sqlite3.connect(self.root / ".ship" / "shipmate.db", timeout=5)) as file:
            (count,) = file.execute(LEAVING).fetchone()
        return int(count)


def whole(texts: Sequence[str], count: int) -> bool:
    """Return True if there are `count` messages and none of them is still being edited."""
    return len(texts) >= count and not any(one.endswith(GOES_ON) for one in texts)


async def eventually(condition: Callable[[], bool], seconds: float = START_SECONDS) -> None:
    """Wait for a condition that another process makes true without an event."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - files and pipes of another process set no event here
            await asyncio.sleep(0.01)


@pytest.fixture
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with World(tmp_path, getattr(request, "param", 1.0)) as made:
        yield made


fast = pytest.mark.parametrize("world", [10.0], ids=["fast"], indirect=True)
"""Run the clocks of the gateway and of all servers at ten times real speed."""


def pytest_configure(config: pytest.Config) -> None:
    """If several workers will run, start the process from which they are forked while pytest collects the tests."""
    if config.option.workers > 1:
        quick.prepare()
