"""Measures single parts of Shipmate, each beside a plain program that does the same kind of work."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

from bot.contracts.channel import ChannelDeps
from bot.contracts.identity import ChatKey
from bot.core import events, view
from bot.core.chat import Chat
from bot.core.events import Event
from bot.llm.messages_api import body_of
from bot.system import SystemClock, SystemDisk
from bot.testing.log import MemoryLog
from channels.telegram import adapter, manifest, render
from tests.bench import past, permissions, storage

HISTORY = 60
SESSION_TURNS = 10_000
RESULT = "Some words of a tool's result, 几个字, and a few more. " * 160
LONG_TEXT = 100_000


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table. The figures are in milliseconds unless `unit` says otherwise."""

    what: str
    shipmate: float
    reference: float
    beside: str
    unit: str = "ms"

    @property
    def ratio(self) -> float:
        return self.shipmate / self.reference if self.reference else 0.0


async def measured(folder: Path) -> list[Line]:
    """Measure all parts one after the other."""
    folder.mkdir(parents=True, exist_ok=True)
    # The speed of a disk varies, so the reference is measured before and after.
    before = _append_and_sync(folder / "before")
    speed = await storage.log_speed(folder)
    synced = sorted([*before, *_append_and_sync(folder / "after")])
    alone = synced[len(synced) // 2]
    beside = "append + fdatasync of a plain file"
    lines = [
        Line("log, one message alone", speed.p50, alone, beside),
        Line("log, one message alone, p99", speed.p99, synced[len(synced) * 99 // 100], beside),
        Line("log, messages by 64 callers", speed.rate, 1000 / alone, beside, "a second"),
        await _back(folder / "session"),
    ]
    judged, looked = permissions.judging(folder)
    rules = Line("tools, a call judged by 1,000 rules", judged, looked, "looking at each rule's name")
    return [*lines, *_codec(), rules, _view(), *_markdown()]


async def _back(home: Path) -> Line:
    """Measure loading a chat with a long past into memory."""
    key = "telegram:chat:1"
    await past.write(home, {key: SESSION_TURNS}, RESULT)
    back = await past.back(home, key, times=3)
    what = f"log, a chat of {SESSION_TURNS:,} turns into memory"
    return Line(what, back.took, back.whole, "all of its events")


def _codec() -> list[Line]:
    """Measure writing the events of a plain turn to the log format and reading them back, beside untyped
    JSON of the same data.
    """
    turn = list(past.turn(ChatKey.parse("telegram:chat:1"), "1"))
    raws = [(one.kind, events.encode(one)) for one in turn]
    values = [json.loads(raw) for _, raw in raws]

    def each(work: Callable[[], object]) -> float:
        return _median(work, 1_000) * 1_000 / len(turn)

    return [
        Line(
            "codec, an event written",
            each(lambda: [events.encode(one) for one in turn]),
            each(lambda: [json.dumps(one) for one in values]),
            "json.dumps",
            "µs",
        ),
        Line(
            "codec, an event read",
            each(lambda: [events.decode(*one) for one in raws]),
            each(lambda: [json.loads(raw) for _, raw in raws]),
            "json.loads",
            "µs",
        ),
    ]


def _append_and_sync(path: Path, times: int = 200) -> list[float]:
    """Return the milliseconds of the cheapest durable append."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    line = b"a message of ordinary length " * 12 + b"\n"

    def once() -> None:
        os.write(handle, line)
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(handle)

    try:
        return _times(once, times)
    finally:
        os.close(handle)


def _view() -> Line:
    """Measure building a request with sixty messages of history, from the fold to the request body, beside
    writing the request as JSON.
    """
    chat, key = Chat(ChatKey.parse("telegram:chat:1")), ChatKey.parse("telegram:chat:1")
    said = events.Told({"role": "user", "content": [_words(400)]}, ("1",))
    answered = events.Answered("1", [_words(800)], "end_turn")
    for number in range(HISTORY // 2):
        first, started, *_ = past.turn(key, f"{number}")
        for data in (first, started, said, answered, events.TurnEnded("answered")):
            chat.apply(Event(f"{number}", key, 0.0, data, f"{number}", seq=chat.seq + 1))
    system = [_words(2_000), _words(200)]
    current = [{"role": "user", "content": [_words(200)]}]

    def rendered() -> dict[str, object]:
        request = view.render(
            model="claude-sonnet-5-5",
            max_tokens=8_192,
            system=system,
            tools=[],
            history=chat.context.view(),
            injected=[],
            current=current,
        )
        return body_of(request)

    body = rendered()
    return Line(
        "fold and view, 60 messages",
        _median(rendered, 300),
        _median(lambda: json.dumps(body), 300),
        "json.dumps of the body",
    )


def _words(length: int) -> dict[str, str]:
    return {"type": "text", "text": ("Some words, 几个字, a few more. " * (length // 20))[:length]}


def _markdown() -> list[Line]:
    """Measure converting a hundred thousand characters of Markdown for Telegram: the total time, and the
    longest single step.
    """
    around = ChannelDeps(SystemClock(), MemoryLog(), random.Random(1), Path(), Path(), SystemDisk())
    channel = adapter.TelegramChannel(manifest.TelegramSettings(bot_token="1:a"), around)
    source = long_markdown()
    render.render.cache_clear()
    began = time.perf_counter()
    parts = channel.split(source)
    pieces = [time.perf_counter() - began]
    for part in parts:
        began = time.perf_counter()
        render.render(part)
        pieces.append(time.perf_counter() - began)
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parsed = _median(lambda: parser.parse(source), 3)
    return [
        Line(
            f"Markdown, 100,000 characters, {len(parts)} parts",
            sum(pieces) * 1000,
            parsed,
            "the parser alone",
        ),
        Line("    its longest block of the loop", max(pieces) * 1000, parsed, "the parser alone"),
    ]


def markdown_bombs(length: int = 40_000) -> list[str]:
    """Return texts that make careless Markdown parsers slow."""
    return [
        "[" * length,
        "> " * 400 + "x\n",
        "*a **b " * (length // 7),
        "`" * length + "a",
        "".join("`" * (number % 50 + 1) + "a" for number in range(length // 25)),
        "![a](<b" * (length // 7),
        "\n".join("  " * depth + "- x" for depth in range(200)),
        "|" + "a|" * 2_000 + "\n|" + "-|" * 2_000 + "\n" + ("|" + "b|" * 2_000 + "\n") * 5,
        "<a " * (length // 3),
        "&amp;" * (length // 5),
        "".join(f"[{number}]: http://x/{number}\n" for number in range(2_000)) + "[1]" * 1_000,
        "👨‍👩‍👧‍👦" * 4_000,
    ]


def long_markdown(length: int = LONG_TEXT) -> str:
    """Return Markdown text that contains every kind of markup."""
    section = (
        "## Section {n}\n\nSome **bold** and *slanted* words, `code`, a [link](https://example.org/{n}), 几个字 😀.\n\n"
        "- one\n- two\n  - nested `item`\n- three\n\n> quoted words\n\n```python\nprint({n})\n```\n\n"
        "| a | b |\n|---|---|\n| {n} | ~~x~~ |\n\n"
    )
    sections = (section.replace("{n}", str(n)) for n in range(length // 100))
    return "".join(sections)[:length]


def _median(work: Callable[[], object], times: int) -> float:
    return _times(work, times)[times // 2]


def _times(work: Callable[[], object], times: int) -> list[float]:
    """Return the milliseconds of each call, sorted."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return sorted(took)
