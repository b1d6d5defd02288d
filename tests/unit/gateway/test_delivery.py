"""Created once, told truly, in the limits of the platform."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import PriorReply
from bot.contracts.journal import ANSWERED
from bot.contracts.outbound import Outbound, OutboxRow, Sent
from bot.gateway.delivery import Delivery
from bot.gateway.outbox import batch_sender, channel_sender
from bot.gateway.outbox.channel_sender import SETTLE_SECONDS
from bot.telemetry import Redactor
from bot.testing.clock import FakeClock
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.words import say
from tests.unit.gateway.conftest import SECRET
from tests.unit.gateway.outgoing import TO, Desk, address, until

REPEATED = f"{say('delivery.repeated')}\n\n"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path)
    yield made
    await made.close()


async def test_a_reply_is_in_the_outbox_before_it_is_sent_and_in_the_archive_after(bench: Desk) -> None:
    seen: list[list[tuple[str, str | None]]] = []
    original = bench.tele.send

    async def send(message: object) -> object:
        seen.append(await bench.states())
        return await original(message)  # type: ignore[arg-type]

    bench.tele.send = send  # type: ignore[assignment, method-assign]
    (sent,) = await bench.delivery.send(TO, "Hello.")
    assert seen == [[("sending", None)]]
    assert await bench.states() == [("sent", sent.message_id)]
    (line,) = await bench.archived()
    assert (line.role, line.text, line.message_id) == ("assistant", "Hello.", "m1")


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (errors.DeliveryFailed("400"), "failed"),
        (errors.TargetGone("blocked"), "failed"),
    ],
)
async def test_a_failure_is_raised_recorded_logged_never_repeated_and_not_archived(
    bench: Desk, error: errors.DeliveryFailed, state: str
) -> None:
    bench.tele.failures = [error]
    with pytest.raises(type(error)):
        await bench.delivery.send(TO, "Hello.")
    assert bench.tele.sent == []
    assert await bench.states() == [(state, None)]
    assert await bench.lines() == []
    assert bench.log.at("error")
    assert "Hello." not in bench.log.text


async def test_a_send_of_unknown_outcome_that_the_platform_can_tell_of_is_not_repeated(bench: Desk) -> None:
    bench.tele.failures = [errors.DeliveryUncertain("time-out")]
    bench.tele.finds = Sent("m99")
    assert await bench.delivery.send(TO, "Hello.") == [Sent("m99")]
    assert bench.tele.sent == []
    assert await bench.states() == [("sent", "m99")]
    assert await bench.lines() == [("assistant", "Hello.")]


async def test_a_row_names_the_call_that_said_it_and_so_does_what_a_resumed_turn_is_told(bench: Desk) -> None:
    await bench.asked()
    await bench.delivery.send(TO, "Hello.", step_id="toolu_1")
    await bench.delivery.send(TO, "As plain text.")
    assert [row.step_id for row in await bench.rows()] == ["toolu_1", None]
    assert [one.step_id for one in await bench.delivery.resume(TO)] == ["toolu_1", None]


async def test_a_send_that_surely_did_not_arrive_is_sent_as_it_was(bench: Desk) -> None:
    bench.tele.failures = [errors.DeliveryUncertain("time-out")]
    bench.tele.finds = None
    sending = asyncio.create_task(bench.delivery.send(TO, "Hello."))
    await until(lambda: bench.clock.sleeping > 0)
    await bench.clock.advance(SETTLE_SECONDS)
    await sending
    assert bench.tele.texts == ["Hello."]


async def test_a_message_that_the_platform_shows_only_after_a_moment_is_not_sent_twice(bench: Desk) -> None:
    bench.tele.failures = [errors.DeliveryUncertain("time-out")]
    bench.tele.finds = None
    sending = asyncio.create_task(bench.delivery.send(TO, "Hello."))
    await until(lambda: bench.clock.sleeping > 0)
    bench.tele.finds = Sent("m99")
    await bench.clock.advance(SETTLE_SECONDS)
    assert await sending == [Sent("m99")]
    assert bench.tele.sent == []


async def test_a_platform_that_can_be_asked_only_later_is_asked_then_and_not_sent_to_again(
    bench: Desk,
) -> None:
    bench.tele.failures = [errors.DeliveryUncertain("time-out")]
    bench.tele.finds = errors.DeliveryThrottled("429", retry_after=3600)
    with pytest.raises(errors.DeliveryDeferred):
        await bench.delivery.send(TO, "Hello.")
    (row,) = await bench.rows()
    assert row.state == "sending"
    bench.tele.finds = Sent("m99")
    bench.delivery.outbox.start()
    await until(lambda: bench.clock.sleeping > 0)
    await bench.clock.advance(3600)
    await until(lambda: not bench.delivery.outbox.deferred)
    assert bench.tele.sent == []
    assert await bench.states() == [("sent", "m99")]


async def test_a_platform_that_does_not_answer_is_asked_again_and_not_sent_to(
    bench: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_sender, "SEND_SECONDS", 0.01)
    asked = 0

    async def find(_: Outbound) -> Sent | None:
        nonlocal asked
        asked += 1
        if asked < 20:
            await asyncio.Event().wait()
        return Sent("m99")

    bench.tele.find = find  # type: ignore[assignment, method-assign]
    bench.tele.failures = [errors.DeliveryUncertain("time-out")]
    await bench.delivery.open()
    async with bench.passing():
        with pytest.raises(errors.DeliveryDeferred):
            await bench.delivery.send(TO, "Hello.")
        await until(lambda: not bench.delivery.outbox.deferred)
    assert bench.tele.sent == []
    assert await bench.states() == [("sent", "m99")]


async def test_where_nobody_can_tell_a_reply_goes_out_once_more_and_says_so(bench: Desk) -> None:
    bench.tele.failures = [errors.DeliveryUncertain("time-out")]
    await bench.delivery.send(TO, "Hello.")
    assert bench.tele.texts == [REPEATED + "Hello."]
    (first, again) = await bench.rows()
    assert (first.state, again.state) == ("unknown", "sent")
    assert again.repeat_of == first.id
    assert bench.tele.sent[0].repeat_of == first.id, "the channel proves the way first"


async def test_a_report_is_repeated_too_while_it_is_being_sent_and_is_not_put_off(bench: Desk) -> None:
    bench.tele.failures = [errors.DeliveryUncertain("time-out")] * 3
    async with bench.passing():
        await bench.delivery.send(TO, "A report.", kind="notice")
    assert bench.tele.texts == [REPEATED + "A report."]
    bench.tele.failures = [errors.DeliveryUncertain("time-out")] * 20
    async with bench.passing():
        with pytest.raises(errors.DeliveryUncertain):
            await bench.delivery.send(TO, "a" * 900 + "\n\n" + "b" * 900, kind="notice")
    assert [row.state for row in await bench.rows()] == [
        "unknown",
        "sent",
        "unknown",
        "failed",
        "unknown",
    ]
    assert not bench.delivery.outbox.deferred


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_repeat_whose_answer_is_lost_is_sent_again_until_one_outcome_is_known(
    tmp_path: Path, restarts: bool
) -> None:
    lost, clock = 7, FakeClock()
    desk = Desk(tmp_path, clock=clock)
    await desk.asked()
    desk.tele.failures = [errors.DeliveryUncertain("time-out")] * 2
    with pytest.raises(errors.DeliveryDeferred):
        await desk.delivery.send(TO, "你好 🙂")
    await desk.file.finish(TO.request_id, ANSWERED)
    (first, again) = await desk.rows()
    assert (first.state, again.state, again.attempts) == ("unknown", "sending", 1)
    left = lost - 2
    while left:
        if restarts:
            await desk.close()
            desk = Desk(tmp_path, clock=clock)
        desk.tele.failures = [errors.DeliveryUncertain("time-out")] * (1 if restarts else left)
        left -= len(desk.tele.failures)
        await desk.delivery.open()
        async with desk.passing(1.0):
            await until(lambda: not desk.tele.failures)  # noqa: B023 - at once
            async with asyncio.timeout(90):
                while (await desk.rows())[1].attempts != lost - 1 - left:  # noqa: ASYNC110 - a file
                    await asyncio.sleep(0.001)
    if restarts:
        await desk.close()
        desk = Desk(tmp_path, clock=clock)
        await desk.delivery.open()
    async with desk.passing(1.0):
        assert await desk.tele.until(1) == [f"{REPEATED}你好 🙂"]
        await until(lambda: not desk.delivery.outbox.deferred)
    assert [(row.state, row.attempts) for row in await desk.rows()] == [("unknown", 1), ("sent", lost - 1)]
    assert await desk.lines() == [("assistant", "你好 🙂")]
    await desk.close()


async def test_what_is_lost_for_a_day_is_told_to_operators_and_with_the_next_message(tmp_path: Path) -> None:
    clock = FakeClock()
    desk = Desk(tmp_path, clock=clock)
    await desk.asked(finished=True)
    desk.tele.failures = [errors.DeliveryUncertain("time-out")] * 1_000
    with pytest.raises(errors.DeliveryDeferred):
        await desk.delivery.send(TO, "答え")
    await desk.delivery.open()
    async with desk.passing(300.0), asyncio.timeout(90):
        alert = await desk.alerts.get()
    assert alert.subject == "deliveries of tele"
    sends = 1_000 - len(desk.tele.failures)
    assert sends < 200, "the longer it takes the rarer it is tried"
    assert [(row.state, row.untold) for row in await desk.rows()] == [
        ("unknown", False),
        ("unknown", True),
    ]
    await desk.close()
    desk = Desk(tmp_path, clock=clock)
    later = address(request_id="02REQ")
    await desk.delivery.send(later, "Hello again.")
    (only,) = desk.tele.texts
    assert only.endswith("Hello again.")
    assert "may not have arrived: “" in only
    assert "答え”" in only
    await desk.delivery.send(later, "And again.")
    assert desk.tele.texts[1:] == ["And again."], "it is told once"
    assert not any(row.untold for row in await desk.rows())
    await desk.close()


async def test_a_notice_that_is_somebodys_answer_is_repeated_as_a_reply_is_and_stays_a_notice(
    bench: Desk,
) -> None:
    bench.tele.failures = [errors.DeliveryUncertain("time-out")]
    await bench.delivery.send(TO, "Try again 明天.", kind="notice", must_arrive=True)
    assert [(one.text, one.kind) for one in bench.tele.sent] == [(REPEATED + "Try again 明天.", "notice")]
    assert [(row.state, row.kind) for row in await bench.rows()] == [
        ("unknown", "notice"),
        ("sent", "notice"),
    ]
    assert await bench.lines() == []


async def test_a_repeat_that_has_to_wait_still_says_that_it_is_one(bench: Desk) -> None:
    refused = errors.DeliveryThrottled("connection refused", retry_after=2)
    bench.tele.failures = [errors.DeliveryUncertain("cut"), refused, refused]
    sending = asyncio.create_task(bench.delivery.send(TO, "Hello."))
    for _ in range(2):
        await until(lambda: bench.clock.sleeping > 0)
        await bench.clock.advance(2)
    await sending
    assert bench.tele.texts == [REPEATED + "Hello."]
    bench.tele.failures = [errors.DeliveryUncertain("cut"), errors.DeliveryThrottled("429", retry_after=3600)]
    with pytest.raises(errors.DeliveryDeferred):
        await bench.delivery.send(TO, "Again.")
    assert len(bench.tele.sent) == 1
    lost, again = (await bench.rows())[2:]
    assert (lost.state, again.state, again.text, again.repeat_of) == ("unknown", "ready", "Again.", lost.id)


async def test_after_a_crash_a_platform_that_asks_to_wait_is_waited_for_too(tmp_path: Path) -> None:
    first = Desk(tmp_path)
    await first.asked()
    await first.journal.put_outbox([OutboxRow("01OUT", "01REQ", TO.chat_key, TO.target, "Hello.")])
    await first.close()
    second = Desk(tmp_path)
    second.tele.failures = [errors.DeliveryThrottled("429", retry_after=2)]
    resuming = asyncio.create_task(second.delivery.resume(TO))
    await until(lambda: second.clock.sleeping > 0)
    await second.clock.advance(2)
    assert await resuming == (PriorReply("01OUT", ("m1",)),)
    assert second.tele.texts == ["Hello."]
    await second.close()


async def test_after_a_crash_a_long_answer_is_completed_and_archived_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "GRACE_SECONDS", 0.01)
    first = Desk(tmp_path)
    await first.asked()
    original = first.tele.send
    reached = asyncio.Event()

    async def send(message: Outbound) -> Sent:
        if len(first.tele.sent) == 1:
            reached.set()
            await asyncio.Event().wait()
        return await original(message)

    first.tele.send = send  # type: ignore[method-assign]
    words = "\n\n".join(letter * 900 for letter in "abc")
    sending = asyncio.create_task(first.delivery.send(TO, words))
    await reached.wait()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await first.close()
    second = Desk(tmp_path)
    second.tele.finds, second.tele.prefix = None, "n"
    resuming = asyncio.create_task(second.delivery.resume(TO))
    await until(lambda: second.clock.sleeping > 0)
    await second.clock.advance(SETTLE_SECONDS)
    assert len(await resuming) == 3
    assert second.tele.texts == ["b" * 900, "c" * 900]
    assert [state for state, _ in await second.states()] == ["sent"] * 3
    archived = "".join(text for _, text in await second.lines())
    assert [archived.count(letter * 900) for letter in "abc"] == [1, 1, 1]
    sent = len(second.tele.sent)
    await second.delivery.resume(TO)
    assert len(second.tele.sent) == sent
    assert "".join(text for _, text in await second.lines()) == archived
    await second.close()


async def test_a_turn_that_goes_on_after_a_crash_knows_of_each_message_what_became_of_it(
    tmp_path: Path,
) -> None:
    first = Desk(tmp_path)
    await first.asked()
    kinds = ("01A", "one"), ("01B", "two"), ("01C", "three")
    rows = [OutboxRow(name, "01REQ", TO.chat_key, TO.target, words) for name, words in kinds]
    await first.journal.put_outbox([rows[0].begin().arrive("m1"), rows[1].fail("failed"), rows[2].begin()])
    await first.close()
    second = Desk(tmp_path)
    second.tele.failures = [errors.DeliveryUncertain("lost")]
    begun = await second.delivery.resume(TO)
    repeat = (await second.rows())[-1]
    assert begun == (
        PriorReply("01A", ("m1",)),
        PriorReply("01B", failed=True),
        PriorReply("01C", (repeat.id,)),
    )
    assert await second.delivery.resume(TO) == begun
    assert second.tele.sent == []
    await second.close()


async def test_a_platform_that_asks_to_wait_is_waited_for(bench: Desk) -> None:
    bench.tele.failures = [errors.DeliveryThrottled("429", retry_after=7)]
    sending = asyncio.create_task(bench.delivery.send(TO, "Hello."))
    await until(lambda: bench.clock.sleeping > 0)
    await bench.clock.advance(6.9)
    assert bench.tele.sent == []
    await bench.clock.advance(0.1)
    await sending
    assert bench.tele.texts == ["Hello."]


async def test_of_a_long_text_whose_second_part_fails_only_the_first_is_archived(bench: Desk) -> None:
    original = bench.tele.send

    async def send(message: object) -> object:
        if bench.tele.sent:
            raise errors.TargetGone("blocked")
        return await original(message)  # type: ignore[arg-type]

    bench.tele.send = send  # type: ignore[assignment, method-assign]
    with pytest.raises(errors.DeliveryPartial) as partial:
        await bench.delivery.send(TO, "a" * 900 + "\n\n" + "b" * 900)
    assert (partial.value.sent, partial.value.parts) == (1, 2)
    assert await bench.lines() == [("assistant", "a" * 900)]
    assert sorted(state for state, _ in await bench.states()) == ["failed", "sent"]


async def test_secrets_never_leave_not_even_across_parts(bench: Desk) -> None:
    await bench.delivery.send(TO, "x" * 990 + SECRET)
    assert SECRET not in "".join(bench.tele.texts)


async def test_blank_text_is_no_message(bench: Desk) -> None:
    with pytest.raises(errors.DeliveryFailed):
        await bench.delivery.send(TO, " \n ")
    assert bench.tele.sent == []


async def test_messages_wait_for_their_slot_and_signs_of_work_are_dropped(tmp_path: Path) -> None:
    bench = Desk(tmp_path, limits=True)
    delivery: Delivery = bench.delivery
    tasks = [asyncio.create_task(delivery.send(TO, f"{n}")) for n in range(6)]
    await until(lambda: len(bench.tele.sent) == 3 and bench.clock.sleeping == 1)
    await delivery.indicate(TO, working=True)
    assert bench.tele.signs == []
    for expected in (4, 5, 6):
        await bench.clock.advance(1.0)
        await bench.tele.until(expected)
    await asyncio.gather(*tasks)
    await bench.close()


async def test_what_may_go_out_at_once_is_written_once_before_it_is_sent(tmp_path: Path) -> None:
    bench = Desk(tmp_path, wrap=FaultyJournal)
    journal: Any = bench.journal
    await bench.delivery.open()
    journal.done.clear()
    await bench.delivery.send(TO, "早上好")
    assert journal.done == ["put_outbox", "update_outbox"]
    assert await bench.states() == [("sent", "m1")]
    await bench.close()


@pytest.mark.parametrize("how", ["by itself", "at the end"])
async def test_what_was_sent_while_the_journal_refused_is_recorded_though_nothing_else_is_sent(
    how: str, tmp_path: Path
) -> None:
    bench = Desk(tmp_path, wrap=FaultyJournal)
    journal: Any = bench.journal
    journal.fail(JournalFailure("update_outbox", times=None))
    await bench.delivery.open()
    await bench.delivery.send(TO, "早上好")
    assert await bench.states() == [("sending", None)]
    if how == "at the end":
        await bench.delivery.close()
    journal.mend()
    if how == "by itself":
        await until(lambda: not journal.pending_writes)
    else:
        assert await journal.flush()
    assert await bench.states() == [("sent", "m1")]
    await bench.close()


async def test_a_long_text_is_split_where_it_holds_up_nobody(bench: Desk) -> None:
    loop_thread, threads = threading.get_ident(), []
    original = bench.tele.split

    def split(words: str) -> list[str]:
        threads.append(threading.get_ident())
        return original(words)

    bench.tele.split = split  # type: ignore[method-assign]
    await bench.delivery.send(TO, "short")
    await bench.delivery.send(TO, "长" * 2_001)
    assert threads[0] == loop_thread
    assert threads[1] != loop_thread
    assert "".join(bench.tele.texts[1:]) == "长" * 2_001


async def test_a_long_text_is_searched_for_secrets_beside_all_else(tmp_path: Path) -> None:
    redact, there = Redactor({SECRET}), threading.current_thread()
    on_the_loop: list[bool] = []

    def watched(words: str) -> str:
        on_the_loop.append(threading.current_thread() is there)
        return redact(words)

    desk = Desk(tmp_path, redact=watched)
    long = f"{'Words and more words. ' * 1_000}\n{SECRET}"
    sent = await desk.delivery.send(TO, long)
    assert len(sent) >= 1
    assert on_the_loop == [False]
    assert SECRET not in "".join([line.text for line in await desk.archived()])
    await desk.delivery.send(TO, "Hello.")
    assert on_the_loop == [False, True], "a thread for every word would cost more than the search"
    await desk.close()
