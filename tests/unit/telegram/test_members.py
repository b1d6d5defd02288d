"""Tests of the membership of people in chats, and of the URLs of messages."""

from __future__ import annotations

from typing import Any

import pytest

from bot import errors
from bot.contracts.channel import MembershipAnswer
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from channels.telegram import adapter
from tests.unit.telegram.bed import GROUP, Bed

KEYS = [
    *map(
        ChatKey.parse,
        [
            "telegram:chat:7",
            "telegram:chat:7:topic:3",
            f"telegram:chat:{GROUP}",
            "telegram:chat:8",
            "telegram:chat:-5",
            "slack:chat:C1",
        ],
    ),
]


@pytest.mark.parametrize(
    ("status", "inside"),
    [("creator", True), ("member", True), ("left", False), ("kicked", False), (None, False)],
)
async def test_a_person_has_the_groups_they_are_in_now(bed: Bed, status: str | None, inside: bool) -> None:
    chat = bed.server.chat(GROUP)
    if status is not None:
        chat.members[7] = status
    found = await bed.channel.chats_of("7", KEYS, direct=False)
    assert found == MembershipAnswer([KEYS[2]] if inside else [])


async def test_direct_chats_are_those_of_the_person_alone(bed: Bed) -> None:
    assert await bed.channel.chats_of("7", KEYS, direct=True) == MembershipAnswer(KEYS[:2])
    assert await bed.channel.chats_of("-5", KEYS, direct=False) == MembershipAnswer([])


@pytest.mark.parametrize(
    "fault",
    [
        {"action": "lose"},
        {
            "status": 429,
            "body": {"ok": False, "description": "Too Many Requests", "parameters": {"retry_after": 7}},
        },
    ],
)
async def test_no_answer_is_no_answer_about_a_person(bed: Bed, fault: dict[str, Any]) -> None:
    chat = bed.server.chat(GROUP)
    chat.members[7] = "member"
    bed.server.fail("getChatMember", **fault)
    with pytest.raises(errors.ChannelUnreachable):
        await bed.channel.chats_of("7", KEYS[:3], direct=False)
    bed.server.fail("getChatMember", **fault)
    silent = await bed.channel.chats_of("7", KEYS, direct=False)
    assert silent == MembershipAnswer([], unanswered=[KEYS[2]])
    assert await bed.channel.chats_of("7", KEYS, direct=False) == MembershipAnswer([KEYS[2]])


async def test_of_many_groups_the_first_are_asked_about_at_each_search(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "MOST_GROUPS", 2)
    keys = [ChatKey("telegram", f"{group}") for group in (-1, -2, -3)]
    for group in (-1, -2, -3):
        bed.server.chat(group).members[7] = "member"
    found = await bed.channel.chats_of("7", keys, direct=False)
    assert found == MembershipAnswer(keys[:2], unanswered=keys[2:])
    del bed.server.chat(-1).members[7]
    found = await bed.channel.chats_of("7", keys, direct=False)
    assert found == MembershipAnswer(keys[1:2], unanswered=keys[2:]), "a yes is asked for anew"


def test_messages_of_supergroups_have_addresses(idle: Bed) -> None:
    def line(chat: ChatKey, message_id: str | None) -> ArchiveLine:
        return ArchiveLine(
            ts=1, channel="telegram", chat_id="1", chat_key=chat, message_id=message_id, role="user", text=""
        )

    assert (
        idle.channel.permalink(line(ChatKey.parse(f"telegram:chat:{GROUP}:topic:9"), "12"))
        == "https://t.me/c/200/12"
    )
    for other in (
        line(ChatKey.parse("telegram:chat:7"), "12"),
        line(KEYS[2], None),
        line(KEYS[2], "x"),
        line(ChatKey.parse("slack:chat:C1"), "1"),
    ):
        assert idle.channel.permalink(other) is None
