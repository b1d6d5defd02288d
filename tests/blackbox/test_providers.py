"""Endpoints with deviations from the Messages API, and wrong addresses: Shipmate reads the answer or reports the
fault to operators.
"""

from __future__ import annotations

import json

import pytest

from bot.testing.anthropic_script import Failure, null_stop, reply, tool_use
from bot.words import say
from tests.blackbox.conftest import World

OPERATOR = 2002


async def test_what_can_be_read_is_answered_and_what_cannot_is_told_to_operators(world: World) -> None:
    world.config["operators"] = [f"telegram:{OPERATOR}"]
    world.config["dashboard"] = {"port": 0}
    world.telegram.chat(OPERATOR)
    await world.start("telegram")
    openai = {"object": "chat.completion", "choices": [{"message": {"content": "Hi"}}]}
    setup, refused = say("errors.model_setup"), say("errors.request_invalid")
    for answer, said in (
        (null_stop(), "An answer"),
        (reply("And", tool_use("chat_send", {"text": "Called."}), stop_reason=None), "Called."),
        (Failure(400, {"type": "error", "error": {"message": "effort: not known"}}), refused),
        (Failure(200, json.dumps(openai)), setup),
        (Failure(404, "Not Found", content_type="text/plain"), setup),
    ):
        before = len(world.texts())
        world.model.then(answer)
        world.telegram.say("hello")
        await world.telegram.until(lambda before=before: len(world.texts()) > before)  # type: ignore[misc]
        assert world.texts()[-1].startswith(said)
    address = world.process.ready_line.split()[-1]
    async with world.session.get(f"{address}/readyz") as ready:
        assert "answered 404: Not Found" in (await ready.json())["parts"]["model"]["detail"]
    await world.telegram.until(lambda: bool(world.texts(OPERATOR)))
    assert "effort: not known" in world.texts(OPERATOR)[0]
    world.model.answer("Well again.")
    world.telegram.say("hello")
    await world.telegram.until(lambda: world.texts()[-1] == "Well again.")
    async with world.session.get(f"{address}/readyz") as ready:
        assert (await ready.json())["parts"]["model"]["ok"] is True


@pytest.mark.parametrize("command", ["check", "doctor", "run"])
async def test_half_of_the_tokens_are_a_finding(world: World, command: str) -> None:
    del world.config["channels"]["slack"]["enabled"], world.process.env["SLACK_APP_TOKEN"]
    process = await world.start(command=(command,), wait=False)
    assert await process.ended() == 78
    told = "\n".join([*process.lines, process.stderr])
    assert "channels.slack.appToken" in told
    assert "SLACK_APP_TOKEN" in told
