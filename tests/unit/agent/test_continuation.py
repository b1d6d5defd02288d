"""Answers that reach a limit go on, become one message, and end with the truth where they do not end by themselves."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.agent import TurnRequest
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelFacts, ModelReply
from bot.core.continuation import GO_ON, joined, overlap
from bot.system_role import ANSWER
from bot.testing.model import reply, text, tool_use
from bot.words import say
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.test_stop import after_restart, history
from tests.unit.agent.test_turn import Press

THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}


def piece(words: str, *before: Any) -> ModelReply:
    return reply(*before, text(words), stop_reason="max_tokens")


def limits(bench: Bench) -> list[int]:
    return [request.max_tokens for request in bench.model.requests]


def last_text(bench: Bench) -> str:
    return str(bench.sent[-1]["content"][-1]["text"])


class TestText:
    async def test_an_answer_that_reached_the_limit_goes_on_and_is_delivered_as_one(
        self, bench: Bench
    ) -> None:
        bench.model.answers += [piece("Es war "), piece("einmal ein "), reply(text("König. 👑"))]
        outcome = await bench.say("tell me")
        assert bench.chat.seen == ["Es war einmal ein König. 👑"]
        assert outcome.delivered == 1
        assert len(bench.model.requests) == 3

    async def test_the_model_sees_its_words_and_is_told_to_go_on_without_repeating(
        self, bench: Bench
    ) -> None:
        bench.model.answers += [piece("one "), piece("two "), reply(text("three"))]
        await bench.say("count")
        assert [m["role"] for m in bench.sent] == ["user", "assistant", "user"]
        assert bench.sent[1]["content"] == [text("one two ")]
        assert last_text(bench) == GO_ON

    async def test_store_and_transcript_keep_one_message_and_nothing_of_ours(self, bench: Bench) -> None:
        bench.model.answers += [piece("one "), piece("two "), reply(text("three"))]
        await bench.say("count")
        store = bench.pool.runtime(KEY).store
        assert [m["role"] for m in store.messages()] == ["user", "assistant"]
        assert store.messages()[1]["content"] == [text("one two three")]
        assert GO_ON not in history(bench)
        live = history(bench)
        assert await after_restart(bench) == live

    async def test_after_three_continuations_the_answer_says_that_it_is_cut(self, bench: Bench) -> None:
        bench.model.answers += [piece(f"{n} ") for n in range(9)]
        await bench.say("count")
        assert bench.chat.seen == ["0 1 2 3" + f"\n\n{say('turn.truncated')}"]
        assert len(bench.model.requests) == 4
        warned = [entry for entry in bench.log.of("continue") if entry.level == "warn"]
        assert [entry.details["number"] for entry in warned] == [1, 2, 3]
        assert "truncated" not in history(bench)

    async def test_what_is_repeated_at_the_joint_is_said_once(self, bench: Bench) -> None:
        bench.model.answers += [
            piece("Zuerst kommt das Wasser, dann kommt der Rei"),
            reply(text("dann kommt der Reis, dann das Salz.")),
        ]
        await bench.say("recipe")
        assert bench.chat.seen == ["Zuerst kommt das Wasser, dann kommt der Reis, dann das Salz."]

    async def test_thinking_behind_our_line_is_not_kept(self, bench: Bench) -> None:
        bench.model.answers += [piece("one ", THINKING), reply(THINKING, text("two"))]
        await bench.say("count")
        assert bench.pool.runtime(KEY).store.messages()[1]["content"] == [THINKING, text("one two")]

    async def test_thinking_at_the_end_of_a_cut_answer_is_not_sent_back(self, bench: Bench) -> None:
        bench.model.answers += [reply(text("one "), THINKING, stop_reason="max_tokens"), reply(text("two"))]
        await bench.say("count")
        assert bench.sent[1]["content"] == [text("one ")]
        assert bench.chat.seen == ["one two"]

    async def test_a_tool_that_the_continuation_calls_runs_once_and_the_turn_goes_on(
        self, bench: Bench
    ) -> None:
        press = Press()
        bench.add_tools(press)
        bench.model.answers += [
            piece("I press"),
            reply(text(" it."), tool_use("press")),
            reply(text("Done.")),
        ]
        await bench.say("press it")
        assert press.pressed == 1
        assert bench.sent[1]["content"][0] == text("I press it.")
        assert bench.chat.seen == ["Done."]

    async def test_a_continuation_without_a_word_ends_the_answer(self, bench: Bench) -> None:
        bench.model.answers += [piece("All of it."), reply()]
        await bench.say("tell me")
        assert bench.chat.seen == ["All of it."]

    async def test_thinking_alone_in_the_middle_of_an_answer_gets_more_room(self, bench: Bench) -> None:
        bench.model.answers += [piece("one "), reply(THINKING, stop_reason="max_tokens"), reply(text("two"))]
        await bench.say("count")
        assert bench.chat.seen == ["one two"]
        assert limits(bench) == [8_192, 8_192, 16_384]

    @pytest.mark.parametrize(
        "failure", [errors.Overloaded("529"), errors.ContextOverflow("too long"), errors.SpendLimit("no")]
    )
    async def test_what_had_come_is_said_where_the_rest_cannot_be_had(
        self, bench: Bench, failure: errors.ModelError
    ) -> None:
        bench.model.answers += [piece("The first half"), *[failure] * 9]
        outcome = await bench.say("tell me")
        assert outcome.status == "done"
        assert bench.chat.seen == ["The first half" + f"\n\n{say('turn.broken_off')}"]
        bench.model.answers.clear()
        await bench.say("and now?")
        assert bench.chat.seen[-1] == "echo: and now?"

    async def test_a_refusal_of_the_continuation_withdraws_the_turn(self, bench: Bench) -> None:
        bench.model.answers += [piece("The first half"), reply(stop_reason="refusal")]
        outcome = await bench.say("tell me")
        assert outcome.notice == say("turn.declined")
        assert "first half" not in history(bench)

    async def test_text_after_a_message_that_promised_more_is_gone_on_with(self, bench: Bench) -> None:
        first = reply(tool_use("chat_send", text="I look.", more=True))
        bench.model.answers += [first, piece("one "), reply(text("two"))]
        await bench.say("hello")
        assert bench.chat.seen == ["I look.", "one two"]

    async def test_a_job_gets_the_whole_answer_too(self, bench: Bench) -> None:
        bench.model.answers += [piece("one "), reply(text("two"))]
        outcome = await bench.pool.run(
            TurnRequest(bench.ids.ulid(), ChatKey.parse("job:chat:1"), prompt="Do it.")
        )
        assert outcome.detail == "one two"


class TestACrash:
    async def died(self, bench: Bench, *answers: Any) -> None:
        """A turn that dies while the model is asked for what follows these answers; then a new process."""
        self.inbound = bench.inbound("count")
        bench.model.answers += [*answers, self._die]
        self.asked = asyncio.Event()
        turn = asyncio.create_task(self.turn(bench))
        await self.asked.wait()
        turn.cancel()
        await asyncio.gather(turn, return_exceptions=True)
        await bench.pool.runtime(KEY).ledger.flush()  # it dies with what was answered on file
        bench.restart()

    def _die(self, _: Any) -> ModelReply:
        self.asked.set()
        raise asyncio.CancelledError

    async def turn(self, bench: Bench) -> Any:
        request = TurnRequest(self.inbound.request_id, KEY, inbound=self.inbound, reply=bench.chat)
        return await bench.pool.run(request)

    async def test_in_the_middle_of_an_answer_it_goes_on_where_it_was(self, bench: Bench) -> None:
        await self.died(bench, piece("one "), piece("two "))
        bench.model.answers.append(reply(text("three")))
        asked = len(bench.model.requests)
        await self.turn(bench)
        assert bench.chat.seen == ["one two three"]
        assert len(bench.model.requests) == asked + 1
        assert [m["role"] for m in bench.sent] == ["user", "assistant", "user"]
        assert last_text(bench) == GO_ON
        live = history(bench)
        assert await after_restart(bench) == live

    async def test_it_goes_on_no_oftener_than_without_the_crash(self, bench: Bench) -> None:
        await self.died(bench, piece("0 "), piece("1 "), piece("2 "))
        asked = len(bench.model.requests)
        bench.model.answers += [piece("3 "), piece("4 ")]
        await self.turn(bench)
        assert bench.chat.seen == ["0 1 2 3" + f"\n\n{say('turn.truncated')}"]
        assert len(bench.model.requests) == asked + 1

    async def test_a_silent_end_is_not_asked_for_again(self, bench: Bench) -> None:
        await self.died(
            bench, reply(tool_use("skills_list")), piece("one "), reply(text("two"), tool_use("skills_list"))
        )
        bench.model.answers += [reply(text("three"))]
        await self.turn(bench)
        assert bench.chat.seen == ["three"]


class TestToolsAndThinking:
    async def test_a_cut_call_is_not_run_and_the_next_request_has_more_room(self, bench: Bench) -> None:
        press = Press()
        bench.add_tools(press)
        call = tool_use("press")
        bench.model.answers += [
            reply(call, stop_reason="max_tokens", cut=[call["id"]]),
            reply(tool_use("press")),
            reply(text("Pressed.")),
        ]
        await bench.say("press it")
        assert press.pressed == 1
        assert limits(bench) == [8_192, 16_384, 16_384]
        assert "not executed" in json.dumps(bench.sent)
        assert bench.chat.seen == ["Pressed."]

    async def test_the_room_is_not_larger_than_what_the_model_has(self, bench: Bench) -> None:
        bench.model.known = ModelFacts(max_output=10_000)
        await bench.deps.models.windows.ask(bench.model, "scripted")
        bench.model.answers += [reply(THINKING, stop_reason="max_tokens"), reply(text("Here."))]
        await bench.say("think")
        assert limits(bench) == [8_192, 10_000]

    async def test_thinking_alone_gets_more_room(self, bench: Bench) -> None:
        bench.model.answers += [reply(THINKING, stop_reason="max_tokens"), reply(text("Here."))]
        await bench.say("think")
        assert bench.chat.seen == ["Here."]
        assert limits(bench) == [8_192, 16_384]
        assert "hm" not in history(bench)

    async def test_endless_thinking_ends_with_the_truth(self, bench: Bench) -> None:
        bench.model.answers += [reply(THINKING, stop_reason="max_tokens")] * 9
        outcome = await bench.say("think")
        assert outcome.notice == say("turn.too_many_cuts")
        assert limits(bench) == [8_192, 16_384]

    async def test_thinking_that_fills_all_there_is_is_not_asked_for_again(self, bench: Bench) -> None:
        bench.model.known = ModelFacts(max_output=8_192)
        await bench.deps.models.windows.ask(bench.model, "scripted")
        bench.model.answers += [reply(THINKING, stop_reason="max_tokens")] * 9
        assert (await bench.say("think")).notice == say("turn.too_many_cuts")
        assert len(bench.model.requests) == 1


class TestOtherEnds:
    async def test_a_full_window_in_a_tool_call_makes_room_before_the_next_request(
        self, bench: Bench
    ) -> None:
        press = Press()
        bench.add_tools(press)
        for number in range(4):
            await bench.say(f"question {number}")
        call = tool_use("press")
        bench.model.answers += [
            reply(call, stop_reason="model_context_window_exceeded", cut=[call["id"]]),
            reply(text("Fits.")),
        ]
        await bench.say("press it")
        assert press.pressed == 0
        assert bench.chat.seen[-1] == "Fits."
        assert "question 0" not in json.dumps(bench.sent)

    async def test_a_full_window_before_the_first_word_makes_room_and_asks_again(self, bench: Bench) -> None:
        for number in range(4):
            await bench.say(f"question {number}")
        bench.model.answers += [reply(stop_reason="model_context_window_exceeded"), reply(text("Fits."))]
        await bench.say("now")
        assert bench.chat.seen[-1] == "Fits."
        assert "question 0" not in json.dumps(bench.sent)

    async def test_a_full_window_that_stays_full_ends_with_the_truth(self, bench: Bench) -> None:
        for number in range(9):
            await bench.say(f"question {number}")
        asked = len(bench.model.requests)
        bench.model.answers += [reply(stop_reason="model_context_window_exceeded")] * 9
        outcome = await bench.say("now")
        assert outcome.notice == say("turn.too_many_cuts")
        assert len(bench.model.requests) - asked <= 4

    async def test_silence_after_tools_is_asked_about_once(self, bench: Bench) -> None:
        bench.model.answers += [
            reply(tool_use("skills_list")),
            reply(),
            reply(THINKING, text("There are none.")),
        ]
        await bench.say("which skills?")
        assert bench.chat.seen == ["There are none."]
        assert last_text(bench) == ANSWER
        assert ANSWER not in history(bench)
        assert "hm" not in history(bench), "it was thought behind a line that is not kept"

    async def test_silence_that_lasts_is_told_as_it_is(self, bench: Bench) -> None:
        bench.model.answers += [reply(tool_use("skills_list")), reply(), reply()]
        outcome = await bench.say("which skills?")
        assert outcome.notice == say("turn.nothing_to_say")
        assert len(bench.model.requests) == 3

    async def test_a_paused_answer_is_sent_back_unchanged(self, bench: Bench) -> None:
        content = [text("Searching."), THINKING]
        bench.model.answers += [reply(*content, stop_reason="pause_turn"), reply(text("Found."))]
        await bench.say("search")
        sent = [
            {k: v for k, v in block.items() if k != "cache_control"} for block in bench.sent[-1]["content"]
        ]
        assert sent == content

    async def test_a_pause_in_a_continuation_goes_on_as_one(self, bench: Bench) -> None:
        bench.model.answers += [
            piece("one "),
            reply(text("two "), stop_reason="pause_turn"),
            reply(text("three")),
        ]
        await bench.say("count")
        assert bench.chat.seen == ["one two three"]
        assert last_text(bench) == GO_ON

    @pytest.mark.parametrize("reason", ["brand_new", "stop_sequence", "compaction"])
    async def test_an_unknown_reason_delivers_what_there_is(self, bench: Bench, reason: str) -> None:
        bench.model.answers += [reply(text("Well."), stop_reason=reason)]
        await bench.say("hello")
        assert bench.chat.seen == ["Well."]
        bench.model.answers += [reply(stop_reason=reason)]
        assert (await bench.say("hello")).notice == say("turn.nothing_to_say")


class TestTheJoint:
    @pytest.mark.parametrize(
        ("first", "second", "whole"),
        [
            ("The quick brown fox ju", "The quick brown fox jumps", "The quick brown fox jumps"),
            ("我们先看第一种方法", "第一种方法很简单", "我们先看第一种方法很简单"),
            ("ใช้เวลาประมาณสองชั่วโมง", "ประมาณสองชั่วโมงครึ่ง", "ใช้เวลาประมาณสองชั่วโมงครึ่ง"),
            ("تبدأ الرحلة من المدينة", "الرحلة من المدينة القديمة", "تبدأ الرحلة من المدينة القديمة"),
            ("Good", "od morning", "Goodod morning"),
            ("ha ha ", "ha ha ha", "ha ha ha ha ha"),
            ("-" * 40, "-" * 40, "-" * 80),
            ("哈哈哈哈哈哈", "哈哈哈", "哈哈哈哈哈哈哈哈哈"),
            ("a family: 👩‍👩", "‍👧 and more", "a family: 👩‍👩‍👧 and more"),
            ("", "all", "all"),
            ("all", "", "all"),
            # Words that are doubled at the seam, with and without a space.
            ("It follows from the result ", "the result is clear", "It follows from the result is clear"),
            ("We see the quick", "quick brown fox", "We see the quick brown fox"),
            ("an important", " important point", "an important point"),
            ("これは東京都庁", "東京都庁です", "これは東京都庁です"),
            ("    return self.size", "return self.size + 1", "    return self.size + 1"),
            (
                "| name | size |\n| --- | --- |\n| one",
                "| one | 1 |",
                "| name | size |\n| --- | --- |\n| one| one | 1 |",
            ),
            ("| total | 42 |\n", "| total | 42 |\n| rest | 0 |", "| total | 42 |\n| rest | 0 |"),
            # What is meant to be said twice.
            ("he had ", "had enough", "he had had enough"),
            ("the band The The", " The album", "the band The The The album"),
            ("ha", "ha", "haha"),
            ("cous", "cous with peas", "couscous with peas"),
            ("again and ", "again and again", "again and again and again"),
            ("我们研究", "研究吧", "我们研究研究吧"),
            ("ますます", "ますます良い", "ますますますます良い"),
            ("| none | none |\n| none | none |\n", "| none | none |\n", "| none | none |\n" * 3),
            ("print()\n", "print()\n", "print()\nprint()\n"),
            (
                "Row, row, row your boat\n",
                "Row, row, row your boat\nRow, row, row your boat",
                "Row, row, row your boat\n" * 2 + "Row, row, row your boat",
            ),
        ],
    )
    def test_only_what_is_surely_a_repetition_is_left_out(self, first: str, second: str, whole: str) -> None:
        assert joined([text(first)], [text(second)]) == [text(whole)]

    @given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
    @settings(derandomize=True, deadline=None)
    def test_no_word_is_ever_lost(self, first: str, common: str, second: str) -> None:
        begin, end = first + common, common + second
        cut = overlap(begin, end)
        assert begin.endswith(end[:cut])
        whole = begin + end[cut:]
        assert whole.startswith(begin)
        assert whole.endswith(end[cut:])

    def test_blocks_with_more_than_text_stay_their_own(self) -> None:
        cited = {"type": "text", "text": "b", "citations": [{"type": "page"}]}
        call = tool_use("press")
        assert joined([text("a")], [cited, call]) == [text("a"), cited, call]

    def test_long_answers_are_joined_in_no_time(self) -> None:
        assert overlap("ab" * 100_000, "ab" * 100_000) == 0
