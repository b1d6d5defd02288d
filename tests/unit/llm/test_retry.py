from __future__ import annotations

import asyncio
import random

import pytest

from bot import errors
from bot.contracts.model import ModelReply, TextDelta
from bot.llm.wrapper import RetryingModel
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.unit.llm.asking import Item, ScriptedModel, ask, items

REPLY = ModelReply(content=[{"type": "text", "text": "Hello"}], stop_reason="end_turn")


async def run(
    model: ScriptedModel, clock: FakeClock, log: MemoryLog | None = None, seconds: float = 30.0
) -> list[Item]:
    retrying = RetryingModel(
        model, clock=clock, rng=random.Random(7), log=log or MemoryLog(), seconds=seconds
    )
    task = asyncio.create_task(items(retrying, ask()))
    while not task.done():
        await clock.advance(0.05)
    return await task


@pytest.mark.parametrize(
    "failure",
    [errors.Overloaded(), errors.RateLimited(), errors.StreamBroken(), errors.ModelUnreachable()],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_failure_that_passes_is_tried_again(failure: errors.ModelError) -> None:
    clock, log = FakeClock(), MemoryLog()
    model = ScriptedModel([failure], [failure], [TextDelta("Hello"), REPLY])
    assert await run(model, clock, log) == [TextDelta("Hello"), REPLY]
    assert len(model.asked) == 3
    assert model.closed_streams == 3
    # Two waits, each shortened or lengthened at random.
    assert 0.5 * 0.75 + 1.0 * 0.75 <= clock.monotonic() <= 0.5 * 1.25 + 1.0 * 1.25 + 0.2
    assert [entry.details["attempt"] for entry in log.of("llm_retry")] == [1, 2]
    assert log.of("llm_retry")[0].details["error"] == type(failure).__name__


@pytest.mark.parametrize(("seconds", "asked"), [(0.0, 1), (0.1, 3), (30.0, 9)])
async def test_after_its_time_the_failure_goes_up(seconds: float, asked: int) -> None:
    model, clock = ScriptedModel(*[[errors.Overloaded(str(number))] for number in range(1, 11)]), FakeClock()
    with pytest.raises(errors.Overloaded, match=str(asked)):
        await run(model, clock, seconds=seconds)
    assert clock.monotonic() >= seconds


@pytest.mark.parametrize(
    "failure",
    [
        errors.ContextOverflow(),
        errors.OutputOverflow(),
        errors.RequestInvalid(),
        errors.ThinkingUnbound(),
        errors.ModelRefused(),
        errors.SpendLimit(),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_failure_that_stays_goes_up_at_once(failure: errors.ModelError) -> None:
    model, clock = ScriptedModel([failure], [REPLY]), FakeClock()
    with pytest.raises(type(failure)):
        await run(model, clock)
    assert len(model.asked) == 1


async def test_a_single_error_can_forbid_to_be_retried() -> None:
    failure = errors.StreamBroken()
    failure.retryable = False
    model = ScriptedModel([failure], [REPLY])
    with pytest.raises(errors.StreamBroken):
        await run(model, FakeClock())
    assert len(model.asked) == 1


async def test_the_time_that_the_provider_asks_for_is_waited_for() -> None:
    clock = FakeClock()
    model = ScriptedModel([errors.RateLimited(retry_after=20.0)], [REPLY])
    assert await run(model, clock) == [REPLY]
    assert 20.0 <= clock.monotonic() <= 20.6


@pytest.mark.parametrize("kind", [errors.RateLimited, errors.Overloaded])
async def test_a_longer_wait_goes_up_at_once_with_its_time(
    kind: type[errors.RateLimited | errors.Overloaded],
) -> None:
    clock = FakeClock()
    model = ScriptedModel([kind(retry_after=3600.0)], [REPLY])
    with pytest.raises(kind) as caught:
        await run(model, clock)
    error = caught.value
    assert isinstance(error, errors.RateLimited | errors.Overloaded)
    assert error.retry_after == 3600.0
    assert len(model.asked) == 1


async def test_what_was_shown_is_not_shown_again() -> None:
    model = ScriptedModel(
        [TextDelta("Hel"), errors.StreamBroken()],
        [errors.Overloaded()],
        [TextDelta("Hel"), TextDelta("lo"), REPLY],
    )
    assert await run(model, FakeClock()) == [TextDelta("Hel"), REPLY]


async def test_a_model_that_ends_without_a_reply_is_a_broken_stream() -> None:
    with pytest.raises(errors.StreamBroken):
        await run(ScriptedModel([], [], [TextDelta("x")]), FakeClock(), seconds=1.0)


async def test_leaving_in_the_middle_closes_the_stream_below() -> None:
    model = ScriptedModel([TextDelta("a"), TextDelta("b"), REPLY])
    stream = RetryingModel(model, clock=FakeClock(), rng=random.Random(1), log=MemoryLog()).stream(ask())
    assert await anext(aiter(stream)) == TextDelta("a")
    await stream.aclose()
    assert model.closed_streams == 1
