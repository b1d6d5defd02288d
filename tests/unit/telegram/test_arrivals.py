"""Tests of updates that add the bot to a chat, and of albums."""

from __future__ import annotations

from typing import Any

import pytest

from bot import errors
from bot.contracts.channel import Introduction
from bot.words import sentence
from tests.unit.telegram.bed import GROUP, Bed


async def introduction(bed: Bed) -> Introduction:
    await bed.until(lambda: bool(bed.intake.accepted))
    return await bed.channel.introduce(bed.intake.accepted[0])


@pytest.mark.parametrize(
    ("before", "after", "chat"),
    [
        ("member", "administrator", GROUP),
        ("member", "left", GROUP),
        ("left", "kicked", GROUP),
        ("left", "member", 7),
    ],
)
async def test_other_changes_of_its_standing_are_no_arrival(
    bed: Bed, before: str, after: str, chat: int
) -> None:
    bed.server.chat(chat).members[bed.server.me["id"]] = before
    bed.server.add_bot(chat, by=7, status=after)
    bed.server.say("what comes behind it", chat_id=1001)
    await bed.until(lambda: bool(bed.intake.accepted))
    assert [one.kind for one in bed.intake.accepted] == ["message"]


async def test_a_restricted_member_that_is_inside_has_arrived(bed: Bed) -> None:
    bed.server.add_bot(GROUP, by=7, status="restricted", is_member=True, can_send_messages=True)
    found = await introduction(bed)
    assert found.words
    assert found.hindrance is None


async def test_where_it_may_not_write_operators_are_told_and_nothing_is_said(bed: Bed) -> None:
    bed.server.add_bot(GROUP, by=7, status="restricted", is_member=True, can_send_messages=False)
    assert await introduction(bed) == Introduction(hindrance=sentence("operators.mute_there"))


async def test_an_administrator_sees_everything(bed: Bed) -> None:
    bed.server.add_bot(GROUP, by=7, status="administrator")
    assert "privacy mode" not in (await introduction(bed)).words


async def test_a_supergroup_that_was_a_group_is_no_new_chat(bed: Bed) -> None:
    bed.server.upgrade(-5, GROUP)
    bed.server.add_bot(GROUP, by=7)
    found: Any = await introduction(bed)
    assert found == Introduction()


def photo(bed: Bed, caption: str = "", *, chat_id: int = 1001) -> None:
    bed.server.say(caption, media="photo", chat_id=chat_id, fields={"media_group_id": "g"})


async def test_its_items_come_at_once_in_their_order(bed: Bed) -> None:
    for caption in ("compare 这些", "", ""):
        photo(bed, caption)
    bed.server.say("/stop")
    await bed.taken(4)
    found = [(one.text, len(one.attachments), one.of_album) for one in bed.intake.accepted]
    assert found == [("compare 这些", 1, True), ("", 1, True), ("", 1, True), ("/stop", 0, False)]


async def test_they_are_for_the_bot_where_one_of_them_is(idle: Bed) -> None:
    for caption in ("", "@shipmate_bot these"):
        photo(idle, caption, chat_id=GROUP)
    await idle.channel.start(idle.intake)
    await idle.taken(2)
    photo(idle, chat_id=GROUP)
    await idle.taken(3)
    assert [one.addressed for one in idle.intake.accepted] == ["mention"] * 3


async def test_one_that_cannot_be_written_comes_again_before_those_behind_it(bed: Bed) -> None:
    bed.intake.failure = errors.StorageError()
    photo(bed, "one")
    photo(bed, "two")
    await bed.pausing()
    bed.intake.failure = None
    await bed.wake()
    await bed.until(lambda: len(bed.server.updates) == 0)
    assert [one.text for one in bed.intake.accepted] == ["one", "two"]
