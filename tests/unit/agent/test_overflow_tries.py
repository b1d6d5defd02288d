"""Overflow: halve at most three times, then the truth; never for what is no overflow; tools never run twice."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from bot import errors
from bot.contracts.archive import HistoryQuery
from bot.contracts.model import ModelReply, ModelRequest
from bot.core import estimate
from bot.core.fit import HistoryCleared, TurnTooLarge
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench, words
from tests.unit.agent.test_turn import Press


def window(tokens: int, *, numbers: bool = True) -> Callable[[ModelRequest], ModelReply | Exception]:
    """A model with a window: it answers what fits and complains about what does not."""

    def answer(request: ModelRequest) -> ModelReply | Exception:
        size = int(estimate.tokens(request.messages))
        if size > tokens:
            if numbers:
                return errors.ContextOverflow("prompt is too long", tokens=size, window=tokens)
            return errors.ContextOverflow("prompt is too long")
        last = request.messages[-1]["content"][-1]
        return reply() if last["type"] == "tool_result" else reply(text("fits"))

    return answer


async def fill(bench: Bench, turns: int, size: int = 400) -> None:
    for number in range(turns):
        bench.model.answers.append(reply(text(f"answer {number} " + "x" * size)))
        await bench.say(f"question {number} " + "y" * size)


async def test_the_oldest_half_goes_on_turn_borders_and_the_step_is_tried_again(bench: Bench) -> None:
    await fill(bench, 16, 1_200)
    asked = len(bench.model.requests)
    full = estimate.tokens(bench.sent)
    bench.model.answers += [window(int(full * 0.3))] * 9
    outcome = await bench.say("now")
    assert outcome.status == "done"
    assert bench.chat.seen[-1] == "fits"
    tried = bench.model.requests[asked:]
    assert len(tried) == 3
    sizes = [len(request.messages) for request in tried]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    assert all(request.messages[0]["role"] == "user" for request in tried)
    warnings = [entry for entry in bench.log.of("compaction") if entry.level == "warn"]
    assert len(warnings) == 4  # each try and each cut
    assert words(bench.sent[-1]) == ["now"]


async def test_after_three_halvings_the_store_of_this_chat_is_cleared_and_the_person_told(
    bench: Bench,
) -> None:
    await fill(bench, 16)
    asked = len(bench.model.requests)
    bench.model.answers += [errors.ContextOverflow("too long", status=400)] * 9
    outcome = await bench.say("now")
    assert (outcome.status, outcome.notice) == ("failed", HistoryCleared().person)
    assert len(bench.model.requests) - asked == 4
    bench.model.answers.clear()
    await bench.say("fresh")
    assert [words(message) for message in bench.model.requests[-1].messages] == [["fresh"]]
    page = await bench.archive.search(KEY, HistoryQuery(limit=200))
    assert page.total >= 17, "the archive keeps everything"
    lines = await bench.transcript.load(KEY)
    assert sum("question" in json.dumps(line.message or {}) for line in lines) == 16


@pytest.mark.parametrize(
    "failure",
    [
        errors.RateLimited("Too many tokens"),
        errors.Overloaded("529"),
        errors.StreamBroken("Request took too long"),
        errors.ModelUnreachable("time-out"),
        errors.SpendLimit("limit"),
    ],
)
async def test_what_is_no_overflow_never_costs_history(bench: Bench, failure: errors.ModelError) -> None:
    await fill(bench, 5)
    for _ in range(6):
        bench.model.answers.append(failure)
        await bench.say("now")
    await bench.say("again")
    assert "question 0" in json.dumps(bench.sent)


@pytest.mark.parametrize("numbers", [True, False])
async def test_a_message_that_is_too_large_by_itself_never_costs_history(bench: Bench, numbers: bool) -> None:
    await fill(bench, 3)
    bench.model.answers += [window(2_000, numbers=numbers)] * 9
    outcome = await bench.say("z" * 20_000)
    assert outcome.notice == TurnTooLarge().person
    bench.model.answers.clear()
    await bench.say("again")
    assert "question 0" in json.dumps(bench.sent)
    assert "zzzz" not in json.dumps(bench.sent), "what cannot be sent must not make every later turn fail"


async def test_a_tool_result_that_is_too_large_is_shortened_and_the_tool_not_run_again(bench: Bench) -> None:
    press = Press("r" * 8_000)
    bench.add_tools(press)
    await fill(bench, 3)
    bench.model.answers += [reply(tool_use("press")), *[window(2_500)] * 9]
    outcome = await bench.say("press")
    assert outcome.status == "done"
    assert press.pressed == 1
    (result,) = (b["content"] for m in bench.sent for b in m["content"] if b["type"] == "tool_result")
    assert "characters left out" in result
    assert result.startswith("rrr")
    assert "question 0" in json.dumps(bench.sent)
    full = [
        line for line in await bench.transcript.load(KEY) if "r" * 8_000 in json.dumps(line.message or {})
    ]
    assert len(full) == 1, "the transcript keeps the whole result"


async def test_injected_turns_go_first_and_the_oldest_of_them_first(bench: Bench) -> None:
    for number in range(40):
        await bench.store(1_600_000_000_000 + number * 1000, "user", f"old {number} " + "o" * 400)
    bench.configure(max_messages=2)
    await bench.say("hello")
    bench.model.answers += [reply(tool_use("chat_load_history", limit=40)), *[window(3_000)] * 9]
    outcome = await bench.say("what was it?")
    assert outcome.status == "done"
    sent = json.dumps(bench.sent)
    assert "old 0 " not in sent
    assert "what was it?" in sent
    shown = [m for m in bench.sent if "loaded_history" in json.dumps(m)]
    assert 0 < len(shown) < 40
    assert "old 39" in json.dumps(shown[-1]), "the newest stay"


async def test_too_much_output_lowers_the_output_and_leaves_the_history(bench: Bench) -> None:
    await fill(bench, 3)
    bench.model.answers += [errors.OutputOverflow("188240 + 8192 > 200000", tokens=195_000, window=200_000)]
    asked = len(bench.model.requests)
    await bench.say("now")
    assert [request.max_tokens for request in bench.model.requests[asked:][:2]] == [8_192, 4_936]
    assert len(bench.model.requests[asked].messages) == len(bench.model.requests[asked + 1].messages)


async def test_a_thinking_block_that_came_loose_is_stripped_once(bench: Bench) -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    bench.model.answers += [reply(thinking, text("one"))]
    await bench.say("a")
    bench.model.answers += [errors.ThinkingUnbound("bound to a different conversation", status=400)]
    await bench.say("b")
    assert bench.chat.seen[-1] == "echo: b"
    assert "thinking" in json.dumps(bench.model.requests[1].messages)
    assert '"thinking"' not in json.dumps(bench.sent)
    bench.model.answers += [errors.ThinkingUnbound("again"), errors.ThinkingUnbound("again")]
    assert (await bench.say("c")).status == "failed"


async def test_a_window_that_ended_the_answer_makes_room_for_the_next_turn(bench: Bench) -> None:
    await fill(bench, 10)
    bench.model.answers += [reply(text("half an answ"), stop_reason="model_context_window_exceeded")]
    await bench.say("now")
    assert "cut off: the answer got too long" in bench.chat.seen[-1]
    await bench.say("next")
    assert "question 0" not in json.dumps(bench.sent)


@pytest.mark.parametrize("numbers", [{}, {"tokens": 213_462, "window": 200_000}])
async def test_a_short_history_is_halved_too_and_the_person_told_the_truth_when_nothing_is_left(
    bench: Bench, numbers: dict[str, int]
) -> None:
    await fill(bench, 2, size=5)
    asked = len(bench.model.requests)
    bench.model.answers += [_overflow(**numbers)] * 9
    outcome = await bench.say("now")
    assert outcome.notice == HistoryCleared().person
    assert [len(request.messages) for request in bench.model.requests[asked:]] == [5, 3, 1]


def _overflow(tokens: int | None = None, window: int | None = None) -> errors.ContextOverflow:
    return errors.ContextOverflow("prompt is too long", tokens=tokens, window=window)
