"""Kills the leader repeatedly while people write. Measures the time until the next leader answers, and
checks what happened to every message.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from bot.cluster import leadership
from bot.contracts.base import Json
from bot.testing import telegram_rules as rules
from tests.bench.programs import OnPostgres
from tests.bench.servers import Board, Parrot, TimedTelegram

PEOPLE = 20
A_SECOND = 10
"""Messages per second of all people together."""
SECONDS = 180.0
"""Timeout in seconds for waiting on anything."""
_ANSWER = re.compile(r"answer to (\d+)")


class Platform(TimedTelegram):
    """A platform that counts the bot's sends and records the time of the last one."""

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.sent = 0
        self.sent_at = 0.0

    async def _send_message(self, args: rules.Args) -> Json:
        shown = await super()._send_message(args)
        self.sent += 1
        self.sent_at = time.perf_counter()
        return shown


class People:
    """People who keep writing at a fixed rate and do not wait for answers."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self.said: Counter[int] = Counter()

    async def write(self) -> None:
        while True:
            chat = 1 + self.said.total() % PEOPLE
            self.said[chat] += 1
            self._platform.say(f"This is question {self.said[chat]}, as you know.", chat_id=chat)
            await asyncio.sleep(1 / A_SECOND)

    def answers(self, chat: int) -> list[tuple[int, bool]]:
        """Return the numbers of the answered messages, each with whether the answer says that it may appear twice."""
        texts = [one.text for one in self._platform.visible(chat)]
        found = [(_ANSWER.search(text), not text.startswith("answer")) for text in texts]
        return [(int(match[1]), marked) for match, marked in found if match is not None]

    @property
    def waiting(self) -> int:
        """Number of messages without an answer."""
        return sum(self.said[chat] - len({name for name, _ in self.answers(chat)}) for chat in self.said)

    def result(self) -> str:
        """Return a line that says what happened to all messages."""
        lost, doubled, told, disordered = self.waiting, 0, 0, 0
        for chat in self.said:
            answers = self.answers(chat)
            plain = Counter(name for name, marked in answers if not marked)
            doubled += sum(count - 1 for count in plain.values())
            told += sum(marked for _, marked in answers)
            first = list(dict.fromkeys(name for name, _ in answers))
            disordered += sum(after < before for before, after in itertools.pairwise(first))
        return (
            f"of {self.said.total()} messages {lost} lost, {doubled} doubled, {disordered} out of order; "
            f"{told} answers say that they may be there twice"
        )


async def measure(folder: Path, url: str, kills: int, say: Callable[[str], None]) -> None:
    board, model = Board(), Parrot(thinking=0.2)
    platform = Platform(board)
    people = People(platform)
    hosts = [
        OnPostgres(folder / name, board, first_chat=0, url=url, queue={"mode": "followup"}) for name in "ab"
    ]
    for host in hosts:
        host.telegram = platform
    led: list[float] = []
    answered: list[float] = []
    await model.start()
    try:
        await hosts[0].start(model)
        hosts[1].env = hosts[0].env
        hosts[1].prepare(model)
        writing = asyncio.create_task(people.write())
        await hosts[1].launch()
        for _ in range(kills):
            await _until(lambda: _seen(url, hosts))
            await platform.until(lambda: people.said.total() <= platform.sent + A_SECOND, SECONDS)
            dead, began = hosts[0], time.perf_counter()
            await dead.kill()
            await _until(lambda dead=dead: not _leads(url, dead))  # type: ignore[misc]
            leads = time.perf_counter()
            await platform.until(lambda leads=leads: platform.sent_at >= leads, SECONDS)  # type: ignore[misc]
            led.append(leads - began)
            answered.append(platform.sent_at - began)
            await dead.launch()
            hosts.reverse()
        writing.cancel()
        await platform.until(lambda: not people.waiting, SECONDS)
        await asyncio.sleep(2)  # a wrong second answer would arrive during this pause
    finally:
        for host in hosts:
            await host.stop()
        await model.stop()
    for words, times in (("the next one leads", led), ("it answers", answered)):
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        say(
            f"from the kill until {words}: p50 {cuts[49]:.1f}, p95 {cuts[94]:.1f}, at most {max(times):.1f} s ({kills} kills)"
        )
    say(people.result())


def _seen(url: str, hosts: list[OnPostgres]) -> bool:
    """Return True if every host is leader or standby, and the first host is the leader."""
    there = [host.holder for host in leadership.hosts(url)]
    return _leads(url, hosts[0]) and all(any(f":{host.pid}:" in one for one in there) for host in hosts)


def _leads(url: str, host: OnPostgres) -> bool:
    return any(one.leads and f":{host.pid}:" in one.holder for one in leadership.hosts(url))


async def _until(condition: Callable[[], bool]) -> None:
    """Wait until a condition on the database holds. Raises TimeoutError."""
    async with asyncio.timeout(SECONDS):
        while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - it sets no event here
            await asyncio.sleep(0.02)
