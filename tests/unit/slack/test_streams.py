"""Answers in direct messages that grow as Slack streams. Whatever fails, the final answer is complete and in one message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bot import errors
from bot.contracts.messages import Outbound
from channels.slack import adapter, render
from tests.shares import one_in

STATES = [
    "One thing first.",
    "One thing first. Then **another**",
    "One thing first. Then **another** 你好 & <b>",
]
FINAL = "One thing first. Then **another** 你好 & <b>, and that is all."
STREAM = ("chat.startStream", "chat.appendStream", "chat.stopStream")


@pytest.fixture
async def asked(stage: Any) -> str:
    return str(await stage.server.say("?", channel=stage.direct, user=stage.ada))


@pytest.fixture
def live(stage: Any, out: Any, asked: str) -> Callable[[str], Outbound]:
    """Return a function that builds an unfinished answer."""

    def make(sure: str) -> Outbound:
        message: Outbound = replace(
            out(sure + " …", stage.direct, asked), kind="preview", sure=sure, goes_on=True
        )
        return message

    return make


def calls(stage: Any) -> list[str]:
    return [
        call.method.removeprefix("chat.")
        for call in stage.server.calls
        if call.method in {*STREAM, "chat.postMessage", "chat.update"}
    ]


def texts(stage: Any) -> list[str]:
    return [seen.text for seen in stage.server.replies(stage.direct)]


async def test_a_stream_ends_with_thumbs_where_slack_takes_them(
    stage: Any, out: Any, asked: str, live: Any
) -> None:
    final = replace(out(FINAL, stage.direct, asked), ends=True)
    sent = await stage.slack.send(live(STATES[0]))
    await stage.slack.edit(final, sent.message_id)
    assert calls(stage) == ["startStream", "stopStream"]
    (post,) = [one for one in stage.server.world.rooms[stage.direct].posts.values() if one.bot_id]
    assert [block["type"] for block in post.blocks] == ["context_actions"]
    stage.server.fail("chat.stopStream", status=200, body={"ok": False, "error": "invalid_blocks"})
    stage.server.fail("chat.update", status=200, body={"ok": False, "error": "invalid_blocks"})
    second = await stage.slack.send(live(STATES[0]))
    await stage.slack.edit(final, second.message_id)
    assert texts(stage) == [FINAL, FINAL]
    assert "shows no thumbs" in stage.log.text


async def test_an_answer_that_became_another_one_is_edited(
    stage: Any, out: Any, asked: str, live: Any
) -> None:
    sent = await stage.slack.send(live(STATES[0]))
    await stage.slack.edit(live("Something else"), sent.message_id)
    assert texts(stage) == ["Something else …"]
    await stage.slack.edit(out(FINAL, stage.direct, asked), sent.message_id)
    assert texts(stage) == [FINAL]
    assert calls(stage) == ["startStream", "stopStream", "update", "update"]


async def test_no_link_is_ever_in_a_stream(stage: Any, out: Any, asked: str, live: Any) -> None:
    """Slack might fetch the link's address, and so send text of the model to a stranger's server."""
    linked = "One thing first. See https://example.com/secret and"
    sent = await stage.slack.send(live(STATES[0]))
    await stage.slack.edit(live(linked), sent.message_id)
    await stage.slack.edit(out(linked + " so on.", stage.direct, asked), sent.message_id)
    assert texts(stage) == [linked + " so on."]
    first = await stage.slack.send(live(linked))
    await stage.slack.edit(live(STATES[0]), first.message_id)
    await stage.slack.send(live("[here](https://example.com)"))
    streamed = [str(call.params) for call in stage.server.calls if call.method in STREAM]
    assert not any("example.com" in one for one in streamed)
    assert len(streamed) == 2


async def test_held_back_words_change_nothing_in_a_stream(stage: Any, live: Any) -> None:
    sent = await stage.slack.send(live(STATES[1]))
    await stage.slack.edit(live(STATES[0]), sent.message_id)
    await stage.slack.edit(live(STATES[2]), sent.message_id)
    assert texts(stage) == [STATES[2]]
    assert calls(stage) == ["startStream", "appendStream"]


@pytest.mark.parametrize("seconds", [269.0, 280.0, 400.0])
async def test_before_slack_ends_a_stream_its_message_is_edited(
    stage: Any, out: Any, asked: str, live: Any, seconds: float
) -> None:
    sent = await stage.slack.send(live(STATES[0]))
    await stage.clock.advance(seconds)
    await stage.slack.edit(live(STATES[1]), sent.message_id)
    long = seconds > 270
    assert texts(stage) == [STATES[1] + " …" if long else STATES[1]]
    await stage.slack.edit(live(STATES[2]), sent.message_id)
    await stage.slack.edit(out(FINAL, stage.direct, asked), sent.message_id)
    assert texts(stage) == [FINAL]
    assert (calls(stage).count("update") > 0) is long


async def test_without_the_right_answers_are_posted_and_slack_is_asked_once(
    stage: Any, out: Any, asked: str, live: Any
) -> None:
    stage.server.fail("chat.startStream", status=200, body={"ok": False, "error": "missing_scope"}, times=9)
    for _ in range(2):
        sent = await stage.slack.send(live(STATES[0]))
        await stage.slack.edit(live(STATES[1]), sent.message_id)
        await stage.slack.edit(out(FINAL, stage.direct, asked), sent.message_id)
    assert texts(stage) == [FINAL, FINAL]
    assert calls(stage).count("startStream") == 1
    assert "shows no streams" in stage.log.text


async def test_a_stream_whose_beginning_was_lost_is_found_by_its_words(
    stage: Any, out: Any, asked: str, live: Any
) -> None:
    other = await stage.slack.send(live("Another answer that is open."))
    stage.server.fail("chat.startStream", action="lose")
    with pytest.raises(errors.DeliveryUncertain):
        await stage.slack.send(live(STATES[2]))
    found = await stage.slack.find(live(STATES[2]))
    assert found is not None
    assert found.message_id != other.message_id
    await stage.slack.edit(out(FINAL, stage.direct, asked), found.message_id)
    assert texts(stage) == ["Another answer that is open.", FINAL]
    stage.server.fail("chat.startStream", action="cut")
    never = replace(live("Never seen."), id="OUT9")
    with pytest.raises(errors.DeliveryUncertain):
        await stage.slack.send(never)
    assert await stage.slack.find(never) is None


async def test_a_stream_of_another_row_or_of_before_is_not_found_by_the_same_words(
    stage: Any, live: Any
) -> None:
    before = await stage.slack.send(live(STATES[2]))
    again = stage.make()  # a new channel, which knows no stream
    await again.start(stage.intake)
    sought = replace(live(STATES[2]), id="OUT9")
    assert await again.find(sought) == before
    assert await again.find(replace(sought, claimed=frozenset({before.message_id}))) is None
    assert await again.find(replace(sought, meant_at=float(before.message_id) + adapter.SKEW + 1)) is None


FAULTS: dict[str, dict[str, Any]] = {
    "lost": {"action": "lose"},
    "cut": {"action": "cut"},
    "limited": {
        "status": 429,
        "headers": {"Retry-After": "1"},
        "body": {"ok": False, "error": "ratelimited"},
    },
    "broken": {"status": 503},
    "unsure": {"status": 200, "body": {"ok": False, "error": "internal_error"}},
    "ended": {"status": 200, "body": {"ok": False, "error": "message_not_in_streaming_state"}},
    "mismatch": {"status": 200, "body": {"ok": False, "error": "streaming_mode_mismatch"}},
    "scope": {"status": 200, "body": {"ok": False, "error": "missing_scope"}},
}


async def shown(slack: Any, message: Outbound, place: str | None) -> str | None:
    """Try once to send or edit a preview. Return the message's id, if it is known."""
    try:
        if place is None:
            return str((await slack.send(message)).message_id)
        await slack.edit(message, place)
    except errors.DeliveryThrottled:
        return place
    except errors.DeliveryUncertain:
        found = await slack.find(message) if place is None else None
        return place or (found.message_id if found is not None else None)
    return place


async def delivered(slack: Any, message: Outbound, place: str | None) -> None:
    """Try to send or edit the final message until that succeeds."""
    for _ in range(6):
        try:
            await (slack.send(message) if place is None else slack.edit(message, place))
        except (errors.DeliveryThrottled, errors.DeliveryUncertain):
            assert place is not None or await slack.find(message) is None
        else:
            return
    raise AssertionError("it was never delivered")


CASES = [
    (method, before, fault, restart)
    for method, before in ((STREAM[0], 0), (STREAM[1], 0), (STREAM[1], 1), (STREAM[2], 0))
    for fault in FAULTS
    for restart in (None, 0, 1)
]


@pytest.mark.parametrize("case", one_in(4, range(len(CASES))))
async def test_whatever_fails_the_end_is_whole_and_one_message(
    stage: Any, out: Any, asked: str, live: Any, case: int
) -> None:
    method, spared, fault, restart = CASES[case]
    stage.server.fail(method, spared=spared, **FAULTS[fault])
    slack, place = stage.slack, None
    for number, state in enumerate(STATES):
        place = await shown(slack, live(state), place)
        if restart == number:
            await slack.stop()
            slack = stage.make()
            await slack.start(stage.intake)
    await delivered(slack, replace(out(FINAL, stage.direct, asked), id="OUT2"), place)
    (seen,) = stage.server.replies(stage.direct)
    assert seen.text == FINAL
    assert not stage.server.streaming(stage.direct, seen.ts)
    assert seen.metadata["event_payload"]["id"] == "OUT2"


async def test_more_streams_than_slack_ends_in_a_minute_are_messages(stage: Any, live: Any) -> None:
    for _ in range(render.MAX_PER_MINUTE + 1):
        await stage.slack.send(live(STATES[0]))
    assert calls(stage) == ["startStream"] * render.MAX_PER_MINUTE + ["postMessage"]
    await stage.clock.advance(60.0)
    await stage.slack.send(live(STATES[0]))
    assert calls(stage)[-1] == "startStream"
