"""The model's stream breaks at every event in every way, and provider and platforms refuse most requests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from bot.llm import client
from bot.system import SystemClock
from bot.testing import anthropic_script as answers
from bot.testing.anthropic_script import Reply
from bot.testing.clock import SteeredClock
from bot.testing.telegram import refusal
from bot.words import say
from tests.blackbox.conftest import World
from tests.shares import one_in
from tests.torture import scene
from tests.torture.inside import Inside, environment, quick_ends

REPEATED = f"{say('delivery.repeated')}\n\n"

BREAKS: dict[str, Callable[[Reply, int], Reply]] = {
    "cut": answers.cut,
    "stall": answers.stall,
    "garble": answers.garble,
    "end early": answers.end_early,
    "error": answers.error_event,
}


@contextlib.asynccontextmanager
async def gateway(root: Path, channel: str) -> AsyncIterator[tuple[World, scene.Side, Inside]]:
    """Start a gateway whose clock is advanced all the time, so that its waits are short."""
    clock = SteeredClock(SystemClock())
    async with scene.new_world(root) as world:
        side = await scene.prepare(world, channel, lambda: life.address("web"))
        life = Inside(world, clock=clock)
        with environment(world):
            await life.start()
            pushing = asyncio.create_task(_push(clock))
            try:
                yield world, side, life
            finally:
                pushing.cancel()
                await scene.leave(side)
                await life.end()


async def _push(clock: SteeredClock) -> None:
    while True:
        await asyncio.sleep(0.05)
        clock.advance(1.0)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_ends(monkeypatch)
    monkeypatch.setattr(client, "AnthropicModel", functools.partial(client.AnthropicModel, idle=0.15))


def count_frames(answer: Reply) -> int:
    return len(answers.frames(answer, {}, {}, chunk=12, pings=1))


@pytest.mark.parametrize("broken", BREAKS)
async def test_a_stream_that_breaks_at_any_event_is_asked_for_again_and_shown_once(
    broken: str, tmp_path: Path, stride: int
) -> None:
    asked = []
    async with gateway(tmp_path, "telegram") as (world, side, _):
        after = 0
        while True:
            words = scene.WORDS.format(f"{broken} {after}")
            whole = answers.reply(
                "我看看。",
                answers.tool_use("chat_send", {"text": scene.answered(words)}, id=f"toolu_{after}"),
            )
            if after >= count_frames(whole):
                break
            world.model.then(BREAKS[broken](whole, after))
            await side.say(words)
            await scene.until_answered(side, words)
            await scene.until_quiet(tmp_path)
            assert await side.replies(words) == [scene.answered(words)], after
            asked.append(words)
            after += stride
        assert {seen.status for seen in world.model.requests} == {200}, "every request was valid"
    assert len(asked) * stride > 8
    scene.on_file_once(world, *asked)


async def weather(root: Path, channel: str, rng: random.Random, messages: int) -> None:
    """Let the model refuse nine of ten requests and every other send fail. Each message must get one answer or one plain
    sentence.
    """
    refusals = (
        answers.overloaded,
        answers.rate_limited,
        lambda: answers.rate_limited(2),
        lambda: answers.rate_limited("abc"),
        lambda: answers.error(500, "api_error", "Internal server error"),
        lambda: answers.html_page(502, "Bad gateway"),
    )

    def stormy(body: Any) -> Any:
        return rng.choice(refusals)() if rng.random() < 0.9 else scene.script(body)

    async with gateway(root, channel) as (world, side, life):
        world.model.script(stormy)
        for number in range(messages):
            words = scene.WORDS.format(number)
            if channel == "telegram" and rng.random() < 0.5:
                world.telegram.fail("sendMessage", **rng.choice(TELEGRAM))
            if channel == "slack" and rng.random() < 0.5:
                world.slack.limit("chat.postMessage", rng.choice(["1", "30", "abc", None]))
            shown, ended = len(_shown(world, channel)), len(_ends(world))
            await side.say(words)

            async def over(ended: int = ended) -> bool:
                await side.bring_again()
                return len(_ends(world)) > ended and not scene.unfinished(root)

            await scene.eventually_so(over)
            _fair(world, channel, words, _shown(world, channel)[shown:])
        world.model.script(scene.script)
        last = scene.WORDS.format("last")
        await side.say(last)
        await scene.until_answered(side, last)
        scene.exactly_once(channel, last, await side.replies(last))
        await scene.ready(world.session, life.dashboard)


TELEGRAM: tuple[dict[str, Any], ...] = (
    refusal(429, "Too Many Requests: retry after 35", retry_after=35),
    refusal(429, "Too Many Requests: retry after 1", retry_after=1),
    {"action": "cut"},
    {"action": "lose"},
    {"status": 502, "body": "<html>Bad Gateway</html>"},
)


def _fair(world: World, channel: str, words: str, shown: list[str]) -> None:
    """Check that there is one answer, and one sentence if the turn failed. On Telegram each of them may have marked
    repeats, and the sentence may be lost.
    """
    answers = [one for one in shown if scene.answered(words) in one]
    sentences = [one for one in shown if one not in answers]
    failed = _ends(world)[-1] == "failed"
    assert failed or not sentences, shown
    if sentences:
        scene.shown_once(channel, sentences[0].removeprefix(REPEATED), sentences)
    if answers or not failed:
        scene.exactly_once(channel, words, answers)
    elif channel != "telegram":
        assert sentences


def _ends(world: World) -> list[str]:
    return [line["details"]["status"] for line in world.log() if line["kind"] == "turn_end"]


def _shown(world: World, channel: str) -> list[str]:
    if channel == "telegram":
        return world.texts()
    return [one.text for one in world.slack.replies("D0ANN")]


@pytest.mark.parametrize("channel", one_in(2, ["slack", "telegram"]))
async def test_in_a_storm_of_refusals_each_message_gets_one_answer_or_one_sentence(
    channel: str, tmp_path: Path
) -> None:
    await weather(tmp_path, channel, random.Random(1), 8)


@pytest.mark.torture
@pytest.mark.parametrize("channel", ["telegram", "slack"])
async def test_in_a_long_storm(channel: str, tmp_path: Path) -> None:
    await weather(tmp_path, channel, random.Random(scene.seed()), 60)
