"""The trouble that the server makes on command, and that the channel loses nothing in it and doubles nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bot import errors
from tests.timers import leap_until_done


async def test_a_deaf_socket_is_found_by_who_listens_and_left_when_told_to(stage: Any) -> None:
    greeted = stage.slack.health().last_heard
    await stage.server.deafen()
    stage.clock.jump(90)
    await stage.server.ping()
    await stage.server.say("anybody?", channel=stage.direct, user=stage.ada)
    await stage.server.until(lambda: stage.server.deliveries[0].attempts == 1)
    assert stage.slack.health().last_heard == greeted
    assert stage.server.pongs == 0
    await stage.slack.heal()
    await stage.until(lambda: stage.slack.health().last_heard != greeted)
    await stage.clock.advance(3)
    assert [message.text for message in await stage.arrived()] == ["anybody?"]
    await stage.until(lambda: stage.server.sockets == 1)


async def test_a_socket_that_answers_nothing_is_left_without_being_told(stage: Any) -> None:
    await stage.server.deafen(answering=False)
    again = asyncio.create_task(
        stage.server.until(lambda: len(stage.server.called("apps.connections.open")) == 2, 3_600.0)
    )
    await leap_until_done(again, 10.0)
    await again
    await stage.until(lambda: stage.slack.health().connected)
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    assert len(await stage.arrived()) == 1


async def test_sockets_that_fall_every_second_lose_nothing(stage: Any) -> None:
    stage.server.storm(1.0)
    said = [f"message {number} 船" for number in range(40)]
    for words in said:
        await stage.server.say(words, channel=stage.direct, user=stage.ada)
        await stage.clock.advance(0.5)
        await stage.until(lambda: stage.slack.health().connected)
    async with asyncio.timeout(90):
        while stage.server.unacked() or len(stage.server.called("apps.connections.open")) <= 15:
            await stage.clock.advance(0.5)
            await stage.until(lambda: stage.slack.health().connected)
    stage.server.calm()
    assert sorted(message.text for message in stage.intake.accepted) == sorted(said)
    assert not any(delivery.given_up for delivery in stage.server.deliveries)


async def test_an_event_comes_again_under_new_envelopes_and_six_minutes_late(stage: Any) -> None:
    await stage.server.say("once", channel=stage.direct, user=stage.ada)
    await stage.arrived()
    await stage.clock.advance(369)
    copies = await stage.server.redeliver(stage.server.deliveries[0], attempt=3, times=3)
    assert len(await stage.arrived()) == 1
    assert all(copy.attempts == 1 for copy in copies)
    assert stage.intake.tries == 4


async def test_events_that_were_held_come_in_another_order(stage: Any) -> None:
    stage.server.hold()
    ts = await stage.server.say("helo", channel=stage.direct, user=stage.ada)
    await stage.server.edit(stage.direct, ts, "hello")
    await stage.server.delete(stage.direct, ts)
    assert stage.server.visible(stage.direct) == []
    assert not stage.server.deliveries
    stage.server.release(lambda held: held[::-1])
    assert [inbound.kind for inbound in await stage.arrived(3)] == ["delete", "edit", "message"]
    assert {(str(inbound.chat_key), inbound.message_id) for inbound in stage.intake.accepted} == {
        (f"slack:chat:{stage.direct}:thread:{ts}", ts)
    }
    stage.server.hold()
    for number in range(5):
        await stage.server.say(str(number), channel=stage.direct, user=stage.ada)
    first = [delivery.payload["event"]["text"] for delivery in stage.server.release_shuffled(7)]
    assert sorted(first) == list("01234")
    assert first != list("01234")


async def test_a_repeat_says_that_it_is_one(stage: Any) -> None:
    heard: list[Any] = []
    for socket in stage.server.link.sockets:
        send = socket.send_json

        async def listen(message: Any, send: Any = send) -> None:
            heard.append((message.get("retry_attempt"), message.get("retry_reason")))
            await send(message)

        socket.send_json = listen
    stage.intake.broken = 1
    await stage.server.say("hello", channel=stage.direct, user=stage.ada)
    await stage.server.until(lambda: stage.intake.tries == 1)
    await stage.clock.advance(3)
    await stage.arrived()
    await stage.server.redeliver(stage.server.deliveries[0], attempt=3, reason="http_error")
    await stage.server.until(lambda: len(heard) == 3)
    assert heard == [(0, ""), (1, "timeout"), (3, "http_error")]


async def test_what_the_bot_did_in_a_conversation_is_counted(stage: Any, out: Any) -> None:
    first = await stage.slack.send(out("one", stage.direct))
    second = await stage.slack.send(out("two", stage.direct))
    call = stage.server.api.call
    await call("chat.update", {"channel": stage.direct, "ts": first.message_id, "markdown_text": "one!"})
    await call("chat.delete", {"channel": stage.direct, "ts": second.message_id})
    tally = stage.server.tally(stage.direct)
    assert (tally.posted, tally.edited, tally.deleted, tally.visible) == (2, 1, 1, 1)


async def test_an_answer_may_come_late(stage: Any, out: Any) -> None:
    stage.server.fail("chat.postMessage", action="late", seconds=5)
    sending = asyncio.create_task(stage.slack.send(out("slow", stage.direct)))
    await stage.server.until(lambda: bool(stage.server.replies(stage.direct)))
    assert not sending.done()
    await stage.until(lambda: stage.clock.sleeping > 0)
    await stage.clock.advance(5)
    assert (await sending).message_id == stage.server.replies(stage.direct)[0].ts


@pytest.mark.parametrize(
    ("header", "wait"),
    [("1", 1), ("30", 30), ("abc", 1), (None, 1), ("-5", 1), ("nan", 1), ("1e99", 3600), ("99999999", 3600)],
)
async def test_whatever_slack_says_of_waiting_is_a_sane_number(
    stage: Any, out: Any, header: str | None, wait: float
) -> None:
    stage.server.limit("chat.postMessage", header)
    with pytest.raises(errors.DeliveryThrottled) as caught:
        await stage.slack.send(out("hello", stage.direct))
    assert caught.value.retry_after == wait
    assert stage.server.tally(stage.direct).posted == 0


async def test_a_person_is_written_to_by_their_id(stage: Any, out: Any) -> None:
    stage.server.add_user("U0NEW", name="New")
    sent = await stage.slack.send(out("trouble", "U0NEW"))
    (seen,) = stage.server.replies("D0NEW")
    assert (f"D0NEW/{seen.ts}", seen.text) == (sent.message_id, "trouble")
    await stage.slack.edit(out("no more trouble", "U0NEW"), sent.message_id)
    assert [seen.text for seen in stage.server.replies("D0NEW")] == ["no more trouble"]
    await stage.slack.send(out("again", stage.ada))
    assert [seen.text for seen in stage.server.replies(stage.direct)] == ["again"]
    with pytest.raises(errors.TargetGone):
        await stage.slack.send(out("nobody", "U0NONE"))
    with pytest.raises(errors.DeliveryFailed):
        await stage.slack.send(out("myself", "U0SHIP"))


async def test_a_server_on_the_real_clock_pings_by_itself(stage: Any) -> None:
    stage.server.link.ping_every = 10.0
    await stage.slack.heal()
    await stage.server.until(lambda: stage.server.pongs == 1)
    await stage.clock.advance(10)
    await stage.server.until(lambda: stage.server.pongs == 2)
