"""A question that is put anew: what its person adds before anybody has seen an answer is part of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot.contracts.agent import NoArrivals, TurnOutcome, TurnRequest
from bot.contracts.inbound import Inbound
from bot.contracts.model import ToolInputDelta
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench, Watched, words
from tests.unit.gateway.outgoing import until


class Adding(NoArrivals):
    """A person who adds to a turn; `recorded` is set once that is on file."""

    def __init__(self, bench: Bench, words: str = "the question") -> None:
        self.bench = bench
        self.bench.chat = self.chat = Watched()
        self.inbound = bench.inbound(words)
        self.waiting: list[Inbound] = []
        self.recorded = asyncio.Event()
        self.recorded.set()
        self.acts = 0

    def effect_begins(self) -> None:
        self.acts += 1

    async def joined(self) -> None:
        await self.recorded.wait()

    def take_more(self) -> list[Inbound]:
        taken, self.waiting = self.waiting, []
        return taken

    def request(self, **more: Any) -> TurnRequest:
        name = self.inbound.request_id
        return TurnRequest(name, KEY, self.inbound, reply=self.chat, arrivals=self, **more)

    def run(self) -> asyncio.Task[TurnOutcome]:
        return asyncio.create_task(self.bench.pool.run(self.request()))

    async def add(self, words: str) -> Inbound:
        inbound = self.bench.inbound(words)
        self.waiting.append(inbound)
        assert await self.bench.pool.restart_model_call(KEY)
        return inbound


def asked(bench: Bench, at: int = -1) -> list[str]:
    return [one for message in bench.model.requests[at].messages for one in words(message)]


@pytest.fixture
def adding(bench: Bench) -> Adding:
    bench.model.hold = asyncio.Event()
    return Adding(bench)


async def test_the_call_is_given_up_and_the_next_one_has_both(bench: Bench, adding: Adding) -> None:
    turn = adding.run()
    await bench.model.asked.wait()
    adding.recorded.clear()
    await adding.add("and this")
    await until(lambda: not adding.waiting)
    assert len(bench.model.requests) == 1, "first it is on file as part of the turn"
    adding.recorded.set()
    await until(lambda: len(bench.model.requests) == 2)
    await adding.add("还有")
    await until(lambda: len(bench.model.requests) == 3)
    assert bench.model.hold is not None
    bench.model.hold.set()
    assert (await turn).status == "done"
    assert asked(bench, 2) == ["the question", "and this", "还有"]
    assert bench.chat.seen == ["echo: 还有"]
    steps = await bench.journal.steps(adding.inbound.request_id)
    results = [step.result for step in steps if step.kind == "model"]
    assert [one and one.get("error") for one in results] == ["begun anew", "begun anew", None]
    assert len(bench.log.of("steer")) == 4


async def test_where_no_call_runs_the_next_one_has_it(bench: Bench, adding: Adding) -> None:
    assert not await bench.pool.restart_model_call(KEY)
    began, go_on = asyncio.Event(), asyncio.Event()

    async def preparing(*_: Any) -> None:
        began.set()
        await go_on.wait()

    bench.pool.runtime(KEY).compactor.before_turn = preparing  # type: ignore[assignment, method-assign]
    turn = adding.run()
    await began.wait()
    await adding.add("and this")
    go_on.set()
    await bench.model.asked.wait()
    assert asked(bench) == ["the question", "and this"]
    assert bench.model.hold is not None
    bench.model.hold.set()
    await turn
    assert len(bench.model.requests) == 1


async def test_an_answer_that_goes_on_is_not_given_up(bench: Bench, adding: Adding) -> None:
    hold, bench.model.hold = bench.model.hold, None
    bench.model.answers.append(reply(text("The first half"), stop_reason="max_tokens"))

    def second(_: Any) -> Any:
        return reply(text(" and the second."))

    bench.model.answers.append(second)
    turn = adding.run()
    bench.model.asked.clear()
    while len(bench.model.requests) < 1:
        await bench.model.asked.wait()
    bench.model.hold = hold
    await until(lambda: len(bench.model.requests) == 2)
    await adding.add("and this")
    assert hold is not None
    hold.set()
    await turn
    assert bench.chat.seen == ["The first half and the second."]
    assert [one.text for one in adding.waiting] == ["and this"], "it is a turn of its own"


async def test_before_anything_with_effects_is_done_the_gateway_hears_of_it(
    bench: Bench, adding: Adding
) -> None:
    bench.model.hold = None
    seen: list[int] = []

    def look(_: Any) -> Any:
        seen.append(adding.acts)
        return reply(tool_use("skills_list"))

    def change(_: Any) -> Any:
        seen.append(adding.acts)
        return reply(tool_use("write_file", path="a.txt", content="a"))

    bench.model.answers.extend([look, change])
    await adding.run()
    assert seen == [0, 0]
    assert adding.acts == 1


async def test_what_was_about_to_be_shown_of_the_call_is_not(bench: Bench, adding: Adding) -> None:

    stream, hold = bench.model.stream, asyncio.Event()

    async def speaking(request: Any) -> Any:
        if not adding.chat.shown:
            yield ToolInputDelta("t1", "chat_send", '{"text": "The first')
            await hold.wait()
        async for event in stream(request):
            yield event

    bench.model.hold = None
    bench.model.stream = speaking  # type: ignore[method-assign]
    turn = adding.run()
    await until(lambda: bool(adding.chat.shown))
    await adding.add("and this")
    await turn
    assert (adding.chat.shown[0], *set(adding.chat.shown[1:])) == ("The first", "")
    assert bench.chat.seen == ["echo: and this"]


async def test_a_stop_while_it_is_written_down_ends_the_turn(bench: Bench, adding: Adding) -> None:
    turn = adding.run()
    await bench.model.asked.wait()
    adding.recorded.clear()
    await adding.add("and this")
    await until(lambda: not adding.waiting)
    assert await bench.pool.stop(KEY)
    assert (await turn).status == "stopped"
    assert bench.chat.seen == []


@pytest.mark.parametrize("told", [False, True])
async def test_after_a_crash_the_question_has_what_was_added_once(
    bench: Bench, adding: Adding, told: bool
) -> None:
    turn = adding.run()
    await bench.model.asked.wait()
    if not told:
        adding.recorded.clear()
    added = await adding.add("and this")
    await until(lambda: len(bench.model.requests) == (2 if told else 1) and not adding.waiting)
    turn.cancel()
    await asyncio.wait([turn])
    await bench.pool.flush()
    bench.restart()
    bench.model.hold = None
    adding.recorded.set()
    outcome = await bench.pool.run(adding.request(also=(added,)))
    assert outcome.status == "done"
    assert asked(bench) == ["the question", "and this"]
    assert bench.chat.seen == ["echo: and this"]
