"""Tasks: a conversation of their own, within limits of their turn, of which only the summary comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot import config, errors
from bot.agent.subagents import child
from bot.composition import limits_of
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply, ModelRequest
from bot.core.tasks import wording
from bot.core.tasks.limits import TaskLimits
from bot.system_role import LAST_STEP
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.tasking import Fake, asked, events, priced, steps, told, work
from tests.unit.gateway.outgoing import until

__all__ = ["work"]


async def test_only_the_summary_comes_back_and_nothing_of_the_steps(bench: Bench, work: Any) -> None:
    """After a delegated analysis the parent's requests hold the call and the summary and nothing else of it."""
    secret_step = Fake("dig", lambda _: _value("NOISE 雑音"))

    def script(request: ModelRequest) -> ModelReply:
        if steps(request) == 0:
            return priced(tool_use("dig", what="depth"), tokens=100, usd=0.25)
        return priced(text("- it is 42, in `a.py`"), tokens=200, usd=0.5)

    model = work(script, secret_step)
    model.answers += [
        reply(tool_use("task", prompt="Find the answer.", description="answer")),
        reply(text("It is 42.")),
    ]
    outcome = await bench.say("What is the answer?")
    (result,) = told(bench)
    assert outcome.status == "done"
    assert bench.chat.seen == ["It is 42."]
    assert result["content"].startswith(
        "- it is 42, in `a.py`\n\n[task: 2 model calls, 1 tool calls, 300 tokens, $0.7500"
    )
    assert "NOISE" not in "".join(asked(one) for one in model.requests)
    # The task saw what it was asked and not what the person had said.
    first = model.children[0]
    assert len(first.messages) == 1
    assert first.messages[0]["content"][-1]["text"] == "Find the answer."
    assert "What is the answer?" not in asked(model.children[-1])
    stats = await bench.pool.stats(KEY)
    assert (stats.calls, stats.input_tokens, stats.cost_usd) == (4, 300, 0.75)
    (over,) = [line for line in bench.log.of("task") if line.message == "the task has ended"]
    assert over.details["usage"]["inputTokens"] == 300
    assert (over.details["model_calls"], over.details["tool_calls"], over.details["cost_usd"]) == (2, 1, 0.75)
    await bench.say("and now?")
    assert "NOISE" not in asked(model.requests[-1])


async def _value(words: str) -> str:
    return words


async def test_its_transcript_is_named_and_can_be_read_and_searched(bench: Bench, work: Any) -> None:
    def script(request: ModelRequest) -> ModelReply:
        if steps(request) == 0:
            return reply(text("I dig."), tool_use("dig", what="tief"))
        return reply(text("- gefunden"))

    model = work(script, Fake("dig", lambda _: _value("ein Schatz 宝")))
    model.answers += [reply(tool_use("task", prompt="Grab ein Loch.")), reply(text("Fertig."))]
    await bench.say("Los!")
    (result,) = told(bench)
    name = result["content"].rpartition("read_artifact ")[2].rstrip("]")
    assert name == events(bench).events[0].task_id
    page = await bench.artifacts.read(name, KEY, offset=0, limit=5_000)
    for words in ("Grab ein Loch.", "I dig.", '"what": "tief"', "ein Schatz 宝", "- gefunden"):
        assert words in page.text
    found = await bench.artifacts.grep(name, KEY, "schatz", offset=0, limit=500)
    assert found.total == 1
    with pytest.raises(errors.ToolError):
        await bench.artifacts.read(name, ChatKey.parse("telegram:chat:2"), offset=0, limit=10)


async def test_it_has_no_tool_to_speak_with_or_to_give_work_away(bench: Bench, work: Any) -> None:
    inner = Fake("dig")

    def script(request: ModelRequest) -> ModelReply:
        if steps(request) == 0:
            return reply(
                tool_use("task", prompt="more"),
                tool_use("chat_send", text="hi"),
                tool_use("schedule_create"),
                tool_use("dig"),
            )
        return reply(text("- done"))

    model = work(script, inner, Fake("schedule_create"))
    model.answers += [reply(tool_use("task", prompt="x")), reply(text("ok"))]
    await bench.say("go")
    names = {tool["name"] for tool in model.children[0].tools}
    whole = {name for name in bench.deps.registry.names() if not name.startswith("schedule_")}
    assert names == whole - {"task", "chat_send"}
    refused = model.children[1].messages[-1]["content"]
    assert [block.get("is_error", False) for block in refused] == [True, True, True, False]
    assert len(model.children) == 2
    assert bench.chat.seen == ["ok"]
    (seen,) = inner.seen
    assert (seen.reply, seen.tasks) == (None, None)
    assert (seen.user_id, seen.chat_key, seen.channel, seen.private) == ("77", KEY, "telegram", True)


async def test_a_task_cannot_be_given_a_tool_that_its_turn_has_not(bench: Bench) -> None:
    with pytest.raises(ValueError, match="tool of its own"):
        bench.deps.dispatcher.narrowed(type(bench.registry)([Fake("run_anything")]), lambda around: around)


LIMITS = [
    (TaskLimits(calls=2), "2 model calls"),
    (TaskLimits(tokens=9_000), "9,000 tokens"),
    (TaskLimits(usd=0.9), "$0.90"),
    (TaskLimits(turn_tokens=20_000, usd=None), "20,000 tokens for all tasks of a turn"),
    (TaskLimits(turn_usd=1.0, usd=None), "$1.00 for all tasks of a turn"),
]


@pytest.mark.parametrize(("limit", "named"), LIMITS)
async def test_at_each_limit_it_ends_and_says_which_with_what_it_knows(
    bench: Bench, work: Any, limit: TaskLimits, named: str
) -> None:
    dug = Fake("dig")

    def script(request: ModelRequest) -> ModelReply:
        # It never comes to an end by itself, whatever it is told.
        return priced(text(f"so far: {steps(request)}"), tool_use("dig"), tokens=2_500, usd=0.4)

    model = work(script, dug, tasks=limit)
    model.answers += [reply(tool_use("task", prompt="dig", description="hole")), reply(text("ok"))]
    assert (await bench.say("go")).status == "done"
    (result,) = told(bench)
    assert f"(stopped at its limit of {named})" in result["content"]
    assert f"so far: {len(model.children) - 1}" in result["content"]
    assert "is_error" not in result
    last = events(bench).events[-1]
    assert (last.kind, last.error) == ("ended", "reached its limit")
    assert last.totals.model_calls == len(model.children) <= 5
    assert len(dug.seen) <= len(model.children)


UNPRICED = [
    (TaskLimits(usd=1.05), "$1.05"),
    (TaskLimits(usd=None, turn_usd=1.3), "$1.30 for all tasks of a turn"),
]


@pytest.mark.parametrize(("limit", "named"), UNPRICED)
async def test_calls_of_unknown_price_count_by_the_dearest_that_is_known(
    bench: Bench, work: Any, limit: TaskLimits, named: str
) -> None:
    model = work(
        lambda _: priced(text("- so far"), tool_use("dig"), tokens=50_000, usd=None), Fake("dig"), tasks=limit
    )
    model.answers += [reply(tool_use("task", prompt="dig")), reply(text("ok"))]
    await bench.say("go")
    (result,) = told(bench)
    assert f"(stopped at its limit of {named})" in result["content"]
    assert len(model.children) == 2, "each costs $0.50"
    assert events(bench).events[-1].totals.cost_usd == 0.0, "what people see has known costs alone"


async def test_the_last_call_asks_for_the_summary(bench: Bench, work: Any) -> None:
    def script(request: ModelRequest) -> ModelReply:
        if LAST_STEP in asked(request):
            return reply(text("- half of it is known"))
        return reply(tool_use("dig"))

    model = work(script, Fake("dig"), tasks=TaskLimits(calls=3))
    model.answers += [reply(tool_use("task", prompt="dig")), reply(text("ok"))]
    await bench.say("go")
    (result,) = told(bench)
    assert len(model.children) == 3
    assert (
        "(stopped at its limit of 3 model calls) What it said last:\n- half of it is known"
        in result["content"]
    )


async def test_thirty_calls_are_the_default(bench: Bench, work: Any) -> None:
    model = work(lambda _: reply(tool_use("dig")), Fake("dig"))
    model.answers += [reply(tool_use("task", prompt="dig")), reply(text("ok"))]
    await bench.say("go")
    (result,) = told(bench)
    assert len(model.children) == 30
    assert "(stopped at its limit of 30 model calls) It had said nothing yet." in result["content"]


async def test_its_time_ends_it_in_the_middle_of_a_call(bench: Bench, work: Any) -> None:
    forever = asyncio.Event()
    cut = []

    async def hang(_: Any) -> str:
        try:
            await forever.wait()
        except asyncio.CancelledError:
            cut.append(True)
            raise
        return ""

    hanging = Fake("dig", hang)
    model = work(lambda _: reply(text("I wait."), tool_use("dig")), hanging, tasks=TaskLimits(seconds=90))
    model.answers += [reply(tool_use("task", prompt="dig")), reply(text("ok"))]
    running = asyncio.create_task(bench.say("go"))
    await until(lambda: bool(hanging.seen))
    await bench.clock.advance(100)
    assert (await running).status == "done"
    (result,) = told(bench)
    assert "(stopped at its limit of 90 seconds) What it said last:\nI wait." in result["content"]
    assert cut == [True]


async def test_without_a_word_there_is_no_summary(bench: Bench, work: Any) -> None:
    model = work(lambda _: reply())
    model.answers += [reply(tool_use("task", prompt="dig")), reply(text("ok"))]
    await bench.say("go")
    (result,) = told(bench)
    assert result["content"].startswith("(no summary)")
    assert len(model.children) == 2  # it was told to answer once


async def test_a_long_summary_is_capped_and_the_whole_is_on_file(bench: Bench, work: Any) -> None:
    model = work(lambda _: reply(text("字" * 20_000)))
    model.answers += [reply(tool_use("task", prompt="dig")), reply(text("ok"))]
    await bench.say("go")
    (result,) = told(bench)
    assert len(result["content"]) < wording.SUMMARY + 300
    assert "(cut: the whole is in the transcript)" in result["content"]
    page = await bench.artifacts.read(events(bench).events[0].task_id, KEY, offset=19_000, limit=500)
    assert page.characters > 20_000


@pytest.mark.parametrize("error", [errors.Overloaded("529"), errors.ModelRefused("401"), child.Declined()])
async def test_a_failure_is_an_error_with_a_reason_and_the_turn_goes_on(
    bench: Bench, work: Any, error: errors.ShipmateError
) -> None:
    answer: Any = reply(stop_reason="refusal") if isinstance(error, child.Declined) else error
    model = work(lambda _: answer)
    model.answers += [reply(tool_use("task", prompt="dig")), reply(text("It did not work."))]
    assert (await bench.say("go")).status == "done"
    (result,) = told(bench)
    assert result["is_error"]
    assert result["content"].startswith(f"The task failed: {error.for_model}")
    assert events(bench).events[-1].kind == "failed"
    assert bench.chat.seen == ["It did not work."]


async def test_an_answer_that_is_too_long_goes_on_and_a_cut_call_is_not_run(bench: Bench, work: Any) -> None:
    cut_call = tool_use("dig")

    def script(request: ModelRequest) -> ModelReply:
        answered = steps(request)
        if answered == 0:
            return reply(cut_call, stop_reason="max_tokens", cut=[cut_call["id"]])
        if wording.PLACEHOLDER not in asked(request) and "Continue exactly" not in asked(request):
            return reply(text("- the first half of it and "), stop_reason="max_tokens")
        return reply(text("the second"))

    dug = Fake("dig")
    model = work(script, dug)
    model.answers += [reply(tool_use("task", prompt="dig")), reply(text("ok"))]
    await bench.say("go")
    (result,) = told(bench)
    assert result["content"].startswith("- the first half of it and the second")
    assert dug.seen == []


async def test_what_does_not_fit_is_masked_or_cut_and_asked_again(bench: Bench, work: Any) -> None:
    refusals = 0

    def script(request: ModelRequest) -> ModelReply | Exception:
        nonlocal refusals
        if steps(request) < 8:
            return reply(tool_use("dig", what=str(steps(request))))
        if refusals < 2:
            refusals += 1
            return errors.ContextOverflow("too long", tokens=9_000, window=8_000)
        return reply(text("- done"))

    model = work(script, Fake("dig", lambda _: _value("long line\n" * 300)))
    model.answers += [reply(tool_use("task", prompt="dig")), reply(text("ok"))]
    await bench.say("go")
    (result,) = told(bench)
    assert result["content"].startswith("- done")
    sizes = [len(asked(one)) for one in model.children[-3:]]
    assert sizes[0] > sizes[1] > sizes[2]
    assert "[observation masked" in asked(model.children[-2])
    # The turn's own view has not been touched by it.
    assert not bench.log.of("masking")


async def test_a_disk_that_refuses_the_transcript_does_not_stop_the_task(bench: Bench, work: Any) -> None:
    class Refusing:
        async def put(self, text: str, **_: Any) -> str:
            raise errors.StorageError("full")

    model = work(lambda _: reply(text("- done")), artifacts=Refusing())
    model.answers += [reply(tool_use("task", prompt="dig")), reply(text("ok"))]
    await bench.say("go")
    (result,) = told(bench)
    assert result["content"].startswith("- done")
    assert "its steps could not be kept" in result["content"]
    assert bench.log.of("storage")


async def test_labels_and_prompts_are_in_no_line_of_the_log(bench: Bench, work: Any) -> None:
    """What was said is for `llm.logMessages` to decide, which the lines of the model and of tools follow."""
    model = work(lambda _: reply(text("- 秘密の答え")))
    bench.configure(dispatcher=bench.dispatcher(bench.deps.registry, log_content=False))
    model.answers += [reply(tool_use("task", prompt="秘密の仕事", description="秘密の名")), reply(text("ok"))]
    await bench.say("go")
    assert bench.log.of("task")
    assert "秘密" not in bench.log.text


def test_the_limits_are_those_of_ship_json() -> None:
    assert limits_of(config.Subagents()) == TaskLimits()
    changed = {
        "maxModelCalls": 2,
        "maxTokens": 3_000,
        "maxUsd": None,
        "maxSeconds": 4,
        "maxConcurrent": 5,
        "perTurn": {"maxTokens": 6_000, "maxUsd": 7.0},
    }
    assert limits_of(config.Subagents.model_validate(changed)) == TaskLimits(2, 3_000, None, 4, 5, 6_000, 7.0)
