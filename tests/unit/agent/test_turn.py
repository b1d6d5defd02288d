"""The turn: what the model is shown, what people get, what stays behind."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from bot import errors
from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply, TextDelta
from bot.contracts.outbound import Sent
from bot.contracts.tools import Effect
from bot.core.partial_reply import PartialReply
from bot.testing.model import reply, text, tool_use
from bot.words import say
from tests.unit.agent.conftest import KEY, Added, Bench, Chat, Watched, each, words


class Nothing(BaseModel):
    pass


class Press:
    """A tool with an effect, which counts."""

    name = "press"
    description = "Press the button."
    input = Nothing
    effects: ClassVar[frozenset[Effect]] = frozenset({"run"})
    timeout_seconds = 5.0
    ages = True

    def __init__(self, result: str = "pressed") -> None:
        self.pressed = 0
        self.result = result
        self.hold: asyncio.Event | None = None
        self.began = asyncio.Event()

    async def run(self, _: Nothing) -> str:
        self.pressed += 1
        self.began.set()
        if self.hold is not None:
            await self.hold.wait()
        return self.result


async def test_the_answer_goes_through_chat_send_and_the_model_is_told_that_it_arrived(bench: Bench) -> None:
    outcome = await bench.say("hello")
    assert bench.chat.seen == ["echo: hello"]
    assert (outcome.status, outcome.delivered, outcome.notice) == ("done", 1, None)
    assert len(bench.model.requests) == 1, "nothing is left to ask"
    await bench.say("again")
    results = bench.sent[2]["content"]
    assert results[0]["type"] == "tool_result"
    assert "Delivered" in results[0]["content"]
    assert "message id 1" in results[0]["content"]
    assert "is_error" not in results[0]


async def test_every_message_of_a_turn_is_in_the_next_request_and_the_prefix_stays_the_same(
    bench: Bench,
) -> None:
    await bench.say("one")
    first = _bare(bench.model.requests[-1].messages)
    await bench.say("two")
    second = _bare(bench.model.requests[1].messages)
    assert second[: len(first)] == first
    assert words(bench.sent[0]) == ["one"]
    system = [json.dumps(list(request.system)) for request in bench.model.requests]
    assert len(set(system)) == 1


def _bare(messages: Any) -> list[Any]:
    return [
        {**m, "content": [{k: v for k, v in b.items() if k != "cache_control"} for b in m["content"]]}
        for m in messages
    ]


@pytest.mark.parametrize("more", [False, None])
async def test_a_delivered_message_ends_the_turn(bench: Bench, more: bool | None) -> None:
    how = {} if more is None else {"more": more}
    bench.model.answers += [reply(text("So:"), tool_use("chat_send", text="Done.", **how))]
    outcome = await bench.say("hello")
    assert (outcome, len(bench.model.requests)) == (TurnOutcome("done", delivered=1), 1)


@pytest.mark.parametrize(
    "last", [reply(text("It is 四十二.")), reply(tool_use("chat_send", text="It is 四十二."))]
)
async def test_a_message_that_promises_more_does_not_and_what_comes_then_is_delivered(
    bench: Bench, last: ModelReply
) -> None:
    bench.model.answers += [reply(tool_use("chat_send", text="I look.", more=True)), last]
    assert (await bench.say("hello")).delivered == 2
    assert bench.chat.seen == ["I look.", "It is 四十二."]
    assert len(bench.model.requests) == 2


async def test_where_nothing_comes_after_such_a_promise_the_turn_ends_quietly(bench: Bench) -> None:
    bench.model.answers += [reply(tool_use("chat_send", text="All done.", more=True)), reply()]
    outcome = await bench.say("hello")
    assert (outcome, len(bench.model.requests)) == (TurnOutcome("done", delivered=1), 2)


async def test_two_sends_are_two_messages(bench: Bench) -> None:
    bench.model.answers += [reply(tool_use("chat_send", text="a"), tool_use("chat_send", text="b"))]
    assert (await bench.say("hello")).delivered == 2
    assert bench.chat.seen == ["a", "b"]


@pytest.mark.parametrize(
    "beside",
    [
        tool_use("memory", command="create", path="/memories/chat/a.md", file_text="x"),
        tool_use("skills_list"),
        tool_use("nothing_like_that"),
        tool_use("chat_send", text=" "),
        tool_use("chat_send", text="Wrong.", more="perhaps"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
async def test_beside_a_delivered_message_the_model_is_shown_the_results_of_all_else(
    bench: Bench, beside: Json, *, first: bool
) -> None:
    calls = [tool_use("chat_send", text="Done."), beside]
    bench.model.answers += [reply(*(calls if first else reversed(calls))), reply(text("I have told them."))]
    outcome = await bench.say("hello")
    assert (outcome, len(bench.model.requests)) == (TurnOutcome("done", delivered=1), 2)
    assert len(bench.sent[2]["content"]) == 2, "each call has its result"
    assert bench.chat.seen == ["Done."], "the person has the answer"


@pytest.mark.parametrize(("promises", "asked"), [((True, False), 1), ((False, True), 2)])
async def test_of_two_sends_the_last_says_whether_more_will_come(
    bench: Bench, promises: tuple[bool, bool], asked: int
) -> None:
    calls = [tool_use("chat_send", text=f"part {one}", more=one) for one in promises]
    bench.model.answers += [reply(*calls), reply(text("The rest."))]
    await bench.say("hello")
    assert len(bench.model.requests) == asked
    assert bench.chat.seen[2:] == ["The rest."][: asked - 1]


async def test_of_two_sends_one_that_failed_is_told_to_the_model(bench: Bench) -> None:
    bench.chat.failures = [errors.DeliveryThrottled("429", retry_after=9.0)]
    calls = [tool_use("chat_send", text="a"), tool_use("chat_send", text="b")]
    bench.model.answers += [reply(*calls), reply(tool_use("chat_send", text="a again"))]
    await bench.say("hello")
    assert bench.chat.seen == ["b", "a again"]
    assert [bool(one.get("is_error")) for one in bench.sent[2]["content"]] == [True, False]


async def test_who_promises_more_works_on_and_falls_silent_is_asked_for_it_once(bench: Bench) -> None:
    begins = [reply(tool_use("chat_send", text="I look.", more=True)), reply(tool_use("skills_list"))]
    bench.model.answers += [*begins, reply(), reply(text("四十二"))]
    assert (await bench.say("hello")).delivered == 2
    assert bench.chat.seen == ["I look.", "四十二"]
    bench.model.answers += [*begins, reply(), reply()]
    assert (await bench.say("and now?")).notice == say("turn.nothing_to_say")


@pytest.mark.parametrize(("more", "seen"), [(False, []), (True, ["The rest."])])
async def test_after_a_send_that_may_have_arrived_the_model_is_told_and_only_what_was_promised_follows(
    bench: Bench, seen: list[str], *, more: bool
) -> None:
    bench.chat.failures = [errors.DeliveryUncertain("no answer")]
    bench.model.answers += [reply(tool_use("chat_send", text="One.", more=more)), reply(text("The rest."))]
    outcome = await bench.say("hello")
    assert bench.sent[2]["content"][0]["is_error"] is True
    assert (outcome.status, bench.chat.seen) == ("done", seen)


async def test_a_message_that_joined_meanwhile_is_taken_up_after_a_delivered_answer(bench: Bench) -> None:
    joined = [bench.inbound("and this?")]
    bench.model.answers += [
        reply(tool_use("chat_send", text="One.")),
        reply(tool_use("chat_send", text="Two.")),
    ]
    outcome = await bench.say("go", arrivals=Added(each(joined)))
    assert (outcome, bench.chat.seen) == (TurnOutcome("done", delivered=2), ["One.", "Two."])
    assert words(bench.sent[-1]) == ["and this?"]


async def test_without_chat_send_the_last_text_is_delivered(bench: Bench) -> None:
    bench.model.answers += [reply(text("Just text."))]
    assert (await bench.say("hello")).delivered == 1
    assert bench.chat.seen == ["Just text."]


async def test_a_failed_send_is_told_to_the_model_as_a_failure_and_the_text_after_it_is_delivered(
    bench: Bench,
) -> None:
    bench.chat.failures = [errors.DeliveryFailed("403 secret detail")]
    bench.model.answers += [
        reply(tool_use("chat_send", text="lost")),
        reply(text("Here it is in plain text.")),
    ]
    outcome = await bench.say("hello")
    result = bench.sent[-1]["content"][0]
    assert result["is_error"] is True
    assert result["content"].startswith("Not delivered")
    assert "secret detail" not in result["content"]
    assert bench.chat.seen == ["Here it is in plain text."]
    assert outcome.delivered == 1


async def test_of_a_long_answer_the_model_is_told_which_parts_arrived_and_may_send_the_rest(
    bench: Bench,
) -> None:
    bench.chat.failures = [errors.DeliveryPartial("blocked", sent=2, parts=3)]
    bench.model.answers.extend([reply(tool_use("chat_send", text="long")), reply(text("the rest"))])

    outcome = await bench.say("tell me all")

    assert "first 2 of 3 parts" in bench.sent[-1]["content"][0]["content"]
    assert bench.chat.seen == ["the rest"]
    assert outcome.delivered == 2


async def test_a_send_that_may_have_arrived_is_not_repeated(bench: Bench) -> None:
    bench.chat.failures = [errors.DeliveryUncertain("timeout")]
    bench.model.answers += [reply(tool_use("chat_send", text="maybe")), reply(text("maybe"))]
    await bench.say("hello")
    assert bench.chat.seen == []
    assert "Do not send it again" in bench.sent[-1]["content"][0]["content"]


async def test_an_empty_chat_send_is_an_error_that_the_model_sees(bench: Bench) -> None:
    bench.model.answers += [
        reply(tool_use("chat_send", text=" \n")),
        reply(tool_use("chat_send", text="Now.")),
    ]
    await bench.say("hello")
    assert bench.chat.seen == ["Now."]
    assert "nothing was sent" in bench.model.requests[1].messages[-1]["content"][0]["content"]


async def test_an_empty_answer_becomes_an_honest_line_that_the_model_never_sees(bench: Bench) -> None:
    bench.model.answers += [reply()]
    outcome = await bench.say("hello")
    assert outcome.notice == say("turn.nothing_to_say")
    await bench.say("again")
    assert say("turn.nothing_to_say") not in json.dumps(bench.sent)


async def test_a_cut_answer_says_that_it_is_cut(bench: Bench) -> None:
    bench.model.answers += [reply(text(f"{n} "), stop_reason="max_tokens") for n in range(4)]
    await bench.say("hello")
    assert bench.chat.seen == ["0 1 2 3" + f"\n\n{say('turn.truncated')}"]


async def test_a_cut_tool_call_is_never_executed_and_the_turn_ends_after_three(bench: Bench) -> None:
    press = Press()
    bench.add_tools(press)
    for _ in range(3):
        call = tool_use("press")
        bench.model.answers.append(reply(call, stop_reason="max_tokens", cut=[call["id"]]))
    outcome = await bench.say("hello")
    assert press.pressed == 0
    assert outcome.notice == say("turn.too_many_cuts")
    await bench.say("again")
    assert "not executed" in json.dumps(bench.sent)


async def test_a_refusal_is_told_and_the_turn_leaves_the_history(bench: Bench) -> None:
    await bench.say("one")
    bench.model.answers += [reply(text("I can"), stop_reason="refusal")]
    outcome = await bench.say("something bad")
    assert (outcome.status, outcome.notice) == ("failed", f"I can\n\n{say('turn.declined')}")
    await bench.say("two")
    assert "something bad" not in json.dumps(bench.sent)


async def test_a_paused_turn_goes_on_with_the_same_content_and_ends_in_the_end(bench: Bench) -> None:
    bench.model.answers += [reply(text("It "), stop_reason="pause_turn"), reply(text("floats."))]
    await bench.say("hello")
    assert bench.chat.seen == ["It floats."], "the text before the pause is part of the answer"
    assert bench.sent[-1]["role"] == "assistant"
    bench.model.answers += [reply(text(f"{n} "), stop_reason="pause_turn") for n in range(9)]
    await bench.say("hello")
    assert bench.chat.seen[-1] == "0 1 2 3"


async def test_an_unknown_stop_reason_is_taken_as_an_end(bench: Bench) -> None:
    bench.model.answers += [reply(text("Well."), stop_reason="brand_new")]
    await bench.say("hello")
    assert bench.chat.seen == ["Well."]


async def test_a_model_failure_is_told_plainly_and_the_message_stays_in_the_history(bench: Bench) -> None:
    bench.model.answers += [errors.Overloaded("529 overloaded req_1")]
    outcome = await bench.say("important")
    assert outcome.status == "failed"
    assert outcome.notice == errors.Overloaded().person
    await bench.say("and now?")
    assert words(bench.sent[0]) == ["important"]
    assert outcome.notice not in json.dumps(bench.sent)


@pytest.mark.parametrize("failure", [errors.Overloaded("529"), reply(stop_reason="refusal")])
async def test_a_model_that_fails_after_it_has_promised_more_is_told(
    failure: errors.Overloaded | ModelReply, bench: Bench
) -> None:
    bench.model.answers += [reply(tool_use("chat_send", text="I look.", more=True)), failure]
    outcome = await bench.say("what is it?")
    assert (outcome.status, outcome.delivered) == ("failed", 1)
    assert outcome.notice
    assert bench.chat.seen == ["I look."]


async def test_a_model_that_fails_when_something_else_was_left_to_do_is_told(bench: Bench) -> None:
    both = reply(tool_use("chat_send", text="I begin."), tool_use("skills_list"))
    joined = bench.inbound("and this?")
    alone = reply(tool_use("chat_send", text="So."))
    for answer, more in ((both, []), (alone, [joined])):
        bench.model.answers += [answer, errors.Overloaded("529")]
        outcome = await bench.say("go", arrivals=Added(each(more)))
        assert outcome.notice == errors.Overloaded().person


async def test_an_unforeseen_error_does_not_end_the_chat(bench: Bench) -> None:
    bench.model.answers += [RuntimeError("/etc/secret")]
    outcome = await bench.say("hello")
    assert outcome.status == "failed"
    assert "/etc" not in (outcome.notice or "")
    await bench.say("again")
    assert bench.chat.seen == ["echo: again"]


async def test_a_request_the_provider_calls_invalid_does_not_poison_the_chat(bench: Bench) -> None:
    bench.model.answers += [errors.RequestInvalid("bad", status=400)]
    await bench.say("poison")
    await bench.say("fine")
    assert "poison" not in json.dumps(bench.sent)


async def test_a_failure_after_a_tool_leaves_a_valid_history(bench: Bench) -> None:
    press = Press()
    bench.add_tools(press)
    bench.model.answers += [reply(tool_use("press")), errors.StreamBroken("cut")]
    await bench.say("press it")
    await bench.say("and?")
    assert press.pressed == 1
    assert [message["role"] for message in bench.sent[:3]] == ["user", "assistant", "user"]


async def test_a_stop_ends_the_turn_at_once_and_leaves_a_valid_history(bench: Bench) -> None:
    press = Press()
    press.hold = asyncio.Event()
    bench.add_tools(press)
    bench.model.answers += [reply(tool_use("press"))]
    running = asyncio.create_task(bench.say("press it"))
    await press.began.wait()
    assert await bench.pool.stop(KEY) is True
    assert (await running).status == "stopped"
    assert await bench.pool.stop(KEY) is False
    await bench.say("what happened?")
    result = bench.sent[2]["content"][0]
    assert result["is_error"] is True
    assert "Interrupted" in result["content"]


async def test_a_turn_that_no_chat_caused_has_no_chat_fields_and_nowhere_to_send(bench: Bench) -> None:
    bench.model.answers += [reply(tool_use("chat_send", text="hi")), reply(text("The answer."))]
    outcome = await bench.pool.run(
        TurnRequest(bench.ids.ulid(), ChatKey.parse("job:chat:1"), prompt="Do the round.")
    )
    assert outcome.detail == "The answer."
    assert "nowhere to send" in bench.sent[-1]["content"][0]["content"]
    assert "channel:" not in bench.model.requests[0].system[1]["text"]


async def test_messages_of_the_same_person_join_the_turn_at_the_next_step(bench: Bench) -> None:
    press = Press()
    bench.add_tools(press)
    more = [bench.inbound("and make it blue")]
    bench.model.answers += [
        reply(tool_use("press")),
        reply(tool_use("chat_send", text="Done, in blue.")),
        reply(),
    ]

    def take() -> list[Any]:
        return [more.pop()] if more else []

    await bench.say("make it big", arrivals=Added(take))
    assert words(bench.model.requests[1].messages[-1]) == ["and make it blue"]
    assert bench.chat.seen == ["Done, in blue."]


async def test_what_joins_after_an_answer_is_answered_too_even_by_plain_text(bench: Bench) -> None:
    more = [bench.inbound("wait, one more")]
    bench.model.answers += [reply(tool_use("chat_send", text="First.")), reply(text("Second."))]
    await bench.say("a", arrivals=Added(each(more)))
    assert bench.chat.seen == ["First.", "Second."]


async def test_turns_side_by_side_never_see_each_others_chat(bench: Bench) -> None:
    seen: dict[str, list[str]] = {}

    async def one(number: int) -> None:
        key = ChatKey("telegram", str(number))
        chat = type(bench.chat)()
        inbound = bench.inbound(f"I am {number}", chat_key=key, chat_id=str(number))
        await bench.pool.run(TurnRequest(inbound.request_id, key, inbound=inbound, reply=chat))
        seen[str(key)] = chat.seen

    await asyncio.gather(*(one(number) for number in range(50)))
    assert seen == {f"telegram:chat:{n}": [f"echo: I am {n}"] for n in range(50)}


async def test_a_history_over_the_cap_is_cut_between_turns_only(bench: Bench) -> None:
    bench.configure(max_messages=12)
    sizes = []
    for number in range(12):
        await bench.say(f"message {number}")
        sizes.append(len(bench.pool.runtime(KEY).store))
    assert max(sizes) <= 24, "twice the cap, until what goes is remembered"
    assert min(sizes[4:]) >= 3
    assert bench.log.of("compaction")


@pytest.mark.parametrize("blocks", [[text("")], [text(" \n")]])
async def test_blank_text_of_the_model_never_stands_in_a_later_request(
    bench: Bench, blocks: list[Any]
) -> None:
    bench.model.answers += [
        reply(*blocks, tool_use("chat_send", text="x", more=True)),
        ModelReply(content=blocks, stop_reason="end_turn"),
    ]
    await bench.say("a")
    await bench.say("b")
    assert bench.chat.seen == ["x", "echo: b"]


@pytest.mark.parametrize("streams", [False, True])
async def test_a_message_is_in_the_transcript_before_the_outbox_has_it(
    tmp_path: Path, *, streams: bool
) -> None:
    bench = Bench(tmp_path, streams=streams)
    await bench.start()
    on_disk: list[list[str]] = []

    class Witness(Chat):
        async def send(self, text: str, step_id: str | None = None, files: object = ()) -> list[Sent]:
            rows = await bench.journal.kept_lines()
            ahead = [raw for row in rows for raw in row.lines.splitlines() if "transcripts/" in row.file]
            lines = [str(line.type) for line in await bench.transcript.load(KEY)]
            on_disk.append([json.loads(raw)["type"] for raw in ahead] if streams else lines)
            return await super().send(text)

    bench.chat = Witness()
    bench.model.answers.append(reply(text("plain words")))
    await bench.say("hello")
    assert on_disk == [["turn_start", "user", "assistant"]]
    await bench.close()


async def overheard(bench: Bench, *, quiet: bool = True) -> TurnOutcome:
    """A turn about words that were said where the bot reads along, or to it."""
    said = bench.inbound("lunch at one?", addressed="chat" if quiet else "mention", chat_type="group")
    request = TurnRequest(said.request_id, KEY, inbound=said, reply=bench.chat, arrivals=Added(quiet=quiet))
    return await bench.pool.run(request)


SILENT: list[ModelReply] = [
    reply(text("[silent]")),
    reply(text(" [silent]\n")),
    reply(),
    reply(tool_use("chat_send", text="[silent]")),
]


@pytest.mark.parametrize("answer", SILENT)
async def test_words_that_were_not_said_to_the_bot_may_stay_without_an_answer(
    bench: Bench, answer: ModelReply
) -> None:
    bench.model.answers.append(answer)
    outcome = await overheard(bench)
    assert (outcome, bench.chat.seen) == (TurnOutcome("done"), [])
    assert len(bench.model.requests) == 1
    assert "your whole answer is [silent]" in str(bench.sent[0]["content"][0]["text"])
    await overheard(bench)
    assert bench.chat.seen == ["echo: lunch at one?"]


async def test_what_is_said_beside_a_call_of_a_turn_that_ends_silent_is_neither_shown_nor_sent(
    bench: Bench,
) -> None:
    bench.chat = chat = Watched()
    bench.model.answers += [reply(text("Let me look."), tool_use("look", lines=1)), reply(text("[silent]"))]
    assert (await overheard(bench), chat.seen, chat.shown) == (TurnOutcome("done"), [], [])


async def test_an_answer_that_did_not_fit_is_no_silence(bench: Bench) -> None:
    bench.model.answers += [reply(stop_reason="max_tokens")] * 9
    assert (await overheard(bench)).notice == say("turn.too_many_cuts")


async def test_where_they_were_said_to_it_silence_is_no_answer(bench: Bench) -> None:
    bench.model.answers.append(reply(text("[silent]")))
    outcome = await overheard(bench, quiet=False)
    assert (outcome.notice, bench.chat.seen) == (say("turn.nothing_to_say"), [])
    assert "[silent]" not in str(bench.sent[0]["content"])
    bench.model.answers += [reply(tool_use("chat_send", text="[silent]")), reply(text("Here I am."))]
    outcome = await overheard(bench, quiet=False)
    assert bench.chat.seen == ["Here I am."]
    assert "They spoke to you" in str(bench.sent[-1]["content"])


def test_of_a_silence_that_has_begun_nothing_is_shown() -> None:
    partial = PartialReply()
    for piece in ("[si", "lent]"):
        partial.take(TextDelta(piece))
        assert partial.words() == ""
    partial.take(TextDelta(" no"))
    assert partial.words() == ""
