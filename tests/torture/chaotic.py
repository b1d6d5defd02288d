"""A gateway behind a bad network, with people who write on all the same, and what they have seen in the end."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.system import SystemClock
from bot.testing.anthropic_script import Reply, reply, tool_use
from bot.testing.chaos import ChaosProxy
from bot.testing.clock import FastClock
from bot.testing.slack import SlackServer
from bot.testing.telegram import TelegramServer
from tests.blackbox.conftest import World, eventually
from tests.torture import scene
from tests.torture.outside import Alone

REPEATED = scene.REPEATS

SPEED = 20.0
"""Seconds that go by in one: forty seconds of silence take two."""
CUT = ("(interrupted)", "…")
"""What was shown of an answer ends so where its last edit was lost."""
PEOPLE = 25
"""Chats in which is written side by side."""


def answered(question: str) -> str:
    return f"answer to {question}."


def script(body: Any) -> Reply:
    """Every other answer comes by `chat_send`; a turn that has sent one is over."""
    blocks = body["messages"][-1]["content"]
    if any(block["type"] == "tool_result" for block in blocks):
        return reply("")
    asked = [block["text"] for block in blocks if block["type"] == "text" and block["text"].startswith("q")]
    if sum(map(ord, asked[-1])) % 2:
        return reply(*(tool_use("chat_send", {"text": answered(question)}) for question in asked))
    return reply("\n".join(answered(question) for question in asked))


@dataclass(slots=True)
class Net:
    """A world on a fast clock, with a proxy before each platform."""

    world: World
    clock: FastClock
    since: float
    proxies: Mapping[str, ChaosProxy]
    asked: dict[str, Callable[[], list[str]]] = field(default_factory=dict)
    """By question, what is seen of the bot where it was asked."""
    waited: dict[str, tuple[float, float]] = field(default_factory=dict)
    """When a question was asked, and when its answer was seen."""
    number: int = 0
    speed: float = SPEED

    async def start(self) -> Alone:
        """One life of the gateway; it may take a few, where the network is bad while it starts."""
        life = Alone(self.world, options=("--speed", str(self.speed), "--since", str(self.since)))
        await life.start()
        assert not life.dead, life.process.stderr
        return life

    async def ask(self, channel: str, person: int) -> str:
        """Somebody writes, in a direct chat of their own."""
        self.number += 1
        question = f"q{self.number:04d} 消息 🙂"
        if channel == "telegram":
            self.world.telegram.say(question, chat_id=2_000 + person)
            self.asked[question] = lambda: self.world.texts(2_000 + person)
        else:
            user, chat = f"U{person:04d}", f"D{user_chat(person)}"
            await self.world.slack.say(question, channel=chat, user=user)
            self.asked[question] = lambda: [one.text for one in self.world.slack.replies(chat)]
        return question

    def shown(self, question: str) -> list[str]:
        """The bot's messages that answer a question, oldest first."""
        return [text for text in self.asked[question]() if answered(question) in text]

    def silent(self, questions: Iterable[str] = ()) -> list[str]:
        """The questions that nothing was said to yet."""
        return [question for question in questions or self.asked if not self.shown(question)]

    def given_up(self, question: str) -> bool:
        """Whether Slack brings a message no more, and was never told that it had arrived."""
        name = question.split(maxsplit=1)[0]
        lost = [one for one in self.world.slack.deliveries if one.given_up and not one.acked.is_set()]
        return any(name in str(one.payload) for one in lost)

    def taken_in(self, question: str) -> bool:
        """Whether the log has a message."""
        name = question.split(maxsplit=1)[0]
        received = scene.rows(self.world.root, "SELECT data FROM events WHERE kind = 'received'")
        return any(name in data for (data,) in received)

    async def until_answered(self) -> float:
        """Wait until nothing is unanswered; the seconds that took. A second here is a small part of a real one, of which a
        busy machine needs several for any answer: a limit is judged beside what an answer takes while all is well.
        """
        began = self.clock.monotonic()
        try:
            await eventually(lambda: not self.silent())  # what people see sets one event a server
        except TimeoutError:
            raise TimeoutError(f"without an answer: {self.silent()[:20]}") from None
        return self.clock.monotonic() - began

    def honest(self) -> Counter[int]:
        """Every answer was shown once, but for repeats that say so; how often each number of repeats was."""
        assert not self.silent()
        return self.repeats()

    def repeats(self) -> Counter[int]:
        """The same of those answers that there are, but for what was shown of one that broke off."""
        repeats = Counter[int]()
        for question in self.asked:
            shown = [text for text in self.shown(question) if not text.endswith(CUT)]
            if not shown:
                continue
            first, *more = shown
            assert all(text.startswith(REPEATED) for text in more), [first, *more]
            repeats[len(more)] += 1
        return repeats

    async def deaf(self, seconds: float, *, answers_only: bool = False) -> None:
        """For so long, nothing passes."""
        for proxy in self.proxies.values():
            proxy.deafen(answers_only=answers_only)
        await self.clock.sleep(seconds)
        self.heal()

    def heal(self) -> None:
        for proxy in self.proxies.values():
            proxy.heal()


def user_chat(person: int) -> str:
    return f"{person:04d}"


@asynccontextmanager
async def net(root: Path, rng: random.Random, *channels: str, speed: float = SPEED) -> AsyncIterator[Net]:
    """`channels` behind their proxies; the others are off."""
    since = time.time()
    clock = FastClock(SystemClock(), speed, since)
    made = World(root)
    made.telegram, made.slack = TelegramServer(clock=clock), SlackServer(clock=clock, ping_every=10.0)
    async with made as world, AsyncExitStack() as stack:
        servers = {"telegram": world.telegram, "slack": world.slack}
        proxies: dict[str, ChaosProxy] = {}
        for name in channels:
            proxy = ChaosProxy(servers[name].port, rng=random.Random(rng.random()), clock=clock)
            proxies[name] = await stack.enter_async_context(proxy)
        world.only(*channels)
        world.model.script(script)
        for name, proxy in proxies.items():
            path = "/api/" if name == "slack" else ""
            world.config["channels"][name] |= {"baseUrl": f"{proxy.url}{path}", "allow": ["*"]}
        if "slack" in proxies:
            world.slack.front = proxies["slack"].port
            for person in range(PEOPLE):
                world.slack.add_user(f"U{person:04d}", name=f"user {person}")
                world.slack.add_im(f"U{person:04d}")
        yield Net(world, clock, since, proxies, speed=speed)
