"""Answers that wait for their platform: in order, once, also after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.agent import PriorReply
from bot.contracts.channel import Health
from bot.contracts.journal import ANSWERED, FAILED
from bot.contracts.outbound import Outbound, OutboxRow, Sent
from bot.gateway.outbox.batch_sender import FIRST_AGAIN
from bot.testing.clock import FakeClock
from bot.words import say
from tests.unit.gateway.outgoing import TO, Desk, address, until

REPEATED = f"{say('delivery.repeated')}\n\n"

HOUR = 3600.0
LONG = errors.DeliveryThrottled("429", retry_after=HOUR)
NEXT = address(request_id="02REQ")
ELSEWHERE = address("78", request_id="03REQ")
THREE = "\n\n".join(letter * 900 for letter in "甲乙丙")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path)
    for to in (TO, NEXT, ELSEWHERE):
        await made.asked(to)
    made.delivery.outbox.start()
    yield made
    await made.close()


async def deferred(desk: Desk, words: str = "答え", to: object = TO) -> float:
    desk.tele.failures.append(LONG)
    with pytest.raises(errors.DeliveryDeferred) as error:
        await desk.delivery.send(to, words)  # type: ignore[arg-type]
    return error.value.wait


async def test_a_reply_that_has_to_wait_for_an_hour_goes_out_by_itself_and_is_archived_once(
    desk: Desk,
) -> None:
    assert await deferred(desk) == HOUR
    assert await desk.states() == [("ready", None)]
    await desk.slept(HOUR - 1)
    assert desk.tele.sent == []
    await desk.clock.advance(1)
    assert await desk.tele.until(1) == ["答え"]
    await until(lambda: not desk.delivery.outbox.deferred)
    assert await desk.states() == [("sent", "m1")]
    assert await desk.lines() == [("assistant", "答え")]


async def test_the_rest_of_a_long_answer_waits_and_what_was_delivered_is_archived_first(desk: Desk) -> None:
    original = desk.tele.send

    async def send(message: Outbound) -> Sent:
        if len(desk.tele.sent) == 1 and desk.clock.monotonic() < HOUR:
            raise LONG
        return await original(message)

    desk.tele.send = send  # type: ignore[method-assign]
    with pytest.raises(errors.DeliveryDeferred):
        await desk.delivery.send(TO, THREE)
    assert [state for state, _ in await desk.states()] == ["sent", "ready", "ready"]
    assert await desk.lines() == [("assistant", "甲" * 900)]
    await desk.slept(HOUR)
    assert await desk.tele.until(3) == ["甲" * 900, "乙" * 900, "丙" * 900]
    await until(lambda: not desk.delivery.outbox.deferred)
    assert "".join(words for _, words in await desk.lines()) == "甲" * 900 + "乙" * 900 + "丙" * 900


async def test_a_later_reply_does_not_overtake_one_that_waits_and_other_chats_go_on(desk: Desk) -> None:
    await deferred(desk, "first")
    with pytest.raises(errors.DeliveryDeferred):
        await desk.delivery.send(NEXT, "second")
    await desk.delivery.send(ELSEWHERE, "elsewhere")
    assert desk.tele.texts == ["elsewhere"]
    await desk.slept(HOUR)
    assert await desk.tele.until(3) == ["elsewhere", "first", "second"]


async def test_what_comes_while_the_first_is_being_sent_keeps_its_place(desk: Desk) -> None:
    await deferred(desk, "first")
    original, sending, go_on = desk.tele.send, asyncio.Event(), asyncio.Event()

    async def slow(message: Outbound) -> Sent:
        sending.set()
        await go_on.wait()
        return await original(message)

    desk.tele.send = slow  # type: ignore[method-assign]
    await desk.slept(HOUR)
    await sending.wait()
    for to, words in ((TO, "also first"), (NEXT, "second")):
        with pytest.raises(errors.DeliveryDeferred):
            await desk.delivery.send(to, words)
    go_on.set()
    assert await desk.tele.until(3) == ["first", "also first", "second"]


async def test_a_platform_that_asks_again_is_waited_for_again_and_less_often_the_longer_it_lasts(
    desk: Desk,
) -> None:
    desk.tele.failures = [errors.DeliveryThrottled("refused", retry_after=1.0) for _ in range(60)]
    async with desk.passing():
        with pytest.raises(errors.DeliveryDeferred):
            await desk.delivery.send(TO, "once the network is back")
        assert await desk.tele.until(1) == ["once the network is back"]
    await until(lambda: not desk.delivery.outbox.deferred)
    assert desk.clock.monotonic() > 100
    assert await desk.states() == [("sent", "m1")]


async def test_a_reply_that_waits_for_more_than_a_day_is_given_up_and_the_operator_hears_of_it(
    desk: Desk,
) -> None:
    for _ in range(26):
        desk.tele.failures.append(LONG)
    with pytest.raises(errors.DeliveryDeferred):
        await desk.delivery.send(TO, "too late")
    for _ in range(24):
        await desk.slept(HOUR)
        await until(lambda: desk.clock.sleeping > 0)
    await desk.slept(HOUR)
    await until(lambda: not desk.delivery.outbox.deferred)
    (row,) = await desk.rows()
    assert (row.state, row.reason) == ("failed", "expired")
    assert [(line.message, line.details["cause"]) for line in desk.log.at("error")] == [
        ("reply not delivered: failed", "the platform did not take it for a day")
    ]
    assert desk.tele.sent == []


async def test_a_notice_that_is_somebodys_answer_waits_too_also_after_a_restart_and_is_not_archived(
    tmp_path: Path,
) -> None:
    first = Desk(tmp_path)
    await first.asked()
    first.tele.failures.append(LONG)
    with pytest.raises(errors.DeliveryDeferred):
        await first.delivery.send(TO, "I failed.", kind="notice", must_arrive=True)
    await first.file.finish(TO.request_id, FAILED)
    await first.close()
    second = Desk(tmp_path)
    await second.delivery.open()
    await second.slept(HOUR)
    assert await second.tele.until(1) == ["I failed."]
    await until(lambda: not second.delivery.outbox.deferred)
    assert [row.kind for row in await second.rows()] == ["notice"]
    assert await second.states() == [("sent", "m1")]
    assert await second.lines() == []
    await second.close()


@pytest.mark.parametrize("days", [30, -30])
async def test_a_clock_that_is_set_does_not_make_a_reply_that_waits_too_old_or_too_early(
    days: int, desk: Desk
) -> None:
    await deferred(desk)
    desk.clock.jump(days * 24 * HOUR)
    await desk.slept(HOUR - 1)
    assert desk.tele.sent == []
    await desk.clock.advance(1)
    assert await desk.tele.until(1) == ["答え"]


async def test_a_clock_that_was_set_back_while_nobody_ran_makes_no_reply_wait_for_longer(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    first = Desk(tmp_path, clock=clock)
    await first.asked(finished=True)
    await deferred(first)
    await first.close()
    clock.jump(-30 * 24 * HOUR)
    second = Desk(tmp_path, clock=clock)
    await second.delivery.open()
    await second.slept(HOUR)
    assert await second.tele.until(1) == ["答え"]
    await second.close()


async def test_signs_of_work_and_notices_do_not_disturb_a_platform_that_wants_to_be_left_alone(
    desk: Desk,
) -> None:
    await deferred(desk)
    await desk.delivery.indicate(TO, working=True)
    await desk.delivery.indicate(TO, working=False)
    with pytest.raises(errors.DeliveryThrottled):
        await desk.delivery.send(TO, "a notice", kind="notice")
    assert desk.tele.signs == []
    assert desk.tele.sent == []


async def test_a_platform_that_limits_the_whole_bot_is_left_alone_by_every_chat(desk: Desk) -> None:
    desk.tele.failures = [errors.DeliveryThrottled("429", retry_after=HOUR, everywhere=True)]
    for to in (TO, ELSEWHERE):
        with pytest.raises(errors.DeliveryDeferred):
            await desk.delivery.send(to, f"answer to {to.request_id}")
    assert desk.tele.sent == []
    await desk.slept(HOUR)
    assert sorted(await desk.tele.until(2)) == ["answer to 01REQ", "answer to 03REQ"]


async def test_signs_of_work_that_are_limited_as_such_do_not_hold_up_messages(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    async def limited(*_: object, working: bool) -> None:
        calls.append(working)
        raise errors.DeliveryThrottled("429", retry_after=HOUR, everywhere=True)

    monkeypatch.setattr(desk.tele, "indicate", limited)
    for to in (TO, ELSEWHERE):
        await desk.delivery.indicate(to, working=True)
    await desk.delivery.send(TO, "at once")
    assert (calls, desk.tele.texts) == ([True], ["at once"])


async def test_after_a_restart_what_waits_is_sent_when_the_platform_allows_it_and_not_before(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    first = Desk(tmp_path, clock=clock)
    await first.asked()
    await first.asked(NEXT)
    await deferred(first, "first")
    with pytest.raises(errors.DeliveryDeferred):
        await first.delivery.send(NEXT, "second")
    for to in (TO, NEXT):
        await first.file.finish(to.request_id, ANSWERED)
    await first.close()

    later = FakeClock(clock.now() + 600)
    second = Desk(tmp_path, clock=later)
    third = address(request_id="04REQ")
    await second.asked(third)
    with pytest.raises(errors.DeliveryDeferred) as error:
        await second.delivery.send(third, "third")
    assert error.value.wait == pytest.approx(HOUR - 600, abs=1)
    second.delivery.outbox.start()
    await second.slept(HOUR - 601)
    assert second.tele.sent == []
    await second.slept(1)
    assert await second.tele.until(3) == ["first", "second", "third"]
    await until(lambda: not second.delivery.outbox.deferred)
    assert [words for _, words in await second.lines()] == ["first", "second", "third"]
    await second.close()


async def test_a_turn_that_goes_on_after_a_crash_knows_that_its_answer_waits(tmp_path: Path) -> None:
    clock = FakeClock()
    first = Desk(tmp_path, clock=clock)
    await first.asked()
    await deferred(first)
    await first.close()
    second = Desk(tmp_path, clock=clock)
    (row,) = await second.rows()
    assert await second.delivery.resume(TO) == (PriorReply(row.id, (row.id,)),)
    assert second.tele.sent == []
    second.delivery.outbox.start()
    await second.slept(HOUR)
    assert await second.tele.until(1) == ["答え"]
    await second.close()


async def test_a_kill_while_a_deferred_reply_is_sent_is_resolved_after_the_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    first = Desk(tmp_path, clock=clock)
    await first.asked(finished=True)
    await deferred(first)
    sending = asyncio.Event()

    async def hang(_: Outbound) -> Sent:
        sending.set()
        await asyncio.Event().wait()
        raise AssertionError

    first.tele.send = hang  # type: ignore[method-assign, assignment]
    first.delivery.outbox.start()
    await first.slept(HOUR)
    await sending.wait()
    await first.file.close()
    second = Desk(tmp_path, clock=clock)
    second.tele.finds = Sent("m7")
    second.delivery.outbox.start()
    await second.delivery.reopen("tele", "77")
    await until(lambda: bool(second.log.of("delivery")))
    await until(lambda: not second.delivery.outbox.deferred)
    assert second.tele.sent == []
    assert await second.states() == [("sent", "m7")]
    assert await second.lines() == [("assistant", "答え")]
    await second.close()


async def test_a_channel_that_is_not_connected_is_not_tried(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await deferred(desk)
    monkeypatch.setattr(desk.tele, "health", lambda: Health(connected=False))
    await desk.slept(HOUR)
    await desk.slept(60)
    assert desk.tele.sent == []
    monkeypatch.setattr(desk.tele, "health", lambda: Health(connected=True))
    await desk.slept(5)
    assert await desk.tele.until(1) == ["答え"]


async def test_what_a_stopped_turn_had_not_sent_is_not_sent_after_a_restart_either(tmp_path: Path) -> None:
    first = Desk(tmp_path)
    await first.asked(finished=True)
    for number, state in enumerate(("ready", "sending")):
        one = OutboxRow(f"01OUT{number}", "01REQ", TO.chat_key, TO.target, "stopped")
        await first.file.put_outbox([one.begin() if state == "sending" else one])
    await first.close()
    second = Desk(tmp_path)
    second.delivery.outbox.start()
    await second.delivery.send(ELSEWHERE, "hello")
    assert second.tele.texts == ["hello"]
    assert [(row.state, row.reason) for row in await second.rows()] == [
        ("failed", "stopped"),
        ("unknown", "stopped"),
    ]
    assert len(second.log.at("error")) == 2
    await second.close()


async def test_the_rest_of_an_answer_with_one_part_in_doubt_is_not_lost(desk: Desk) -> None:
    original = desk.tele.send
    failing = [errors.DeliveryUncertain("cut"), errors.DeliveryUncertain("cut again")]

    async def send(message: Outbound) -> Sent:
        if "乙" in message.text and failing:
            raise failing.pop()
        return await original(message)

    desk.tele.send = send  # type: ignore[method-assign]
    with pytest.raises(errors.DeliveryDeferred):
        await desk.delivery.send(TO, THREE)
    assert desk.tele.texts == ["甲" * 900]
    await desk.slept(FIRST_AGAIN)
    assert await desk.tele.until(3) == ["甲" * 900, REPEATED + "乙" * 900, "丙" * 900]
    await until(lambda: not desk.delivery.outbox.deferred)
    states = [row.state for row in await desk.rows() if "乙" in row.text]
    assert states == ["unknown", "sent"]


async def test_a_repeat_in_two_parts_is_recorded_under_the_ids_of_both(desk: Desk) -> None:
    desk.tele.failures = [errors.DeliveryUncertain("cut")]
    sent = await desk.delivery.send(TO, "字" * 990)
    assert [one.message_id for one in sent] == ["m1", "m2"]
    assert all(text.startswith(REPEATED) for text in desk.tele.texts), (
        "whichever is read alone says what it is"
    )
    assert "".join(text.removeprefix(REPEATED) for text in desk.tele.texts) == "字" * 990
    assert [row.text for row in await desk.rows()][1:] == [
        text.removeprefix(REPEATED) for text in desk.tele.texts
    ]
    assert await desk.states() == [("unknown", None), ("sent", "m1"), ("sent", "m2")]
    (line,) = await desk.archived()
    assert line.meta is not None
    assert line.meta["messageIds"] == ["m1", "m2"]
