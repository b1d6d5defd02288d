"""More than memory should hold: the rest waits in the journal and is read back; 5,000 events at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Command, Inbound
from bot.contracts.journal import Unfinished
from bot.gateway import intake, participation, recovery
from bot.words import say
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.conftest import Bench

STOP: dict[str, Any] = {"command": Command(name="stop"), "addressed": "command"}


def everyone(bench: Bench) -> Bench:
    bench.lists.allowed = lambda _: frozenset({"*"})  # type: ignore[method-assign, assignment]
    return bench


def chat(name: str) -> dict[str, Any]:
    return {"chat_id": name, "chat_key": f"tele:chat:{name}", "user_id": name}


async def full(root: Path, limit: int = 20, **options: Any) -> Bench:
    bench = everyone(Bench(root, most_waiting=limit, **options))
    await bench.open()
    bench.agent.hold = asyncio.Event()
    return bench


async def emptied(bench: Bench) -> list[str]:
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    await bench.idle()
    assert await bench.journal.unfinished() == []
    return [text.removeprefix("re: ") for text in bench.tele.texts]


async def test_what_does_not_fit_into_memory_is_answered_once_and_in_each_chats_order(tmp_path: Path) -> None:
    bench = await full(tmp_path, max_concurrent=2)
    most = 0
    for number in range(60):
        for name in "abc":
            await bench.say(f"{name}{number}", **chat(name))
            most = max(most, bench.backlog.total)
    assert most <= 20
    said = await emptied(bench)
    assert sorted(said) == sorted(f"{name}{number}" for name in "abc" for number in range(60))
    for name in "abc":
        assert [word for word in said if word[0] == name] == [f"{name}{number}" for number in range(60)]
    assert bench.turn_queue.active == 0
    await bench.close()


async def test_somebody_who_fills_memory_delays_nobody_else(tmp_path: Path) -> None:
    bench = await full(tmp_path, max_concurrent=1)
    for number in range(50):
        await bench.say(f"flood{number}", **chat("flood"))
    await bench.say("hello", **chat("ada"))
    assert bench.backlog.waiting_of(UserRef("tele", "flood")) == 2
    said = await emptied(bench)
    assert said.index("hello") <= 2
    assert [word for word in said if word != "hello"] == [f"flood{number}" for number in range(50)]
    await bench.close()


async def test_of_a_flood_no_more_is_read_than_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "PAGE", 4)
    bench = await full(tmp_path, max_concurrent=1)
    for number in range(60):
        await bench.say(f"a{number}", **chat("a"))
    unfinished, read = bench.journal.unfinished, 0

    async def counted(limit: int | None = None, after: str = "") -> list[Unfinished]:
        nonlocal read
        rows = await unfinished(limit, after)
        read += len(rows)
        return rows

    monkeypatch.setattr(bench.journal, "unfinished", counted)
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    await bench.idle()
    assert bench.tele.texts == [f"re: a{number}" for number in range(60)]
    assert read < 60 * 8
    await bench.close()


async def test_what_is_full_after_a_restart_is_read_piece_by_piece(tmp_path: Path) -> None:
    first = everyone(Bench(tmp_path))
    for number in range(40):
        await first.say(f"a{number}", **chat("a"))
    await first.say("b", **chat("b"))
    await first.close()
    second = everyone(Bench(tmp_path, most_waiting=20, max_concurrent=1))
    second.agent.hold = asyncio.Event()
    assert await second.open("tele") > 0
    assert second.backlog.total <= 20
    await second.say("a40", keys=("late",), **chat("a"))
    said = await emptied(second)
    assert [word for word in said if word[0] == "a"] == [f"a{number}" for number in range(41)]
    assert said.index("b") <= 3
    await second.close()


async def test_a_channel_that_is_not_open_keeps_its_messages_out_of_the_way(tmp_path: Path) -> None:
    first = everyone(Bench(tmp_path))
    for number in range(30):
        await first.say(f"closed{number}", channel="local", chat_id="p", chat_key="local:chat:p", user_id="p")
    await first.say("open", **chat("a"))
    await first.close()
    second = everyone(Bench(tmp_path, most_waiting=20))
    assert await second.open("tele") == 1
    await second.idle()
    assert second.tele.texts == ["re: open"]
    assert await second.open("local") > 0
    await second.idle()
    assert second.channels["local"].texts == [f"re: closed{number}" for number in range(30)]
    await second.close()


async def test_a_stop_reaches_what_waits_in_the_journal_alone(tmp_path: Path) -> None:
    bench = await full(tmp_path)
    for number in range(9):
        await bench.say(f"a{number}", **chat("a"))
    await bench.agent.began.wait()
    await bench.say("/stop", **STOP, **chat("a"))
    await bench.tele.until(1)
    await bench.say("after", **chat("a"))
    assert await emptied(bench) == [say("stop.stopped"), "after"]
    await bench.close()


@pytest.mark.parametrize(
    ("kind", "said"), [("edit", ["a0", "a1", "a2", "a3", "new"]), ("delete", ["a0", "a1", "a2", "a3"])]
)
async def test_a_change_reaches_what_waits_in_the_journal_alone(
    tmp_path: Path, kind: str, said: list[str]
) -> None:
    bench = await full(tmp_path)
    for number in range(5):
        await bench.say(f"a{number}", message_id=f"m{number}", **chat("a"))
    await bench.say("new", message_id="m4", kind=kind, **chat("a"))
    assert await emptied(bench) == said
    await bench.close()


async def test_a_journal_that_cannot_be_read_for_a_while_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await full(tmp_path)
    for number in range(6):
        await bench.say(f"a{number}", **chat("a"))
    read, failed = bench.journal.unfinished, asyncio.Event()

    async def broken(*_: object) -> list[Inbound]:
        failed.set()
        raise errors.StorageError("EIO")

    monkeypatch.setattr(bench.journal, "unfinished", broken)
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    await failed.wait()
    monkeypatch.setattr(bench.journal, "unfinished", read)
    await asyncio.sleep(0)
    await bench.clock.advance(5.0)
    assert [text.removeprefix("re: ") for text in await bench.tele.until(6)] == [f"a{n}" for n in range(6)]
    await bench.idle()
    await bench.close()


class TestIntake:
    async def test_two_thousand_events_at_once_are_all_taken_in_and_in_order(self, tmp_path: Path) -> None:
        bench = everyone(Bench(tmp_path, most_waiting=500))
        await bench.open()
        bench.agent.hold = asyncio.Event()
        offers = (bench.say(str(number), **chat(str(number % 50))) for number in range(2_000))
        assert all(await asyncio.gather(*offers))
        found = await still_open(bench.journal)
        for name in range(50):
            mine = [int(one.text) for one in found if one.chat_id == str(name)]
            assert mine == list(range(name, 2_000, 50))
        assert bench.backlog.total <= 500
        await bench.close()

    async def test_only_so_many_events_are_worked_on_side_by_side(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(intake, "AT_ONCE", 3)
        bench = everyone(Bench(tmp_path))
        receive, now, most, gate = bench.journal.receive, 0, 0, asyncio.Event()

        async def counted(inbound: Inbound) -> bool:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await gate.wait()
            fresh = await receive(inbound)
            now -= 1
            return fresh

        monkeypatch.setattr(bench.journal, "receive", counted)
        offers = [asyncio.create_task(bench.say(str(number), **chat("a"))) for number in range(10)]
        for _ in range(20):
            await asyncio.sleep(0)
        assert most == 3
        gate.set()
        assert await asyncio.gather(*offers) == [True] * 10
        assert most == 3
        assert [one.text for one in await still_open(bench.journal)] == [str(number) for number in range(10)]
        await bench.close()

    async def test_what_comes_after_a_message_whose_thread_is_looked_up_stays_behind_it(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bot.features.listening.participation.MOST_KNOWN", 0)
        group: dict[str, Any] = {"chat_id": "-100", "chat_key": "tele:chat:-100", "chat_type": "group"}
        await bench.say("zero", **group)
        await bench.idle()
        await asyncio.gather(
            bench.say("one", addressed="thread", **group),
            bench.say("two", addressed="mention", **group),
            bench.say("three", addressed="thread", **group),
        )
        await bench.idle()
        assert bench.tele.texts == ["re: zero", "re: one", "re: two", "re: three"]

    async def test_an_event_that_cannot_be_written_does_not_let_the_next_pass_the_one_before(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        receive, gate = bench.journal.receive, asyncio.Event()

        async def odd(inbound: Inbound) -> bool:
            if inbound.text == "first":
                await gate.wait()
            if inbound.text == "refused":
                raise errors.StorageError("no space left")
            return await receive(inbound)

        monkeypatch.setattr(bench.journal, "receive", odd)
        offers = [asyncio.create_task(bench.say(words)) for words in ("first", "refused", "last")]
        for _ in range(50):
            await asyncio.sleep(0)
        gate.set()
        done = await asyncio.gather(*offers, return_exceptions=True)
        assert [type(one) for one in done] == [bool, errors.StorageError, bool]
        await bench.idle()
        assert bench.tele.texts == ["re: first", "re: last"]
        assert bench.intake.last_written == {}

    async def test_an_inbound_opens_a_chat_that_counted_as_gone(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: Counter[tuple[str, str]] = Counter()

        async def reopen(channel: str, chat_id: str) -> None:
            opened[channel, chat_id] += 1

        monkeypatch.setattr(bench.delivery, "reopen", reopen)
        await bench.say("back again")
        await bench.say("a stranger", chat_id="666", user_id="666")
        assert opened == {("tele", "77"): 1}
        await bench.idle()

    async def test_what_the_bot_knows_of_chats_does_not_grow_for_ever(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("bot.features.listening.participation.MOST_KNOWN", 3)
        asked: list[str] = []

        async def knows(chat_key: ChatKey) -> bool:
            asked.append(chat_key.chat_id)
            return True

        monkeypatch.setattr(bench.journal, "knows", knows)
        known = participation.Participation(bench.journal, bench.questions)
        for number in range(6):
            known.joined(ChatKey("tele", str(number)))
        for number in (5, 4, 3, 0):
            chat = {"chat_id": str(number), "chat_key": f"tele:chat:{number}", "chat_type": "group"}
            assert await known.counts(bench.inbound("hello", addressed="thread", **chat))
        assert asked == ["0"]
