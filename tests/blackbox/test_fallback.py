"""`llm.fallback`: a second model answers while the first model is busy, unreachable or declines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from bot.testing.anthropic import KEY, AnthropicServer
from bot.testing.anthropic_script import (
    Answer,
    Halt,
    error,
    overloaded,
    rate_limited,
    refusal,
    refused_key,
    reply,
    thinking,
    tool_use,
    unpaid,
)
from tests.blackbox.conftest import World, eventually
from tests.blackbox.test_models import OPUS, SONNET
from tests.blackbox.test_streaming import told

SECOND_KEY = "sk-ant-second-9876543210"
OPERATOR = 2002
AWAY = f"({SONNET} can't answer right now, so {OPUS} did.)"
DECLINED = f"({SONNET} declined this, so {OPUS} answered.)"


@pytest.fixture
async def second() -> AsyncIterator[AnthropicServer]:
    """Yield a second provider, which accepts only its own key and its own thinking setting."""
    async with AnthropicServer(key=SECOND_KEY, bind_thinking=True) as server:
        server.script(
            lambda _: reply(thinking("Second thought."), tool_use("chat_send", {"text": "Second."}))
        )
        yield server


def listed(world: World, second: AnthropicServer) -> None:
    world.only("telegram")
    world.model.bind_thinking = True
    world.config["llm"]["fallback"] = [{"model": OPUS, "baseUrl": second.url, "apiKey": "${SECOND_KEY}"}]
    world.config["operators"] = [f"telegram:{OPERATOR}"]
    world.process.env["SECOND_KEY"] = SECOND_KEY
    world.telegram.chat(OPERATOR)


def well(words: str = "First.") -> Answer:
    return reply(thinking("First thought."), tool_use("chat_send", {"text": words}))


async def said(world: World, words: str) -> str:
    """Send a message, wait for the end of the turn, and return the answer."""
    over = sum(line["kind"] == "turn_end" for line in world.log())
    world.telegram.say(words)
    await world.turns(over + 1)
    await world.sent()
    return world.texts()[-1]


def thoughts(body: Any) -> str:
    return json.dumps([one for one in body["messages"] if "thinking" in str(one)])


async def five_minutes(world: World) -> None:
    """Let five minutes pass on the gateway's clock."""
    reader, writer = await asyncio.open_unix_connection(world.root / "clock")
    writer.write(b'{"pass": 301}\n')
    await reader.readline()
    writer.close()


FAILURES: dict[str, Callable[[], Answer]] = {
    "overloaded": overloaded,
    "for an hour": lambda: rate_limited(retry_after=3600),
    "another key": refused_key,
    "unpaid": unpaid,
    "no such model": lambda: error(404, "not_found_error", f"model: {SONNET}"),
    "cut": lambda: told("An answer that breaks off in the middle.", (0.6, Halt.CUT)),
}


async def test_who_answers_is_told_and_the_first_is_asked_again_after_five_minutes(
    world: World, second: AnthropicServer
) -> None:
    listed(world, second)
    world.process.faked("--clock", str(world.root / "clock"))
    first: list[Answer] = [well()]
    world.model.script(lambda _: first[0])
    await world.start()
    assert await said(world, "hello") == "First."
    for name, failure in FAILURES.items():
        first[0] = failure()
        assert await said(world, f"it is {name}") == f"Second.\n\n{AWAY}", name
        asked = len(world.model.bodies)
        assert await said(world, "and still") == f"Second.\n\n{AWAY}", name
        assert len(world.model.bodies) == asked, "in five minutes it is not asked again"
        assert f"Model: {OPUS}." in await world.ask("/status")
        assert f"to {OPUS}:" in await world.ask("/receipt")
        first[0] = well()
        await five_minutes(world)
        assert await said(world, f"it was {name}") == "First.", name
        assert f"Model: {SONNET}." in await world.ask("/status")
    assert {body["model"] for body in second.bodies} == {OPUS}
    assert "hello" in str(second.bodies[0])
    assert not any("thought" in thoughts(body) for body in second.bodies)
    assert "First thought." in thoughts(world.model.bodies[-1])
    assert "Second thought." not in str(world.model.bodies)
    alerts = [one for one in world.texts(OPERATOR) if "model" in one or SONNET in one]
    assert [f"{SONNET} doesn't answer" in one for one in alerts] == [True], "once an hour, and nothing else"
    answered = [one for one in world.log() if one["kind"] == "model" and one["details"].get("before")]
    assert {(one["details"]["model"], one["level"]) for one in answered} == {(OPUS, "warn")}


async def test_a_refusal_is_answered_by_the_second_in_that_chat_alone(
    world: World, second: AnthropicServer
) -> None:
    listed(world, second)
    world.config["channels"]["telegram"]["allow"] = ["*"]
    world.model.script(lambda body: refusal() if "secret" in str(body["messages"][-1]) else well())
    await world.start()
    assert await said(world, "the secret") == f"Second.\n\n{DECLINED}"
    assert await said(world, "and on") == f"Second.\n\n{DECLINED}"
    world.telegram.say("hello", chat_id=OPERATOR, user_id=OPERATOR)
    await world.turns(3)
    assert "First." in world.texts(OPERATOR)
    # A wrong request fails at every provider. If both models are unavailable, people are told about the first.
    world.model.then(error(400, "invalid_request_error", "effort: not known"))
    asked = len(second.bodies)
    world.telegram.say("broken", chat_id=OPERATOR, user_id=OPERATOR)
    await eventually(lambda: any("didn't accept" in one for one in world.texts(OPERATOR)))
    await world.turns(4)
    assert len(second.bodies) == asked
    second.script(lambda _: refusal())
    world.model.script(lambda _: refusal())
    assert "declined to answer this" in await said(world, "another secret")


async def test_the_providers_own_second_answers_where_that_is_wanted(world: World) -> None:
    world.model.script(lambda _: refusal())
    world.model.fallback = (OPUS, reply("Second."))
    await world.start("telegram")
    assert "declined to answer this" in await said(world, "the secret")
    assert "fallbacks" not in world.model.bodies[-1]
    assert await world.process.stop() == 0
    world.config["llm"]["providerFallbacks"] = True
    await world.start()
    assert await said(world, "the secret") == f"Second.\n\n{DECLINED}"
    world.telegram.say("/receipt")
    await world.telegram.until(lambda: OPUS in world.texts()[-1])


async def test_what_cannot_be_a_second_is_a_finding_and_what_can_is_listed(
    world: World, second: AnthropicServer
) -> None:
    listed(world, second)
    process = await world.start(command=("check",), wait=False)
    assert await process.ended() == 0, process.stderr
    assert f"fallback {OPUS} at {second.url}" in "\n".join(process.lines)
    for entry, finding in (
        ({"provider": "demo"}, 'llm.fallback[0].provider: found "demo"'),
        ({"model": OPUS, "baseUrl": second.url}, "llm.fallback[0].apiKey: found nothing"),
        ({"provider": "anthropic"}, "llm.fallback[0].apiKey: found nothing"),
        ({"baseUrl": second.url, "apiKey": "${NO_SUCH_KEY}"}, "NO_SUCH_KEY"),
        ({"modell": OPUS}, "llm.fallback[0].modell: found an unknown key"),
        ("opus", "llm.fallback[0]: found"),
    ):
        world.config["llm"]["fallback"] = [entry]
        process = await world.start(command=("check",), wait=False)
        assert await process.ended() == 78, entry
        told = "\n".join([*process.lines, process.stderr])
        assert finding in told, told
        assert told.count("; ") >= 2, "how it is mended"
        assert KEY not in told
        assert SECOND_KEY not in told
