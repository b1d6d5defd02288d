"""Answers that the provider paused: gone on with unchanged, not for ever, and nothing of them is left half done."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import TurnRequest
from bot.contracts.model import ModelReply, ModelRequest
from bot.core.continuation import GO_ON
from bot.testing.model import reply, text, tool_use
from bot.words import say
from tests.unit.agent.conftest import KEY, Bench

NOTHING_TO_SAY = say("turn.nothing_to_say")

SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def paused(*blocks: Any) -> ModelReply:
    return reply(*blocks, stop_reason="pause_turn")


async def kept(bench: Bench) -> str:
    """The history in memory, which is the one that a restart finds and the one that can be sent."""
    before = json.dumps(bench.pool.runtime(KEY).store.messages())
    bench.restart()
    await bench.pool.describe(KEY)
    assert json.dumps(bench.pool.runtime(KEY).store.messages()) == before
    await bench.say("and now?")
    assert not bench.log.of("repair")
    return before


async def test_what_the_provider_looked_up_meanwhile_is_part_of_the_answer(bench: Bench) -> None:
    bench.model.answers += [paused(THINKING, text("I look. "), SEARCH), reply(FOUND, text("It floats."))]
    await bench.say("hello")
    assert bench.chat.seen == ["I look. It floats."]
    assert "srv_1" in await kept(bench)


async def test_pauses_and_the_length_limit_cost_three_more_requests_together(bench: Bench) -> None:
    bench.model.answers += [
        paused(text("0 ")),
        paused(text("1 ")),
        *(reply(text(f"{n} "), stop_reason="max_tokens") for n in (2, 3, 4)),
    ]
    await bench.say("hello")
    assert len(bench.model.requests) == 4
    assert bench.chat.seen[0].startswith("0 1 2 3\n\n(cut off")


@pytest.mark.parametrize(
    ("last", "left"),
    [
        (paused(text("I look."), SEARCH, THINKING), "I look."),
        (paused(THINKING, SEARCH), "(not finished)"),
        (reply(text("As far as"), SEARCH, stop_reason="max_tokens"), "As far as"),
    ],
)
async def test_a_search_without_its_result_is_in_no_later_request(
    bench: Bench, last: ModelReply, left: str
) -> None:
    bench.model.answers += [last, errors.RequestInvalid("no")] if last.stop_reason == "pause_turn" else [last]
    bench.model.answers += [reply()]
    await bench.say("hello")
    bench.model.answers.clear()
    bench.model.answers += [last, errors.StreamBroken("cut")]
    await bench.say("hello again")
    history = await kept(bench)
    assert "srv_1" not in history
    assert left in history


async def test_a_step_is_not_refused_for_its_length_again_and_again(bench: Bench) -> None:
    def strict(answer: ModelReply) -> Any:
        refused = errors.OutputOverflow("too much", limit=None)
        return lambda request: answer if request.max_tokens < 5_000 else refused

    for number in range(8):
        bench.model.answers.append(
            strict(reply(tool_use("skills_list")) if number < 7 else reply(text("done")))
        )
    await bench.say("hello")
    sizes = [request.max_tokens for request in bench.model.requests]
    assert sum(size >= 5_000 for size in sizes) == 1


async def test_thinking_that_would_come_loose_is_left_out_before_anybody_refuses_it(bench: Bench) -> None:
    bench.model.answers += [reply(THINKING, text("eins")), reply(text("zwei"))]
    await bench.say("first")
    await bench.say("second")
    # Something has changed the history and told nobody. In place: whatever makes the view of it sees that.
    before = bench.pool.runtime(KEY).store.messages()[0]
    copy = {**before, "content": list(before["content"])}
    bench.pool.runtime(KEY).view_changes.sent = [copy, *list(bench.pool.runtime(KEY).view_changes.sent)[1:]]
    before["content"][-1] = text("other words")
    await bench.say("third")
    (told,) = bench.log.of("repair")
    assert told.details["cause"] == "messages.1: thinking behind a changed position"
    assert not any("hm" in json.dumps(message) for message in bench.sent)


async def test_a_crash_while_the_provider_paused_costs_nothing(bench: Bench) -> None:
    again = asyncio.Event()

    def first(_: ModelRequest) -> ModelReply:
        bench.model.asked, bench.model.hold = again, asyncio.Event()
        return paused(THINKING, text("I look. "), SEARCH)

    bench.model.answers.append(first)
    inbound = bench.inbound("hello")
    request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=bench.chat)
    running = asyncio.create_task(bench.pool.run(request))
    async with asyncio.timeout(90):
        await again.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await bench.pool.flush()
    bench.restart()
    bench.model.hold = None
    bench.model.answers.clear()
    bench.model.answers.append(reply(FOUND, text("It floats.")))
    await bench.pool.run(request)
    assert bench.sent[-1]["role"] == "assistant"
    assert bench.sent[-1]["content"][-1]["type"] == "server_tool_use"
    assert bench.chat.seen == ["I look. It floats."]
    assert "srv_1" in await kept(bench)


async def test_a_pause_in_an_answer_that_goes_on_is_gone_on_with_in_words(bench: Bench) -> None:
    bench.model.answers += [
        reply(text("It "), stop_reason="max_tokens"),
        paused(text("seems to "), SEARCH),
        reply(text("float.")),
    ]
    await bench.say("hello")
    assert bench.chat.seen == ["It seems to float."]
    assert "srv_1" not in await kept(bench)


@pytest.mark.parametrize("content", [[THINKING, text("It "), SEARCH], [text("It ")]])
async def test_a_paused_answer_that_is_not_taken_back_is_gone_on_with_in_words(
    bench: Bench, content: list[Any]
) -> None:
    bench.model.answers += [paused(*content), errors.RequestInvalid("prefill"), reply(text("floats."))]
    await bench.say("hello")
    assert bench.chat.seen == ["It floats."]
    assert bench.sent[-1]["role"] == "user"
    assert "srv_1" not in await kept(bench)


async def test_what_stands_for_a_search_that_came_to_nothing_is_not_told_to_people(bench: Bench) -> None:
    bench.model.answers += [
        paused(THINKING, SEARCH),
        errors.RequestInvalid("prefill"),
        reply(text("It floats.")),
    ]
    await bench.say("hello")
    bench.model.answers += [paused(THINKING, SEARCH), errors.RequestInvalid("prefill"), reply()]
    outcome = await bench.say("and again?")
    assert bench.chat.seen == ["It floats."]
    assert outcome.notice == NOTHING_TO_SAY
    assert "srv_1" not in await kept(bench)


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded"])
async def test_an_answer_goes_on_from_what_was_looked_up_where_thinking_took_the_rest_of_the_room(
    bench: Bench, reason: str
) -> None:
    await bench.say("something that may go")
    bench.model.answers += [
        paused(THINKING, SEARCH),
        reply(FOUND, THINKING, stop_reason=reason),
        reply(text("It floats.")),
    ]
    await bench.say("hello")
    assert bench.sent[-1]["content"][-1]["text"] == GO_ON
    assert bench.chat.seen[-1] == "It floats."
    assert "srv_1" in await kept(bench)


async def test_an_answer_goes_on_where_nothing_was_found_and_thinking_took_the_room(bench: Bench) -> None:
    bench.model.answers += [
        paused(THINKING, SEARCH),
        reply(THINKING, stop_reason="max_tokens"),
        reply(text("It floats.")),
    ]
    await bench.say("hello")
    assert bench.chat.seen == ["It floats."]
    assert "srv_1" not in await kept(bench)


async def test_a_request_that_is_refused_for_itself_is_not_sent_again(bench: Bench) -> None:
    bench.model.answers += [paused(text("It ")), *[errors.RequestInvalid("no")] * 3]
    assert (await bench.say("hello")).status == "failed"
    assert len(bench.model.requests) == 3


async def test_a_cut_does_not_split_an_answer_that_paused(bench: Bench) -> None:
    bench.configure(max_messages=4)
    bench.model.answers += [
        reply(tool_use("skills_list")),
        reply(tool_use("skills_list")),
        paused(SEARCH),
        reply(FOUND, text("It floats.")),
    ]
    await bench.say("hello")
    await bench.say("and now?")
    assert [entry.details["reason"] for entry in bench.log.of("compaction")] == ["message_cap"]
    assert "srv_1" in await kept(bench)
