"""What tasks and forks asked of the model is on disk: the same bytes, for every request."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest

from bot import errors
from bot.agent import recording
from bot.agent.recording import RecordedTurn, rerun
from bot.contracts.base import Json
from bot.contracts.model import ModelReply, ModelRequest
from bot.core.tasks import wording
from bot.core.tasks.limits import TaskLimits
from bot.history.transcript import requests
from bot.llm.body import wire
from bot.llm.client import AnthropicModel
from bot.system_role import LAST_STEP
from bot.testing import anthropic_script as say
from bot.testing.model import ScriptedModel, reply, text, tool_use
from tests.shares import one_in
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.provider import Look, thinking
from tests.unit.agent.tasking import Routed, asked, events, steps, work
from tests.unit.agent.test_deletions import remove
from tests.unit.agent.test_recording import (
    MODEL,
    Listening,
    again,
    calls,
    find,
    model,
    on_disk,
    request_ids,
    server,
)
from tests.unit.agent.test_resume import ask, killed
from tests.unit.agent.test_turn import Press

__all__ = ["model", "server", "work"]

Work = Callable[..., Routed]


def task_ids(bench: Bench) -> list[str]:
    """In the order in which they were asked for."""
    return list(dict.fromkeys(one.task_id for one in events(bench).events))


async def exact(bench: Bench, sent: list[bytes]) -> list[RecordedTurn]:
    """All tasks are on file, and came to these bytes and no others."""
    made = [await again(bench, one) for one in task_ids(bench)]
    assert all(call.exact for one in made for call in one.calls)
    assert sorted(call.record.body or b"" for one in made for call in one.calls) == sorted(sent)
    return made


async def test_each_body_is_made_again_as_the_provider_got_it(
    bench: Bench, server: Listening, model: AnthropicModel, work: Work
) -> None:
    """Fresh ones and forks of a turn that has thought, loaded, masked and cut before; a restart; a fork of the session."""
    work(lambda _: reply(), Look())
    bench.configure(model=model, default_model=MODEL, fast_model=MODEL)
    bench.configure(mask_threshold=100, keep_observations=1, max_messages=40, soft_tokens=2_000)
    (bench.root / "long.txt").write_text("十分長い一行 🚢\n" * 300, encoding="utf-8")
    for number in range(24):
        await bench.store(number, "user", f"früher {number}", request_id=f"00{number:024}")

    def respond(body: Json) -> say.Reply:
        last, said = json.dumps(body["messages"][-1], ensure_ascii=False), steps_of(body)
        if "bring the results" in json.dumps(body.get("system", "")):
            return say.reply("together")
        if wording.PLACEHOLDER in json.dumps(body["messages"]) or "carry out one task" in json.dumps(
            body["system"]
        ):
            own = said - before_placeholder(body)
            reads = [say.tool_use("read_file", {"path": "long.txt"}) for _ in range(2)]
            loads = say.tool_use("chat_load_history", {"limit": 2})
            first = [say.reply(say.thinking(), "Hm. 👀", *reads), say.reply(loads)]
            return [
                *first,
                say.reply(say.thinking(), *reads),
                say.reply(*reads),
                say.reply(f"- done {said}"),
            ][own]
        if "share it" in last:
            mine = say.tool_use("chat_load_history", {"limit": 3})
            return say.reply(
                say.thinking(),
                mine,
                say.tool_use("task", {"prompt": "alone 一"}),
                *(say.tool_use("task", {"prompt": f"teil {n}", "mode": "fork"}) for n in range(2)),
            )
        if "read it" in last:
            return say.reply(say.tool_use("read_file", {"path": "long.txt"}))
        return say.reply(say.thinking(), "ok")

    server.script(respond)
    for words in ("hello", *["read it"] * 5):
        await bench.say(words)
    await bench.clock.advance(400)
    await bench.say("now share it")
    bench.restart()
    await bench.say("share it once more")
    await bench.pool.fork(KEY, back=1)
    await bench.say("other words")
    await bench.say("share it there too")
    made = await calls(bench)
    assert sorted(call.record.body or b"" for call in made) == sorted(server.heard)
    assert all(call.exact for call in made)
    purposes = Counter(call.record.purpose for call in made)
    assert (purposes["subagent"], purposes["synthesis"]) == (45, 3)
    found = [await again(bench, one) for one in task_ids(bench)]
    assert [len(one.calls) for one in found] == [5] * 9
    assert [one.older > 0 for one in found] == [False, True, True] * 3
    assert b"loaded_history" in (found[0].calls[2].record.body or b"")


def steps_of(body: Json) -> int:
    return sum(message["role"] == "assistant" for message in body["messages"])


def before_placeholder(body: Json) -> int:
    """How many answers of the turn a fork has before it."""
    for at, message in enumerate(body["messages"]):
        if wording.PLACEHOLDER in json.dumps(message):
            return sum(one["role"] == "assistant" for one in body["messages"][:at])
    return 0


def wandering(rng: random.Random, request: ModelRequest) -> ModelReply | Exception:
    """Anything that a model may do, and the faults that make a task ask once more; it comes to an end after a while."""
    said = steps(request)
    faults = [
        errors.ContextOverflow("too long", tokens=90_000, window=80_000),
        errors.OutputOverflow("too much", limit=900),
        errors.ThinkingUnbound("not here"),
    ]
    ways: list[tuple[int, Callable[[], ModelReply | Exception]]] = [
        (
            5,
            lambda: reply(
                thinking(), text("見る"), *(tool_use("look", lines=rng.randrange(1, 80)) for _ in "ab")
            ),
        ),
        (2, lambda: reply(tool_use("chat_load_history", limit=rng.randrange(1, 4)))),
        (1, lambda: reply(thinking(), text("to be continued "), stop_reason="max_tokens")),
        (1, lambda: reply(thinking(), stop_reason="max_tokens")),
        (1, lambda: reply(text("wait"), stop_reason="pause_turn")),
        (1, reply),
        (2, lambda: rng.choice(faults)),
        (said, lambda: reply(text(f"- {said}"))),
        (said // 4, lambda: errors.Overloaded("529")),
        (said // 4, lambda: reply(stop_reason="refusal")),
    ]
    (way,) = rng.choices([one for _, one in ways], [weight for weight, _ in ways])
    return way()


@pytest.mark.parametrize("seed", one_in(3, range(12)))
async def test_random_tasks_are_recorded(bench: Bench, work: Work, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(20):
        await bench.store(
            number, "user", f"früher {number}", request_id=f"00{number:024}", message_id=f"m{number}"
        )
    model = work(partial(wandering, rng), Look(), tasks=TaskLimits(calls=rng.randrange(2, 9)))
    bench.configure(soft_tokens=rng.choice([1_500, 40_000]), keep_observations=1, mask_threshold=800)
    for number in range(3):
        forks = [tool_use("task", prompt=f"teil {n}", mode=rng.choice(["fork", "fresh"])) for n in range(2)]
        model.answers += [
            reply(thinking(), tool_use("look", lines=90)),
            reply(thinking(), *forks),
            reply(text(f"ok {number}")),
        ]
        await bench.say(f"go {number}")
    found = await exact(bench, [wire(one) for one in model.children])
    assert len(found) == 6
    # The calls of a task's last answer may not be run any more.
    answered = [call for one in found for call in one.calls[:-1] if call.record.answer is not None]
    assert all("usage" in (call.record.answer or {}) for call in answered)
    for call in answered:
        used = [use["id"] for use in (call.answer or {"content": []})["content"] if use["type"] == "tool_use"]
        assert [block["tool_use_id"] for block in call.results] == used


async def test_what_fails_is_on_file_too(bench: Bench, work: Work) -> None:
    model = work(lambda _: errors.RequestInvalid("400", status=400))
    model.answers += [reply(tool_use("task", prompt="p")), reply(text("ok"))]
    await bench.say("go")
    (made,) = await exact(bench, [wire(one) for one in model.children])
    assert [(call.record.answer, call.answer) for call in made.calls] == [(None, None)]


async def test_a_fork_that_begins_after_a_crash_goes_on_from_what_was_on_file(
    bench: Bench, work: Work
) -> None:
    """The process dies in a call before that of the task: none of its own lines stands in the transcript by then."""
    press = Press()
    press.hold = asyncio.Event()
    model = work(lambda _: reply(text("- ok")), press)
    model.answers += [reply(tool_use("press"), tool_use("task", prompt="p", mode="fork"))]
    request = ask(bench)
    await killed(bench, request, press.began)
    assert not model.children
    model.answers += [reply(text("ok"))]
    await bench.pool.run(request)
    (made,) = await exact(bench, [wire(one) for one in model.children])
    assert made.older > 1


async def test_the_last_step_and_its_cost_stand_beside_it(bench: Bench, work: Work) -> None:
    model = work(lambda _: reply(text("so far"), tool_use("skills_list")), tasks=TaskLimits(calls=2))
    model.answers += [reply(tool_use("task", prompt="p", mode="fork")), reply(text("ok"))]
    await bench.say("go")
    (made,) = await exact(bench, [wire(one) for one in model.children])
    assert LAST_STEP.encode() in (made.calls[1].record.body or b"")
    assert [len(call.results) for call in made.calls] == [1, 0]
    answers = [call.record.answer or {} for call in made.calls]
    assert [one["stopReason"] for one in answers] == ["tool_use", "tool_use"]
    assert all(one["usage"]["inputTokens"] == 0 for one in answers)


async def test_what_was_removed_is_erased(bench: Bench, work: Work) -> None:
    for number in range(6):
        await bench.store(
            number, "user", f"the plum {number}!", request_id=f"00{number:024}", message_id=f"m{number}"
        )

    def script(request: ModelRequest) -> ModelReply:
        loaded = "loaded_history" in asked(request)
        return reply(text("- ok")) if loaded else reply(tool_use("chat_load_history", limit=2))

    bench.configure(max_messages=4)
    bench.model.answers.append(reply(text("I see")))
    await bench.say("my secret is peach")
    first = next(one for one in await request_ids(bench) if not one.startswith("00"))
    model = work(script)
    calls = [tool_use("task", prompt="a"), tool_use("task", prompt="b", mode="fork")]
    model.answers += [reply(*calls), reply(text("ok"))]
    await bench.say("go")
    await exact(bench, [wire(one) for one in model.children])
    assert b"the plum" in on_disk(bench)
    assert b"peach" in on_disk(bench)
    for number in range(6):
        await remove(bench, f"m{number}", f"00{number:024}")
    await remove(bench, "1", first)
    for one in task_ids(bench):
        assert {call.record.wrong for call in (await find(bench, one)).calls} == {requests.REMOVED}
    assert b"the plum" not in on_disk(bench)
    assert b"peach" not in on_disk(bench)


@pytest.mark.parametrize("mode", ["fresh", "fork"])
async def test_asked_again_its_calls_have_their_results(bench: Bench, work: Work, mode: str) -> None:
    model = work(
        lambda one: reply(text("- ok")) if "tool_result" in last(one) else reply(tool_use("skills_list"))
    )
    model.answers += [reply(tool_use("task", prompt="p", mode=mode)), reply(text("ok"))]
    await bench.say("go")
    made = await again(bench, task_ids(bench)[0])
    other = ScriptedModel()
    other.answers += [reply(tool_use("skills_list")), reply(tool_use("memory")), reply(text("- other"))]
    came = await rerun(made, other, name="other", static="One word.")
    assert (came.answer, came.unknown) == ("- other", ["memory"])
    assert recording.recorded(made).answer == "- ok"
    given, (kept,) = other.requests[1].messages[-1]["content"][-1], made.calls[0].results
    assert given["content"] == kept["content"]
    (first, *rest) = other.requests[0].system
    assert first["text"] == "One word."
    before = made.calls[0].request
    assert before is not None
    assert tuple(rest) == tuple(before.system[1:])
    assert len(rest) == (0 if mode == "fresh" else 1), "all of the prompt of a fresh task is shared"


def last(request: ModelRequest) -> str:
    return json.dumps(request.messages[-1], ensure_ascii=False)
