"""What may happen only once, whoever asks: leases, and what is due; the jobs themselves, and lines of files."""

from __future__ import annotations

import asyncio

from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Due
from bot.contracts.journal import Job, Journal, LineRow, Locale
from bot.testing.clock import FakeClock
from tests.contracts.journal_rig import DAY, JournalRig, inbound


def job(number: int = 1, **spec: object) -> Job:
    return Job(
        f"J{number}", ChatKey.parse("slack:chat:C1"), {"every": "1h", "says": "提醒 ⏰ תזכורת", **spec}
    )


class SharedContract(JournalRig):
    async def test_a_loss_that_was_none_is_forgotten_for_good(self, journal: Journal) -> None:
        await journal.open()
        await journal.forget_loss()
        assert journal.lost() is None
        journal = await self.restart(journal)
        await journal.open()
        assert journal.lost() is None

    async def test_jobs_come_back_as_they_were_put_until_they_are_removed(self, journal: Journal) -> None:
        await journal.put_job(job(2))
        await journal.put_job(job(1))
        await journal.put_job(job(3))
        await journal.put_job(job(2, every="2h"))
        assert await journal.remove_job("J3")
        assert not await journal.remove_job("J3")
        journal = await self.restart(journal)
        assert await journal.jobs() == [job(2, every="2h"), job(1)]

    async def test_the_language_and_the_time_zone_of_a_person_are_known_after_a_restart(
        self, journal: Journal
    ) -> None:
        ann, same_id = UserRef("slack", "U1"), UserRef("telegram", "U1")
        assert await journal.locales() == {}
        await journal.put_locale(ann, Locale("zh", language_chosen=True))
        await journal.put_locale(same_id, Locale(zone="Asia/Tokyo", zone_chosen=True))
        await journal.put_locale(ann, Locale("en", zone="America/Lima"))
        journal = await self.restart(journal)
        assert await journal.locales() == {
            ann: Locale("en", zone="America/Lima"),
            same_id: Locale(zone="Asia/Tokyo", zone_chosen=True),
        }
        assert await journal.jobs() == []

    async def test_what_the_bot_listens_to_in_a_chat_is_known_after_a_restart(self, journal: Journal) -> None:
        room, other = ChatKey.parse("telegram:chat:-5"), ChatKey.parse("slack:chat:C1")
        assert await journal.listening() == {}
        await journal.listen(room, "always")
        await journal.listen(other, "never")
        await journal.listen(room, "mention")
        assert await journal.receive(inbound(1, chat_key=str(room)))
        journal = await self.restart(journal)
        assert await journal.listening() == {room: "mention", other: "never"}
        assert await journal.knows(room)

    async def test_what_is_due_is_taken_in_once_under_its_key_and_says_why_it_is_there(
        self, journal: Journal
    ) -> None:
        due = Due(job="ABC123", at=1000.5, plan="every 1h", late=3.0, missed=2, words_of=("U1", "אב"))
        first = inbound(1, keys=("job:ABC123:1000.500",), message_id=None, due=due)
        assert await journal.receive(first)
        assert not await journal.receive(first.model_copy(update={"request_id": inbound(2).request_id}))
        journal = await self.restart(journal)
        (record,) = await journal.about(first.chat_key, "", "job:ABC123:1000.500")
        assert record.inbound == first
        assert await journal.about(first.chat_key, "", "job:ABC123:1000.501") == []

    async def test_a_lease_belongs_to_one_holder_until_it_runs_out(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        assert await journal.lease("lead", "a", 10) == 1
        assert await journal.lease("lead", "b", 10) is None
        assert await journal.lease("other", "b", 10) == 1
        await clock.advance(9)
        assert await journal.lease("lead", "a", 10) == 1
        journal = await self.restart(journal)
        await clock.advance(9)
        assert await journal.lease("lead", "b", 10) is None
        await clock.advance(1)
        assert await journal.lease("lead", "b", 10) == 2
        assert await journal.lease("lead", "a", 10) is None

    async def test_of_many_that_want_a_lease_at_once_one_gets_it(self, journal: Journal) -> None:
        numbers = await asyncio.gather(*(journal.lease("lead", f"h{number}", 10) for number in range(20)))
        assert [number for number in numbers if number is not None] == [1]

    async def test_a_clock_set_back_does_not_make_a_lease_longer_than_it_was_taken_for(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        assert await journal.lease("lead", "a", 10) == 1
        clock.jump(-DAY)
        assert await journal.lease("lead", "b", 10) is None
        await clock.advance(9.5)
        assert await journal.lease("lead", "b", 10) is None
        await clock.advance(0.5)
        assert await journal.lease("lead", "b", 10) == 2

    async def test_leases_and_jobs_are_not_swept(self, journal: Journal, clock: FakeClock) -> None:
        await journal.put_job(job(1))
        await journal.lease("lead", "a", 10)
        await clock.advance(100 * DAY)
        assert await journal.sweep(clock.now()) == 0
        assert await journal.jobs() == [job(1)]
        assert await journal.lease("lead", "b", 10) == 2

    async def test_a_probe_of_a_disk_that_is_well_finds_nothing(self, journal: Journal) -> None:
        assert [await journal.probe(), await journal.probe()] == ["", ""]
        assert journal.health() == ""

    async def test_lines_of_files_are_there_after_a_restart_until_they_are_dropped(
        self, journal: Journal
    ) -> None:
        assert await journal.kept_lines() == []
        first, second = "消息 😀 שלום\n".encode(), b"one\ntwo\n"
        assert await journal.post.put_lines(
            [(7, "chats/web", lambda: first), (8, "chats/web", lambda: second)]
        )
        assert await journal.post.put_lines([(9, "chats/web", lambda: first)])
        await journal.post.drop_lines([8, 6])
        journal = await self.restart(journal)
        assert await journal.kept_lines() == [LineRow(7, "chats/web", first), LineRow(9, "chats/web", first)]
        await journal.post.drop_lines([7, 9])
        journal = await self.restart(journal)
        assert await journal.kept_lines() == []

    async def test_lines_are_on_disk_with_whatever_is_written_after_them(self, journal: Journal) -> None:
        journal.post.put_lines([(1, "chats/web", lambda: b"one\n")])
        assert await journal.once("later", 0, 1)
        journal = await self.restart(journal)
        assert await journal.kept_lines() == [LineRow(1, "chats/web", b"one\n")]
