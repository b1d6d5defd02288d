"""A forked task goes on behind the very bytes of its turn, so that the provider reads them from its cache."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bot import errors
from bot.contracts.base import Json
from bot.contracts.model import ModelReply, ModelRequest
from bot.core.tasks import wording
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.provider import MODEL, Look, Provider, thinking
from tests.unit.agent.tasking import Routed, asked, events, told, work
from tests.unit.gateway.outgoing import until

__all__ = ["work"]


def bare(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace(', "cache_control": {"type": "ephemeral"}', "")


def is_fork(body: Json) -> bool:
    return wording.PLACEHOLDER in json.dumps(body["messages"])


def last_words(body: Json) -> str:
    return "".join(block.get("text", "") for block in body["messages"][-1]["content"])


def forking(bench: Bench, calls: list[Json], *, steps: int = 0) -> Provider:
    """A provider for a turn that forks these calls; each fork looks `steps` times."""

    def script(body: Json) -> ModelReply:
        if not is_fork(body):
            asks = "fork them" in json.dumps(body["messages"][-1])
            return (
                reply(thinking(), text("I share it out."), *calls) if asks else reply(thinking(), text("ok"))
            )
        done = sum(message["role"] == "assistant" for message in body["messages"])
        before = next(
            at for at, message in enumerate(body["messages"]) if wording.PLACEHOLDER in json.dumps(message)
        )
        mine = done - sum(message["role"] == "assistant" for message in body["messages"][:before])
        if mine < steps:
            return reply(thinking(), tool_use("look", lines=3))
        return reply(thinking(), text(f"- {len(body['messages'])} messages"))

    model = Provider(bench.clock, bench.log, script)
    bench.configure(model=model, default_model=MODEL, fast_model=MODEL)
    bench.add_tools(Look())
    return model


async def test_all_forks_share_the_bytes_of_the_turn_and_differ_in_the_last_message_alone(
    bench: Bench,
) -> None:
    calls = [tool_use("task", prompt=f"teil {n} 部", mode="fork") for n in range(3)]
    model = forking(bench, [*calls, tool_use("look", lines=1)])
    await bench.say("Hello! " + "We talk about 東京. " * 400)
    await bench.say("Now fork them.")
    turn = next(one.body for one in reversed(model.calls) if "fork them" in last_words(one.body))
    following = next(
        one.body for one in reversed(model.calls) if not is_fork(one.body) and len(one.body["messages"]) > 3
    )
    forks = [one for one in model.calls if is_fork(one.body)]
    count = len(turn["messages"])
    assert len(forks) == 3
    assert (
        sorted(last_words(one.body).count(f"teil {n} 部") for one in forks for n in range(3))
        == [0] * 6 + [1] * 3
    )
    assert "teil 0 部" in last_words(forks[0].body)
    for fork in forks:
        body = fork.body
        assert bare(body["system"]) == bare(turn["system"])
        assert bare(body["tools"]) == bare(turn["tools"])
        assert body["model"] == turn["model"]
        assert bare(body["messages"][:count]) == bare(turn["messages"])
        # What it had said in that step is there whole, thinking too, as the turn itself will send it.
        assert bare(body["messages"][count]) == bare(following["messages"][count])
        results = body["messages"][count + 1]["content"]
        assert [block["tool_use_id"] for block in results] == [
            one["id"] for one in (*calls, turn_look(results))
        ]
        assert {block["content"] for block in results} == {wording.PLACEHOLDER}
        assert len(body["messages"]) == count + 3
    assert len({bare(one.body["messages"][:-1]) for one in forks}) == 1
    # The first reads what the turn has sent, the others all but their own message.
    sent = next(one for one in model.calls if one.body is turn)
    assert forks[0].read >= sent.prompt
    shared = len(bare(forks[0].body["messages"][count:-1])) // 8
    assert all(one.read > sent.prompt + shared for one in forks[1:])


def turn_look(results: list[Json]) -> Json:
    return {"id": results[-1]["tool_use_id"]}


@pytest.mark.parametrize("many", [2, 20])
async def test_forks_that_work_on_keep_reading_from_the_cache(bench: Bench, many: int) -> None:
    calls = [tool_use("task", prompt=f"part {n}", mode="fork") for n in range(many)]
    model = forking(bench, calls, steps=3)
    await bench.say("Hello! " + "We talk about 東京. " * 400)
    await bench.say("Now fork them.")
    sent = next(one for one in reversed(model.calls) if "fork them" in last_words(one.body))
    forks = [one for one in model.calls if is_fork(one.body)]
    assert len(forks) == 4 * many
    assert all(one.read >= sent.prompt for one in forks)
    assert not bench.log.of("repair")
    # The turn and what comes after it have nothing of that.
    await bench.say("And now?")
    assert not is_fork(model.calls[-1].body)
    assert (await bench.pool.stats(KEY)).calls == len(model.calls)


async def test_the_first_fork_is_started_before_the_rest_and_fresh_tasks_do_not_wait(
    bench: Bench, work: Any
) -> None:
    def script(request: ModelRequest) -> ModelReply:
        return reply(text("- ok"))

    model: Routed = work(script)
    model.gate = asyncio.Event()
    forks = [tool_use("task", prompt=f"f{n}", mode="fork") for n in range(4)]
    model.answers += [reply(forks[0], tool_use("task", prompt="fresh"), *forks[1:]), reply(text("ok"))]
    running = asyncio.create_task(bench.say("go"))
    await until(lambda: len(model.children) == 2)
    await bench.clock.advance(5)
    assert sorted(wording.PLACEHOLDER in asked(one) for one in model.children) == [False, True]
    assert [one.kind for one in events(bench).events].count("started") == 2
    model.gate.set()
    await running
    assert len(model.children) == 5
    assert all("- ok" in one["content"] for one in told(bench))


async def test_where_the_first_fork_fails_the_others_work_all_the_same(bench: Bench, work: Any) -> None:
    model: Routed = work(
        lambda request: errors.Overloaded("529") if "f0" in last(request) else reply(text("- ok"))
    )
    calls = [tool_use("task", prompt=f"f{n}", mode="fork") for n in range(3)]
    model.answers += [reply(*calls), reply(text("ok"))]
    await bench.say("go")
    results = told(bench)
    assert [one.get("is_error", False) for one in results] == [True, False, False]


def last(request: ModelRequest) -> str:
    return json.dumps(request.messages[-1])


async def test_a_fork_cannot_speak_or_share_out_although_its_tools_are_those_of_the_turn(
    bench: Bench, work: Any
) -> None:
    def script(request: ModelRequest) -> ModelReply:
        if "There is no tool named" in asked(request):
            return reply(text("- ok"))
        return reply(tool_use("task", prompt="more"), tool_use("chat_send", text="psst"))

    model: Routed = work(script)
    model.answers += [reply(tool_use("task", prompt="p", mode="fork")), reply(text("ok"))]
    await bench.say("go")
    assert model.children[0].tools == model.requests[0].tools
    assert bench.chat.seen == ["ok"]
    refused = model.children[1].messages[-1]["content"]
    assert all(block["is_error"] for block in refused)
    assert len(model.children) == 2


async def test_what_a_fork_loads_stands_behind_what_it_shares_and_not_in_the_turn(
    bench: Bench, work: Any
) -> None:
    def script(request: ModelRequest) -> ModelReply:
        if "loaded_history" in asked(request):
            return reply(text("- 昔"))
        return reply(tool_use("chat_load_history", keyword="昔"))

    await bench.say("before")
    await bench.store(1, "user", "昔の話")
    model: Routed = work(script)
    model.answers += [reply(tool_use("task", prompt="p", mode="fork")), reply(text("ok"))]
    await bench.say("go")
    first, second = model.children
    shared = len(first.messages) - 1
    assert bare(second.messages[:shared]) == bare(first.messages[:shared])
    assert "昔の話" in bare(second.messages[shared])
    assert "昔の話" not in asked(model.requests[-1])
    assert not bench.log.of("injection")


@pytest.mark.parametrize("mode", ["fresh", "fork"])
async def test_what_a_task_loads_is_not_to_be_read_in_its_transcript(
    bench: Bench, work: Any, mode: str
) -> None:
    """It may be removed later, or be of a chat whose members are others."""

    def script(request: ModelRequest) -> ModelReply:
        if "loaded_history" in asked(request):
            return reply(text("- found"))
        return reply(tool_use("chat_load_history", keyword="昔"))

    for number in range(2):
        await bench.store(number, "user", f"昔の話 {number}")
    model: Routed = work(script)
    model.answers += [reply(text("later")), reply(tool_use("task", prompt="p", mode=mode)), reply(text("ok"))]
    await bench.say("before")
    await bench.pool.reset(KEY)
    await bench.say("go")
    assert "昔の話 1" in asked(model.children[-1])
    name = (bench.root / "artifacts").glob("*/*.txt").__next__().stem
    page = await bench.artifacts.read(name, KEY, offset=0, limit=10_000)
    assert "昔の話" not in page.text
    assert wording.loaded(2)["content"][0]["text"] in page.text
    assert page.text.index("(2 older messages") < page.text.index("- found")
