"""Groups whose members are asked for, and writes of which nobody knows whether they took place."""

from __future__ import annotations

from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.recall import MembershipAnswer
from bot.features.jobs.rights import MOST_DOUBTS
from bot.testing.journal import FaultyJournal, JournalFailure
from tests.unit.gateway.jobs.rig import Rig

GROUP: dict[str, Any] = {
    "chat_id": "-100",
    "chat_key": "tele:chat:-100",
    "chat_type": "group",
    "target": {"chat": "-100"},
}


class Rooms:
    """A channel that knows who is where."""

    def __init__(self) -> None:
        self.inside = True
        self.broken = False
        self.unread = False
        self.asked = 0

    async def chats_of(self, user_id: str, chat_keys: list[ChatKey], *, direct: bool) -> MembershipAnswer:
        assert (user_id, direct) == ("77", False)
        self.asked += 1
        if self.broken:
            raise errors.ChannelUnreachable("no")
        if self.unread:
            return MembershipAnswer([], unanswered=chat_keys)
        return MembershipAnswer(chat_keys if self.inside else [])


async def test_whoever_has_left_a_group_has_nothing_run_there_once_that_is_sure(rig: Rig) -> None:
    rooms = rig.channels["tele"] = Rooms()
    await rig.plan("every 1h", **GROUP)
    await rig.passes(3_600)
    assert len(rig.taken) == 1
    rooms.inside = False
    await rig.passes(3_600 - 60)
    rig.clock.jump(60)
    for _ in range(MOST_DOUBTS - 1):
        await rig.due.look()
    rooms.inside = True
    await rig.due.look()
    assert len(rig.taken) == 2, "one answer alone is not believed"
    rooms.inside = False
    await rig.passes(2 * 3_600)
    assert len(rig.taken) == 2
    assert any("not in that chat any more" in line.message for line in rig.log.entries)


async def lived(rig: Rig, seconds: float) -> None:
    """Let time go by on every clock, and look once a minute."""
    for _ in range(int(seconds // 60)):
        await rig.clock.advance(60)
        await rig.due.look()


@pytest.mark.parametrize("how", ["broken", "unread"])
async def test_where_nobody_can_say_who_is_in_a_group_its_jobs_wait_and_that_is_told(
    rig: Rig, how: str
) -> None:
    rooms = rig.channels["tele"] = Rooms()
    setattr(rooms, how, True)
    await rig.plan("every 1h", **GROUP)
    await lived(rig, 3_600)
    for _ in range(20):
        await rig.due.look()
    assert (rig.taken, rooms.asked) == ([], 1), "asked once a minute"
    setattr(rooms, how, False)
    await lived(rig, 120)
    assert len(rig.taken) == 1
    setattr(rooms, how, True)
    await lived(rig, 4 * 3_600)
    assert len(rig.taken) == 1
    assert len(rig.told.words) == 1
    assert "couldn't find out within" in rig.told.words[0]
    assert len([line for line in rig.log.entries if "nobody can say" in line.message]) >= 2
    setattr(rooms, how, False)
    await lived(rig, 3_600)
    assert len(rig.taken) >= 2


async def test_what_was_refused_and_is_on_file_all_the_same_does_not_count_after_a_restart(rig: Rig) -> None:
    """The disk may have written what it says that it has not."""
    kept = await rig.plan("every 1h", prompt="kept")
    faulty = rig.journal = FaultyJournal(rig.journal)
    rig.restart()
    await rig.due.look()
    faulty.fail(JournalFailure("put_job", when="after"))
    with pytest.raises(errors.StorageError):
        await rig.plan("every 1h", prompt="refused")
    faulty.fail(JournalFailure("remove_job", when="after"))
    with pytest.raises(errors.StorageError):
        await rig.desk.cancel(rig.inbound(), kept)
    await rig.due.look()
    rig.restart()
    await rig.passes(3_600)
    assert [one.text for one in rig.taken] == ["kept"]
