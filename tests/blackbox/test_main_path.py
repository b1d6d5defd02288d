"""One message passes from a real client library through the whole gateway to the model, and the answer returns."""

from __future__ import annotations

import json

import pytest

from bot.core.usage import UsageSums
from bot.testing.anthropic_script import tool_use
from tests.blackbox.conftest import ANN, PERSON, ROOM, World, eventually


async def test_a_telegram_message_gets_its_answer_and_the_conversation_goes_on(world: World) -> None:
    world.process.fresh = True
    await world.start("telegram")
    world.model.answer(tool_use("chat_send", {"text": "**Hello** Ann, 你好 👩‍👩‍👧"}))
    world.telegram.say("hi there")
    await world.heard("Hello Ann, 你好 👩‍👩‍👧")
    (message,) = world.telegram.visible(PERSON)
    assert [entity["type"] for entity in message.entities] == ["bold"]
    assert message.preview is False
    await world.turns(1)
    assert len(world.model.requests) == 1, "what was delivered is the end of the turn"
    world.model.answer("And again.")
    world.telegram.say("still there?")
    await world.heard("Hello Ann, 你好 👩‍👩‍👧", "And again.")
    sent = world.model.bodies[1]["messages"]
    assert [block["text"] for block in sent[0]["content"]][-1] == "hi there"
    assert sent[-1]["content"][-1]["text"] == "still there?"
    assert await world.process.stop() == 0


async def test_slack_answers_in_threads_and_knows_who_addressed_it(world: World) -> None:
    await world.start("slack")
    root = await world.slack.say("<@U0SHIP> what is up?", channel=ROOM, user=ANN)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 1)
    top = await world.slack.say("hello from the side", channel=ROOM, user=ANN)
    await world.slack.say("and now?", channel=ROOM, user=ANN, thread_ts=root)
    await world.slack.until(lambda: len(world.slack.replies(ROOM, root)) == 2)
    direct = await world.slack.say("psst", channel="D0ANN", user=ANN)
    await world.slack.until(lambda: len(world.slack.replies("D0ANN", direct)) == 1)
    assert world.slack.replies(ROOM, top) == []
    (first, _) = world.slack.replies(ROOM, root)
    assert first.unfurl_links is False
    keys = {f"slack:chat:{ROOM}:thread:{root}", f"slack:chat:D0ANN:thread:{direct}"}
    await eventually(lambda: {line["chatKey"] for line in world.archive()} == keys)
    assert "from the side" not in json.dumps(world.model.bodies)
    assert b"from the side" not in world.everything_on_disk()
    await world.slack.until(lambda: not world.slack.unacked())


async def test_the_log_links_one_request_id_from_inbound_to_delivery(world: World) -> None:
    price = {"input": 1_000, "output": 2_000, "cacheRead": 0, "cacheWrite": 3_000}
    world.config["llm"]["prices"] = {"claude-sonnet-5-5": price}
    await world.start("telegram")
    world.model.answer(tool_use("chat_send", {"text": "Hello."}))
    world.model.answer()
    world.telegram.say("hi there")
    await world.heard("Hello.")
    await world.process.stop()
    lines = world.log()
    (inbound,) = [line for line in lines if line["kind"] == "inbound"]
    kinds = [line["kind"] for line in lines if line.get("requestId") == inbound["requestId"]]
    for kind in (
        "turn_start",
        "llm_request",
        "llm_response",
        "tool_call",
        "delivery",
        "tool_result",
        "turn_end",
    ):
        assert kind in kinds, kind
    response = next(line for line in lines if line["kind"] == "llm_response")["details"]
    assert set(response["usage"]) == {"inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"}
    assert response["usage"]["inputTokens"] + response["usage"]["cacheWriteTokens"] > 0
    billed = {"inputTokens": 1_000, "outputTokens": 2_000, "cacheWriteTokens": 3_000}
    cost = sum(response["usage"][name] * dollars for name, dollars in billed.items()) / 1_000_000
    assert 0 < response["costUsd"] <= cost, "a part of it is written for an hour, at twice the price of input"
    assert response["providerRequestId"].startswith("req")
    assert (response["purpose"], response["person"]) == ("turn", f"telegram:{PERSON}")
    (whose,) = [line["details"]["person"] for line in lines if line["kind"] == "turn_end"]
    assert whose == f"telegram:{PERSON}"
    sums = UsageSums(world.root / ".ship")
    assert [(name, part.turns) for name, part in sums.by("person")] == [(f"telegram:{PERSON}", 1)]
    assert [line["role"] for line in world.archive()] == ["user", "assistant"]


@pytest.mark.parametrize("channel", ["telegram", "slack"])
async def test_a_message_takes_at_most_twelve_lines_and_six_kilobytes_of_the_log(
    world: World, channel: str
) -> None:
    await world.start(channel)
    words = "Is the number that we spoke about 42, as ever? " * 4
    for number in range(2):
        world.model.answer("Certainly. **Here it is**: 42, and nothing else.\n" * 3)
        if channel == "telegram":
            world.telegram.say(words)
        else:
            await world.slack.say(words, channel="D0ANN", user=ANN)
        await world.turns(number + 1)
    await world.process.stop()
    lines = world.log()
    of = {line["requestId"] for line in lines if line["kind"] == "inbound"}
    assert len(of) == 2
    for request_id in of:
        mine = [line for line in lines if line.get("requestId") == request_id]
        size = sum(len(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()) for line in mine)
        assert 4 <= len(mine) <= 12, [line["kind"] for line in mine]
        assert size <= 6_000
