"""Results of several tasks of one step are brought together by the fast model, or stand side by side."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from bot import errors
from bot.contracts.model import ModelReply, ModelRequest
from bot.core.tasks import merging
from bot.core.tasks.limits import TaskLimits
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.tasking import Fake, Routed, asked, priced, told, work
from tests.unit.gateway.outgoing import until

__all__ = ["work"]

NAMES = ("", "Anna", "Bela", "Caro")


def say(merged: Any) -> Callable[[ModelRequest], Any]:
    """Tasks that disagree, and what the fast model makes of it."""

    def script(request: ModelRequest) -> ModelReply | Exception:
        if request.purpose == "synthesis":
            answer: ModelReply | Exception = merged
            return answer
        number = request.messages[0]["content"][-1]["text"].split()[-1]
        disks, who = 3 if number != "2" else 4, NAMES[int(number)]
        return priced(
            text(f"- the server has {disks} disks\n- only {who} knows this 秘"), tokens=50, usd=0.01
        )

    return script


def several(model: Routed, many: int, *more: Any) -> None:
    calls = [tool_use("task", prompt=f"look at {n}", description=f"Blick {n}") for n in range(1, many + 1)]
    model.answers += [reply(*calls, *more), reply(text("ok"))]


async def test_several_become_one_with_what_they_agree_on_and_where_they_conflict(
    bench: Bench, work: Any
) -> None:
    found = {
        "view": "Three disks [1] [3].",
        "findings": ["sda, sdb, sdc [1]"],
        "agreements": ["three disks [1, 3]"],
        "conflicts": ["[1] three ↔ [2] four"],
        "confidence": "medium: two results differ",
    }
    answer = f"```json\n{json.dumps(found, ensure_ascii=False)}\n```"
    model: Routed = work(say(priced(text(answer), tokens=500, usd=0.02)), fast_model="quick")
    several(model, 3)
    await bench.say("How many disks?")
    (request,) = model.syntheses
    assert (request.model, request.tools) == ("quick", ())
    assert request.max_tokens == merging.LEAST_TOKENS + 3 * merging.EACH_TOKENS
    for words in (
        "3 investigations",
        "## Result 2: Blick 2",
        "Task: look at 2",
        "Failed calls: 0",
        "Tokens: 50",
        "- the server has 4 disks",
        "only Caro knows this 秘",
    ):
        assert words in request.messages[0]["content"][0]["text"]
    results = told(bench)
    assert all("All 3 tasks" not in one["content"] for one in results[:2])
    own, _, together = results[2]["content"].partition("# All 3 tasks together\n\n")
    assert own.startswith("- the server has 3 disks")
    assert together == (
        "Three disks [1] [3].\n\n"
        "Findings:\n- sda, sdb, sdc [1]\n\n"
        "Agreement:\n- three disks [1, 3]\n\n"
        "Conflicts:\n- [1] three ↔ [2] four\n\n"
        "Confidence: medium: two results differ\n\n"
        "Coverage: 3 of 3 tasks came to their end."
    )
    stats = await bench.pool.stats(KEY)
    assert (stats.input_tokens, round(stats.cost_usd, 2)) == (650, 0.05)


async def test_one_result_passes_unchanged_also_beside_other_calls_and_failures(
    bench: Bench, work: Any
) -> None:
    def script(request: ModelRequest) -> ModelReply | Exception:
        return errors.Overloaded("529") if "broken" in asked(request) else reply(text("- fine"))

    model: Routed = work(script, Fake("dig"))
    calls = [tool_use("task", prompt="broken"), tool_use("dig"), tool_use("task", prompt="good")]
    model.answers += [reply(*calls), reply(text("ok"))]
    await bench.say("go")
    assert model.syntheses == []
    assert told(bench)[2]["content"].startswith("- fine\n\n[task:")
    assert "together" not in told(bench)[2]["content"]


async def test_where_the_fast_model_fails_they_stand_side_by_side_with_their_labels(
    bench: Bench, work: Any
) -> None:
    for answer in (errors.Overloaded("529"), reply(), reply(text("no"), stop_reason="refusal")):
        model: Routed = work(say(answer))
        several(model, 2)
        assert (await bench.say("go")).status == "done"
        content = told(bench)[-1]["content"]
        assert "1. Blick 1\n2. Blick 2\n\nCoverage: 2 of 2 tasks came to their end." in content
    assert len(bench.log.of("synthesis")) == 3


async def test_a_fast_model_that_takes_too_long_is_not_waited_for(bench: Bench, work: Any) -> None:
    class Slow(Routed):
        async def stream(self, request: ModelRequest) -> Any:
            if request.purpose == "synthesis":
                self.syntheses.append(request)
                await asyncio.Event().wait()
            async for event in super().stream(request):
                yield event

    work(say(reply()))
    model = Slow(say(reply()))
    bench.configure(model=model)
    several(model, 2)
    running = asyncio.create_task(bench.say("go"))
    await until(lambda: bool(model.syntheses))
    await bench.clock.advance(merging.SECONDS + 1)
    assert (await running).status == "done"
    assert "1. Blick 1" in told(bench)[-1]["content"]


async def test_it_keeps_to_the_budget_of_the_turn(bench: Bench, work: Any) -> None:
    model: Routed = work(say(priced(text("all"))), tasks=TaskLimits(turn_usd=1.0))
    several(model, 2)
    model.script = lambda request: priced(text("- x"), usd=0.51)
    await bench.say("go")
    assert "limit" not in told(bench)[0]["content"]
    assert model.syntheses == []
    assert "1. Blick 1\n2. Blick 2" in told(bench)[-1]["content"]


async def test_many_results_stay_within_what_the_fast_model_is_given_and_may_say(
    bench: Bench, work: Any
) -> None:
    def script(request: ModelRequest) -> ModelReply:
        if request.purpose == "synthesis":
            return reply(text("all of it"))
        return reply(text("- 長い話 " * 5_000))

    model: Routed = work(script)
    several(model, 20)
    await bench.say("go")
    (request,) = model.syntheses
    assert request.max_tokens == merging.MOST_TOKENS
    assert len(request.messages[0]["content"][0]["text"]) < 20 * (merging.CONTENT + 1_000)
    assert "all of it" in told(bench)[-1]["content"]


async def test_an_answer_of_another_form_is_the_view(bench: Bench, work: Any) -> None:
    model: Routed = work(say(reply(text("Three disks, {as it seems}."))))
    several(model, 2)
    await bench.say("go")
    assert "together\n\nThree disks, {as it seems}.\n\nCoverage: 2 of 2" in told(bench)[-1]["content"]
