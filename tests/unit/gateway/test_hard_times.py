"""Channels that hang, disks that refuse, kills at bad moments: nothing lost, nothing twice, nobody left without a word."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.base import Json
from bot.contracts.inbound import Attachment, Command, Inbound, Quoted
from bot.contracts.outbound import Address, Outbound, Sent
from bot.gateway import delivery, turn_inputs
from bot.gateway.outbox import batch_sender, channel_sender
from bot.words import say
from tests.unit.gateway.conftest import SECRET, Bench
from tests.unit.gateway.outgoing import until


async def restarted(root: Path) -> Bench:
    bench = Bench(root)
    await bench.open()
    await bench.idle()
    return bench


class Hanging:
    """Something that is called and never comes back."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def __call__(self, *_: Any, **__: Any) -> Any:
        self.called.set()
        await asyncio.Event().wait()


async def test_what_is_written_down_is_queued_even_if_the_channel_gives_up_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, receiving, go_on = bench.journal.receive, asyncio.Event(), asyncio.Event()

    async def slow(inbound: Inbound) -> bool:
        fresh = await receive(inbound)
        receiving.set()
        await go_on.wait()
        return fresh

    monkeypatch.setattr(bench.journal, "receive", slow)
    handler = asyncio.create_task(bench.say("does it get through?", keys=("once",)))
    await receiving.wait()
    handler.cancel()
    await asyncio.wait([handler])
    go_on.set()

    assert await bench.tele.until(1) == ["re: does it get through?"]
    assert not await bench.say("does it get through?", keys=("once",))


async def test_a_turn_that_cannot_even_begin_is_told_and_does_not_come_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: str) -> Json:
        raise errors.StorageError("EIO")

    monkeypatch.setattr(bench.agent, "describe", broken)

    await bench.say("hello")
    await bench.idle()

    assert bench.tele.texts == [errors.StorageError().person]
    assert await bench.journal.unfinished() == []


async def test_a_command_that_fails_is_told(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: str) -> int:
        raise errors.StorageError("no space left")

    monkeypatch.setattr(bench.agent, "reset", broken)

    await bench.say("/new", command=Command(name="new"))
    await bench.idle()

    assert bench.tele.texts == [errors.StorageError().person]


class TestAHangingChannel:
    async def test_a_thread_that_cannot_be_read_in_time_costs_its_context_only(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(turn_inputs, "CONTEXT_SECONDS", 0.01)
        monkeypatch.setattr(bench.tele, "context", Hanging())

        await bench.say("hello")

        assert await bench.tele.until(1) == ["re: hello"]

    async def test_a_thread_that_cannot_be_read_costs_its_context_only(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(_: Inbound) -> tuple[Quoted, ...]:
            raise errors.ChannelUnreachable("502")

        monkeypatch.setattr(bench.tele, "context", broken)

        await bench.say("hello")

        assert await bench.tele.until(1) == ["re: hello"]

    async def test_a_stop_reaches_a_turn_that_still_reads_its_thread(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hanging = Hanging()
        monkeypatch.setattr(bench.tele, "context", hanging)
        await bench.say("hello")
        await hanging.called.wait()

        await bench.say("/stop", command=Command(name="stop"))
        await bench.idle()

        assert bench.tele.texts == [say("stop.stopped")]
        assert bench.agent.requests == []
        assert await bench.journal.unfinished() == []

    async def test_a_sign_of_work_that_hangs_does_not_hold_up_the_chat(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(delivery, "SIGN_SECONDS", 0.01)
        hanging = Hanging()
        monkeypatch.setattr(bench.tele, "indicate", hanging)
        bench.agent.hold = asyncio.Event()
        await bench.say("one")
        await bench.agent.began.wait()
        await bench.clock.advance(1)
        await hanging.called.wait()
        bench.agent.hold.set()
        await bench.say("two")
        await bench.idle()

        assert bench.tele.texts == ["re: one", "re: two"]

    async def test_a_send_that_hangs_counts_as_one_that_may_have_arrived(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(channel_sender, "SEND_SECONDS", 0.01)
        monkeypatch.setattr(bench.tele, "send", Hanging())
        to = Address.of(bench.inbound().model_copy(update={"request_id": "R"}))

        with pytest.raises(errors.DeliveryDeferred):
            await bench.delivery.send(to, "Hello.")

        assert [row.state for row in await bench.journal.deliveries("R")] == ["unknown", "sending"]

    async def test_greeting_a_stranger_does_not_hold_up_what_the_platform_brings(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(batch_sender, "GRACE_SECONDS", 0.01)
        monkeypatch.setattr(bench.tele, "send", Hanging())

        async with asyncio.timeout(90):
            assert not await bench.say(user_id="666", chat_id="666", chat_key="tele:chat:666")


class TestAStopDuringDelivery:
    @pytest.mark.parametrize("ends", [True, False])
    async def test_a_send_that_has_begun_is_recorded_as_what_it_became(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, ends: bool
    ) -> None:
        monkeypatch.setattr(batch_sender, "GRACE_SECONDS", 0.0)
        sending, go_on = asyncio.Event(), asyncio.Event()

        async def slow(_: Outbound) -> Sent:
            sending.set()
            await go_on.wait()
            return Sent("m1")

        monkeypatch.setattr(bench.tele, "send", slow)
        to = Address.of(bench.inbound().model_copy(update={"request_id": "R"}))
        task = asyncio.create_task(bench.delivery.send(to, "Hello."))
        await sending.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        if ends:
            go_on.set()
            await until(lambda: not bench.delivery.outbox.deferred)
        await bench.delivery.close()

        (row,) = await bench.journal.deliveries("R")
        assert (row.state, row.deferred) == (("sent", False) if ends else ("sending", True))
        assert await bench.lines() == ([("assistant", "Hello.")] if ends else [])

    async def test_a_finished_answer_that_waits_for_its_platform_is_sent_all_the_same(
        self, bench: Bench
    ) -> None:
        bench.delivery.outbox.start()
        bench.tele.failures = [errors.DeliveryThrottled("429", retry_after=30)]
        bench.agent.answer = lambda _: "\n\n".join(letter * 900 for letter in "甲乙")
        await bench.say("long work")
        await until(lambda: any("asks to wait" in entry.message for entry in bench.log.entries))
        await bench.say("/stop", command=Command(name="stop"), addressed="command")
        await until(lambda: not bench.agent.running)
        await bench.clock.advance(30)
        await bench.tele.until(3)
        assert sorted(words[0] for words in bench.tele.texts) == sorted([say("stop.stopped")[0], "甲", "乙"])
        await bench.idle()
        assert await bench.journal.unfinished() == []
        await until(lambda: not bench.delivery.outbox.deferred)
        assert [len(words) for role, words in await bench.lines() if role == "assistant"] == [900, 900]
        await bench.delivery.close()

    async def test_a_finished_answer_that_is_still_being_put_into_parts_is_sent_all_the_same(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.delivery.outbox.start()
        splitting, go_on, split = asyncio.Event(), threading.Event(), bench.tele.split
        loop = asyncio.get_running_loop()

        def slow(words: str) -> list[str]:
            if len(words) > delivery.SHORT:
                loop.call_soon_threadsafe(splitting.set)
                go_on.wait(90)
            return split(words)

        monkeypatch.setattr(bench.tele, "split", slow)
        bench.agent.answer = lambda _: "\n\n".join(letter * 900 for letter in "甲乙丙")
        await bench.say("long work")
        await splitting.wait()
        await bench.say("", kind="stop")
        go_on.set()
        assert [words[0] for words in await bench.tele.until(3)] == ["甲", "乙", "丙"]
        await bench.idle()
        assert await bench.journal.unfinished() == []
        await bench.delivery.close()


class TestAfterAKill:
    async def test_a_message_that_joined_a_turn_and_was_answered_with_it_is_not_answered_again(
        self, tmp_path: Path
    ) -> None:
        first = Bench(tmp_path)
        await first.open()
        answered = asyncio.Event()

        async def run(request: TurnRequest) -> TurnOutcome:
            assert request.reply is not None
            await first.say("and this")
            assert [one.text for one in request.arrivals.take_more()] == ["and this"]
            await request.reply.send("both answered")
            answered.set()
            await asyncio.Event().wait()  # killed in the model call after the answer
            raise AssertionError

        first.agent.run = run  # type: ignore[method-assign]
        await first.say("this")
        await answered.wait()
        await first.close()

        second = await restarted(tmp_path)

        # What joined is not asked again; the turn itself goes on, told what it has delivered.
        assert [request.delivered for request in second.agent.requests] == [("m1",)]
        await second.close()

    async def test_one_chat_whose_files_cannot_be_read_does_not_keep_the_gateway_from_starting(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = Bench(tmp_path)
        await first.say("held: no channel is open")
        await first.close()
        second = Bench(tmp_path)

        async def unreadable(*_: Any) -> Any:
            raise errors.StorageError("EIO")

        monkeypatch.setattr(second.archive, "search", unreadable)
        await second.open()

        assert await second.tele.until(1) == ["re: held: no channel is open"]
        await second.close()


async def test_our_secrets_in_commands_and_file_names_are_nowhere_on_disk(bench: Bench) -> None:
    await bench.say("/new " + SECRET, command=Command(name="new", args=SECRET))
    await bench.say("look", attachments=(Attachment(kind="file", name=f"{SECRET}.txt", mime=SECRET),))
    await bench.idle()
    assert bench.agent.requests[-1].inbound is not None
    assert SECRET not in bench.agent.requests[-1].inbound.model_dump_json()
    await bench.journal.close()
    await bench.archive.close()

    stored = b"".join(path.read_bytes() for path in bench.root.rglob("*") if path.is_file())
    assert SECRET.encode() not in stored
