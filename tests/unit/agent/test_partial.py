"""A stop keeps what the model had said: in memory, on disk and in the chat, once, with a mark, in no time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from bot import errors
from bot.agent import runtime
from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.model import ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.telemetry import Redactor
from bot.testing.model import ScriptedModel, reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench, Chat, said, words
from tests.unit.agent.test_steps import steps_of
from tests.unit.agent.test_stop import after_restart, history
from tests.unit.agent.test_turn import Press

Event = TextDelta | ToolInputDelta


class Hanging(ScriptedModel):
    """Answers from its script; then says what it is given and nothing more."""

    def __init__(self, *answers: Any, said: tuple[Event, ...]) -> None:
        super().__init__(*answers)
        self.said = said
        self.silent = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        if self.answers:
            async for event in super().stream(request):
                yield event
            return
        self.requests.append(request)
        for event in self.said:
            yield event
        self.silent.set()
        await asyncio.Event().wait()


async def stopped(bench: Bench, *answers: Any, said: tuple[Event, ...]) -> TurnOutcome:
    """A turn that is stopped in the middle of the model's answer; the model can be asked again after it."""
    model = Hanging(*answers, said=said)
    bench.configure(model=model)
    running = asyncio.create_task(bench.say("tell me"))
    await model.silent.wait()
    assert await bench.pool.stop(KEY)
    outcome = await running
    model.answers.append(reply())
    return outcome


def call(*pieces: str) -> tuple[Event, ...]:
    return tuple(ToolInputDelta("toolu_x", "chat_send", piece) for piece in pieces)


async def test_what_the_model_had_said_is_kept_marked_and_delivered(bench: Bench) -> None:
    outcome = await stopped(bench, said=(TextDelta("Die Antwort "), TextDelta("ist 四十")))
    assert (outcome.status, outcome.delivered) == ("stopped", 1)
    assert bench.chat.seen == ["Die Antwort ist 四十\n\n(stopped)"]
    await bench.say("and?")
    assert words(bench.sent[1]) == ["Die Antwort ist 四十\n\n(stopped)"]
    live = history(bench)
    assert await after_restart(bench) == live


@pytest.mark.parametrize(
    ("pieces", "shown"),
    [
        (['{"te', 'xt": "Es ist ', "gr\\u00fc"], "Es ist grü"),
        (['{"text":"a\\nb \\"c\\" 👩‍👩‍👧', "\\"], 'a\nb "c" 👩‍👩‍👧'),
        (['{"text":"smile \\ud83d\\ude00', " \\ud83d"], "smile 😀"),
        (['{"text":"half \\u00'], "half"),
        (['{"text":"שלום"', "}"], "שלום"),
    ],
)
async def test_a_message_that_was_being_written_is_what_people_get(
    bench: Bench, pieces: list[str], shown: str
) -> None:
    await stopped(bench, said=(TextDelta("Let me tell them."), *call(*pieces)))
    assert bench.chat.seen == [f"{shown}\n\n(stopped)"]
    live = history(bench)
    assert await after_restart(bench) == live


@pytest.mark.parametrize("said", [(), (TextDelta(" \n"),), call('{"te'), call('{"text": " '), call("[1, ")])
async def test_where_nothing_was_said_nothing_is_kept_or_delivered(
    bench: Bench, said: tuple[Event, ...]
) -> None:
    outcome = await stopped(bench, said=said)
    assert outcome == TurnOutcome("stopped")
    assert bench.chat.seen == []
    assert "(stopped)" not in history(bench)


async def test_after_a_delivered_reply_the_rest_of_a_stopped_turn_is_kept_but_not_sent(bench: Bench) -> None:
    await stopped(
        bench, reply(tool_use("chat_send", text="Done.", more=True)), said=(TextDelta("I have told"),)
    )
    assert bench.chat.seen == ["Done."]
    assert "I have told\\n\\n(stopped)" in history(bench)


async def test_a_secret_in_it_is_in_neither_the_history_nor_the_chat(bench: Bench) -> None:
    bench.configure(redact=lambda words: words.replace("sk-secret", "[key]"))
    await stopped(bench, said=(TextDelta("It is sk-sec"), TextDelta("ret, and")))
    assert bench.chat.seen == ["It is [key], and\n\n(stopped)"]
    assert "sk-secret" not in history(bench)


async def test_it_does_not_end_in_the_beginning_of_a_secret(bench: Bench) -> None:
    redact = Redactor(["sk-secret-123"])
    bench.configure(redact=redact, settled=redact.settled)
    await stopped(bench, said=call('{"text": "The key is sk-secret-12'))
    assert bench.chat.seen == ["The key is\n\n(stopped)"]
    assert "sk-secret" not in history(bench)


async def test_a_paused_answer_and_its_beginning_are_one(bench: Bench) -> None:
    await stopped(bench, reply(text("It "), stop_reason="pause_turn"), said=(TextDelta("floats"),))
    assert bench.chat.seen == ["It floats\n\n(stopped)"]


async def test_what_was_said_before_a_tool_that_is_stopped_is_delivered_too(bench: Bench) -> None:
    press = Press()
    press.hold = asyncio.Event()
    bench.add_tools(press)
    bench.model.answers += [reply(text("Let me look."), tool_use("press"))]
    running = asyncio.create_task(bench.say("press it"))
    await press.began.wait()
    await bench.pool.stop(KEY)
    assert (await running).status == "stopped"
    assert bench.chat.seen == ["Let me look.\n\n(stopped)"]
    live = history(bench)
    assert await after_restart(bench) == live
    await bench.say("and?")
    assert words(bench.sent[3]) == ["(stopped)"]
    assert json.dumps(bench.sent).count("Let me look.") == 1
    (step,) = [one for one in await steps_of(bench) if one.name == "press"]
    assert step.result == {"error": "stopped"}


class Stubborn(Press):
    """A tool that does not let itself be interrupted."""

    ended = False

    async def run(self, _: Any) -> str:
        self.began.set()
        assert self.hold is not None
        while not self.hold.is_set():
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                continue
        self.ended = True
        return "pressed"


async def settled(until: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not until():  # noqa: ASYNC110 - what is left behind tells nobody
            await asyncio.sleep(0)


async def test_a_tool_that_does_not_let_itself_be_stopped_is_left_behind(bench: Bench) -> None:
    press, other = Stubborn(), Press()
    other.name, press.hold = "other", asyncio.Event()
    bench.add_tools(press, other)
    bench.model.answers += [reply(text("I press."), tool_use("press"), tool_use("other"))]
    running = asyncio.create_task(bench.say("press it"))
    await press.began.wait()
    await bench.pool.stop(KEY)
    await settled(lambda: bench.clock.sleeping > 0)
    await bench.clock.advance(0.9)
    assert (await running).status == "stopped"
    live, asked = history(bench), len(bench.model.requests)
    assert bench.pool.evict(-1) == 0, "it still runs"

    press.hold.set()
    await settled(lambda: bench.pool.evict(-1) == 1)

    assert press.ended
    assert other.pressed == 0
    assert len(bench.model.requests) == asked
    assert await after_restart(bench) == live
    assert bench.chat.seen == ["I press.\n\n(stopped)"]


class Slow(Chat):
    """A platform that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.asked = asyncio.Event()

    async def send(
        self, text: str, step_id: str | None = None, files: object = (), *, after: Any = None
    ) -> Any:
        self.asked.set()
        await self.go_on.wait()
        return await super().send(text)


async def test_a_slow_platform_does_not_hold_up_a_stop(bench: Bench) -> None:
    bench.chat = slow = Slow()
    model = Hanging(said=(TextDelta("The answer"),))
    bench.configure(model=model)
    running = asyncio.create_task(bench.say("tell me"))
    await model.silent.wait()
    await bench.pool.stop(KEY)
    await slow.asked.wait()
    assert (await bench.transcript.load(KEY))[-1].type == "turn_end", "it is closed first"
    await bench.clock.advance(runtime.LAST_WORDS_SECONDS + 0.1)
    assert await running == TurnOutcome("stopped")
    slow.go_on.set()
    await settled(lambda: bool(slow.seen))
    assert slow.seen == ["The answer\n\n(stopped)"]


async def test_a_message_that_was_on_its_way_is_not_followed_by_another(bench: Bench) -> None:
    bench.chat = slow = Slow()
    bench.model.answers += [reply(text("I write."), tool_use("chat_send", text="Perhaps there."))]
    running = asyncio.create_task(bench.say("tell me"))
    await slow.asked.wait()
    await bench.pool.stop(KEY)
    assert (await running).status == "stopped"
    slow.go_on.set()
    assert slow.seen == []
    live = history(bench)
    assert await after_restart(bench) == live


async def test_what_was_refused_by_the_platform_counts_as_not_sent(bench: Bench) -> None:
    bench.chat.failures = [errors.DeliveryFailed("400")]
    await stopped(bench, reply(tool_use("chat_send", text="Lost.")), said=(TextDelta("In other words"),))
    assert bench.chat.seen == ["In other words\n\n(stopped)"]


async def test_a_crash_before_the_delivery_does_not_lose_it(bench: Bench) -> None:
    bench.chat = slow = Slow()
    model = Hanging(said=(TextDelta("The answer"),))
    bench.configure(model=model)
    inbound = bench.inbound("tell me")
    request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=slow)
    running = asyncio.create_task(bench.pool.run(request))
    await model.silent.wait()
    await bench.pool.stop(KEY)
    await slow.asked.wait()
    running.cancel()
    bench.restart()

    chat = Chat()
    assert await bench.pool.run(replace(request, reply=chat)) == TurnOutcome("stopped", delivered=1)
    assert chat.seen == ["The answer\n\n(stopped)"]
    bench.restart()
    await bench.pool.run(replace(request, reply=chat, begun=said("1")))
    assert len(chat.seen) == 1
    slow.go_on.set()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_turn_without_a_chat_keeps_it_too(bench: Bench) -> None:
    model = Hanging(said=(TextDelta("The round"),))
    bench.configure(model=model)
    running = asyncio.create_task(bench.pool.run(TurnRequest(bench.ids.ulid(), KEY, prompt="Do it.")))
    await model.silent.wait()
    await bench.pool.stop(KEY)
    assert (await running).status == "stopped"
    assert "The round\\n\\n(stopped)" in history(bench)
