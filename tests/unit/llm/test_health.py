"""The model's health follows from the result of its last call."""

from __future__ import annotations

import random

import pytest

from bot import errors
from bot.contracts.model import ModelReply, TextDelta
from bot.llm.wrapper import ModelTrouble, RetryingModel
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.unit.llm.asking import ScriptedModel, ask, items

REPLY = ModelReply(content=[{"type": "text", "text": "Hello"}], stop_reason="end_turn")


def watched(model: ScriptedModel, clock: FakeClock) -> RetryingModel:
    return RetryingModel(model, clock=clock, rng=random.Random(1), log=MemoryLog(), seconds=0)


@pytest.mark.parametrize(
    "error",
    [
        errors.ModelUnreachable("no route"),
        errors.SpendLimit("spent"),
        errors.ModelRefused("bad key"),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_a_model_that_cannot_answer_is_in_trouble_until_it_does(error: errors.ModelError) -> None:
    clock = FakeClock()
    model = watched(ScriptedModel([error], [TextDelta("你好"), REPLY]), clock=clock)
    assert (model.asked, model.trouble) == (None, None)
    with pytest.raises(type(error)):
        await items(model, ask())
    assert (model.asked, model.trouble and model.trouble.cause) == (clock.now(), str(error))
    await clock.advance(7)
    assert await items(model, ask()) == [TextDelta("你好"), REPLY]
    assert (model.asked, model.trouble) == (clock.now(), None)


@pytest.mark.parametrize(
    "error",
    [
        errors.ContextOverflow("too long"),
        errors.RequestInvalid("no such model"),
        errors.RateLimited("slow down"),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_a_request_that_fails_by_itself_shows_a_provider_that_answers(error: errors.ModelError) -> None:
    model = watched(ScriptedModel([errors.ModelUnreachable()], [error]), clock=FakeClock())
    for kind in (errors.ModelUnreachable, type(error)):
        with pytest.raises(kind):
            await items(model, ask())
    assert model.trouble is None


async def test_a_model_that_was_away_is_asked_again_and_one_that_is_well_is_not() -> None:
    inner = ScriptedModel()
    model = watched(inner, clock=FakeClock())
    checks: list[errors.ModelError | None] = [
        errors.ModelUnreachable("away"),
        errors.ModelUnreachable("away"),
        None,
    ]

    async def check() -> None:
        if (failure := checks.pop(0)) is not None:
            raise failure

    inner.check = check  # type: ignore[method-assign]
    with pytest.raises(errors.ModelUnreachable):
        await model.check()
    await model.poll()
    assert (model.trouble, len(checks)) == (ModelTrouble("away", of_account=False), 1)
    await model.poll()
    await model.poll()
    assert (model.trouble, checks) == (None, [])


@pytest.mark.parametrize("error", [errors.SpendLimit("no credit"), errors.ModelRefused("not for this key")])
async def test_an_account_that_is_refused_stays_in_trouble_until_there_is_an_answer(
    error: errors.ModelError,
) -> None:
    inner = ScriptedModel([error], [REPLY])
    model = watched(inner, clock=FakeClock())
    with pytest.raises(type(error)):
        await items(model, ask())
    inner.attempts, left = [], inner.attempts
    await model.poll()  # the provider still lists its models
    assert model.trouble == ModelTrouble(str(error), of_account=True)
    inner.attempts = left
    await items(model, ask())
    assert model.trouble is None


async def test_a_network_that_is_down_does_not_hide_that_an_account_is_refused() -> None:
    inner = ScriptedModel([errors.SpendLimit("no credit")], [errors.ModelUnreachable("away")])
    model = watched(inner, clock=FakeClock())
    for kind in (errors.SpendLimit, errors.ModelUnreachable):
        with pytest.raises(kind):
            await items(model, ask())
    assert model.trouble == ModelTrouble("no credit", of_account=True)
