"""Sends thousands of events within seconds. Each event must be confirmed in time, and each must be answered
exactly once.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bot.testing._slack_link import Delivery
from tests.bench.programs import OnSlack, Unanswered
from tests.bench.servers import Board, Parrot

A_SECOND = 500
"""Events sent per second. Slack allows an app 30,000 events an hour; a burst is far above that rate."""
FULL, SHORT, QUICK = 5_000, 1_000, 100
PEOPLE = 250
PATIENCE = 30.0
"""Timeout in seconds without any progress, after which the missing answers count as lost."""
_ANSWER = re.compile(r"answer to (\d+)")


@dataclass(frozen=True, slots=True)
class Burst:
    """Result of a burst. `confirmed` are the seconds from sending each event until its confirmation; `whole`
    is the time from the first event to the last answer.
    """

    confirmed: list[float]
    whole: float

    @property
    def rate(self) -> float:
        """Events answered per second."""
        return len(self.confirmed) / self.whole


async def bursts(folder: Path, events: int) -> tuple[Burst, Burst]:
    """Send one burst over Slack and one over Telegram; return both results."""
    model = Parrot()
    program = OnSlack(folder / "burst", Board(), first_chat=4_000_000)
    await model.start()
    try:
        await program.start(model)
        return await _slack(program, events), await _telegram(program, events)
    finally:
        await program.stop()
        await model.stop()


async def _slack(program: OnSlack, events: int) -> Burst:
    server = program.slack
    people = [server.add_user(f"U{number:05}", name=f"Person {number}") for number in range(PEOPLE)]
    rooms = [server.add_im(user) for user in people]
    confirmed: list[float] = []

    async def timed(delivery: Delivery, began: float) -> None:
        await delivery.acked.wait()
        confirmed.append(time.perf_counter() - began)

    async with asyncio.TaskGroup() as waiting:
        began = time.perf_counter()
        for number in range(events):
            await _until(began + number / A_SECOND)
            pushed = time.perf_counter()
            who = number % PEOPLE
            await server.say(f"question {number}, please", channel=rooms[who], user=people[who])
            waiting.create_task(timed(server.deliveries[-1], pushed))
        answered = await last_answer(events, lambda: (m.text for room in rooms for m in server.replies(room)))
    again = sum(delivery.attempts > 1 for delivery in server.deliveries)
    if again:
        raise Unanswered(f"Slack had to send {again} events again")
    return Burst(confirmed, answered - began)


async def _telegram(program: OnSlack, events: int) -> Burst:
    server = program.telegram
    chats = program.new_chats(PEOPLE)
    confirmed: list[float] = []
    pushed: dict[int, float] = {}
    forget = server.updates.confirm

    def confirm(offset: int) -> None:
        now = time.perf_counter()
        confirmed.extend(now - pushed.pop(number) for number in sorted(pushed) if number < offset)
        forget(offset)

    server.updates.confirm = confirm  # type: ignore[method-assign]
    began = time.perf_counter()
    for number in range(events):
        await _until(began + number / A_SECOND)
        update = server.say(f"question {number}, please", chat_id=chats[number % PEOPLE])
        pushed[update["update_id"]] = time.perf_counter()
    answered = await last_answer(events, lambda: (m.text for chat in chats for m in server.visible(chat)))
    if pushed:
        raise Unanswered(f"{len(pushed)} updates were never confirmed")
    return Burst(confirmed, answered - began)


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.perf_counter()))


async def last_answer(events: int, texts: Callable[[], Iterable[str]]) -> float:
    """Wait for all answers; return the time of the last answer."""
    known, last = -1, time.perf_counter()
    while True:
        counts = Counter(int(found[1]) for text in texts() for found in _ANSWER.finditer(text))
        if len(counts) != known:
            known, last = len(counts), time.perf_counter()
        if known >= events or time.perf_counter() - last > PATIENCE:
            break
        await asyncio.sleep(0.2)
    twice = sum(count > 1 for count in counts.values())
    if known < events or twice:
        raise Unanswered(
            f"of {events} events of a burst {events - known} got no answer, {twice} more than one"
        )
    return last
