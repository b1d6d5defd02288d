"""Albums come as one update an item, and are one message."""

from __future__ import annotations

from bot import errors
from tests.unit.telegram.bed import GROUP, Bed


def photo(bed: Bed, caption: str = "", *, chat_id: int = 1001, group: str = "g") -> None:
    bed.server.say(caption, media="photo", chat_id=chat_id, fields={"media_group_id": group})


async def test_the_items_of_an_album_are_one_message(bed: Bed) -> None:
    photo(bed)
    await bed.pausing()
    assert not bed.intake.offered
    photo(bed, "compare 这些")
    photo(bed)
    await bed.clock.advance(0.9)
    assert not bed.intake.offered
    assert len(bed.server.updates) == 3
    await bed.clock.advance(0.1)
    found = await bed.taken()
    assert (found.text, len(found.attachments), len(found.keys)) == ("compare 这些", 3, 6)
    await bed.polling()
    assert len(bed.intake.offered) == 1
    assert len(bed.server.updates) == 0


async def test_an_album_holds_up_its_own_chat_only(bed: Bed) -> None:
    bed.server.say("before")
    await bed.taken()
    await bed.polling()
    await bed.channel.stop()
    photo(bed, "@shipmate_bot", chat_id=GROUP)
    bed.server.say("@shipmate_bot after the album", chat_id=GROUP, user_id=2002)
    bed.server.say("elsewhere", chat_id=2002)
    await bed.restart()
    assert (await bed.taken(2)).text == "elsewhere"
    await bed.pausing()
    assert len(bed.intake.offered) == 2
    await bed.clock.advance(1)
    await bed.taken(4)
    await bed.polling()
    offered = [inbound.text for inbound in bed.intake.offered]
    assert offered == ["before", "elsewhere", "@shipmate_bot", "after the album"]
    assert len(bed.server.updates) == 0


async def test_what_its_author_says_next_ends_an_album(bed: Bed) -> None:
    photo(bed, "these")
    photo(bed)
    bed.server.say("/stop")
    assert (await bed.taken(2)).is_stop, "without any waiting"
    assert [len(inbound.attachments) for inbound in bed.intake.offered] == [2, 0]


async def test_a_stop_of_another_person_waits_for_no_album(bed: Bed) -> None:
    photo(bed, "@shipmate_bot these", chat_id=GROUP)
    bed.server.say("/stop@shipmate_bot", chat_id=GROUP, user_id=2002)
    assert (await bed.taken()).is_stop
    await bed.pausing()
    await bed.clock.advance(1)
    assert (await bed.taken(2)).text == "these"
    await bed.polling()
    assert len(bed.server.updates) == 0


async def test_an_album_that_cannot_be_written_down_comes_again_whole(bed: Bed) -> None:
    bed.intake.failure = errors.StorageError()
    photo(bed)
    photo(bed)
    await bed.wake()
    await bed.taken()
    await bed.pausing()
    bed.intake.failure = None
    await bed.wake()
    await bed.wake()
    await bed.until(lambda: bool(bed.intake.accepted))
    assert len(bed.intake.accepted[0].attachments) == 2
    await bed.polling()
    assert len(bed.server.updates) == 0


async def test_albums_of_two_chats_are_two_messages(bed: Bed) -> None:
    photo(bed, "one")
    photo(bed, "two", chat_id=2002)
    while len(bed.intake.offered) < 2:
        await bed.until(lambda: len(bed.intake.offered) == 2 or bed.clock.sleeping > 0)
        await bed.clock.advance(1)
    assert [inbound.text for inbound in bed.intake.offered] == ["one", "two"]


async def test_the_rest_of_an_album_that_comes_together_with_what_was_taken_in_is_not_lost(bed: Bed) -> None:
    first = bed.server.say("one", media="photo", fields={"media_group_id": "g"})
    await bed.pausing()
    await bed.clock.advance(1)
    await bed.taken()
    await bed.channel.stop()
    bed.server.repeat(first)
    photo(bed, "two")
    await bed.restart()
    await bed.pausing()
    await bed.clock.advance(1)
    await bed.taken(4)
    assert [inbound.text for inbound in bed.intake.accepted] == ["one", "two"]
    await bed.polling()
    assert len(bed.server.updates) == 0
