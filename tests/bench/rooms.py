"""What single rooms cost, each beside something plain that does the same kind of work."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bot.context.store import AgentContextStore, Turn
from markdown_it import MarkdownIt

from bot.contracts.channel import ChannelDeps
from bot.core import prompt, view
from bot.core.repair import Entry
from bot.llm.client import body_of
from bot.system import SystemClock, SystemDisk
from bot.testing.log import MemoryLog
from channels.telegram import adapter, render, settings
from tests.bench import permissions, sessions, storage

HISTORY = 60
LONG_TEXT = 100_000


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table; all three in milliseconds but where `unit` says otherwise."""

    what: str
    shipmate: float
    reference: float
    beside: str
    unit: str = "ms"

    @property
    def ratio(self) -> float:
        return self.shipmate / self.reference if self.reference else 0.0


async def measured(folder: Path) -> list[Line]:
    """Every room, one after the other."""
    lines: list[Line] = []
    for room, what, measure in (
        ("journal", "receive", storage.journal_speed),
        ("archive", "line", storage.archive_speed),
    ):
        # Disks have moods: the reference is taken before and after.
        before = _append_and_sync(folder / f"before-{room}")
        speed = await measure(folder)
        synced = sorted([*before, *_append_and_sync(folder / f"after-{room}")])
        alone = synced[len(synced) // 2]
        beside = "append + fdatasync of a plain file"
        lines += [
            Line(f"{room}, one {what} alone", speed.p50, alone, beside),
            Line(f"{room}, one {what} alone, p99", speed.p99, synced[len(synced) * 99 // 100], beside),
            Line(f"{room}, {what}s by 64 callers", speed.rate, 1000 / alone, beside, "a second"),
        ]
    lines += await _back(folder / "sessions")
    judged, looked = permissions.judging(folder)
    rules = Line("tools, a call judged by 1,000 rules", judged, looked, "looking at each rule's name")
    return [*lines, rules, _view(), *_markdown()]


async def _back(folder: Path) -> list[Line]:
    """A chat with a long session comes back into memory."""
    lines: list[Line] = []
    for cut, how in ((True, ""), (False, " that was never cut")):
        most = 1_000_000 if cut else HISTORY
        back = await sessions.session_back(folder / f"cut-{cut}", most=most, cut=cut)
        session = f"transcript, a session of {sessions.SIZE // 1_000_000} MB{how} into memory"
        lines += [
            Line(session, back.seconds * 1000, back.whole * 1000, "all of its lines"),
            Line("transcript, memory at the peak of that", back.peak, back.kept, "what is kept", "MB"),
        ]
    return lines


def _append_and_sync(path: Path, times: int = 200) -> list[float]:
    """Milliseconds of the cheapest durable append there is."""
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
    """A request with sixty messages of history, from the store to the body, beside writing it as JSON."""
    store = AgentContextStore(HISTORY)
    for number in range(HISTORY // 2):
        said = [{"type": "text", "text": f"<turn_context>{number}</turn_context>"}, _words(400)]
        entries = (
            Entry(f"u{number}", {"role": "user", "content": said}),
            Entry(f"a{number}", {"role": "assistant", "content": [_words(800)]}),
        )
        store.commit(Turn(f"{number}", (f"{number}",), entries))
    system = prompt.system_blocks(prompt.RULES, "# This conversation\n\nchannel: telegram")
    current = [{"role": "user", "content": [_words(200)]}]

    def rendered() -> dict[str, object]:
        request = view.render(
            model="claude-sonnet-5-5",
            max_tokens=8_192,
            system=system,
            tools=[],
            history=store.messages(),
            injected=[],
            current=current,
        )
        return body_of(request)

    body = rendered()
    return Line(
        "store and view, 60 messages",
        _median(rendered, 300),
        _median(lambda: json.dumps(body), 300),
        "json.dumps of the body",
    )


def _words(length: int) -> dict[str, str]:
    return {"type": "text", "text": ("Some words, 几个字, a few more. " * (length // 20))[:length]}


def _markdown() -> list[Line]:
    """A hundred thousand characters of Markdown for Telegram: all of it, and the longest piece of work at once."""
    around = ChannelDeps(SystemClock(), MemoryLog(), random.Random(1), Path(), Path(), SystemDisk())
    channel = adapter.TelegramChannel(settings.TelegramSettings(bot_token="1:a"), around)
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
    """Texts that make careless parsers of Markdown slow."""
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
    """Markdown with everything in it."""
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
    """Milliseconds of each call, the quickest first."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1000)
    return sorted(took)
