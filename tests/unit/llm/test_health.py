"""Whether the model can be reached is known from how its last call ended."""

from __future__ import annotations

import pytest

from bot import errors
from bot.contracts.model import ModelReply, TextDelta
from bot.llm.wrapper import WatchedModel
from bot.testing.clock import FakeClock
from tests.unit.llm.asking import ScriptedModel, ask, items

REPLY = ModelReply(content=[{"type": "text", "text": "Hello"}], stop_reason="end_turn")


@pytest.mark.parametrize(
    "error",
    [
        errors.ModelUnreachable("no route"),
        errors.Overloaded("529"),
        errors.StreamBroken("cut"),
        errors.SpendLimit("spent"),
        errors.ModelRefused("bad key"),
    ],
    ids=lambda e: type(e).__name__,
)
async def test_a_model_that_cannot_answer_is_in_trouble_until_it_does(error: errors.ModelError) -> None:
    clock = FakeClock()
    model = WatchedModel(ScriptedModel([error], [TextDelta("你好"), REPLY]), clock=clock)
    assert (model.asked, model.trouble) == (None, "")
    with pytest.raises(type(error)):
        await items(model, ask())
    assert (model.asked, model.trouble) == (clock.now(), f"{type(error).__name__}: {error}")
    await clock.advance(7)
    assert await items(model, ask()) == [TextDelta("你好"), REPLY]
    assert (model.asked, model.trouble) == (clock.now(), "")


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
    model = WatchedModel(ScriptedModel([errors.ModelUnreachable()], [error]), clock=FakeClock())
    for kind in (errors.ModelUnreachable, type(error)):
        with pytest.raises(kind):
            await items(model, ask())
    assert model.trouble == ""


async def test_a_model_that_was_away_is_asked_again_and_one_that_is_well_is_not() -> None:
    inner = ScriptedModel()
    model = WatchedModel(inner, clock=FakeClock())
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
    await model.look()
    assert (model.trouble, len(checks)) == ("ModelUnreachable: away", 1)
    await model.look()
    await model.look()
    assert (model.trouble, checks) == ("", [])


async def test_an_answer_that_nobody_waits_for_says_nothing() -> None:
    inner = ScriptedModel([TextDelta("a"), REPLY])
    model = WatchedModel(inner, clock=FakeClock())
    stream = model.stream(ask())
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert (model.asked, inner.closed_streams) == (None, 1)
    await model.close()
