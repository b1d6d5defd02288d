"""Outgoing messages: the real library with the loopback server."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot import errors
from bot.contracts.approvals import QuestionButtons
from bot.contracts.messages import OutgoingFile
from channels.slack import adapter
from tests.timers import leap_until_done


@pytest.fixture
async def asked(stage: Any) -> str:
    """Return a question in a direct chat."""
    return str(await stage.server.say("?", channel=stage.direct, user=stage.ada))


@pytest.mark.parametrize("named", ["by the file", "by the message"])
async def test_a_file_that_another_row_has_is_not_taken_for_one_that_is_like_it(
    stage: Any, out: Any, asked: str, named: str
) -> None:
    file = OutgoingFile("table.csv", "text/csv", b"1,2")
    first = replace(out("", stage.direct, asked), id="OUT1", file=file)
    place = (await stage.slack.send(first)).message_id
    if named == "by the message":
        place = stage.server.replies(stage.direct)[-1].ts
    second = replace(first, id="OUT2", claimed=frozenset({place}))
    again = stage.make()  # a new channel with an empty memory
    await again.start(stage.intake)
    assert await again.find(second) is None
    assert (await again.find(replace(second, claimed=frozenset()))) is not None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("30", 30), ("0.5", 0.5), ("abc", 1), (None, 1), ("-5", 1), ("nan", 1), ("1e99", 3600)],
)
async def test_too_many_requests_say_how_long_to_wait(
    stage: Any, out: Any, asked: str, header: str | None, seconds: float
) -> None:
    stage.server.limit("chat.postMessage", header)
    with pytest.raises(errors.DeliveryThrottled) as caught:
        await stage.slack.send(out("answer", stage.direct, asked))
    assert caught.value.retry_after == seconds
    assert not stage.server.replies(stage.direct)
    await stage.slack.send(out("answer", stage.direct, asked))


@pytest.mark.parametrize(
    "fault",
    [
        {"action": "cut"},
        {"action": "hang"},
        {"status": 500, "body": "<html>"},
        {"status": 503, "body": {"ok": False, "error": "service_unavailable"}},
        {"status": 200, "body": {"ok": False, "error": "fatal_error"}},
        {"status": 200, "body": {"ok": False, "error": "internal_error"}},
        {"status": 200, "body": "<html>"},
        {"status": 200, "body": "{", "headers": {"Content-Type": "application/json"}},
        {"status": 200, "body": "words", "headers": {"Content-Type": "text/plain"}},
        {"status": 200, "body": "[]", "headers": {"Content-Type": "application/json"}},
        {"status": 200, "body": {"ok": True}},
        {"status": 200, "body": b"\xff\xfe", "headers": {"Content-Type": "application/json; charset=utf-8"}},
        {"status": 200, "body": b"\x1f", "headers": {"Content-Type": "application/gzip"}},
    ],
)
async def test_an_answer_that_says_nothing_is_uncertain(stage: Any, out: Any, fault: dict[str, Any]) -> None:
    stage.server.fail("chat.postMessage", **fault)
    sending = asyncio.create_task(stage.slack.send(out("answer", stage.direct)))
    if fault.get("action") == "hang":
        await stage.server.until(lambda: bool(stage.server.called("chat.postMessage")))
        await leap_until_done(sending, 10.0)
    with pytest.raises(errors.DeliveryUncertain):
        await sending
    assert len(stage.server.called("chat.postMessage")) == 1


async def test_nobody_listening_means_surely_not_sent(stage: Any, out: Any) -> None:
    await stage.slack.pause()
    await stage.server.stop()
    pooled = [protocol for row in stage.slack._session.connector._conns.values() for protocol, _ in row]
    await stage.until(lambda: not any(protocol.is_connected() for protocol in pooled))
    with pytest.raises(errors.DeliveryThrottled) as caught:
        await stage.slack.send(out("answer", stage.direct))
    assert caught.value.retry_after == 1.0


@pytest.mark.parametrize("where", ["archived", "not in", "unknown", "private"])
async def test_a_conversation_that_is_closed_to_the_bot_is_gone(stage: Any, out: Any, where: str) -> None:
    stage.server.add_channel("C0OLD", archived=True)
    stage.server.add_channel("C0OTHER", bot=False)
    stage.server.add_channel("G0OTHER", kind="group", bot=False)
    channel = {"archived": "C0OLD", "not in": "C0OTHER", "unknown": "C0NONE", "private": "G0OTHER"}[where]
    with pytest.raises(errors.TargetGone):
        await stage.slack.send(out("answer", channel))


@pytest.mark.parametrize(
    "code",
    [
        "token_revoked",
        "missing_scope",
        "msg_too_long",
        "restricted_everything",
        # The error concerns one thread, or the messages outside of threads. The conversation continues.
        "restricted_action_thread_locked",
        "restricted_action_thread_only_channel",
    ],
)
async def test_other_refusals_are_plain_failures(stage: Any, out: Any, code: str) -> None:
    stage.server.fail("chat.postMessage", status=200, body={"ok": False, "error": code})
    with pytest.raises(errors.DeliveryFailed, match=code) as caught:
        await stage.slack.send(out("the secret word", stage.direct))
    assert type(caught.value) is errors.DeliveryFailed
    assert "secret" not in str(caught.value)


async def test_an_empty_message_is_a_failure_and_asks_nobody(stage: Any, out: Any) -> None:
    with pytest.raises(errors.DeliveryFailed, match="empty"):
        await stage.slack.send(out(" \n", stage.direct))
    assert not stage.server.called("chat.postMessage")


@pytest.mark.parametrize(
    ("where", "more", "refusal", "alone"),
    [
        ("C0OUT", {}, None, True),
        ("C0TEAM", {}, "restricted_action_thread_only_channel", True),
        ("C0TEAM", {"kind": "notice"}, None, True),
        ("C0TEAM", {"kind": "notice", "buttons": QuestionButtons("A1")}, None, False),
        ("C0TEAM", {"kind": "reply"}, None, False),
        ("D0ADA", {"kind": "notice"}, None, False),
    ],
)
async def test_a_slash_command_is_answered_to_its_author_alone_if_it_is_a_notice_or_cannot_be_posted(
    stage: Any, out: Any, where: str, more: dict[str, Any], refusal: str | None, *, alone: bool
) -> None:
    stage.server.add_channel("C0OUT", members=[stage.ada], bot=False)
    await stage.server.command("whoami", channel=where, user=stage.ada)
    (asked,) = await stage.arrived()
    assert "/commands/" not in str(asked), "anyone who has the response_url can write"
    if refusal is not None:
        stage.server.fail("chat.postMessage", status=200, body={"ok": False, "error": refusal})
    sent = await stage.slack.send(replace(out("You are <@U0ADA> 你好", where), target=asked.target, **more))
    assert stage.server.ephemeral == (["You are @Ada 你好"] if alone else [])
    assert len(stage.server.replies(where)) == (not alone)
    assert (sent.message_id == "OUT1") is alone


async def test_an_address_that_is_used_up_costs_no_answer(stage: Any, out: Any) -> None:
    await stage.server.command("whoami", channel=stage.channel, user=stage.ada)
    (asked,) = await stage.arrived()
    notice = replace(out("You are 你好", stage.channel), target=asked.target, kind="notice")
    for _ in range(6):
        await stage.slack.send(notice)
    assert len(stage.server.ephemeral) == 5
    assert [seen.text for seen in stage.server.replies(stage.channel)] == ["You are 你好"]


@pytest.mark.parametrize("trouble", ["expired", "unreachable", "unknown"])
async def test_a_slash_command_that_nobody_can_answer_is_a_failure(
    stage: Any, out: Any, trouble: str
) -> None:
    stage.server.add_channel("C0OUT", members=[stage.ada], bot=False)
    await stage.server.command("whoami", channel="C0OUT", user=stage.ada)
    (asked,) = await stage.arrived()
    target = {**asked.target, "trigger": "another"} if trouble == "unknown" else asked.target
    if trouble != "unknown":
        action = "cut" if trouble == "unreachable" else "respond"
        stage.server.fail("response_url", action=action, status=404)
    with pytest.raises(errors.TargetGone):
        await stage.slack.send(replace(out("You are U0ADA", "C0OUT"), target=target))


@pytest.mark.parametrize("threaded", [True, False])
async def test_where_there_is_more_than_can_be_looked_through_it_stays_open(
    stage: Any, out: Any, asked: str, monkeypatch: pytest.MonkeyPatch, *, threaded: bool
) -> None:
    monkeypatch.setattr(adapter, "PAGE", 2)
    monkeypatch.setattr(adapter, "PAGES", 2)
    message = out("answer", stage.direct, asked if threaded else None)
    assert await stage.slack.find(message) is None
    for number in range(5):
        await stage.server.say(
            f"chatter {number}", channel=stage.direct, user=stage.ada, thread_ts=asked if threaded else None
        )
    with pytest.raises(errors.DeliveryUncertain):
        await stage.slack.find(message)


async def test_a_search_that_fails_is_repeated_unless_slack_refuses(stage: Any, out: Any, asked: str) -> None:
    stage.server.limit("conversations.replies", "30")
    with pytest.raises(errors.DeliveryThrottled) as later:
        await stage.slack.find(out("answer", stage.direct, asked))
    assert later.value.retry_after == 30
    stage.server.fail("conversations.replies", status=503)
    with pytest.raises(errors.DeliveryThrottled):
        await stage.slack.find(out("answer", stage.direct, asked))
    with pytest.raises(errors.DeliveryUncertain):
        await stage.slack.find(out("answer", "C0NOWHERE"))


async def test_a_message_is_changed_in_its_thread_and_mentions_stay_plain_words(
    stage: Any, out: Any, asked: str
) -> None:
    sent = await stage.slack.send(out("half …", stage.direct, asked))
    await stage.slack.edit(out("**all** <!channel> 世界", stage.direct, asked), sent.message_id)
    (seen,) = stage.server.replies(stage.direct)
    assert (seen.ts, seen.thread_ts) == (sent.message_id, asked)
    assert seen.text == "**all** <\u200b!channel> 世界"
    assert seen.metadata["event_payload"]["id"] == "OUT1", "it can still be found by its id"
    reply = replace(out("the answer", stage.direct, asked), id="OUT2")
    await stage.slack.edit(reply, sent.message_id)
    assert await stage.slack.find(reply) == sent, "and what has become of it, by the id of that"


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"status": 200, "body": {"ok": False, "error": "cant_update_message"}}, errors.EditRefused),
        ({"status": 200, "body": {"ok": False, "error": "edit_window_closed"}}, errors.EditRefused),
        ({"status": 200, "body": {"ok": False, "error": "is_archived"}}, errors.TargetGone),
        ({"status": 200, "body": {"ok": False, "error": "internal_error"}}, errors.DeliveryUncertain),
        ({"status": 429, "body": {"ok": False, "error": "ratelimited"}}, errors.DeliveryThrottled),
        ({"action": "lose"}, errors.DeliveryUncertain),
    ],
)
async def test_a_change_that_fails_says_how(
    stage: Any, out: Any, asked: str, fault: dict[str, Any], kind: type
) -> None:
    sent = await stage.slack.send(out("half …", stage.direct, asked))
    stage.server.fail("chat.update", **fault)
    with pytest.raises(errors.DeliveryFailed) as caught:
        await stage.slack.edit(out("all", stage.direct, asked), sent.message_id)
    assert type(caught.value) is kind


async def test_a_preview_is_not_whispered_since_nobody_could_change_it(stage: Any, out: Any) -> None:
    stage.server.add_channel("C0OUT", members=[stage.ada], bot=False)
    await stage.server.command("hello", channel="C0OUT", user=stage.ada)
    (asked,) = await stage.arrived()
    with pytest.raises(errors.TargetGone):
        await stage.slack.send(replace(out("half …", "C0OUT"), target=asked.target, kind="preview"))
    assert stage.server.ephemeral == []


async def test_what_one_person_is_to_see_is_shown_to_them_alone(stage: Any, out: Any) -> None:
    root = await stage.server.say("hello?", channel=stage.channel, user=stage.ada)
    reply = await stage.server.say("me too", channel=stage.channel, user=stage.grace, thread_ts=root)
    message = out("for **you** <!channel>", stage.channel, root)
    alone = message
    for user, about in ((stage.ada, root), (stage.grace, reply)):
        alone = replace(message, target={**message.target, "only_to": user, "about": about})
        await stage.slack.send(alone)
        (seen,) = stage.server.alone(user)
        assert seen.startswith("for **you**")
        with pytest.raises(errors.DeliveryUncertain):
            await stage.slack.find(alone)
    assert [call.params.get("thread_ts") for call in stage.server.called("chat.postEphemeral")] == [
        None,
        root,
    ]
    assert stage.server.replies(stage.channel) == []
    stranger = replace(alone, target={**alone.target, "only_to": "U0NOBODY"})
    with pytest.raises(errors.DeliveryFailed, match="user_not_in_channel"):
        await stage.slack.send(stranger)
    assert stage.server.replies(stage.channel) == []
