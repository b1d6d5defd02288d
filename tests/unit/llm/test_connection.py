"""The check of the key, the addresses that the client contacts, and the closing of its connections."""

from __future__ import annotations

import asyncio

import pytest

from bot import errors
from bot.contracts.model import ModelFacts
from bot.llm.client import AnthropicModel
from bot.system import SystemClock
from bot.testing import anthropic_script as script
from bot.testing.anthropic import AnthropicServer
from tests.unit.llm.asking import ask, reply_of, user

TAKES = frozenset({"effort.low", "effort.medium", "effort.high", "thinking.adaptive"})
LONG = script.reply("A long answer in several pieces, 很长的回答, with emoji 👨‍👩‍👧‍👦.")


async def test_check_asks_for_the_models_and_tells_a_refused_key(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    await model.check()
    assert server.called("models")[0].params == {"limit": "1"}
    wrong = AnthropicModel(api_key="sk-ant-wrong-key", base_url=server.url, clock=SystemClock())
    with pytest.raises(errors.ModelRefused) as caught:
        await wrong.check()
    assert caught.value.exit_code == 78
    await wrong.close()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, "", None),
        (405, "", None),
        (403, '{"type":"error","error":{"type":"permission_error","message":"no"}}', errors.ModelRefused),
        (500, "", errors.Overloaded),
        (200, "<html>sign in</html>", errors.ModelUnreachable),
    ],
)
async def test_check_on_other_endpoints(
    server: AnthropicServer,
    model: AnthropicModel,
    status: int,
    body: str,
    kind: type[errors.ModelError] | None,
) -> None:
    server.fail("models", status=status, body=body, headers={"content-type": "text/html"})
    if kind is None:
        await model.check()
    else:
        with pytest.raises(kind):
            await model.check()


async def test_the_provider_is_asked_for_the_limits_and_abilities_of_a_model(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    server.windows["claude-opus-5-5"] = 200_000
    assert await model.facts("claude-opus-5-5") == ModelFacts(200_000, 128_000, TAKES)


@pytest.mark.parametrize("name", ["claude-nobody-knows", "örtlich/模型:7b"])
async def test_a_provider_that_does_not_have_the_model_says_so(model: AnthropicModel, name: str) -> None:
    with pytest.raises(errors.ModelUnknown):
        await model.facts(name)


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_an_endpoint_without_a_list_of_models_says_nothing_of_them(
    server: AnthropicServer, model: AnthropicModel, status: int
) -> None:
    server.fail("model", status=status, body="<html>no</html>", headers={"content-type": "text/html"})
    assert await model.facts("claude-sonnet-5-5") == ModelFacts()


@pytest.mark.parametrize(
    "said",
    [
        *(f'"max_input_tokens":{one},"max_tokens":{one}' for one in ("null", '"200000"', "-1", "1.5")),
        *(f'"capabilities":{one}' for one in ("true", "[]", '{"thinking": {"types": 1}}')),
    ],
)
async def test_facts_that_cannot_be_are_not_taken(
    server: AnthropicServer, model: AnthropicModel, said: str
) -> None:
    body = f'{{"id":"claude-sonnet-5-5",{said}}}'
    server.fail("model", status=200, body=body, headers={"content-type": "application/json"})
    assert await model.facts("claude-sonnet-5-5") == ModelFacts()


async def test_a_provider_that_fails_is_no_provider_that_knows_nothing(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    server.fail("model", status=500, body="")
    with pytest.raises(errors.Overloaded):
        await model.facts("claude-sonnet-5-5")
    for method, asking in (("model", lambda: model.facts("claude-sonnet-5-5")), ("models", model.check)):
        server.fail(method, action="cut", times=2)  # aiohttp repeats a failed GET once
        with pytest.raises(errors.ModelUnreachable):
            await asking()


async def test_a_redirect_does_not_carry_the_key_elsewhere(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    async with AnthropicServer() as elsewhere:
        server.fail("messages", status=307, headers={"location": f"{elsewhere.url}/v1/messages"})
        with pytest.raises(errors.ModelMisconfigured) as caught:
            await reply_of(model)
        assert caught.value.status == 307
        assert elsewhere.calls == []


async def test_a_stream_that_is_given_up_is_closed_at_once(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    server.then(script.garble(script.pause(LONG, asyncio.Event(), after=5)))
    with pytest.raises(errors.StreamBroken) as caught:
        await reply_of(model)
    # The error keeps every frame alive, so the client itself must close the connection, not the garbage collector.
    await server.until(lambda: server.requests[0].aborted)
    assert caught.value.retryable


async def test_an_answer_is_there_though_its_connection_stays_open(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    server.then(script.stall(script.reply("Whole."), 99))
    assert (await reply_of(model)).content == [{"type": "text", "text": "Whole."}]
    server.then(script.cut(script.reply("Whole."), 99))
    assert (await reply_of(model)).content == [{"type": "text", "text": "Whole."}]


async def test_while_a_large_request_is_written_others_have_their_turn(
    server: AnthropicServer, model: AnthropicModel
) -> None:
    said = [user("Words " * 12_000) for _ in range(99)]
    asking = asyncio.ensure_future(reply_of(model, ask(*said)))
    turns = 0
    while not server.requests and not asking.done():
        turns += 1
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert turns > len(said) // 16
