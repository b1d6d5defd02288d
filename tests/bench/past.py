"""Writes logs with many chats of plain turns, as the product does, and measures the cost of reading a chat."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from bot.core import events
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact
from bot.core.event_log import EventLog
from bot.core.events import EventData
from bot.core.prompt import Frozen
from bot.core.sqlite_log import FILE, SqliteLog
from bot.system import SystemClock, UlidSource
from bot.testing.log import MemoryLog

MODEL = "claude-sonnet-5-5"
BOOT = "boot"
FRAME = events.Framed(Frozen("Rules and instructions. " * 150), MODEL, "", "prefix")
AT_ONCE = 1_000
"""Max turns in one transaction."""
TIMES = 9


@contextlib.asynccontextmanager
async def opened(home: Path) -> AsyncIterator[tuple[EventLog, Chats]]:
    """Open the log in a `.ship` folder, and create it if there is none. No chat is in memory yet."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    clock = SystemClock()
    log = SqliteLog(home / FILE, clock=clock, log=MemoryLog())
    try:
        yield log, Chats(log, Chat, clock=clock, ids=UlidSource(clock))
    finally:
        await log.close()


async def write(home: Path, turns: Mapping[str, int], result: str = "") -> None:
    """Add plain turns to each chat, as many as `turns` says. With `result`, each turn first calls a tool."""
    written, ids = 0, UlidSource()
    async with opened(home) as (log, chats):
        for key, count in turns.items():
            chat = await chats.get(ChatKey.parse(key))
            for _ in range(count):
                request = ids.ulid()
                first, *others = turn(chat.key, request, result)
                facts = [Fact(chat.key, one, request) for one in (*_lasting(chat), *others)]
                chats.append(Fact(chat.key, first, person="7", id=request), *facts)
                if over := chat.context.over_cap():
                    chats.append(Fact(chat.key, events.Cut(tuple(over), None, "message_cap")))
                written += 1
                if not written % AT_ONCE:
                    await log.committed()


def _lasting(chat: Chat) -> list[EventData]:
    return [FRAME] if chat.context.frame is None else chat.context.out_of_reach


def turn(key: ChatKey, request: str, result: str = "") -> Iterator[EventData]:
    """Yield the events of a turn, from the message to the delivered answer."""
    said, answer = (
        "What is the number that we spoke about? 几个字",
        "It is 42, as ever, and a few more words about it. " * 4,
    )
    row, calls = f"{request}/1/0", iter((f"{request}/a", f"{request}/b"))
    yield events.Received(
        Inbound(
            channel=key.channel,
            chat_id=key.chat_id,
            chat_key=key,
            chat_type="direct",
            user_id="7",
            keys=(f"update:{request}", f"message:{request}"),
            ts=1_700_000_000_000,
            target={"chat_id": key.chat_id},
            text=said,
            message_id=request,
            request_id=request,
        )
    )
    yield events.TurnStarted((request,), BOOT)
    yield events.Told(
        {"role": "user", "content": [_text(f"<turn_context>now</turn_context>{said}")]}, (request,)
    )
    if result:
        name = f"t{request}"
        call = {"type": "tool_use", "id": name, "name": "look", "input": {}}
        yield from _asked(next(calls), call, "tool_use")
        yield events.ToolEnded(name, {"type": "tool_result", "tool_use_id": name, "content": result})
    yield from _asked(next(calls), _text(answer), "end_turn")
    yield events.Queued(
        row, {"chat_id": key.chat_id}, answer, channel=key.channel, chat_id=key.chat_id, ends=True
    )
    yield events.Sending(row, BOOT)
    yield events.RowEnded(row, "sent", "1")
    yield events.TurnEnded("answered")


def _asked(call: str, block: Json, stop: str) -> Iterator[EventData]:
    usage = {"inputTokens": 900, "outputTokens": 60, "cacheReadTokens": 7_000, "cacheWriteTokens": 400}
    yield events.Asked(call, BOOT, MODEL)
    yield events.Used(MODEL, "turn", "telegram:7", usage, 0.0045)
    yield events.Answered(call, [block], stop, MODEL, usage=usage, cost_usd=0.0045)


def _text(words: str) -> Json:
    return {"type": "text", "text": words}


@dataclass(frozen=True, slots=True)
class Back:
    """Milliseconds to load a chat again: `took` in the usual way, `whole` by reading all its events."""

    took: float
    whole: float


async def back(home: Path, key: str, times: int = TIMES) -> Back:
    """Load an evicted chat: several times in the usual way (the fastest counts), and once by reading all events."""
    chat, took = ChatKey.parse(key), list[float]()
    async with opened(home) as (_, chats):
        began = time.perf_counter()
        view = (await chats.replayed(chat)).context.view()
        by_all = (time.perf_counter() - began) * 1_000
    for _ in range(times):
        async with opened(home) as (log, chats):
            await log.newest()  # opens the file before the timing starts
            began = time.perf_counter()
            held = await chats.get(chat)
            took.append((time.perf_counter() - began) * 1_000)
            if held.context.view() != view:
                raise AssertionError("the chat is another one than by all of its events")
    return Back(min(took), by_all)
