"""Many tasks of one step: side by side within their budget, and ended together."""

from __future__ import annotations

import asyncio
from typing import Any

from bot.core.tasks.limits import TaskLimits
from bot.testing.model import reply, text, tool_use
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.tasking import Fake, asked, events, priced, told, work
from tests.unit.gateway.outgoing import until

__all__ = ["work"]


async def test_twenty_at_once_work_side_by_side_and_their_results_stand_in_order(
    bench: Bench, work: Any
) -> None:
    model = work(
        lambda request: priced(text("- " + request.messages[0]["content"][-1]["text"]), tokens=10, usd=0.01),
        tasks=TaskLimits(turn_usd=None),
    )
    model.gate = asyncio.Event()
    calls = [tool_use("task", prompt=f"part {n}", description=f"第{n}部") for n in range(20)]
    model.answers += [reply(*calls), reply(text("ok"))]
    running = asyncio.create_task(bench.say("go"))
    await until(lambda: len(model.children) == 20)
    seen = events(bench).events
    assert [one.kind for one in seen].count("started") == 20
    assert {one.label for one in seen} == {f"第{n}部" for n in range(20)}
    model.gate.set()
    assert (await running).status == "done"
    results = told(bench)
    assert [one["tool_use_id"] for one in results] == [one["id"] for one in calls]
    assert all(f"- part {n}\n" in one["content"] for n, one in enumerate(results))
    ends = [one for one in seen if one.kind == "ended"]
    assert len({one.task_id for one in ends}) == len(ends) == 20
    for one in ends:
        assert events(bench).kinds(one.task_id) == ["queued", "started", "model", "ended"]
        assert one.totals.usage.input_tokens == 10
    stats = await bench.pool.stats(KEY)
    assert stats.input_tokens == 210  # and one synthesis, which this script answers too


async def test_as_many_work_at_once_as_there_are_places_and_budget_for(bench: Bench, work: Any) -> None:
    model = work(lambda _: priced(text("- ok"), tokens=10), tasks=TaskLimits(side_by_side=3))
    model.gate = asyncio.Event()
    model.answers += [reply(*(tool_use("task", prompt=str(n)) for n in range(7))), reply(text("ok"))]
    running = asyncio.create_task(bench.say("go"))
    await until(lambda: len(model.children) == 3)
    assert [one.kind for one in events(bench).events].count("queued") == 7
    assert [one.kind for one in events(bench).events].count("started") == 3
    model.gate.set()
    await running
    assert len(model.children) == 7


async def test_a_call_waits_for_what_others_may_give_back_of_the_budget(bench: Bench, work: Any) -> None:
    """Room for two calls at a time: all the same every task gets its answer, and the budget is kept."""
    model = work(lambda _: priced(text("- ok"), tokens=10), tasks=TaskLimits(turn_tokens=25_000))
    model.gate = asyncio.Event()
    model.answers += [reply(*(tool_use("task", prompt=str(n)) for n in range(6))), reply(text("ok"))]
    running = asyncio.create_task(bench.say("go"))
    await until(lambda: len(model.children) == 2)
    assert [one.kind for one in events(bench).events].count("started") == 6
    model.gate.set()
    await running
    assert len(model.children) == 6
    assert all("- ok" in one["content"] for one in told(bench))


async def test_a_stop_ends_every_task_and_what_it_runs(bench: Bench, work: Any) -> None:
    forever, ended = asyncio.Event(), []

    async def hang(_: Any) -> str:
        try:
            await forever.wait()
        finally:
            ended.append(True)
        return ""

    hanging = Fake("dig", hang)
    model = work(lambda _: reply(tool_use("dig")), hanging)
    model.answers += [reply(*(tool_use("task", prompt=str(n)) for n in range(5)))]
    running = asyncio.create_task(bench.say("go"))
    await until(lambda: len(hanging.seen) == 5)
    before = asyncio.all_tasks()
    assert await bench.pool.stop(KEY)
    assert (await running).status == "stopped"
    assert len(ended) == 5
    assert sum(one.kind == "stopped" for one in events(bench).events) == 5
    await until(lambda: not (asyncio.all_tasks() & before - {asyncio.current_task()}))
    assert (await bench.say("and on")).status == "done"


async def test_what_is_left_ends_with_the_turn_also_where_something_breaks(bench: Bench, work: Any) -> None:
    """One task breaks in a way that nobody foresaw: it alone fails."""
    model = work(lambda request: RuntimeError("boom") if "bad" in asked(request) else reply(text("- fine")))
    model.answers += [
        reply(tool_use("task", prompt="bad"), tool_use("task", prompt="good")),
        reply(text("ok")),
    ]
    assert (await bench.say("go")).status == "done"
    bad, good = told(bench)
    assert bad["is_error"]
    assert "- fine" in good["content"]
    assert sorted(one.kind for one in events(bench).events if one.kind in {"ended", "failed"}) == [
        "ended",
        "failed",
    ]
