"""After a crash a turn goes on from its last recorded step: nothing paid twice, nothing run twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.identity import ChatKey
from bot.contracts.journal import StepRecord
from bot.contracts.model import ModelReply
from bot.contracts.transcript import TranscriptLine
from bot.testing.model import reply, text, tool_use
from bot.words import say
from tests.unit.agent.conftest import KEY, Added, Bench, Chat, Written, each, said, words
from tests.unit.agent.test_turn import Press


def ask(bench: Bench, words: str = "do it", **more: Any) -> TurnRequest:
    inbound, chat = bench.inbound(words), bench.chat
    reply = Written(chat, lambda: [str(number + 1) for number in range(len(chat.seen))])
    return TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=reply, **more)


async def killed(bench: Bench, request: TurnRequest, reached: asyncio.Event) -> None:
    """Run a turn until something is reached, then let the process die."""
    running = asyncio.create_task(bench.pool.run(request))
    async with asyncio.timeout(90):
        await reached.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    bench.restart()


async def killed_while_asking(bench: Bench, request: TurnRequest, call: int) -> None:
    """Let the process die in the model's nth call of this turn, which takes longer than the disk."""
    hold, reached, count = asyncio.Event(), asyncio.Event(), len(bench.model.requests) + call
    original = bench.model.stream

    async def stream(asked: Any) -> Any:
        if len(bench.model.requests) + 1 == count:
            bench.model.requests.append(asked)
            await bench.pool.flush()
            reached.set()
            await hold.wait()
        async for event in original(asked):
            yield event

    bench.model.stream = stream  # type: ignore[method-assign, assignment]
    await killed(bench, request, reached)
    bench.model.stream = original  # type: ignore[method-assign]


async def killed_at_its_end(bench: Bench, request: TurnRequest) -> None:
    """Let the process die when all is on file but the line that ends the turn."""
    append, reached = bench.transcript.append, asyncio.Event()

    async def append_all_but_that(chat_key: ChatKey, lines: Sequence[TranscriptLine], **how: Any) -> str:
        session = await append(chat_key, [line for line in lines if line.type != "turn_end"], **how)
        if any(line.type == "turn_end" for line in lines):
            reached.set()
            await asyncio.Event().wait()
        return session

    bench.transcript.append = append_all_but_that  # type: ignore[method-assign]
    await killed(bench, request, reached)
    bench.transcript.append = append  # type: ignore[method-assign]


async def test_a_tool_that_ran_does_not_run_again_and_its_call_is_not_paid_again(bench: Bench) -> None:
    press = Press("the result")
    bench.add_tools(press)
    request = ask(bench)
    bench.model.answers += [reply(tool_use("press"))]
    await killed_while_asking(bench, request, 2)
    bench.model.answers += [reply(tool_use("chat_send", text="Done."))]
    asked = len(bench.model.requests)
    assert (await bench.pool.run(request)).status == "done"
    assert press.pressed == 1
    assert len(bench.model.requests) - asked == 1
    assert bench.model.requests[asked].messages == bench.model.requests[asked - 1].messages, (
        "the same request"
    )
    assert bench.chat.seen == ["Done."]


async def test_a_tool_that_may_have_run_is_reported_as_interrupted_and_not_repeated(bench: Bench) -> None:
    press, other = Press(), Press()
    other.name = "other"
    press.hold = asyncio.Event()
    bench.add_tools(press, other)
    request = ask(bench)
    bench.model.answers += [reply(tool_use("other"), tool_use("press"))]
    await killed(bench, request, press.began)
    bench.model.answers += [reply(text("I see."))]
    await bench.pool.run(request)
    assert (other.pressed, press.pressed) == (1, 1)
    done, maybe = bench.sent[-1]["content"]
    assert (done["content"], done.get("is_error")) == ("pressed", None)
    assert "Interrupted" in maybe["content"]
    assert maybe["is_error"] is True


async def test_what_had_not_begun_is_run(bench: Bench) -> None:
    first, second = Press(), Press()
    first.name, second.name = "a_first", "b_second"
    first.hold = asyncio.Event()
    bench.add_tools(first, second)
    request = ask(bench)
    bench.model.answers += [reply(tool_use("a_first"), tool_use("b_second"))]
    await killed(bench, request, first.began)
    bench.model.answers += [reply(text("I see."))]
    await bench.pool.run(request)
    assert (first.pressed, second.pressed) == (1, 1)
    assert bench.sent[-1]["content"][1]["content"] == "pressed"


async def test_a_reply_that_was_delivered_is_not_sent_again(bench: Bench) -> None:
    request = ask(bench)
    first = tool_use("chat_send", text="The answer.", more=True)
    bench.model.answers += [reply(first)]
    await killed_while_asking(bench, request, 2)
    bench.model.answers += [reply(text("And the rest."))]
    outcome = await bench.pool.run(replace(request, begun=said("1", call=first)))
    assert bench.chat.seen == ["The answer.", "And the rest."]
    assert outcome == TurnOutcome("done", delivered=2)


async def test_a_kill_between_a_delivered_answer_and_the_turns_end_asks_nothing_more(bench: Bench) -> None:
    request = ask(bench)
    bench.model.answers += [reply(tool_use("chat_send", text="The answer."))]
    await killed_at_its_end(bench, request)
    assert (await bench.transcript.load(KEY))[-1].type == "user"
    outcome = await bench.pool.run(replace(request, begun=said("1")))
    assert (outcome, bench.chat.seen) == (TurnOutcome("done", delivered=1), ["The answer."])
    assert len(bench.model.requests) == 1
    assert (await bench.transcript.load(KEY))[-1].type == "turn_end"


async def test_what_has_come_in_since_such_a_kill_is_answered(bench: Bench) -> None:
    request = ask(bench)
    bench.model.answers += [reply(tool_use("chat_send", text="The answer."))]
    await killed_at_its_end(bench, request)
    joined = bench.inbound("and this?")
    bench.model.answers += [reply(tool_use("chat_send", text="That too."))]
    again = replace(
        request, begun=said("1"), arrivals=Added(lambda: [joined] if not bench.chat.seen[1:] else [])
    )
    await bench.pool.run(again)
    assert bench.chat.seen == ["The answer.", "That too."]
    assert words(bench.sent[-1]) == ["and this?"]


async def test_a_send_that_the_outbox_knows_to_have_arrived_is_told_to_the_model_as_delivered(
    bench: Bench,
) -> None:
    sending = asyncio.Event()

    class Slow(Chat):
        async def send(
            self, text: str, step_id: str | None = None, files: object = (), *, after: Any = None
        ) -> Any:
            self.seen.append(text)
            sending.set()
            await asyncio.Event().wait()

    slow = Slow()
    request = ask(bench)
    bench.model.answers += [reply(tool_use("chat_send", text="The answer."))]
    await killed(bench, replace(request, reply=slow), sending)
    await bench.pool.run(replace(request, begun=said("m7")))
    assert slow.seen == ["The answer."]
    assert bench.chat.seen == []
    assert len(bench.model.requests) == 1
    await bench.say("next")
    assert bench.sent[2]["content"][0]["content"] == "Delivered (message id m7)."


async def test_of_two_crashes_the_second_does_not_take_the_first_message_for_the_next_one(
    bench: Bench,
) -> None:
    class Slow(Chat):
        def __init__(self) -> None:
            super().__init__()
            self.sending = asyncio.Event()

        async def send(
            self, text: str, step_id: str | None = None, files: object = (), *, after: Any = None
        ) -> Any:
            self.sending.set()
            await asyncio.Event().wait()

    first, second = Slow(), Slow()
    request = ask(bench)
    call = tool_use("chat_send", text="One.", more=True)
    bench.model.answers += [reply(call)]
    await killed(bench, replace(request, reply=first), first.sending)
    bench.model.answers += [reply(tool_use("chat_send", text="Two."))]
    await killed(bench, replace(request, reply=second, begun=said("m1", call=call)), second.sending)
    await bench.pool.run(replace(request, begun=said("m1")))
    assert bench.chat.seen == ["Two."]


async def test_a_send_that_never_reached_the_outbox_is_sent(bench: Bench) -> None:
    sending = asyncio.Event()

    class Dead(Chat):
        async def send(
            self, text: str, step_id: str | None = None, files: object = (), *, after: Any = None
        ) -> Any:
            sending.set()
            await asyncio.Event().wait()

    request = ask(bench)
    bench.model.answers += [reply(tool_use("chat_send", text="The answer."))]
    await killed(bench, replace(request, reply=Dead()), sending)
    bench.model.answers += [reply()]
    await bench.pool.run(request)
    assert bench.chat.seen == ["The answer."]


async def test_the_last_text_is_delivered_without_asking_the_model_again(bench: Bench) -> None:
    sending = asyncio.Event()

    class Dead(Chat):
        async def send(
            self, text: str, step_id: str | None = None, files: object = (), *, after: Any = None
        ) -> Any:
            sending.set()
            await asyncio.Event().wait()

    for delivered, seen in (((), ["Plain answer."]), (("m1",), [])):
        request = ask(bench)
        bench.chat.seen.clear()
        sending.clear()
        bench.model.answers += [reply(text("Plain answer."))]
        await killed(bench, replace(request, reply=Dead()), sending)
        asked = len(bench.model.requests)
        await bench.pool.run(replace(request, begun=said(*delivered)))
        assert len(bench.model.requests) == asked
        assert bench.chat.seen == seen
    await bench.say("next")
    assert json.dumps(bench.sent).count("Plain answer.") == 2


async def test_a_cut_call_is_not_executed_after_a_crash_either(bench: Bench) -> None:
    press = Press()
    request = ask(bench)
    call = tool_use("press")
    bench.model.answers += [reply(tool_use("skills_list"), call, stop_reason="max_tokens", cut=[call["id"]])]

    class Hang:
        name, description, input, effects, timeout_seconds, ages = (
            "skills_list",
            "d",
            Press.input,
            frozenset({"write"}),
            60,
            True,
        )

        def __init__(self) -> None:
            self.began = asyncio.Event()

        async def run(self, _: Any) -> str:
            self.began.set()
            await asyncio.Event().wait()
            return ""

    hang = Hang()
    bench.add_tools(press, hang)
    await killed(bench, request, hang.began)
    bench.model.answers += [reply(text("Well."))]
    await bench.pool.run(request)
    assert press.pressed == 0
    assert "did not arrive whole" in bench.sent[-1]["content"][1]["content"]


async def test_injected_turns_are_there_again_and_not_loaded_twice(bench: Bench) -> None:
    for number in range(6):
        await bench.store(1_600_000_000_000 + number, "user", f"old {number}", request_id=f"00{number}")
    bench.configure(max_messages=2)
    await bench.say("first")
    request = ask(bench, "remember?")
    bench.model.answers += [reply(tool_use("chat_load_history", limit=2, keyword="old"))]
    await killed_while_asking(bench, request, 2)
    interrupted = bench.model.requests[-1].messages
    bench.model.answers += [reply(tool_use("chat_load_history", limit=2, keyword="old")), reply(text("Yes."))]
    asked = len(bench.model.requests)
    await bench.pool.run(request)
    assert bench.model.requests[asked].messages == interrupted
    loaded = [
        m["content"][1]["text"] for m in bench.sent if "<loaded_history-" in m["content"][0].get("text", "")
    ]
    assert loaded == ["old 2", "old 3", "old 4", "old 5"]
    await bench.say("next")
    assert "old 5" not in json.dumps(bench.sent)


async def test_a_turn_that_has_ended_is_not_run_again_and_its_notice_is_not_lost(bench: Bench) -> None:
    request = ask(bench)
    bench.model.answers += [reply()]
    told = await bench.pool.run(request)
    bench.restart()
    asked = len(bench.model.requests)
    again = await bench.pool.run(request)
    assert again.notice == told.notice
    assert len(bench.model.requests) == asked


async def test_what_joined_the_turn_is_known_after_the_crash(bench: Bench) -> None:
    press = Press()
    bench.add_tools(press)
    more = [bench.inbound("and blue")]
    joined = more[0].request_id
    request = ask(bench, arrivals=Added(each(more)))
    bench.model.answers += [reply(tool_use("press"))]
    await killed_while_asking(bench, request, 2)
    assert await bench.pool.cut_off(KEY) == (request.request_id, joined)
    bench.model.answers += [reply(text("Blue it is."))]
    await bench.pool.run(request)
    assert [words(m) for m in bench.sent if words(m)] == [["do it"], ["and blue"]]
    assert await bench.pool.cut_off(KEY) == ()


async def test_a_refusal_is_not_asked_for_again(bench: Bench) -> None:
    request = ask(bench)
    await killed_while_asking(bench, request, 1)
    refused = {"uuid": None, "stopReason": "refusal"}
    await bench.journal.begin_step(
        StepRecord(request.request_id, "m", "model", "scripted", 1.0, 2.0, refused)
    )
    asked = len(bench.model.requests)
    assert (await bench.pool.run(request)).notice == say("turn.declined")
    assert len(bench.model.requests) == asked


async def test_wherever_it_is_killed_the_history_ends_up_the_same(bench: Bench) -> None:
    press = Press("the result")
    bench.add_tools(press)
    script: list[ModelReply] = [
        reply(text("Let me see."), tool_use("press")),
        reply(tool_use("chat_send", text="It is done.")),
    ]
    kept: list[str] = []
    for kill_at in (None, 1, 2):
        await bench.pool.reset(KEY)
        bench.chat.seen.clear()
        press.pressed = 0
        bench.model.answers.clear()
        request = ask(bench)
        done = 0
        if kill_at is not None:
            done = kill_at - 1
            bench.model.answers.extend(script[:done])
            await killed_while_asking(bench, request, kill_at)
        bench.model.answers.extend(script[done:])
        await bench.pool.run(request)
        assert press.pressed == 1, kill_at
        assert bench.chat.seen == ["It is done."], kill_at
        messages = bench.pool.runtime(KEY).store.messages()
        kept.append(
            json.dumps([m["content"][1:] if m["role"] == "user" and words(m) else m for m in messages])
        )
    assert len(set(kept)) == 1
