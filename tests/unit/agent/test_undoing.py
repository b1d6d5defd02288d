"""What `/undo` takes back is in no summary: where one tells of it, it is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot import errors
from bot.context.store import AgentContextStore
from bot.testing.model import reply, text
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.test_deletions import remove
from tests.unit.agent.test_random import Judged, restarted

TOLD = "## What happened\n- we talked\n## Facts\n- the secret is 秘密\n## Decisions\n## Preferences\n## Open tasks\n(none)"
OWN = f"<summary>{TOLD}</summary>"


@pytest.fixture(params=[False, True], ids=["fork", "provider"])
async def chat(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    model = Judged(compacts=request.param)
    bench.configure(model=model)
    await bench.deps.models.windows.ask(model, "scripted")
    return bench


async def talked(bench: Bench, *said: str) -> None:
    for one in said:
        bench.model.answers.append(reply(text(f"to {one}")))
        await bench.say(one, archive=False)


async def summed_up(bench: Bench) -> None:
    bench.model.answers.append(reply(text(TOLD if bench.deps.models.windows.compacts("scripted") else OWN)))
    assert (await bench.pool.compact(KEY, "all of it")).outcome in {"summary", "provider"}


def store(bench: Bench) -> AgentContextStore:
    return bench.pool.runtime(KEY).store


def shown(bench: Bench) -> str:
    return json.dumps(list(store(bench).view()), ensure_ascii=False)


async def holds(bench: Bench) -> None:
    """It is the same after a restart, and can be sent."""
    await restarted(bench)
    await talked(bench, "go on")
    await restarted(bench)
    model: Any = bench.model
    assert model.refused == []
    assert not bench.log.of("repair")


async def test_a_turn_of_which_a_summary_tells_is_not_taken_back(chat: Bench) -> None:
    await talked(chat, "one", "two", "three", "four", "the secret is 秘密")
    await summed_up(chat)
    before = shown(chat)
    with pytest.raises(errors.TurnSummarized) as refused:
        await chat.pool.undo(KEY)
    assert "part of a summary" in refused.value.person
    assert shown(chat) == before
    await holds(chat)


async def test_what_came_after_a_summary_is_taken_back_one_by_one_and_the_summary_stays(chat: Bench) -> None:
    await talked(chat, "one", "two", "three", "four")
    await summed_up(chat)
    await talked(chat, "five", "six")
    before = store(chat).head
    for said in ("six", "five"):
        assert await chat.pool.undo(KEY) == said
        await restarted(chat)
    assert '"five"' not in shown(chat)
    with pytest.raises(errors.TurnSummarized):
        await chat.pool.undo(KEY)
    assert store(chat).head == before
    await holds(chat)


async def test_it_is_refused_after_a_restart_too_until_a_removal_takes_the_summary(chat: Bench) -> None:
    await talked(chat, "one", "two", "three", "four", "five")
    turn = store(chat).turns[-1].request_id
    await summed_up(chat)
    await restarted(chat)
    with pytest.raises(errors.TurnSummarized):
        await chat.pool.undo(KEY)
    await remove(chat, "5", turn)
    assert store(chat).head is None
    await chat.pool.undo(KEY)
    assert turn not in {one.request_id for one in store(chat).turns}
    await holds(chat)
