"""What a kill at a bad moment leaves is finished by the next start as life would have finished it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.agent import TurnOutcome
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Command, Inbound
from bot.contracts.journal import Unfinished
from bot.contracts.model import ModelReply, ModelRequest
from bot.testing.model import reply, text, tool_use
from bot.words import say
from tests.contracts.journal_rig import still_open
from tests.unit.agent.conftest import Bench as AgentBench
from tests.unit.gateway.conftest import HERE, Bench, killed, never
from tests.unit.gateway.desk import GROUP, MEMBER, Desk
from tests.unit.gateway.outgoing import until

STOP: dict[str, Any] = {"command": Command(name="stop"), "addressed": "command"}


async def told(bench: Bench) -> None:
    """Wait until all that was said is on file as sent."""
    async with asyncio.timeout(90):
        while await bench.journal.undelivered():  # noqa: ASYNC110 - the journal tells nobody
            await asyncio.sleep(0)


async def reopened(root: Path, **options: Any) -> Bench:
    bench = Bench(root, **options)
    await bench.open()
    return bench


async def test_rest_of_turn_whose_first_row_is_gone_is_answered(tmp_path: Path) -> None:
    first = Bench(tmp_path, mode="collect")
    await first.say("one")
    await first.say("two")
    ids = [one.request_id for one in await still_open(first.journal)]
    first.agent.hold = asyncio.Event()
    await first.open()
    await first.agent.began.wait()
    assert len(first.agent.requests[0].also) == 1
    await killed(first)
    with sqlite3.connect(tmp_path / "journal.db") as db:
        db.execute("UPDATE inbox SET payload = '{' WHERE request_id = ?", (ids[0],))
    db.close()
    second = Bench(tmp_path, mode="collect")
    second.agent.sources = tuple(ids)
    await second.open()
    await second.idle()
    assert second.tele.texts == ["re: two"]
    assert await second.journal.unfinished() == []
    await second.close()


@pytest.mark.parametrize("turns", [20, 1])
async def test_what_it_costs_grows_with_the_messages_and_not_with_their_square(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    many = 20
    how: dict[str, Any] = {"mode": "collect", "max_concurrent": many}
    first = Bench(tmp_path, **how)
    first.agent.hold = asyncio.Event()
    for number in range(many):
        chat = f"{number % turns}"
        await first.say(channel="local", chat_id=chat, chat_key=f"local:chat:{chat}", user_id=chat)
    await first.open()
    async with asyncio.timeout(90):
        while len(first.agent.requests) < turns:  # noqa: ASYNC110 - the agent tells nobody
            await asyncio.sleep(0)
    assert sum(1 + len(one.also) for one in first.agent.requests) == many
    await killed(first)
    compared = 0

    def counted(equal: Callable[[Any, object], bool]) -> Callable[[Any, object], bool]:
        def compare(one: Any, other: object) -> bool:
            nonlocal compared
            compared += 1
            return equal(one, other)

        return compare

    second = Bench(tmp_path, **how)
    second.agent.hold = asyncio.Event()
    if turns == 1:  # as the transcript of that chat tells
        second.agent.sources = tuple(one.request_id for one in await still_open(second.journal))
    for kind in (Inbound, Unfinished):
        monkeypatch.setattr(kind, "__eq__", counted(kind.__eq__))
    await second.open()
    assert compared <= 5 * many
    second.agent.hold.set()
    await second.idle()
    assert len(second.channels["local"].texts) == turns
    await second.close()


async def test_deletion_in_the_journal_alone_is_carried_out_though_a_stop_came_after_it(
    tmp_path: Path,
) -> None:
    zero = Bench(tmp_path)
    await zero.open()
    await zero.say("my secret is X", message_id="secret")
    await zero.idle()
    await zero.close()
    first = Bench(tmp_path)  # not open: all of it stays in the journal
    for number in range(10):
        await first.say(f"flood {number}", message_id=f"f{number}", keys=(f"f{number}",))
    await first.say("", kind="delete", message_id="secret", keys=("del",))
    await first.close()
    second = Bench(tmp_path, most_waiting=20)
    second.agent.hold = asyncio.Event()
    await second.open()
    await second.agent.began.wait()
    await second.say("/stop", **STOP, keys=("stop",), message_id="stop")
    second.agent.hold.set()
    await second.idle()
    assert await second.journal.unfinished() == []
    assert say("stop.stopped") in second.tele.texts
    assert [line.message_id for line in await second.archive.removals(HERE)] == ["secret"]
    await second.close()


async def test_what_was_in_the_journal_alone_stays_stopped_after_a_kill(tmp_path: Path) -> None:
    first = Bench(tmp_path, most_waiting=20)
    await first.open()
    first.agent.hold = asyncio.Event()
    for number in range(10):
        await first.say(f"flood {number}")
    await first.agent.began.wait()
    await first.say("/stop", **STOP)
    assert await first.tele.until(1) == [say("stop.stopped")]
    await until(lambda: not first.running)
    await killed(first)
    second = await reopened(tmp_path)
    await second.idle()
    assert second.tele.texts == []
    await second.close()


async def test_stop_that_reaches_a_turn_before_its_beginning_is_on_file(tmp_path: Path) -> None:
    zero = Bench(tmp_path)
    await zero.say("long work")
    await zero.say("/stop", **STOP)
    await zero.close()
    first = Bench(tmp_path)
    first.journal.post.end_turn = never  # type: ignore[method-assign]
    await first.open()
    assert await first.tele.until(1) == [say("stop.stopped")]
    await told(first)
    await asyncio.sleep(0.05)
    assert len(await still_open(first.journal)) == 1
    await killed(first)
    second = await reopened(tmp_path)
    await second.idle()
    assert second.tele.texts == []
    assert await second.journal.unfinished() == []
    await second.close()


@pytest.mark.parametrize("what", ["command", "turn"])
async def test_last_words_go_out_though_a_channel_fails_unforeseen_once(bench: Bench, what: str) -> None:
    bench.agent.answer = lambda _: TurnOutcome("failed", notice="no model today")
    bench.tele.failures.append(RuntimeError("a bug of the channel"))  # type: ignore[arg-type]
    await bench.delivery.open()
    await bench.say("/whoami", **({"command": Command(name="whoami")} if what == "command" else {}))
    await until(lambda: bool(bench.tele.texts), bench.clock)
    await bench.idle()
    assert len(bench.tele.texts) == 1


async def test_a_stop_that_says_nothing_runs_costs_no_answer(tmp_path: Path) -> None:
    """The agent is ending its turn and refuses the stop."""
    first = Bench(tmp_path)
    await first.open()
    first.agent.hold = asyncio.Event()
    await first.say("work")
    await first.agent.began.wait()

    async def refuses(_: ChatKey) -> bool:
        return False

    first.agent.stop = refuses  # type: ignore[method-assign, assignment]
    await first.say("/stop", **STOP)
    assert await first.tele.until(1) == [say("stop.nothing")]
    await told(first)
    await killed(first)
    second = await reopened(tmp_path)
    await second.idle()
    assert second.tele.texts[-1:] == ["re: work"]
    await second.close()


# ------------------------------------------------------------ with the real agent


async def test_words_that_a_stopped_turn_owes_outlive_a_kill(tmp_path: Path) -> None:
    """docs/internals/messages.md: what is still owed stands in the transcript's `turn_end`, so a crash in between does not
    lose it.
    """
    agent = AgentBench(tmp_path / "agent")

    def half(_: ModelRequest) -> ModelReply:
        agent.model.hold = asyncio.Event()
        return reply(text("the first half"), stop_reason="max_tokens")

    agent.model.answers.append(half)
    first = Bench(tmp_path, agent=agent.pool)
    await first.open()
    sends, send = [], first.delivery.send

    async def dies(to: Any, words: str, **more: Any) -> Any:
        if more.get("kind") == "notice":
            return await send(to, words, **more)
        sends.append(words)
        return await asyncio.Event().wait()

    first.delivery.send = dies  # type: ignore[method-assign]
    await first.say("work")
    await until(lambda: len(agent.model.requests) == 2)
    await first.say("/stop", **STOP)
    await until(lambda: bool(sends))
    assert sends == ["the first half\n\n(stopped)"]
    assert await first.tele.until(1) == [say("stop.stopped")]
    await told(first)
    await killed(first)
    agent.model.hold = None
    agent.restart()
    second = Bench(tmp_path, agent=agent.pool)
    await second.open()
    await second.idle()
    assert second.tele.texts == ["the first half\n\n(stopped)"]
    await second.close()
    await agent.close()


async def test_a_finished_answer_outlives_a_stop_and_a_kill(tmp_path: Path) -> None:
    """docs/promises.md: a finished answer outlives a `/stop` at any moment once the model has given it whole."""
    agent = AgentBench(tmp_path / "agent")
    agent.model.answers.append(reply(text("the whole answer")))
    first = Bench(tmp_path, agent=agent.pool)
    await first.open()
    sends, send = list[str](), first.delivery.send
    first.journal.post.end_turn = never  # type: ignore[method-assign]

    async def dies(to: Any, words: str, **more: Any) -> Any:  # killed just before the outbox has it
        if more.get("kind") == "notice":
            return await send(to, words, **more)
        sends.append(words)
        return await asyncio.Event().wait()

    first.delivery.send = dies  # type: ignore[method-assign]
    await first.say("work")
    await until(lambda: bool(sends))
    await first.say("/stop", **STOP)
    await first.tele.until(1)
    await told(first)
    await killed(first)
    agent.restart()
    second = Bench(tmp_path, agent=agent.pool)
    await second.open()
    await second.idle()
    assert [one.removesuffix("\n\n(stopped)") for one in second.tele.texts] == ["the whole answer"]
    await second.close()
    await agent.close()


async def test_the_question_of_a_turn_that_a_stop_and_a_kill_ended_is_closed(tmp_path: Path) -> None:

    first = Desk(tmp_path)
    await first.open()
    await first.asked()
    first.agent.stop = lambda _: asyncio.sleep(0, True)  # type: ignore[method-assign, assignment]
    await first.say("/stop", user_id=MEMBER, **STOP, **GROUP)
    await until(lambda: say("stop.stopped") in first.tele.texts)
    await told(first)
    await killed(first)
    second = Desk(tmp_path)
    await second.open()
    await second.idle()
    assert await second.journal.unfinished() == []
    assert [one.id for one in await second.journal.open_approvals()] == []
    await second.close()


async def test_the_turn_that_another_took_over_is_ended(tmp_path: Path) -> None:
    first = Bench(tmp_path, mode="collect")
    await first.say("one")
    await first.say("two")
    ids = [one.request_id for one in await still_open(first.journal)]
    first.agent.hold = asyncio.Event()
    await first.open()
    await first.agent.began.wait()
    await killed(first)
    second = Bench(tmp_path, mode="collect")
    second.agent.sources = (ids[1], ids[0])  # whatever made another message the first one
    await second.open()
    await second.idle()
    assert await second.journal.unfinished() == []
    turn = await second.journal.turn(ids[0])
    assert turn is not None
    assert turn.ended_at is not None
    await second.close()


async def test_an_edit_that_had_joined_a_turn_is_stopped_with_it(tmp_path: Path) -> None:
    """In life a stop ends the turn with all that joined it. The transcript does not name the edit yet."""
    first = Bench(tmp_path)
    await first.open()
    first.agent.hold = asyncio.Event()
    await first.say("work", message_id="m")
    await first.agent.began.wait()
    await first.say("work, please", message_id="m", kind="edit")
    take = first.agent.requests[0].arrivals.take_more
    assert len(take()) == 1
    first.journal.post.end_turn = never  # type: ignore[method-assign]
    await first.say("/stop", **STOP)
    assert await first.tele.until(1) == [say("stop.stopped")]
    await told(first)
    ids = [one.request_id for one in await still_open(first.journal)]
    await killed(first)
    second = Bench(tmp_path)
    second.agent.sources = (ids[0],)
    await second.open()
    await second.idle()
    assert second.tele.texts == []
    await second.close()


async def test_nobody_is_told_that_a_tool_of_a_stopped_turn_runs_now(tmp_path: Path) -> None:

    first = Desk(tmp_path)
    await first.open()
    name = await first.asked()
    first.agent.stop = lambda _: asyncio.sleep(0, True)  # type: ignore[method-assign, assignment]
    await first.say("/stop", user_id=MEMBER, **STOP, **GROUP)
    await until(lambda: say("stop.stopped") in first.tele.texts)
    await told(first)
    await killed(first)
    second = Desk(tmp_path)
    await second.open()
    await second.idle()
    await second.press("approve", name, keys=("press",), message_id="press")
    await second.idle()
    assert not [one for one in second.tele.texts if one == "✅ Allowed."]
    await second.close()


@pytest.mark.parametrize("kill", [False, True])
async def test_a_stopped_turn_stays_in_the_conversation(tmp_path: Path, *, kill: bool) -> None:
    """In life (`kill` False, passes) the model sees the stopped turn in the next one; after a kill it is gone from the view,
    with all that it had said and done: nobody closes it in the transcript.
    """
    agent = AgentBench(tmp_path / "agent")

    def says(_: ModelRequest) -> ModelReply:
        agent.model.hold = asyncio.Event()
        return reply(text("I begin with it."), tool_use("chat_load_history", keyword="x"))

    agent.model.answers.append(says)
    first = Bench(tmp_path, agent=agent.pool)
    await first.open()
    await first.say("work")
    await until(lambda: len(agent.model.requests) == 2)
    stop = agent.pool.stop
    if kill:
        agent.pool.stop = lambda _: asyncio.sleep(0, True)  # type: ignore[method-assign, assignment]
    await first.say("/stop", **STOP)
    await until(lambda: say("stop.stopped") in first.tele.texts)
    await told(first)
    agent.model.hold = None
    if kill:
        await killed(first)
        agent.pool.stop = stop  # type: ignore[method-assign]
        agent.restart()
        second = Bench(tmp_path, agent=agent.pool)
        await second.open()
    else:
        second = first
    await second.idle()
    await second.say("next", keys=("n1",), message_id="n1")
    await second.idle()
    seen = json.dumps(agent.model.requests[-1].messages)
    await second.close()
    await agent.close()
    assert "work" in seen
    assert "I begin with it." in seen


async def test_a_start_asks_once_for_all_that_is_open_whatever_became_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Bench(tmp_path, mode="followup")
    await first.open()
    first.agent.hold = asyncio.Event()
    for number in range(30):
        place = {"chat_id": str(number), "chat_key": f"tele:chat:{number}"}
        await first.say("teh", message_id="m", **place)
        await first.say("two", message_id="n", **place)
    await first.say("the", message_id="n", kind="edit", chat_id="0", chat_key="tele:chat:0")
    await killed(first)
    second = Bench(tmp_path, mode="followup")
    asked: list[str] = []
    for name in ("about", "inbound", "turn"):
        answer = getattr(second.journal, name)

        def counted(*given: Any, name: str = name, answer: Any = answer) -> Any:
            asked.append(name)
            return answer(*given)

        monkeypatch.setattr(second.journal, name, counted)
    second.agent.hold = asyncio.Event()
    assert await second.open() == 60
    assert asked == []
    second.agent.hold.set()
    await second.idle()
    assert sorted(second.tele.texts) == sorted(["re: teh"] * 30 + ["re: two"] * 29 + ["re: the"])
    assert await second.journal.unfinished() == []
    await second.close()
