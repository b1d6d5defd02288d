"""A gateway behind a bad network, the people who keep writing to it, and the answers that they see."""

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
"""Factor by which the test's clock runs faster than real time: forty seconds of silence take two."""
CUT = ("(interrupted)", "…")
"""Ends of an answer's text whose last edit was lost."""
PEOPLE = 25
"""Number of chats in which people write at the same time."""


def answered(question: str) -> str:
    return f"answer to {question}."


def script(body: Any) -> Reply:
    """Return the model's answer: every other one is sent by `chat_send`. A turn that has sent an answer ends."""
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
    """For each question, a function that returns the bot's texts in the chat of the question."""
    waited: dict[str, tuple[float, float]] = field(default_factory=dict)
    """For each question, the times when it was asked and when its answer was seen."""
    number: int = 0
    speed: float = SPEED

    async def start(self) -> Alone:
        """Start one life of the gateway. On a bad network the start may need several attempts."""
        life = Alone(self.world, options=("--speed", str(self.speed), "--since", str(self.since)))
        await life.start()
        assert not life.dead, life.process.stderr
        return life

    async def ask(self, channel: str, person: int) -> str:
        """Send a person's question in the person's direct chat, and return the question."""
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
        """Return the bot's messages that answer a question, oldest first."""
        return [text for text in self.asked[question]() if answered(question) in text]

    def silent(self, questions: Iterable[str] = ()) -> list[str]:
        """Return the questions that have no answer yet."""
        return [question for question in questions or self.asked if not self.shown(question)]

    def given_up(self, question: str) -> bool:
        """Return True if Slack has stopped repeating a message and never got a confirmation of it."""
        name = question.split(maxsplit=1)[0]
        lost = [one for one in self.world.slack.deliveries if one.given_up and not one.acked.is_set()]
        return any(name in str(one.payload) for one in lost)

    def taken_in(self, question: str) -> bool:
        """Return True if the log contains a message."""
        name = question.split(maxsplit=1)[0]
        received = scene.rows(self.world.root, "SELECT data FROM events WHERE kind = 'received'")
        return any(name in data for (data,) in received)

    async def until_answered(self) -> float:
        """Wait until every question is answered, and return the seconds on the fast clock. On a busy machine an answer
        takes many such seconds, so compare the result with the time of an answer on a good network.
        """
        began = self.clock.monotonic()
        try:
            await eventually(
                lambda: not self.silent()
            )  # poll, because no event reports the changes of all servers
        except TimeoutError:
            raise TimeoutError(f"without an answer: {self.silent()[:20]}") from None
        return self.clock.monotonic() - began

    def honest(self) -> Counter[int]:
        """Check that every question has one unmarked answer and that all repeats are marked. Count the questions by
        number of repeats.
        """
        assert not self.silent()
        return self.repeats()

    def repeats(self) -> Counter[int]:
        """Check as `honest` does, but skip questions without an answer and answers that broke off."""
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
        """Let the network pass nothing for these seconds."""
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
    """Yield a network in which these channels are behind proxies. All other channels are off."""
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
