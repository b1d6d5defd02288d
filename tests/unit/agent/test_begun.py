"""A turn that a crash cut off, and what its outbox has of it: put off, unknown, refused, or there in part."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bot import errors
from bot.agent.steps import known_results
from bot.contracts.agent import PriorReply, TurnRequest
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply, TextDelta
from bot.contracts.outbound import Sent
from bot.core import blocks
from bot.testing.model import reply, text, tool_use
from bot.tools.builtin.chat_send import UNCERTAIN, partly_delivered_words
from tests.unit.agent.conftest import KEY, Added, Bench, Chat, Written, each, said
from tests.unit.agent.test_partial import Hanging
from tests.unit.agent.test_resume import ask, killed, killed_at_its_end
from tests.unit.agent.test_turn import Press

WAITS = PriorReply("o1", ("o1",))
UNKNOWN = PriorReply("o1")
REFUSED = PriorReply("o1", failed=True)


class Slow(Chat):
    """It has `written` what it is given, or nothing, and the process dies before anything else."""

    def __init__(self, *written: str) -> None:
        super().__init__()
        self.written: list[str] = []
        self.sending = asyncio.Event()
        self._will = list(written)

    async def send(self, text: str, step_id: str | None = None, files: object = ()) -> list[Sent]:
        self.written += self._will
        self.sending.set()
        await asyncio.Event().wait()
        raise AssertionError


async def cut_in_a_send(bench: Bench, request: TurnRequest, *answers: Any, wrote: Sequence[str] = ()) -> None:
    """Let the process die in the last message of these answers."""
    slow = Slow(*wrote)
    bench.model.answers += answers
    await killed(bench, replace(request, reply=slow), slow.sending)


async def test_what_waits_for_its_platform_is_not_taken_for_the_next_message(bench: Bench) -> None:
    chat, slow = Chat(failures=[errors.DeliveryDeferred(wait=600)]), Slow()

    class Both(Chat):
        async def send(self, text: str, step_id: str | None = None, files: object = ()) -> list[Sent]:
            return await (chat if chat.failures else slow).send(text)

    request = ask(bench)
    bench.model.answers += [
        reply(tool_use("chat_send", text="One.", more=True)),
        reply(tool_use("chat_send", text="Two.")),
    ]
    await killed(bench, replace(request, reply=Written(Both(), lambda: ["o1"])), slow.sending)
    await bench.pool.run(replace(request, begun=(WAITS,)))
    assert bench.chat.seen == ["Two."]


async def test_where_the_journal_could_not_record_what_a_call_said_the_transcript_tells(bench: Bench) -> None:
    chat, slow = Chat(), Slow()

    class Both(Chat):
        async def send(self, text: str, step_id: str | None = None, files: object = ()) -> list[Sent]:
            return await (slow if chat.seen else chat).send(text)

    async def refused(*_: Any) -> None:
        raise errors.StorageError("EIO")

    request = ask(bench)
    end_step, bench.journal.end_step = bench.journal.end_step, refused
    bench.model.answers += [
        reply(tool_use("chat_send", text="One.", more=True)),
        reply(tool_use("chat_send", text="Two.")),
    ]
    await killed(bench, replace(request, reply=Written(Both(), lambda: ["o1"])), slow.sending)
    bench.journal.end_step = end_step
    await bench.pool.run(replace(request, begun=said("o1")))
    assert bench.chat.seen == ["Two."]


@pytest.mark.parametrize(
    ("begun", "told"),
    [
        ((UNKNOWN,), UNCERTAIN),
        ((PriorReply("o0", ("m1",)), REFUSED), partly_delivered_words(1, 2)),
        ((PriorReply("o0", ("m1", "m2")), WAITS), "Delivered in 3 parts (message id m1, m2, o1)."),
    ],
)
async def test_a_send_that_was_cut_off_is_told_to_the_model_as_what_became_of_it(
    bench: Bench, begun: tuple[PriorReply, ...], told: str
) -> None:
    request = ask(bench)
    await cut_in_a_send(bench, request, reply(tool_use("chat_send", text="The answer.")), wrote=["o0", "o1"])
    whole = told.startswith("Delivered")
    bench.model.answers += [] if whole else [reply(text("The rest."))]
    await bench.pool.run(replace(request, begun=begun))
    assert len(bench.model.requests) == (1 if whole else 2)
    assert bench.chat.seen == (["The rest."] if begun[-1].failed else [])
    await bench.say("next")
    (result,) = bench.sent[2]["content"]
    assert result["content"] == told
    assert result.get("is_error", False) == (not whole)
    assert "written" not in result


async def test_what_was_refused_is_said_again_and_is_not_part_of_the_next_message(bench: Bench) -> None:
    request = ask(bench)
    await cut_in_a_send(bench, request, reply(tool_use("chat_send", text="One.", more=True)), wrote=["o1"])
    slow = Slow()
    chat = Chat()

    class Both(Chat):
        async def send(self, text: str, step_id: str | None = None, files: object = ()) -> list[Sent]:
            return await (slow if chat.seen else chat).send(text)

    bench.model.answers += [reply(tool_use("chat_send", text="Two."))]
    again = replace(request, reply=Written(Both(), lambda: ["o2"]), begun=(REFUSED,))
    await killed(bench, again, slow.sending)
    assert chat.seen == ["One."]
    await bench.pool.run(replace(request, begun=(REFUSED, PriorReply("o2", ("m2",)))))
    assert bench.chat.seen == ["Two."]


def test_of_two_calls_the_one_whose_row_is_there_has_run() -> None:
    calls = [tool_use("chat_send", text=words) for words in ("One.", "Two.")]
    begun = PriorReply("o1", ("m1",), step_id=calls[1]["id"])
    assert list(known_results(blocks.tool_calls(calls), (), (begun,))) == [calls[1]["id"]]


@pytest.mark.parametrize(("begun", "seen"), [(UNKNOWN, []), (WAITS, []), (REFUSED, ["Plain answer."])])
async def test_a_last_text_of_which_nobody_knows_whether_it_arrived_is_not_said_again(
    bench: Bench, begun: PriorReply, seen: list[str]
) -> None:
    request = ask(bench)
    await cut_in_a_send(bench, request, reply(text("Plain answer.")), wrote=["o1"])
    await bench.pool.run(replace(request, begun=(begun,)))
    assert bench.chat.seen == seen


async def test_the_last_words_of_a_stopped_turn_that_may_have_arrived_are_not_said_again(
    bench: Bench,
) -> None:
    slow, model = Slow("o1"), Hanging(said=(TextDelta("The answer"),))
    bench.configure(model=model)
    request = ask(bench)
    running = asyncio.create_task(bench.pool.run(replace(request, reply=slow)))
    await model.silent.wait()
    await bench.pool.stop(KEY)
    await slow.sending.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    bench.restart()
    outcome = await bench.pool.run(replace(request, begun=(UNKNOWN,)))
    assert (outcome.status, bench.chat.seen) == ("stopped", [])


@pytest.mark.parametrize(
    ("begun", "seen"),
    [
        ((PriorReply("o1", ("m1", "m2")),), ["Both."]),
        ((REFUSED, PriorReply("o2", ("m2",))), []),
        ((PriorReply("o1", ("m1",)), PriorReply("o2", failed=True)), ["Both."]),
    ],
)
async def test_what_joined_is_answered_by_what_was_said_after_it_whatever_became_of_what_was_said_before(
    bench: Bench, begun: tuple[PriorReply, ...], seen: list[str]
) -> None:
    chat, slow, late = Chat(), Slow(), [bench.inbound("and blue")]

    class Both(Chat):
        async def send(self, text: str, step_id: str | None = None, files: object = ()) -> list[Sent]:
            return await (slow if chat.seen else chat).send(text)

    request = ask(bench, arrivals=Added(each(late)))
    bench.model.answers += [reply(tool_use("chat_send", text="One.")), reply(text("Both."))]
    await killed(bench, replace(request, reply=Written(Both(), lambda: ["o1"])), slow.sending)
    await bench.pool.run(replace(request, begun=begun))
    assert bench.chat.seen == seen


@pytest.mark.parametrize(
    "answer", [reply(text("The answer.")), reply(tool_use("chat_send", text="The answer."))]
)
async def test_what_the_transcript_never_got_does_not_stand_for_what_the_model_says_now(
    bench: Bench, answer: ModelReply
) -> None:
    hold = asyncio.Event()
    append, sent = bench.transcript.append, asyncio.Event()

    async def full(chat_key: ChatKey, lines: Any, **how: Any) -> str:
        if any("chat_send" in str(line.message) for line in lines):
            raise errors.StorageError("no space left")
        return await append(chat_key, lines, **how)

    class Sending(Chat):
        async def send(self, text: str, step_id: str | None = None, files: object = ()) -> list[Sent]:
            sent.set()
            await hold.wait()
            return []

    bench.transcript.append = full  # type: ignore[method-assign]
    request = ask(bench)
    bench.model.answers += [reply(tool_use("chat_send", text="Let me see."))]
    await killed(bench, replace(request, reply=Written(Sending(), lambda: ["o1"])), sent)
    bench.transcript.append = append  # type: ignore[method-assign]
    assert [line.type for line in await bench.transcript.load(KEY)] == ["turn_start", "user"]
    slow, chat = Slow(), Chat()
    bench.model.answers += [answer]
    again = replace(request, begun=said("o1"))
    if answer.stop_reason == "tool_use":
        await killed(bench, replace(again, reply=slow), slow.sending)
    await bench.pool.run(replace(again, reply=chat))
    assert chat.seen == ["The answer."]


async def test_what_joined_a_turn_that_has_ended_is_not_answered_again(bench: Bench) -> None:
    press = Press()
    bench.add_tools(press)
    late = [bench.inbound("and blue")]
    (joined,) = late
    request = ask(bench, arrivals=Added(each(late)))
    bench.model.answers += [reply(tool_use("press")), reply(text("Blue it is."))]
    await bench.pool.run(request)
    bench.restart()
    asked = len(bench.model.requests)
    outcome = await bench.pool.run(TurnRequest(joined.request_id, KEY, inbound=joined, reply=bench.chat))
    assert (outcome.status, outcome.notice) == ("done", None)
    assert len(bench.model.requests) == asked
    assert bench.chat.seen == ["Blue it is."]


async def test_nor_is_it_told_once_more_why_it_got_no_answer(bench: Bench) -> None:
    press = Press()
    bench.add_tools(press)
    late = [bench.inbound("and blue")]
    (joined,) = late
    request = ask(bench, arrivals=Added(each(late)))
    bench.model.answers += [reply(tool_use("press")), errors.Overloaded("529")]
    assert (await bench.pool.run(request)).notice == errors.Overloaded().person
    bench.restart()
    outcome = await bench.pool.run(TurnRequest(joined.request_id, KEY, inbound=joined, reply=bench.chat))
    assert (outcome.status, outcome.notice, bench.chat.seen) == ("failed", None, [])


async def test_a_message_sent_before_a_crash_settles_the_turn(bench: Bench) -> None:
    request = ask(bench)
    bench.model.answers += [reply(tool_use("chat_send", text="The answer."))]
    await killed_at_its_end(bench, replace(request, reply=Written(bench.chat, lambda: ["o1"])))
    await bench.pool.run(replace(request, begun=(UNKNOWN,)))
    assert (bench.chat.seen, len(bench.model.requests)) == (["The answer."], 1)
