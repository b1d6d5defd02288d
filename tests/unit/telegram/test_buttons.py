"""Tests of buttons below a question. A press is a command of the person who pressed, and only this person sees the answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bot import errors
from bot.contracts.approvals import QuestionButtons
from channels.telegram import inbound
from tests.unit.telegram.bed import GROUP, Bed, message
from tests.unit.telegram.test_inbound import Line, line

__all__ = ["line"]

NAME = "01JC0000000000000000000ABC"


async def asked(bed: Bed, chat_id: int = GROUP) -> int:
    """Send a question with buttons. Return the number of its message."""
    bed.server.chat(chat_id)
    sent = await bed.channel.send(
        replace(message("May I?", {"chat_id": str(chat_id)}), buttons=QuestionButtons(NAME))
    )
    return int(sent.message_id)


async def test_a_question_has_buttons_and_other_messages_have_none(bed: Bed) -> None:
    number = await asked(bed)
    rows = bed.server.chats[GROUP].messages[number]["reply_markup"]["inline_keyboard"]
    assert [button["callback_data"] for row in rows for button in row] == [
        f"approve {NAME} once",
        f"deny {NAME}",
        f"approve {NAME} chat",
        f"approve {NAME} always",
    ]
    sent = await bed.channel.send(message("hello", {"chat_id": str(GROUP)}))
    assert "reply_markup" not in bed.server.chats[GROUP].messages[int(sent.message_id)]


async def test_a_press_that_is_too_old_to_be_answered_fails_plainly(bed: Bed) -> None:
    bed.server.chat(1001)
    with pytest.raises(errors.DeliveryFailed, match="too old"):
        await bed.channel.send(message("Approved.", {"chat_id": "1001", "press": "unknown"}))


@pytest.mark.parametrize(
    "change",
    [
        {"data": "stop"},
        {"data": f"approve {NAME} for ever"},
        {"data": f"new {NAME}"},
        {"data": f"approve {NAME} once\n"},
        {"data": f"approve {NAME[:-1]} once"},
        {"message": None},
        {"message": {"from": {"id": 5}, "chat": {"id": 1, "type": "private"}}},
    ],
)
def test_only_what_our_buttons_say_counts(line: Line, change: dict[str, Any]) -> None:
    number = line.server.say("May I?", fields={"from": line.server.me})["message"]["message_id"]
    update = line.server.press(number, f"deny {NAME}")
    assert inbound.read(update, line.me, 0) is not None
    update["callback_query"] |= change
    assert inbound.read(update, line.me, 0) is None
