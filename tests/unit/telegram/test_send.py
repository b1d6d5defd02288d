"""Tests of sending: one visible message per call, and the right error for each failure."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot import errors, text
from bot.system import SystemDisk
from bot.testing.telegram import refusal
from channels.telegram import adapter, render
from channels.telegram.adapter import TelegramChannel
from tests.unit.telegram.bed import GROUP, Bed, message


@pytest.fixture
async def chat(bed: Bed) -> Bed:
    """A bed with a private chat in which the bot may write."""
    bed.server.chat(1001)
    return bed


async def test_progress_makes_no_sound_and_an_answer_does(chat: Bed) -> None:
    await chat.channel.send(replace(message("Working: 0 of 2"), kind="progress"))
    await chat.channel.send(replace(message("Half of it"), kind="preview"))
    await chat.channel.send(message("The answer."))
    calls = [call.params.get("disable_notification") for call in chat.server.called("sendMessage")]
    assert [str(silent).lower() for silent in calls] == ["true", "none", "none"]


async def test_a_bare_address_shows_no_preview(chat: Bed) -> None:
    await chat.channel.send(message("see https://a.b"))
    assert not chat.server.visible()[0].preview


async def test_an_answer_in_a_group_hangs_on_the_question_in_its_topic(bed: Bed) -> None:
    bed.server.say("/help", chat_id=GROUP, thread_id=7)
    found = await bed.taken()
    await bed.channel.send(message("here", found.target))
    (seen,) = bed.server.visible(GROUP)
    assert (seen.thread_id, str(seen.reply_to)) == (7, found.message_id)


async def test_an_answer_to_a_deleted_question_is_sent_all_the_same(bed: Bed) -> None:
    bed.server.say("/help", chat_id=GROUP)
    found = await bed.taken()
    bed.server.chats[GROUP].messages.clear()
    await bed.channel.send(message("here", found.target))
    (seen,) = bed.server.visible(GROUP)
    assert (seen.text, seen.reply_to) == ("here", None)


async def test_entities_that_telegram_refuses_are_left_out(chat: Bed) -> None:
    chat.server.fail("sendMessage", **refusal(400, "Bad Request: can't parse entities: unsupported"))
    await chat.channel.send(message("**here**"))
    (seen,) = chat.server.visible()
    assert (seen.text, seen.entities) == ("**here**", ())


@pytest.mark.parametrize(
    "description", ["message thread not found", "can't parse entities: no", "something else"]
)
async def test_a_refusal_that_stays_is_a_failure(chat: Bed, description: str) -> None:
    chat.server.fail("sendMessage", times=9, **refusal(400, f"Bad Request: {description}"))
    with pytest.raises(errors.DeliveryFailed) as caught:
        await chat.channel.send(message("**private**", {"chat_id": "1001", "message_thread_id": "5"}))
    assert type(caught.value) is errors.DeliveryFailed
    assert "private" not in str(caught.value)
    assert len(chat.server.called("sendMessage")) <= 3


async def test_in_a_group_where_it_may_not_write_operators_hear_of_the_right_that_is_missing(
    chat: Bed,
) -> None:
    chat.server.add_bot(GROUP, status="restricted", can_send_messages=False)
    with pytest.raises(errors.TargetGone, match="Not enough rights"):
        await chat.channel.send(message("hello", {"chat_id": str(GROUP)}))
    (told,) = chat.intake.lacking.values()
    assert told.startswith(f"⚠️ I may not write in telegram:chat:{GROUP} on Telegram")
    chat.server.add_bot(GROUP, status="restricted", can_send_messages=True)
    await chat.channel.send(message("hello", {"chat_id": str(GROUP)}))
    chat.server.add_bot(GROUP, status="left")
    with pytest.raises(errors.TargetGone, match="not a member"):
        await chat.channel.send(message("hello", {"chat_id": str(GROUP)}))
    assert len(chat.intake.lacking) == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (refusal(429, "Too Many Requests: retry after 7", retry_after=7), errors.DeliveryThrottled),
        ({"status": 429, "body": "slow down"}, errors.DeliveryThrottled),
        ({"status": 500, "body": "oops"}, errors.DeliveryUncertain),
        ({"status": 502, "body": {"ok": False, "description": "Bad Gateway"}}, errors.DeliveryUncertain),
        ({"status": 200, "body": "<html></html>"}, errors.DeliveryUncertain),
        ({"status": 200, "body": {"ok": True, "result": True}}, errors.DeliveryUncertain),
        ({"status": 200, "body": {"ok": True, "result": {"message_id": 1}}}, errors.DeliveryUncertain),
        ({"action": "cut"}, errors.DeliveryUncertain),
        (refusal(403, "Forbidden: bot was blocked by the user"), errors.TargetGone),
        (refusal(403, "Forbidden: bot was kicked from the supergroup chat"), errors.TargetGone),
        (refusal(400, "Bad Request: chat not found"), errors.TargetGone),
        (refusal(400, "Bad Request: not enough rights to send text messages"), errors.TargetGone),
        (refusal(400, "Bad Request: TOPIC_CLOSED"), errors.DeliveryFailed),
        (refusal(400, "Bad Request: upgraded", migrate_to_chat_id=-1005), errors.TargetGone),
        (refusal(401, "Unauthorized"), errors.DeliveryFailed),
        (refusal(413, "Request Entity Too Large"), errors.DeliveryFailed),
        ({"status": 302, "headers": {"location": "/x"}}, errors.DeliveryFailed),
    ],
)
async def test_failures_say_how_sure_they_are(
    chat: Bed, fault: dict[str, Any], kind: type[errors.DeliveryFailed]
) -> None:
    chat.server.fail("sendMessage", **fault)
    with pytest.raises(errors.DeliveryFailed) as caught:
        await chat.channel.send(message("private words"))
    assert type(caught.value) is kind
    assert "private" not in str(caught.value)
    assert chat.server.token not in str(caught.value)
    assert len(chat.server.called("sendMessage")) == 1
    assert chat.server.visible() == []
    await chat.channel.send(message("next"))
    assert len(chat.server.visible()) == 1


async def test_a_refused_connection_surely_sent_nothing(chat: Bed) -> None:
    await chat.server.stop()
    await chat.pausing()  # the poll, and thus the connection pool, has noticed the lost connection
    with pytest.raises(errors.DeliveryThrottled, match="Connection refused"):
        await chat.channel.send(message("x"))


async def test_a_move_that_cannot_be_kept_is_not_taken_for_known(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "full")

    bed.server.upgrade(-5, GROUP, told=())
    with monkeypatch.context() as broken:
        broken.setattr(SystemDisk, "replace", full)
        with pytest.raises(errors.DeliveryThrottled):
            await bed.channel.send(message("x", {"chat_id": "-5"}))
    await bed.channel.send(message("x", {"chat_id": "-5"}))
    assert [one.text for one in bed.server.visible(GROUP)] == ["x"]


@pytest.mark.parametrize("said", ["", " \n", "\ufeff \n", "\u200b\u202e"])
async def test_a_blank_message_is_not_sent(chat: Bed, said: str) -> None:
    assert chat.channel.split(said) == []
    with pytest.raises(errors.DeliveryFailed):
        await chat.channel.send(message(said))
    assert not chat.server.called("sendMessage")


@pytest.mark.parametrize("target", [{}, {"chat_id": "@name"}, {"chat_id": ""}])
async def test_a_target_that_is_none_is_a_failure(chat: Bed, target: dict[str, str]) -> None:
    with pytest.raises(errors.DeliveryFailed, match="number of a chat"):
        await chat.channel.send(message("x", target or {"x": "y"}))
    assert not chat.server.called("sendMessage")


async def test_what_telegram_cannot_carry_is_replaced(chat: Bed) -> None:
    await chat.channel.send(message("a\ud83d\0 **b** \u202e مرحبا"))
    (seen,) = chat.server.visible()
    assert seen.text == "a\ufffd\ufffd b \u202e مرحبا"
    assert [(e["offset"], e["length"]) for e in seen.entities] == [(4, 1)]


async def test_more_entities_than_telegram_takes_cost_form_but_no_words(chat: Bed) -> None:
    await chat.channel.send(message("**a** " * 300))
    (seen,) = chat.server.visible()
    assert seen.text == ("a " * 300).strip()
    assert len(seen.entities) == 100


async def test_a_table_that_grows_too_long_is_sent_as_it_is(chat: Bed) -> None:
    grown = "|" + "a" * 80 + "|b|\n|-|-|\n" + "|c|d|\n" * 200
    assert text.utf16_len(render.render(grown).text) > 4096
    await chat.channel.send(message(grown))
    assert chat.server.visible()[0].text == grown.strip()


@pytest.mark.parametrize(
    ("asked", "wait"),
    [
        (1, 1),
        (30, 30),
        (0.5, 0.5),
        ("abc", 1),
        (None, 1),
        (-5, 1),
        (0, 1),
        (True, 1),
        ([3], 1),
        (10**12, 24 * 3600),
        (float("inf"), 24 * 3600),
        (float("nan"), 1),
    ],
)
async def test_whatever_telegram_says_of_waiting_is_a_sane_number(bed: Bed, asked: Any, wait: float) -> None:
    bed.server.say("hi")
    await bed.taken()
    bed.server.limit("sendMessage", asked)
    with pytest.raises(errors.DeliveryThrottled) as caught:
        await bed.channel.send(message("hello"))
    assert caught.value.retry_after == wait
    assert bed.server.tally().posted == 0


@pytest.mark.parametrize("said", ["x\n" * 100_000, "\ud800\n" * 900, ["list"], {"a": 1}, 5, None])
async def test_a_reason_of_any_length_and_kind_fits_a_line_of_the_log(bed: Bed, said: Any) -> None:
    bed.server.say("hi")
    await bed.taken()
    bed.server.fail("sendMessage", status=400, body={"ok": False, "error_code": 400, "description": said})
    with pytest.raises(errors.DeliveryFailed) as caught:
        await bed.channel.send(message("hello"))
    reason = str(caught.value)
    reason.encode()
    assert len(reason) < 300
    assert "\n" not in reason


async def test_typing_is_shown_in_the_topic(bed: Bed) -> None:
    bed.server.topic(GROUP, 7)
    await bed.channel.indicate({"chat_id": str(GROUP), "message_thread_id": "7"}, working=True)
    await bed.channel.indicate({"chat_id": str(GROUP), "message_thread_id": "7"}, working=False)
    (call,) = bed.server.called("sendChatAction")
    assert (call.params["action"], call.params["message_thread_id"]) == ("typing", "7")


async def test_typing_that_fails_is_a_failed_delivery(chat: Bed) -> None:
    for fault in ({"status": 500}, {"action": "cut"}, refusal(400, "Bad Request: chat not found")):
        chat.server.fail("sendChatAction", **fault)
        with pytest.raises(errors.DeliveryFailed):
            await chat.channel.indicate({"chat_id": "1001"}, working=True)


async def test_a_chat_that_must_wait_sees_no_typing(chat: Bed) -> None:
    chat.server.chat(2002)
    chat.server.fail("sendMessage", **refusal(429, "Too Many Requests", retry_after=7))
    with pytest.raises(errors.DeliveryThrottled):
        await chat.channel.send(message("x"))
    await chat.channel.indicate({"chat_id": "1001"}, working=True)
    await chat.channel.indicate({"chat_id": "2002"}, working=True)
    assert [call.params["chat_id"] for call in chat.server.called("sendChatAction")] == ["2002"]
    await chat.clock.advance(7)
    await chat.channel.indicate({"chat_id": "1001"}, working=True)
    assert len(chat.server.called("sendChatAction")) == 2


def fits(part: str) -> bool:
    rendered = render.render(part)
    return text.utf16_len(rendered.text) <= 4096 and len(rendered.entities) <= 100


def letters(said: str) -> str:
    return "".join(char for char in said if char.isalnum())


@pytest.fixture
def split(idle: Bed) -> TelegramChannel:
    return idle.channel


@pytest.mark.parametrize(
    "said",
    [
        "word " * 20_000,
        "👨‍👩‍👧‍👦" * 9_000,
        "你好。" * 33_000,
        "x" * 100_000,
        "- **bold** `code` [l](https://a.b)\n" * 800,
        "> quoted **words**\n" * 1500,
        "```py\n" + "x = 1\n" * 4000 + "```",
        "| a | b |\n|---|---|\n" + "| c | d |\n" * 900,
        "a\u0301" * 20_000,
    ],
)
async def test_long_text_is_cut_into_messages(split: TelegramChannel, said: str) -> None:
    parts = split.split(said)
    assert len(parts) > 1
    assert all(fits(part) for part in parts)
    shown = "".join(letters(render.render(part).text) for part in parts)
    assert shown == letters(render.render(said).text.replace("https", "")) or len(said) > 16_384
    assert letters("".join(parts).replace("```py", "")) == letters(said.replace("```py", ""))


async def test_many_entities_are_spread_over_messages(split: TelegramChannel) -> None:
    parts = split.split("**a** `b`\n\n" * 150)
    assert len(parts) >= 3
    assert all(fits(part) for part in parts)
    kinds = [entity.type for part in parts for entity in render.render(part).entities]
    assert kinds == ["bold", "code"] * 150


async def test_a_change_is_shown_with_its_form_and_made_twice_it_is_made_once(chat: Bed) -> None:
    sent = await chat.channel.send(message("half of …"))
    for _ in range(2):
        await chat.channel.edit(message("**all** of it https://a.b"), sent.message_id)
    (seen,) = chat.server.visible()
    assert (seen.text, seen.entities[0]["type"], seen.preview) == ("all of it https://a.b", "bold", False)
    assert chat.server.tally().edited == 1


@pytest.mark.parametrize(
    ("code", "description", "kind"),
    [
        (400, "Bad Request: message can't be edited", errors.EditRefused),
        (400, "Bad Request: message to edit not found", errors.EditRefused),
        (400, "Bad Request: MESSAGE_ID_INVALID", errors.EditRefused),
        (400, "Bad Request: chat not found", errors.TargetGone),
        (403, "Forbidden: bot was blocked by the user", errors.TargetGone),
        (429, "Too Many Requests: retry after 3", errors.DeliveryThrottled),
        (502, "Bad Gateway", errors.DeliveryUncertain),
    ],
)
async def test_a_change_that_fails_says_how(chat: Bed, code: int, description: str, kind: type) -> None:
    sent = await chat.channel.send(message("half of …"))
    chat.server.fail("editMessageText", **refusal(code, description))
    with pytest.raises(errors.DeliveryFailed) as caught:
        await chat.channel.edit(message("all of it"), sent.message_id)
    assert type(caught.value) is kind
    assert chat.server.visible()[0].text == "half of …"


async def test_repeats_do_not_wait_behind_connections_that_do_not_answer(
    chat: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a long wait, the outbox would time out and treat the message as perhaps sent."""
    monkeypatch.setattr(adapter, "PROOF_SECONDS", 0.5)
    known = len(chat.server.called("getMe"))
    chat.server.fail("getMe", action="hang", times=99)
    again = replace(message("perhaps again"), repeat_of="01BEFORE")
    ends = await asyncio.gather(*(chat.channel.send(again) for _ in range(60)), return_exceptions=True)
    assert {type(end) for end in ends} == {errors.DeliveryThrottled}
    assert len(chat.server.called("getMe")) - known <= 2 * adapter.PROOFS
    chat.server.faults.clear()
    await chat.channel.send(again)
    assert [seen.text for seen in chat.server.visible()] == ["perhaps again"]


async def test_a_change_whose_form_is_refused_is_made_plain(chat: Bed) -> None:
    sent = await chat.channel.send(message("half of …"))
    chat.server.fail("editMessageText", **refusal(400, "Bad Request: can't parse entities"))
    await chat.channel.edit(message("**all** of it"), sent.message_id)
    assert chat.server.visible()[0].text == "**all** of it"


async def test_a_service_without_drafts_is_asked_once(chat: Bed) -> None:
    chat.server.fail("sendMessageDraft", **refusal(404, "Not Found"))
    assert not await chat.channel.draft(message("half of it"))
    assert not await chat.channel.draft(message("half of it"))
    assert len(chat.server.called("sendMessageDraft")) == 1


async def test_a_draft_that_is_refused_once_may_be_tried_again(chat: Bed) -> None:
    chat.server.fail("sendMessageDraft", **refusal(400, "Bad Request: something"))
    assert not await chat.channel.draft(message("half of it"))
    assert await chat.channel.draft(message("half of it"))
    chat.server.limit("sendMessageDraft", 7)
    with pytest.raises(errors.DeliveryThrottled):
        await chat.channel.draft(message("half of it"))
    chat.server.fail("sendMessageDraft", action="lose")
    with pytest.raises(errors.DeliveryUncertain):
        await chat.channel.draft(message("half of it"))


async def test_what_was_seen_has_a_reaction(bed: Bed) -> None:
    number = bed.server.say("more")["message"]["message_id"]
    target = {"chat_id": "1001"}
    await bed.channel.react(target, str(number))
    assert bed.server.chats[1001].reactions == {(number, bed.server.me["id"]): ("👀",)}
    with pytest.raises(errors.DeliveryFailed):
        await bed.channel.react(target, "999")
    await bed.channel.react(target, "no message of Telegram's")
    bed.server.limit("setMessageReaction", 30)
    with pytest.raises(errors.DeliveryThrottled):
        await bed.channel.react(target, str(number))
    await bed.channel.react(target, str(number))
    assert len(bed.server.called("setMessageReaction")) == 3, "left alone while Telegram wants to be"
