"""What a turn learns of its model: how it counts, what fits, how long its answers may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot import errors
from bot.contracts.model import InMemoryLearned, Usage
from bot.llm.windows import ContextWindows
from bot.testing.model import reply, text

from .conftest import Bench


async def test_each_answer_teaches_how_its_model_counts(bench: Bench) -> None:
    asked = bench.deps.models.estimator
    for number in range(8):
        bench.model.answers.append(
            lambda request: replace(reply(text("ok")), usage=Usage(100, 1, asked.request(request), 0))
        )
        await bench.say(f"{number} " + "你好 " * 400)
    assert bench.deps.models.estimator.ratio("scripted") > 1.0
    assert bench.deps.models.estimator.ratio("another") == 1.0


async def test_the_limits_of_an_overflow_are_known_afterwards(bench: Bench) -> None:
    bench.model.answers.append(reply(text("ok")))
    await bench.say("one")
    bench.model.answers += [
        errors.ContextOverflow("too long", tokens=33_000, window=32_000),
        reply(text("ok")),
    ]
    await bench.say("two")
    budget = bench.deps.budget()
    assert (budget.window, budget.hard, budget.limit) == (32_000, 20_608, 20_608)
    long = replace(reply(text("ok")), usage=Usage(10, 1, 50_000, 0))
    bench.model.answers.append(long)
    await bench.say("three")
    assert bench.deps.budget().window is None


@pytest.mark.parametrize(("limit", "tried"), [(3_000, 3_000), (None, 4_096)])
async def test_a_longer_answer_than_the_model_gives_is_asked_for_once(
    bench: Bench, limit: int | None, tried: int
) -> None:
    bench.model.answers += [errors.OutputOverflow("max_tokens: 8192 > 3000", limit=limit), reply(text("ok"))]
    outcome = await bench.say("one")
    assert outcome.status == "done"
    assert [request.max_tokens for request in bench.model.requests] == [8_192, tried]
    bench.model.answers.append(reply(text("ok")))
    await bench.say("two")
    assert bench.model.requests[-1].max_tokens == (limit or 8_192)


async def test_an_answer_is_asked_for_within_what_the_model_gives(bench: Bench) -> None:
    windows = ContextWindows(InMemoryLearned(), log=bench.log, model="scripted", max_tokens=64_000)
    bench.model.known = replace(bench.model.known, window=200_000, max_output=32_000)
    await windows.ask(bench.model, "scripted")
    bench.configure(windows=windows, soft_tokens=5_000)
    bench.model.answers.append(reply(text("ok")))
    await bench.say("one")
    assert bench.model.requests[-1].max_tokens == 32_000
    assert (bench.deps.budget().hard, bench.deps.budget().limit) == (200_000 - 32_000 - 13_000, 5_000)
