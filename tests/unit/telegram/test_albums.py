"""The items of an album are messages that the gateway reads as one."""

from __future__ import annotations

from bot import errors
from tests.unit.telegram.bed import GROUP, Bed


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
