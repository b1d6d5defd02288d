"""A scripted turn on any channel, and checks that must hold however often the process died.

The person asks; the model looks something up, answers through `chat_send`, and ends the turn. The model chooses each
step from the request alone, so after a kill it gives the same answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import aiohttp
import psycopg

from bot.testing.anthropic_script import Reply, reply, text, tool_use
from bot.testing.clock import FakeClock
from bot.testing.slack import SlackServer
from bot.words import say, speaking
from tests.blackbox.conftest import ANN, START_SECONDS, World, eventually
from tests.contracts.web_rig import Browser

REPEATED = f"{say('delivery.repeated')}\n\n"
with speaking("zh"):
    REPEATS = (REPEATED, f"{say('delivery.repeated')}\n\n")
    """Possible beginnings of a repeated answer, in the language of the question."""

WORDS = "消息 {} – שלום 👩‍👩‍👧"


FILES = "telegram with files"
"""Name of the channel variant in which people send files."""
TOLD: list[str] = []
"""Lines of the run's summary."""


def tell(words: str) -> None:
    """Add a line to the run's summary."""
    TOLD.append(words)


def seed() -> int:
    """Return the random seed of this run from the variable `SEED`. The same seed repeats a failed run."""
    return int(os.environ["SEED"])


def spread(items: list[Any], count: int, rng: random.Random) -> list[Any]:
    """Return about `count` items of a list at equal distances, from a random start."""
    step = max(1, len(items) // count)
    return items[rng.randrange(step) :: step][:count]


def answered(question: str) -> str:
    return f"answer to {question}"


def script(body: Any) -> Reply:
    """Return the model's next step, which depends on the request alone."""
    turn: list[Any] = []
    for message in body["messages"]:
        blocks = message["content"]
        asks = [b["text"] for b in blocks if b["type"] == "text"] if message["role"] == "user" else []
        if asks and not any(block["type"] == "tool_result" for block in blocks):
            turn = [asks[-1]]
        turn += [block["name"] for block in blocks if block["type"] == "tool_use"]
    question, *called = turn
    if "skills_list" not in called:
        return reply(text("Let me look."), tool_use("skills_list"))
    if "chat_send" not in called:
        return reply(tool_use("chat_send", {"text": answered(question)}))
    return reply(answered(question))


class Side(Protocol):
    """A platform with one person who writes to the bot."""

    channel: str

    async def say(self, words: str) -> None:
        """Write to the bot. If the gateway is down, the platform keeps the message."""
        ...

    async def bring_again(self) -> None:
        """Let the platform or the person's browser send unconfirmed messages again."""
        ...

    async def replies(self, words: str) -> list[str]:
        """Return the visible answers of the bot to these words, oldest first."""
        ...


class TelegramSide:
    channel = "telegram"

    def __init__(self, world: World) -> None:
        self.world = world

    async def say(self, words: str) -> None:
        self.world.telegram.say(words)

    async def bring_again(self) -> None:
        """Do nothing, because `getUpdates` returns an unconfirmed update every time."""

    async def replies(self, words: str) -> list[str]:
        return [shown for shown in self.world.texts() if words in shown]


class FileSide(TelegramSide):
    """A Telegram side that sends a file with each question. The file must be read once."""

    async def say(self, words: str) -> None:
        self.world.telegram.say(words, media="document", data=f"{words} 日志\n".encode() * 500)


class SlackSide:
    channel = "slack"

    def __init__(self, world: World) -> None:
        self.world = world

    async def say(self, words: str) -> None:
        await self.world.slack.say(words, channel="D0ANN", user=ANN)

    async def bring_again(self) -> None:
        # Slack gives up after three repeats and a start takes a moment. So repeat slowly, and only while the gateway is
        # connected.
        if self.world.slack.sockets and self.world.slack.unacked():
            await self.world.slack.clock.advance(3)  # type: ignore[attr-defined]

    async def replies(self, words: str) -> list[str]:
        # A message that joined a turn is answered in the thread of the turn's first message.
        return [shown.text for shown in self.world.slack.replies("D0ANN") if words in shown.text]


class WebSide:
    """A browser. It posts unconfirmed messages again, under the same ids."""

    channel = "web"

    def __init__(self, world: World, address: Callable[[], str]) -> None:
        self.address = address
        self.unconfirmed: dict[str, str] = {}
        nowhere: Any = SimpleNamespace(addresses=[])
        self.browser = Browser(nowhere)
        self.count = 0

    async def say(self, words: str) -> None:
        self.count += 1
        self.unconfirmed[words] = f"m{self.count}"
        await self.bring_again()

    async def bring_again(self) -> None:
        if not self._reachable():
            return
        for words, key in list(self.unconfirmed.items()):
            try:
                if not len(self.browser.http.cookie_jar):
                    # Like the page, request this address first to get the cookie that identifies the browser.
                    await self.browser.get("/api/info")
                if await self.browser.say(words, key) == 202:
                    del self.unconfirmed[words]
            except (aiohttp.ClientError, OSError):
                return

    async def replies(self, words: str) -> list[str]:
        if not self._reachable():
            return []
        try:
            async with self.browser.http.get(f"{self.address()}/api/events") as events:
                page = await _history(events) if events.status == 200 else ""
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError):
            return []
        messages = json.loads(page)["messages"] if page else []
        return [one["text"] for one in messages if one["role"] == "assistant" and words in one["text"]]

    def _reachable(self) -> bool:
        self.browser._channel.addresses = (self.address(),)
        return bool(self.address())


async def _history(events: aiohttp.ClientResponse) -> str:
    """Return the first event of a newly opened page."""
    while block := (await events.content.readuntil(b"\n\n")).decode():
        if "event: history\n" in block:
            return block.partition("data: ")[2].partition("\n")[0]
    return ""


async def prepare(world: World, channel: str, address: Callable[[], str]) -> Side:
    """Turn on one channel of a world. `address` returns the address of the web page; "" while nobody serves it."""
    world.config["dashboard"] = {"enabled": True, "port": 0}
    world.config["channels"]["web"] = {"enabled": True, "port": 0}
    world.only(channel.partition(" ")[0])
    world.model.script(script)
    if channel.startswith("telegram"):
        return FileSide(world) if channel == FILES else TelegramSide(world)
    if channel == "slack":
        return SlackSide(world)
    side = WebSide(world, address)
    await side.browser.__aenter__()
    return side


async def leave(side: Side) -> None:
    if isinstance(side, WebSide):
        await side.browser.__aexit__(None, None, None)


def new_world(root: Path) -> World:
    """Return a world whose Slack has its own clock. Slack repeats events after 3 s, 60 s and 300 s, which then take no
    real time.
    """
    made = World(root)
    made.slack = SlackServer(clock=FakeClock())
    return made


async def until_answered(side: Side, *questions: str, seconds: float = START_SECONDS) -> None:
    async def all_answered() -> bool:
        await side.bring_again()
        return all([await side.replies(words) for words in questions])

    await eventually_so(all_answered, seconds)


async def eventually_so(condition: Callable[[], Awaitable[bool]], seconds: float = START_SECONDS) -> None:
    """Poll a condition that no event reports."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what is waited for sets no event here
            await asyncio.sleep(0.02)


OPEN = "SELECT chat FROM chats WHERE open IS NOT NULL"


def rows(root: Path, statement: str, *values: Any) -> list[Any]:
    """Return the rows of a query on the folder's log; none if there is no log."""
    settings = root / "ship.json"
    engine = json.loads(settings.read_bytes()).get("engine") if settings.exists() else None
    if engine is not None:
        with psycopg.connect(engine["databaseUrl"]) as db:
            return db.execute(statement, values).fetchall()
    path = root / ".ship" / "shipmate.db"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path, timeout=5)) as base:
        return base.execute(statement, values).fetchall()


def unfinished(root: Path) -> set[str]:
    """Return the chats with unfinished work."""
    return {row[0] for row in rows(root, OPEN)}


async def until_quiet(root: Path) -> None:
    """Wait until no chat has unfinished work."""
    await eventually(lambda: not unfinished(root))


def exactly_once(channel: str, words: str, shown: list[str], *, deaths: int = 1) -> None:
    """Check that these words have one answer by the rules of `shown_once`."""
    shown_once(channel, answered(words), shown, deaths=deaths)


def shown_once(channel: str, text: str, shown: list[str], *, deaths: int = 1) -> None:
    """Check that a text is shown once. Telegram cannot tell whether a send arrived, so there the text may be marked as a
    possible repeat, and each death may add one marked repeat.
    """
    assert shown, "no answer"
    unsure = channel.startswith("telegram")
    assert len(shown) <= 1 + (deaths if unsure else 0), shown
    repeat = REPEATED + text
    assert shown[0] == text or (unsure and shown[0] == repeat), shown
    assert all(one == repeat for one in shown[1:]), shown


def on_file_once(world: World, *questions: str, deaths: int = 0) -> None:
    """Check that the archive has each message and its answer once. All lines must be readable, but each death may have
    cut off one line of the operator's log.
    """
    lines = Counter((line["role"], line["text"]) for line in world.archive())
    expected = Counter(
        {("user", words): 1 for words in questions} | {("assistant", answered(w)): 1 for w in questions}
    )
    assert lines == expected, lines
    logged = [
        line
        for path in (world.root / ".ship/logs").glob("*.jsonl")
        for line in path.read_bytes().splitlines()
    ]
    assert sum(not readable(line) for line in logged) <= deaths


def readable(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


async def ready(session: aiohttp.ClientSession, address: str) -> None:
    """Check that the gateway reports itself as ready."""
    async with session.get(f"{address}/readyz") as answer:
        body = await answer.json()
    assert body["ready"] is True, body
