"""What an overflow costs, in order: old observations, the length of results, half the history. Four requests at most."""

from __future__ import annotations

import asyncio
import json
from typing import ClassVar

import pytest

from bot import errors
from bot.contracts.agent import TurnRequest
from bot.contracts.model import ModelReply, ModelRequest
from bot.core.estimate import Estimator
from bot.core.fit import HistoryCleared, PromptFillsWindow
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.provider import Look


def overflow(request: ModelRequest, tokens: int, *, numbers: bool = True) -> errors.ContextOverflow | None:
    size = Estimator().request(request)
    if size <= tokens:
        return None
    if not numbers:
        return errors.ContextOverflow("prompt is too long")
    return errors.ContextOverflow("prompt is too long", tokens=size, window=tokens)


async def looked(bench: Bench, turns: int, lines: int = 40) -> None:
    bench.add_tools(Look())
    for number in range(turns):
        bench.model.answers += [reply(tool_use("look", lines=lines)), reply(text(f"answer {number}"))]
        await bench.say(f"look {number}")


@pytest.mark.parametrize("numbers", [True, False])
async def test_masking_comes_first_and_costs_nothing_that_was_said(bench: Bench, numbers: bool) -> None:
    await looked(bench, 12)
    asked = len(bench.model.requests)
    whole = Estimator().request(bench.model.requests[-1])

    def answer(request: ModelRequest) -> ModelReply | Exception:
        return overflow(request, int(whole * 0.8), numbers=numbers) or reply(text("fits"))

    bench.model.answers += [answer] * 4
    assert (await bench.say("now")).status == "done"
    tried = [request for request in bench.model.requests[asked:] if request.purpose == "turn"]
    assert len(tried) == 2
    sent = json.dumps(tried[-1].messages, ensure_ascii=False)
    assert sent.count("observation masked") == 8
    assert sent.count("39: 見た") == 4
    assert all(f"answer {number}" in sent for number in range(12))
    assert [entry.details["reason"] for entry in bench.log.of("masking")] == ["overflow"]
    kept = bench.pool.runtime(KEY).store
    assert json.dumps(kept.messages(), ensure_ascii=False).count("39: 見た") == 12
    bench.restart()
    await bench.pool.describe(KEY)
    assert json.dumps(bench.pool.runtime(KEY).store.view()) == json.dumps(kept.view())


async def test_a_running_turn_that_grows_too_large_masks_what_it_has_seen_and_runs_nothing_again(
    bench: Bench,
) -> None:
    class Counted(Look):
        runs: ClassVar[list[int]] = []

        async def run(self, args: object) -> str:
            self.runs.append(1)
            return await super().run(args)  # type: ignore[arg-type]

    bench.add_tools(Counted())
    steps = iter(range(12))

    def answer(request: ModelRequest) -> ModelReply | Exception:
        if failure := overflow(request, 7_000):
            return failure
        step = next(steps)
        return reply(tool_use("look", lines=40)) if step < 11 else reply(text("done"))

    bench.model.answers += [answer] * 40
    outcome = await bench.say("look at everything")
    assert outcome.status == "done"
    assert len(Counted.runs) == 11
    assert bench.chat.seen == ["done"]
    sent = [one for one in bench.model.requests if one.purpose == "turn"][-1].messages
    last = sent[-1]["content"][0]["content"]
    assert last.startswith("0: 見た"), "what the model has not seen yet stays whole"
    assert json.dumps(sent, ensure_ascii=False).count("observation masked") >= 3


async def test_results_that_were_shortened_stay_short_in_later_turns_and_after_a_restart(
    bench: Bench,
) -> None:
    bench.add_tools(Look())
    bench.model.answers += [
        reply(tool_use("look", lines=150)),
        lambda request: overflow(request, int(Estimator().request(request) * 0.6)) or reply(),
    ]
    await bench.say("look")
    shown = bench.sent[2]["content"][0]["content"]
    assert "left out" in shown
    await bench.say("and now?")
    assert bench.sent[2]["content"][0]["content"] == shown
    bench.restart()
    await bench.say("and now?")
    assert bench.sent[2]["content"][0]["content"] == shown


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("numbers", [True, False])
async def test_four_requests_are_the_most_whatever_there_is_to_give_up(
    bench: Bench, large: bool, numbers: bool
) -> None:
    for number in range(40):
        await bench.store(1_600_000_000_000 + number * 1000, "user", f"old {number} " + "o" * 400)
    await looked(bench, 8, lines=4 if large else 40)
    bench.model.answers.append(
        reply(tool_use("chat_load_history", limit=30), *[tool_use("look", lines=100 if large else 1)] * 1)
    )
    asked = len(bench.model.requests) + 1

    def never(request: ModelRequest) -> Exception:
        failure = overflow(request, 100, numbers=numbers)
        assert failure is not None
        return failure

    bench.model.answers += [never] * 20
    outcome = await bench.say("what was it?")
    assert outcome.notice in {HistoryCleared().person, PromptFillsWindow().person}
    tried = bench.model.requests[asked:]
    assert 2 <= len(tried) <= 4
    sizes = [Estimator().request(request) for request in tried]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes), "each try is smaller than the one before"


async def test_what_was_given_up_stays_given_up_where_the_process_dies_in_that_turn(bench: Bench) -> None:
    for number in range(40):
        await bench.store(1_600_000_000_000 + number * 1000, "user", f"früher {number} " + "o" * 400)
    await looked(bench, 6)
    held, reached = asyncio.Event(), asyncio.Event()

    def refuse(request: ModelRequest) -> Exception:
        bench.model.hold = held
        bench.model.asked.clear()
        reached.set()
        return overflow(request, 2_000, numbers=False) or AssertionError("it is larger than that")

    bench.model.answers += [reply(tool_use("chat_load_history", limit=30)), refuse]
    inbound = bench.inbound("what was it?")
    request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat)
    running = asyncio.create_task(bench.pool.run(request))
    await reached.wait()
    await bench.model.asked.wait()
    died_in = bench.sent
    assert "observation masked" in json.dumps(died_in, ensure_ascii=False)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await bench.pool.flush()
    bench.model.hold = None
    bench.restart()
    asked = len(bench.model.requests)
    assert (await bench.pool.run(request)).status == "done"
    assert list(bench.model.requests[asked].messages) == died_in
