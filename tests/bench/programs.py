"""The programs that the bench compares. Each is a process of its own with a platform of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from bot.contracts.base import Json
from bot.testing import telegram_service
from bot.testing.anthropic import KEY, AnthropicServer
from bot.testing.slack import APP_TOKEN, BOT_TOKEN, SlackServer
from tests.bench.servers import Board, Flight, TimedTelegram

ROOT = Path(__file__).parents[2]
START_SECONDS = 60.0
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
"""Environment that lets Python store compiled modules, so that a start does not compile them again, as in an
installation.
"""
ANSWER_SECONDS = 30.0


class Unanswered(Exception):
    """Error: a message got no answer, so the bench fails."""


class Program:
    """A bot that runs as a process. Its chat numbers are used by no other program."""

    def __init__(self, name: str, command: list[str], board: Board, *, first_chat: int) -> None:
        self.name = name
        self.command = command
        self.env: dict[str, str] = {}
        self.telegram = TimedTelegram(board)
        self._next_chat = first_chat
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, model: AnthropicServer) -> None:
        """Start the platform and the process; return when the process polls."""
        await self.platform(model)
        await self.launch()

    async def platform(self, model: AnthropicServer) -> None:
        """Start only the platform, and prepare the files and environment of the process."""
        await self.telegram.start()
        self.env = {
            "ANTHROPIC_API_KEY": KEY,
            "TELEGRAM_BOT_TOKEN": telegram_service.TEST_TOKEN,
            "NO_PROXY": "127.0.0.1",
            "MODEL_URL": model.url,
            "TELEGRAM_URL": self.telegram.url,
            **self.env,
        }
        self.prepare(model)

    async def launch(self) -> None:
        """Start the process; return when it polls."""
        self.telegram.polled.clear()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            *self.command,
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            env={**os.environ, **COMPILED, **self.env},
        )
        polls = asyncio.create_task(self.telegram.polled.wait())
        ends = asyncio.create_task(self._process.wait())
        await asyncio.wait({polls, ends}, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        started = polls.done()
        polls.cancel()
        ends.cancel()
        if not started:
            raise Unanswered(f"{self.name} did not start within {START_SECONDS:.0f} s")

    def prepare(self, model: AnthropicServer) -> None:
        """Write the files that the program needs."""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def cpu(self) -> float | None:
        """Return the CPU seconds used so far; None if the system does not report them."""
        assert self._process is not None
        try:
            stat = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        except OSError:
            return None
        user, system = stat.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float | None:
        """Return the memory in megabytes; None if the system does not report it."""
        assert self._process is not None
        try:
            pages = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii").split()[1]
        except OSError:
            return None
        return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1_000_000

    async def kill(self) -> None:
        """Kill the process. The platform keeps running, so `launch` can start the process again."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(15):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        await self.telegram.stop()

    def new_chats(self, count: int) -> list[int]:
        first, self._next_chat = self._next_chat, self._next_chat + count
        return list(range(first, first + count))

    async def answered(self, chats: list[int]) -> list[Flight]:
        """Send one message in each chat at once; wait until all are answered. Raises `Unanswered`."""
        flights = [self.telegram.ask(chat) for chat in chats]
        await self.landed(flights)
        return flights

    async def landed(self, flights: list[Flight], seconds: float = ANSWER_SECONDS) -> None:
        """Wait until these messages are answered. Raises `Unanswered`."""
        try:
            async with asyncio.timeout(seconds):
                for flight in flights:
                    await flight.landed.wait()
        except TimeoutError:
            missing = sum(not flight.sent for flight in flights)
            raise Unanswered(
                f"{self.name} left {missing} of {len(flights)} messages unanswered for {seconds:.0f} s"
            ) from None


class Shipmate(Program):
    """`shipmate run` with Telegram only, open to everyone."""

    def __init__(self, root: Path, board: Board, *, first_chat: int, watch: Path | None = None) -> None:
        start = ["tests.bench.watched", str(watch)] if watch is not None else ["bot"]
        super().__init__("shipmate", [*start, "run", "--dir", str(root)], board, first_chat=first_chat)
        self._root = root

    @property
    def home(self) -> Path:
        """Path of the program's `.ship` folder."""
        return self._root / ".ship"

    def logged(self) -> tuple[int, int]:
        """Return the numbers of lines and bytes in the program's log."""
        raws = [path.read_bytes() for path in (self.home / "logs").glob("*.jsonl")]
        return sum(raw.count(b"\n") for raw in raws), sum(map(len, raws))

    def prepare(self, model: AnthropicServer) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        config = {
            "llm": {"provider": "anthropic", "baseUrl": model.url},
            "channels": self.channels(),
            "dashboard": {"port": 0},
            "delivery": {"limits": False},
        }
        (self._root / "ship.json").write_text(json.dumps(config), encoding="utf-8")

    def channels(self) -> Json:
        """Return the `channels` section of the program's ship.json."""
        return {
            "telegram": {"enabled": True, "baseUrl": self.telegram.url, "allow": ["*"]},
            "slack": {"enabled": False},
            "web": {"enabled": False},
            "console": {"enabled": False},
        }


class OnPostgres(Shipmate):
    """A Shipmate with its log in PostgreSQL. `settings` are added to its ship.json."""

    def __init__(self, root: Path, board: Board, *, first_chat: int, url: str, **settings: Json) -> None:
        super().__init__(root, board, first_chat=first_chat)
        self._settings = {"engine": {"kind": "postgresql", "databaseUrl": url}, **settings}

    def prepare(self, model: AnthropicServer) -> None:
        super().prepare(model)
        path = self._root / "ship.json"
        config = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps(config | self._settings), encoding="utf-8")


class OnSlack(Shipmate):
    """A Shipmate with both Telegram and Slack."""

    def __init__(self, root: Path, board: Board, *, first_chat: int) -> None:
        super().__init__(root, board, first_chat=first_chat)
        self.slack = SlackServer()
        self.env |= {"SLACK_BOT_TOKEN": BOT_TOKEN, "SLACK_APP_TOKEN": APP_TOKEN}

    async def platform(self, model: AnthropicServer) -> None:
        await self.slack.start()
        await super().platform(model)

    async def launch(self) -> None:
        await super().launch()
        await self.slack.until(lambda: self.slack.sockets > 0, START_SECONDS)

    async def stop(self) -> None:
        await super().stop()
        await self.slack.stop()

    def channels(self) -> Json:
        return super().channels() | {
            "slack": {"enabled": True, "baseUrl": self.slack.api_url, "allow": ["*"]}
        }


class Plain(Program):
    """The plain script in `plain.py`."""

    def __init__(self, board: Board, *, first_chat: int) -> None:
        super().__init__("plain", ["tests.bench.plain"], board, first_chat=first_chat)
