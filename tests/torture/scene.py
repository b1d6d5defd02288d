"""One scripted turn on any channel, and what must be true of it however often the process died.

The person asks; the model looks something up, answers through `chat_send`, and ends. Whatever was cut off, the next
step follows from what the request shows, so the answer to a question is always the same words.
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
    """The beginning of a message that may be a repeat, in the language of the question."""

WORDS = "消息 {} – שלום 👩‍👩‍👧"


FILES = "telegram with files"
"""A channel whose people send files."""
TOLD: list[str] = []
"""What the summary of a run says."""


def tell(words: str) -> None:
    """A line for the summary."""
    TOLD.append(words)


def seed() -> int:
    """`SEED` of the environment: a failure can be run again with it."""
    return int(os.environ["SEED"])


def spread(items: list[Any], count: int, rng: random.Random) -> list[Any]:
    """About `count` of a list, evenly spread, from a random beginning."""
    step = max(1, len(items) // count)
    return items[rng.randrange(step) :: step][:count]


def answered(question: str) -> str:
    return f"answer to {question}"


def script(body: Any) -> Reply:
    """What the model says next, from nothing but the request."""
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
    """One platform with a person in it."""

    channel: str

    async def say(self, words: str) -> None:
        """Write to the bot. Where nobody takes it, the platform keeps it."""
        ...

    async def bring_again(self) -> None:
        """What the platform (or the person's browser) does about what was not confirmed."""
        ...

    async def replies(self, words: str) -> list[str]:
        """What can be seen of the bot's answers to these words, oldest first."""
        ...


class TelegramSide:
    channel = "telegram"

    def __init__(self, world: World) -> None:
        self.world = world

    async def say(self, words: str) -> None:
        self.world.telegram.say(words)

    async def bring_again(self) -> None:
        """An update that was not confirmed is in every answer to `getUpdates`."""

    async def replies(self, words: str) -> list[str]:
        return [shown for shown in self.world.texts() if words in shown]


class FileSide(TelegramSide):
    """With each question comes a file, which is read once."""

    async def say(self, words: str) -> None:
        self.world.telegram.say(words, media="document", data=f"{words} 日志\n".encode() * 500)


class SlackSide:
    channel = "slack"

    def __init__(self, world: World) -> None:
        self.world = world

    async def say(self, words: str) -> None:
        await self.world.slack.say(words, channel="D0ANN", user=ANN)

    async def bring_again(self) -> None:
        # Slowly, and only while somebody listens: Slack gives up after three times, and a start takes a moment.
        if self.world.slack.sockets and self.world.slack.unacked():
            await self.world.slack.clock.advance(3)  # type: ignore[attr-defined]

    async def replies(self, words: str) -> list[str]:
        # Words that joined a turn are answered in the thread of the message that began it.
        return [shown.text for shown in self.world.slack.replies("D0ANN") if words in shown.text]


class WebSide:
    """A browser: it posts again, under the same id, what was not confirmed."""

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
                    # A page asks this first, and gets the cookie that says who writes.
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
    """The first event of a page that is opened."""
    while block := (await events.content.readuntil(b"\n\n")).decode():
        if "event: history\n" in block:
            return block.partition("data: ")[2].partition("\n")[0]
    return ""


async def prepare(world: World, channel: str, address: Callable[[], str]) -> Side:
    """A world in which one channel is on; `address` gives the web page's, "" while there is none."""
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
    """Slack brings an event again after 3 s, a minute and five: on a clock of its own that is at once."""
    made = World(root)
    made.slack = SlackServer(clock=FakeClock())
    return made


async def until_answered(side: Side, *questions: str, seconds: float = START_SECONDS) -> None:
    async def all_answered() -> bool:
        await side.bring_again()
        return all([await side.replies(words) for words in questions])

    await eventually_so(all_answered, seconds)


async def eventually_so(condition: Callable[[], Awaitable[bool]], seconds: float = START_SECONDS) -> None:
    """Wait for something that has to be asked for again and again."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110 - what is waited for sets no event here
            await asyncio.sleep(0.02)


OPEN = "SELECT chat FROM chats WHERE open IS NOT NULL"


def rows(root: Path, statement: str, *values: Any) -> list[Any]:
    """What the log of a folder answers; nothing while there is none."""
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
    """The chats in which something is left to do."""
    return {row[0] for row in rows(root, OPEN)}


async def until_quiet(root: Path) -> None:
    """Until nothing is left to do."""
    await eventually(lambda: not unfinished(root))


def exactly_once(channel: str, words: str, shown: list[str], *, deaths: int = 1) -> None:
    """One reply, under the rule of `shown_once`."""
    shown_once(channel, answered(words), shown, deaths=deaths)


def shown_once(channel: str, text: str, shown: list[str], *, deaths: int = 1) -> None:
    """Telegram cannot tell whether a send arrived: there it may say that it is perhaps a repeat, and each death may have
    added one that does.
    """
    assert shown, "no answer"
    unsure = channel.startswith("telegram")
    assert len(shown) <= 1 + (deaths if unsure else 0), shown
    repeat = REPEATED + text
    assert shown[0] == text or (unsure and shown[0] == repeat), shown
    assert all(one == repeat for one in shown[1:]), shown


def on_file_once(world: World, *questions: str, deaths: int = 0) -> None:
    """The archive has each message and its answer once, and every line of every file can be read; of the log each
    death may have cost the line that was being written.
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
    """The gateway itself says that all of it is well."""
    async with session.get(f"{address}/readyz") as answer:
        body = await answer.json()
    assert body["ready"] is True, body
