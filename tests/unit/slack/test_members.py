"""Membership of people in conversations, as Slack reports it at that moment, and links to messages."""

from __future__ import annotations

import pytest

from bot import errors
from bot.contracts.channel import MembershipAnswer
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from channels.slack import web_api

from .conftest import ADA, CHANNEL, GRACE, PRIVATE, Stage

THREAD = ChatKey.parse(f"slack:chat:{CHANNEL}:thread:1.2")
KEYS = [
    THREAD,
    ChatKey.parse(f"slack:chat:{PRIVATE}"),
    ChatKey.parse(f"slack:chat:D{ADA[1:]}"),
    ChatKey.parse(f"slack:chat:D{GRACE[1:]}"),
    ChatKey.parse("slack:chat:C0OTHER"),
    ChatKey.parse("telegram:chat:1"),
]


async def test_a_person_has_the_conversations_they_are_in(stage: Stage) -> None:
    stage.server.add_im(GRACE)
    stage.server.add_channel("C0OTHER", members=[GRACE])
    assert await stage.slack.chats_of(ADA, KEYS, direct=True) == MembershipAnswer(KEYS[:3])
    assert await stage.slack.chats_of(ADA, KEYS, direct=False) == MembershipAnswer(KEYS[:2])
    assert await stage.slack.chats_of(GRACE, KEYS, direct=True) == MembershipAnswer(
        [KEYS[0], KEYS[3], KEYS[4]]
    )


async def test_who_has_left_is_not_there_any_more(stage: Stage) -> None:
    stage.server.world.rooms[PRIVATE].members.discard(ADA)
    assert await stage.slack.chats_of(ADA, KEYS, direct=False) == MembershipAnswer([THREAD])


async def test_every_page_of_conversations_counts(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_api, "PAGE", 1)
    assert await stage.slack.chats_of(ADA, KEYS, direct=True) == MembershipAnswer(KEYS[:3])


async def test_of_more_conversations_than_are_read_nothing_is_known(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_api, "PAGE", 1)
    monkeypatch.setattr(web_api, "PAGES", 1)
    found = await stage.slack.chats_of(ADA, KEYS, direct=True)
    assert len(found.chats) == 1
    assert sorted(found.chats + found.unanswered) == sorted(KEYS[:5])
    found = await stage.slack.chats_of(ADA, KEYS, direct=False)
    assert sorted(found.chats + found.unanswered) == sorted([*KEYS[:2], KEYS[4]])


@pytest.mark.parametrize("scope", ["channels:read", "im:read"])
async def test_where_slack_does_not_say_nothing_is_known(stage: Stage, scope: str) -> None:
    stage.server.api.scopes.discard(scope)
    with pytest.raises(errors.ChannelError):
        await stage.slack.chats_of(ADA, KEYS, direct=True)
    await stage.slack.stop()
    with pytest.raises(errors.ChannelUnreachable):
        await stage.slack.chats_of(ADA, KEYS, direct=True)


async def test_a_person_is_in_the_time_zone_of_their_profile_whatever_it_was_before(stage: Stage) -> None:
    assert await stage.slack.zone_of(ADA) is None
    for zone in ("Europe/Berlin", "Asia/Tokyo"):
        stage.server.world.users[ADA]["tz"] = zone
        assert await stage.slack.zone_of(ADA) == zone
    stage.server.world.users[ADA]["tz"] = None
    assert await stage.slack.zone_of(ADA) is None
    with pytest.raises(errors.ChannelError):
        await stage.slack.zone_of("U0NOBODY")
    await stage.slack.stop()
    with pytest.raises(errors.ChannelUnreachable):
        await stage.slack.zone_of(ADA)


def line(message_id: str | None, chat_key: ChatKey = THREAD) -> ArchiveLine:
    return ArchiveLine(
        ts=1, channel="slack", chat_id=CHANNEL, chat_key=chat_key, message_id=message_id, role="user", text=""
    )


async def test_a_message_has_an_address_in_its_workspace(stage: Stage) -> None:
    address = f"https://example.slack.com/archives/{CHANNEL}/p1700000000000100"
    assert stage.slack.permalink(line("1700000000.000100")) == address
    for other in (line(None), line("not a stamp"), line("1700000000.000100", ChatKey.parse("web:chat:1"))):
        assert stage.slack.permalink(other) is None


async def test_before_the_workspace_is_known_there_is_none(idle: Stage) -> None:
    assert idle.slack.permalink(line("1700000000.000100")) is None
