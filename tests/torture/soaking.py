"""Runs a gateway through weeks within minutes. Platform, model and clock are fakes; everything else is real."""

from __future__ import annotations

import _sqlite3
import argparse
import asyncio
import contextlib
import ctypes
import gc
import json
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bot import config, configuration, discovery, errors, text
from bot.composition import Gateway
from bot.contracts.channel import Channel, Health, Intake
from bot.contracts.messages import Command, Inbound, Outbound, Quoted, Sent
from bot.contracts.model import ModelFacts, ModelRequest, ModelStream
from bot.core.services import Environment
from bot.instance import prepare_home
from bot.lifecycle import serving
from bot.llm import demo
from bot.llm.costs import Spending
from bot.resources import one_heap
from bot.system import SystemDisk
from bot.telemetry.log import JsonlLog
from bot.testing.clock import FakeClock
from bot.testing.model import reply, tool_use
from bot.testing.model import text as words_of

AT_ONCE = 50
"""Number of events that arrive together."""
BREAK = 20.0
"""Pause in seconds between two groups of events, except at night."""
GROWS, LONGEST_STEP = 1.005, 1.0
"""Factor by which each step of waiting is longer than the previous one, and the max length of a step in seconds."""
DAY = 25
"""Number of groups of events in a day. A night follows."""
TASKS = 4
"""Max normal variation of the number of asyncio tasks."""
RESTS = 2.0
"""Timeout in seconds of the wait for unfinished work before a sample is taken."""
NIGHT = 3 * 3_600.0
FRESH = 0.2
"""New chats per event. Older chats become silent."""
BUSY = 300
"""Number of chats that are active at the same time."""
SAYINGS = (
    "Where is the report of last week?",
    "请把上周的报告发给我，谢谢。",
    "昨日の会議のメモはどこですか 🙂",
    "أين التقرير من الأسبوع الماضي؟",
    "One **bold** question, with `code` and a [link](https://example.org/a?b=c).",
)


class QuietDisk(SystemDisk):
    """The machine's disk without fsync, because these tests measure memory."""

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        super().append(path, data, sync=False)

    def sync(self, path: Path) -> None:
        """Do nothing; data may be lost in a power failure."""


class Once:
    """Random faults that never affect the same thing twice in a row, so that everything is answered in the end."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._struck: dict[str, None] = {}

    def strikes(self, what: str, chance: float) -> bool:
        if self._struck.pop(what, self) is None or self._rng.random() >= chance:
            return False
        self._struck[what] = None
        if len(self._struck) > AT_ONCE:
            del self._struck[next(iter(self._struck))]
        return True


class Parrot:
    """A `contracts.model.Model` that repeats the question, sometimes by `chat_send`. It keeps no memory."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._trouble = Once(rng)

    async def stream(self, request: ModelRequest) -> ModelStream:
        asked = _asked(request)
        if not asked:
            yield reply()
            return
        say = "\n".join(f"re: {words}" for words in asked)
        if self._trouble.strikes(say, 0.01):
            raise errors.Overloaded("overloaded")
        by_tool = self._rng.random() < 0.2
        yield reply(tool_use("chat_send", text=say) if by_tool else words_of(say))

    async def check(self) -> None: ...
    async def facts(self, model: str) -> ModelFacts:
        return ModelFacts()

    async def close(self) -> None: ...


def _asked(request: ModelRequest) -> list[str]:
    """Return the last text of each message of a person since the last answer."""
    asked: list[str] = []
    for message in reversed(request.messages):
        if message["role"] == "assistant":
            break
        last = message["content"][-1]
        asked = [last["text"], *asked] if last["type"] == "text" else asked
    return asked


class Platform(Channel):
    """A `contracts.channel.Channel` that keeps no sent messages. It only counts the answers in `due`."""

    addresses: tuple[str, ...] = ()

    def __init__(self, name: str, rng: random.Random) -> None:
        self.name = name
        self.sent = 0
        self.due: dict[str, int] = {}
        self._trouble = Once(rng)

    async def start(self, intake: Intake) -> None: ...
    async def pause(self) -> None: ...
    async def stop(self) -> None: ...
    async def heal(self) -> None: ...

    def split(self, words: str) -> list[str]:
        return text.split(words, 4_000)

    async def send(self, message: Outbound) -> Sent:
        if self._trouble.strikes(message.text, 0.004):
            if self.sent % 2:
                raise errors.DeliveryThrottled("slow down", retry_after=1.0)
            raise errors.DeliveryUncertain("cut off")
        self.sent += 1
        for line in message.text.splitlines():
            if line in self.due:
                self.due[line] += 1
        return Sent(f"m{self.sent}")

    async def find(self, message: Outbound) -> Sent | None:
        return None

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None: ...

    async def context(self, inbound: Inbound) -> tuple[Quoted, ...]:
        return ()

    def health(self) -> Health:
        return Health(connected=True)


class Mallinfo(ctypes.Structure):
    """Memory figures of glibc's heap (mallinfo2(3))."""

    _fields_ = (
        ("arena_ordblks_smblks_hblks", ctypes.c_size_t * 4),
        ("hblkhd", ctypes.c_size_t),
        ("usmblks_fsmblks", ctypes.c_size_t * 2),
        ("uordblks", ctypes.c_size_t),
        ("fordblks_keepcost", ctypes.c_size_t * 2),
    )

    @classmethod
    def held(cls) -> int:
        """Return the allocated bytes that were not freed; 0 if the C library does not report them. With
        PYTHONMALLOC=malloc these include all Python objects, SQLite's pages and buffers of libraries.
        """
        try:
            ask = ctypes.CDLL(None).mallinfo2
        except (OSError, AttributeError):
            return 0
        ask.restype = cls
        found = ask()
        return int(found.uordblks + found.hblkhd)


def held_by_sqlite() -> int:
    """Return the bytes allocated by SQLite, whose connections keep up to 2 MB of pages each; 0 if SQLite does not report
    them.
    """
    try:
        ask = ctypes.CDLL(_sqlite3.__file__).sqlite3_memory_used
    except (OSError, AttributeError):
        return 0
    ask.restype = ctypes.c_int64
    return int(ask())


@dataclass(slots=True)
class Sample:
    """Resources of the process after `events` events. `held` is in allocated bytes, `pages` in bytes of SQLite,
    `resident` in bytes.
    """

    events: int
    held: int
    pages: int
    resident: int
    files: int
    tasks: int

    @classmethod
    def now(cls, events: int) -> Sample:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return cls(
            events,
            Mallinfo.held(),
            held_by_sqlite(),
            pages * os.sysconf("SC_PAGE_SIZE"),
            len(os.listdir("/proc/self/fd")),  # noqa: PTH208 - names are enough
            len(asyncio.all_tasks()),
        )


def slope(samples: list[Sample], value: Callable[[Sample], float]) -> float:
    """Return the growth of a value per event by least squares. Samples of a single moment show no growth."""
    xs, ys = [float(one.events) for one in samples], [value(one) for one in samples]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    over = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True))
    spread = sum((a - x) ** 2 for a in xs)
    return over / spread if spread else 0.0


@dataclass(slots=True)
class Soak:
    """A soak test of a gateway. `run` sends events and takes `looks` samples of the process meanwhile. `chatter` is the
    share of events that need no answer: repeated events, talk in threads without the bot, and strangers.
    """

    gateway: Gateway
    platforms: dict[str, Platform]
    clock: FakeClock
    rng: random.Random
    chatter: float = 0.0
    events: int = 0
    samples: list[Sample] = field(default_factory=list)
    _chores: dict[str, float] = field(default_factory=dict)
    _last: list[Inbound] = field(default_factory=list)
    _said: list[Inbound] = field(default_factory=list)

    async def run(self, total: int, *, looks: int) -> None:
        every = total // looks
        rounds = 0
        while self.events < total:
            await self._round()
            rounds += 1
            night = rounds % DAY == 0
            await self._pass(NIGHT if night else BREAK)
            # In the morning, data that only the evening needs is not in memory, so take all samples at the same time of the
            # day.
            if (night or every < DAY * AT_ONCE) and self.events >= every * (len(self.samples) + 1):
                await self._rested()
                self.samples.append(Sample.now(self.events))
        assert self.gateway.runner.running == 0

    async def _rested(self) -> None:
        """Wait until started work has ended, which takes longer on a busy machine. Stop waiting after `RESTS` seconds."""
        most = self.samples[0].tasks + TASKS if self.samples else TASKS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RESTS):
                while len(asyncio.all_tasks()) > most:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    async def _until(self, over: Callable[[], bool]) -> None:
        """Advance the clock until a condition is true. The steps grow, since a delayed send may wait for minutes."""
        step = 0.01
        async with asyncio.timeout(600):
            while not over():
                await asyncio.sleep(0.0005)
                await self.clock.advance(step)
                step = min(step * GROWS, LONGEST_STEP)

    async def _round(self) -> None:
        """Send a group of events, and wait until all work is done."""
        platform = self.platforms["telegram"]
        platform.due.clear()
        coming = [self._event() for _ in range(AT_ONCE)]
        self.events += len(coming)
        await asyncio.gather(*(self.gateway.intake.accept(one) for one in coming))
        if self.rng.random() < 0.1:
            await self.gateway.intake.keep_dead_letter(
                "telegram", f"k{self.events}", "{broken", "it cannot be read"
            )
        await self._until(
            lambda: not any(chat.turn or chat.waiting or chat.outbox for chat in self.gateway.chats)
        )
        wrong = {words: count for words, count in platform.due.items() if count != 1}
        self._said = [
            *self._said[-5:],
            *self._last[-5:],
        ]  # these messages are answered, so they may be changed now
        assert not wrong, f"{len(wrong)} of {len(platform.due)} were not answered once: {wrong}"

    async def _pass(self, seconds: float) -> None:
        """Advance the clock, and run the periodic jobs that are due."""
        await self.clock.advance(seconds)
        now = self.clock.monotonic()
        for chore in (*self.gateway.door.all("periodic"), *self.gateway.maintenance.jobs()):
            if self._chores.setdefault(chore.name, now + chore.seconds) <= now:
                self._chores[chore.name] = now + chore.seconds
                await chore.run()

    def _event(self) -> Inbound:
        return self._aside() if self.rng.random() < self.chatter else self._meant()

    def _aside(self) -> Inbound:
        chance = self.rng.random()
        if chance < 0.5 and self._last:
            return self.rng.choice(self._last)
        if chance < 0.8:
            thread = self.events + self.rng.randrange(BUSY)
            return self._inbound(10_000_000 + thread, self.rng.choice(SAYINGS), addressed="thread")
        return self._inbound(int(self.events * FRESH) + self.rng.randrange(BUSY), "hello", channel="slack")

    def _meant(self) -> Inbound:
        chance = self.rng.random()
        chat = int(self.events * FRESH) + self.rng.randrange(BUSY)
        if chance < 0.03 and self._last:
            return self._last[-1]  # a repeated event
        if chance < 0.06:
            return self._inbound(
                self.events * AT_ONCE + self.rng.randrange(AT_ONCE), "hello", channel="slack"
            )
        noisy = 5_000_000 + chat % 20
        if chance < 0.10 and self._said:
            return self._change(self.rng.choice(self._said))
        if chance < 0.14:
            name = self.rng.choice(["status", "new", "help", "stop"])
            return self._inbound(noisy, f"/{name}", command=Command(name=name))
        if chance < 0.18:
            said = self._inbound(noisy, self.rng.choice(SAYINGS))
            self._said = [*self._said[-9:], said]
            return said
        fresh = self._inbound(chat, f"Q{self.rng.randrange(10**9)}: {self.rng.choice(SAYINGS)}")
        self._last = [*self._last[-9:], fresh]
        self.platforms["telegram"].due[f"re: {fresh.text}"] = 0
        return fresh

    def _change(self, said: Inbound) -> Inbound:
        """Return an edit or a deletion of a message that waits, is being answered, or is answered."""
        kind = self.rng.choice(["edit", "delete"])
        return self._inbound(int(said.chat_id), "changed 改了", kind=kind, message_id=said.message_id)

    def _inbound(self, chat: int, words: str, *, channel: str = "telegram", **more: Any) -> Inbound:
        number = self.rng.getrandbits(60)
        fields: dict[str, Any] = {
            "channel": channel,
            "chat_id": f"{chat}",
            "chat_key": f"{channel}:chat:{chat}",
            "user_id": f"{chat}",
            "chat_type": "direct",
            "keys": (f"update:{number}", f"message:{number}"),
            "message_id": f"{number}",
            "ts": int(self.clock.now() * 1000),
            "target": {"chat_id": f"{chat}"},
            "text": words,
        }
        return Inbound.model_validate(fields | more)


async def soak(root: Path, total: int, *, looks: int, seed: int, chatter: float = 0.0) -> Soak:
    """Run a gateway in `root` through `total` events. Raise if a message is not answered exactly once."""
    one_heap()
    file = {
        "llm": {"provider": "demo"},
        "channels": {
            "telegram": {"enabled": True, "botToken": "1:a", "allow": ["*"]},
            "slack": {"enabled": True, "botToken": "xoxb-1", "appToken": "xapp-1", "allow": []},
            "web": {"enabled": False},
            "console": {"enabled": False},
        },
    }
    (root / "ship.json").write_text(json.dumps(file), encoding="utf-8")
    settings = config.load(root, discovery.manifests(), {})
    prepare_home(settings.home)
    rng, clock = random.Random(seed), FakeClock()
    platforms: dict[str, Platform] = {}

    def platform(made: Channel) -> Channel:
        return platforms.setdefault(made.name, Platform(made.name, rng))

    environment = Environment(clock=clock, disk=QuietDisk(), rng=rng, wrap_channel=platform)
    log = JsonlLog(settings.home / "logs", clock=clock, disk=environment.disk, ids=environment.ids)
    spending = Spending(configuration.prices_of(settings.llm))
    names = ["telegram", "slack"]
    gateway = Gateway(settings, environment, log, names, counted=None, spending=spending)
    lived = Soak(gateway, platforms, clock, rng, chatter)
    try:
        async with serving(gateway, lambda _: None, asyncio.Event()):
            await lived.run(total, looks=looks)
    finally:
        await asyncio.to_thread(log.close)
    return lived


def main() -> None:
    """Run a soak of `events` events in a folder, and print one line of JSON for each sample."""
    ask = argparse.ArgumentParser(description=main.__doc__)
    ask.add_argument("root", type=Path)
    ask.add_argument("events", type=int)
    ask.add_argument("--looks", type=int, default=50)
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--chatter", type=float, default=0.9)
    given = ask.parse_args()
    now = Sample.now

    def told(events: int) -> Sample:
        sample = now(events)
        print(json.dumps(asdict(sample)), flush=True)  # noqa: T201 - this is what it is for
        return sample

    with (
        patch.object(demo, "DemoModel", lambda *_, **__: Parrot(random.Random(given.seed))),
        patch.object(Sample, "now", told),
    ):
        asyncio.run(soak(given.root, given.events, looks=given.looks, seed=given.seed, chatter=given.chatter))


if __name__ == "__main__":
    main()
