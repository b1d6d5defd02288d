"""What `/undo` takes back is in no summary either that was made since: what was summed up stands there again."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bot.testing.model import reply, text
from tests.unit.agent.conftest import KEY, Bench
from tests.unit.agent.test_random import Judged, as_from_the_beginning, restarted
from tests.unit.agent.test_removing import remove

TOLD = "## What happened\n- we talked\n## Facts\n- the secret is 秘密\n## Decisions\n## Preferences\n## Open tasks\n(none)"
OWN = f"<summary>{TOLD}</summary>"


@pytest.fixture(params=[False, True], ids=["fork", "provider"])
async def chat(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    model = Judged(compacts=request.param)
    bench.configure(model=model)
    await bench.deps.windows.ask(model, "scripted")
    return bench


async def talked(bench: Bench, *said: str) -> None:
    for one in said:
        bench.model.answers.append(reply(text(f"to {one}")))
        await bench.say(one, archive=False)


async def summed_up(bench: Bench) -> None:
    bench.model.answers.append(reply(text(TOLD if bench.deps.windows.compacts("scripted") else OWN)))
    assert (await bench.pool.compact(KEY, "all of it"))["how"] in {"summary", "provider"}


def shown(bench: Bench) -> str:
    return json.dumps(list(bench.pool._runtime(KEY).store.view()), ensure_ascii=False)


async def holds(bench: Bench) -> None:
    """It is the same after a restart, and can be sent."""
    await restarted(bench)
    await talked(bench, "go on")
    await restarted(bench)
    model: Any = bench.model
    assert model.refused == []
    assert not bench.log.of("repair")


async def test_what_was_summed_up_with_it_is_there_again(chat: Bench) -> None:
    await talked(chat, "one", "two", "three", "four", "the secret is 秘密")
    await summed_up(chat)
    assert '"one"' not in shown(chat)
    assert await chat.pool.undo(KEY) == "the secret is 秘密"
    assert "秘密" not in shown(chat)
    for said in ("one", "two", "three", "four"):
        assert f'"{said}"' in shown(chat)
    await holds(chat)


async def test_a_summary_from_before_stays(chat: Bench) -> None:
    await talked(chat, "one", "two", "three", "four")
    await summed_up(chat)
    await talked(chat, "five", "six", "seven", "to be taken back")
    before = chat.pool._runtime(KEY).store.head
    await chat.pool.undo(KEY)
    assert chat.pool._runtime(KEY).store.head == before
    await talked(chat, "another")
    await summed_up(chat)
    await chat.pool.undo(KEY)
    assert "the secret is" in shown(chat), "it told of that before"
    assert '"five"' in shown(chat)
    assert "another" not in shown(chat)
    await holds(chat)


async def test_several_turns_are_taken_back_one_by_one(chat: Bench) -> None:
    await talked(chat, "one", "two", "three", "four", "five", "six")
    await summed_up(chat)
    await talked(chat, "seven")
    for said in ("seven", "six", "five"):
        assert await chat.pool.undo(KEY) == said
        await restarted(chat)
    assert "秘密" not in shown(chat)
    assert '"one"' in shown(chat)
    assert '"six"' not in shown(chat)
    await holds(chat)


async def test_what_was_removed_since_does_not_come_back(chat: Bench) -> None:
    await talked(chat, "one", "two")
    turn = chat.pool._runtime(KEY).store.turns[0].request_id
    await talked(chat, "three", "four", "five")
    await summed_up(chat)
    await remove(chat, "1", turn)
    await chat.pool.undo(KEY)
    assert '"one"' not in shown(chat)
    await holds(chat)


async def test_what_was_removed_before_stays_removed(chat: Bench) -> None:
    await talked(chat, "one", "two", "three", "four", "five")
    await remove(chat, "1", chat.pool._runtime(KEY).store.turns[0].request_id)
    await summed_up(chat)
    await chat.pool.undo(KEY)
    assert '"one"' not in shown(chat)
    assert '"two"' in shown(chat)
    await holds(chat)


async def test_what_comes_back_is_within_the_cap(chat: Bench) -> None:
    await talked(chat, *map(str, range(9)))
    await summed_up(chat)
    chat.configure(max_messages=6)
    chat.restart()
    await chat.pool.undo(KEY)
    assert len(chat.pool._runtime(KEY).store) <= 6
    await as_from_the_beginning(chat)


async def test_a_provider_that_forgets_meanwhile_changes_nothing(chat: Bench) -> None:
    await talked(chat, "one", "two", "three", "four", "five")
    await summed_up(chat)
    model: Any = chat.model
    model.forget()
    await talked(chat, "six")
    await chat.pool.undo(KEY)
    await chat.pool.undo(KEY)
    assert "秘密" not in shown(chat)
    assert '"four"' in shown(chat)
    await holds(chat)
