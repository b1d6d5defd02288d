"""What a journal knows of one inbound, its steps and its replies."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Quoted
from bot.contracts.journal import (
    ANSWERED,
    FAILED,
    STOPPED,
    WITHDRAWN,
    InboxEnd,
    InboxRecord,
    Journal,
    TurnRecord,
)
from bot.contracts.outbound import OutboxState
from bot.testing.clock import FakeClock
from tests.contracts.journal_rig import DAY, JournalRig, inbound, outbound, sent_as, step, still_open

CHAT = ChatKey.parse("telegram:chat:5")


class RecordsContract(JournalRig):
    async def test_an_inbound_is_found_with_what_became_of_it_and_when(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        name, began = inbound(1).request_id, clock.now()
        assert await journal.inbound(name) is None
        await journal.receive(inbound(1))
        assert await journal.inbound(name) == InboxRecord(
            inbound=inbound(1), received_at=began, changed_at=began
        )
        await clock.advance(1)
        await journal.begin_turn(name, CHAT, [name])
        assert await journal.inbound(name) == InboxRecord(
            "in_turn", name, inbound=inbound(1), received_at=began, changed_at=began + 1
        )
        await clock.advance(1)
        await journal.finish(name, InboxEnd("merged", "in words", merged_into="other"))
        journal = await self.restart(journal)
        assert await journal.inbound(name) == InboxRecord(
            "merged", name, "other", "in words", inbound=inbound(1), received_at=began, changed_at=began + 2
        )

    async def test_what_was_said_in_a_chat_and_in_its_threads_is_found_the_newest_first(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        began = clock.now()
        places = ["5", "5:thread:1", "50", "5:topic:2", "4", "5"]
        for number, place in enumerate(places):
            await clock.advance(1)
            chat = ChatKey.parse(f"telegram:chat:{place}")
            await journal.receive(inbound(number, chat_key=chat, message_id=str(number)))
        await journal.receive(inbound(9))  # of a button: no message

        async def found(chat: ChatKey, limit: int = 9, **times: float) -> list[str | None]:
            records = await journal.said_in(chat, **times, limit=limit)
            return [one.inbound.message_id for one in records]

        assert await found(CHAT) == ["5", "3", "1", "0"]
        assert await found(CHAT, limit=2) == ["5", "3"]
        assert await found(CHAT, since=began + 4) == ["5", "3"]
        assert await found(CHAT, since=began + 2, until=began + 4) == ["3", "1"]
        assert await found(ChatKey.parse("telegram:chat:5:thread:1")) == ["1"]

    async def test_last_words_are_written_together_with_the_end_that_they_tell(
        self, journal: Journal
    ) -> None:
        names = [inbound(number).request_id for number in (1, 2)]
        for number in (1, 2):
            await journal.receive(inbound(number))
        words = [outbound(number, number, kind="notice", not_before=1.0) for number in (1, 2)]
        await journal.begin_turn(names[0], CHAT, names[:1])
        await journal.end_turn(names[0], "failed", {names[0]: FAILED}, words[:1])
        await journal.finish(names[1], ANSWERED, words[1:])
        journal = await self.restart(journal)
        assert await journal.unfinished() == []
        assert [(row.id, row.deferred) for row in await journal.undelivered()] == [
            (row.id, True) for row in words
        ]

    async def test_an_edit_names_the_message_that_has_its_words_and_is_open_until_it_is_finished(
        self, journal: Journal
    ) -> None:
        message, edit = (inbound(number).request_id for number in (1, 2))
        for number in (1, 2):
            await journal.receive(inbound(number))
        with pytest.raises(errors.IllegalTransition, match="unknown is missing"):
            await journal.amend(inbound(1, text="other words"), ["unknown", edit])
        assert await journal.amend(inbound(1, text="new words"), [edit])
        journal = await self.restart(journal)
        record = await journal.inbound(edit)
        assert record is not None
        assert (record.state, record.merged_into) == ("queued", message)
        await journal.finish(edit, InboxEnd("merged", merged_into=message))
        await journal.finish(message, ANSWERED)
        assert not await journal.amend(inbound(1), [edit])

    async def test_an_edit_names_the_message_that_had_not_ended_when_it_came(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        names = [inbound(number).request_id for number in range(10)]

        async def came(number: int, **fields: Any) -> None:
            await journal.receive(inbound(number, **{"message_id": "m", "kind": "edit", **fields}))

        await came(0)  # before its message
        await came(1, kind="message")
        await journal.begin_turn(names[1], CHAT, names[1:2])
        clock.jump(-60)
        await came(2)
        await came(3, user_id="8")
        await came(4, chat_key="telegram:chat:6")
        await came(5, kind="delete")
        await came(
            6, kind="message", message_id="item 1", keys=("album",), items={"item 1": "", "item 2": ""}
        )
        await came(7, message_id="item 2", changes="album")
        await journal.end_turn(names[1], "done", {names[1]: ANSWERED})
        clock.jump(-60)
        await came(8)  # while another edit of it is open
        journal = await self.restart(journal)
        records = [await journal.inbound(name) for name in names[:9]]
        assert [one and one.amends for one in records] == [
            *(None, None, names[1], None, None, None, None),
            *(names[6], None),
        ]
        open_ones = {one.inbound.request_id: one for one in await journal.unfinished()}
        assert open_ones[names[2]].record.amends == names[1]
        assert [one.amends for one in open_ones[names[8]].about] == [None, None, names[1], None, None, None]
        assert (await journal.about(CHAT, "m"))[2].amends == names[1]

    async def test_a_turn_and_what_is_in_it_end_together_and_its_first_end_counts(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        first, second, third, other = (inbound(number).request_id for number in (1, 2, 3, 4))
        for number in (1, 2, 3, 4):
            await journal.receive(inbound(number))
        began = clock.now()
        assert await journal.turn(first) is None
        await journal.begin_turn(first, CHAT, [first, second])
        with pytest.raises(errors.IllegalTransition, match="unknown is missing"):
            await journal.join_turn(first, [third, "unknown"])
        await journal.begin_turn(other, CHAT, [other])
        assert await journal.turn(first) == TurnRecord("running", id=first, chat_key=CHAT, begun_at=began)
        await journal.suspend_turn(first)
        journal = await self.restart(journal)
        assert await journal.turn(first) == TurnRecord("suspended", id=first, chat_key=CHAT, begun_at=began)
        await journal.begin_turn(first, CHAT, [first])  # it goes on after a restart
        assert await journal.turn(first) == TurnRecord("running", id=first, chat_key=CHAT, begun_at=began)
        await journal.suspend_turn(first)
        await journal.resume_turn(first)
        await journal.finish(second, WITHDRAWN)
        await clock.advance(1)
        with pytest.raises(
            errors.IllegalTransition, match=f"{second}: an inbound that is withdrawn cannot become failed"
        ):
            await journal.end_turn(first, "failed", {first: FAILED, second: FAILED, third: FAILED})
        with pytest.raises(errors.IllegalTransition, match=f"{first}: a turn that is failed"):
            await journal.end_turn(first, "done", {first: ANSWERED})
        journal = await self.restart(journal)
        assert await journal.turn(first) == TurnRecord(
            "failed", id=first, chat_key=CHAT, begun_at=began, ended_at=began + 1
        )
        records = [await journal.inbound(name) for name in (first, second, third, other)]
        assert [(one.state, one.turn_id) for one in records if one is not None] == [
            ("failed", first),
            ("withdrawn", first),
            ("failed", first),
            ("in_turn", other),
        ]
        assert await still_open(journal) == [inbound(4)]

    async def test_a_turn_that_takes_over_what_another_had_ends_that(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        first, second = inbound(1).request_id, inbound(2).request_id
        for number in (1, 2):
            await journal.receive(inbound(number))
        began = clock.now()
        await journal.begin_turn(first, CHAT, [first, second])
        await clock.advance(1)
        await journal.begin_turn(second, CHAT, [second])
        assert await journal.turn(first) == TurnRecord(
            "done", id=first, chat_key=CHAT, begun_at=began, ended_at=began + 1
        )
        records = [await journal.inbound(name) for name in (first, second)]
        assert [(one.state, one.turn_id) for one in records if one is not None] == [
            ("in_turn", first),
            ("in_turn", second),
        ]
        await journal.begin_turn(second, CHAT, [first, second])
        record = await journal.inbound(first)
        assert record is not None
        assert record.turn_id == second
        await journal.receive(inbound(3))
        await journal.begin_turn(inbound(3).request_id, CHAT, [inbound(3).request_id])
        await journal.join_turn(inbound(3).request_id, [first])
        record, left = await journal.inbound(first), await journal.turn(second)
        assert record is not None
        assert left is not None
        assert (record.turn_id, left.state) == (inbound(3).request_id, "done")

    @pytest.mark.parametrize("suspended", [False, True])
    async def test_a_turn_that_is_being_stopped_does_not_run_again(
        self, journal: Journal, clock: FakeClock, *, suspended: bool
    ) -> None:
        first = inbound(1).request_id
        await journal.receive(inbound(1))
        began = clock.now()
        await journal.stop_turn(first)  # it has not begun
        await journal.begin_turn(first, CHAT, [first])
        if suspended:
            await journal.suspend_turn(first)
        await journal.stop_turn(first)
        await journal.suspend_turn(first)
        await journal.resume_turn(first)
        journal = await self.restart(journal)
        await journal.begin_turn(first, CHAT, [first])
        assert await journal.turn(first) == TurnRecord("stopping", id=first, chat_key=CHAT, begun_at=began)
        await journal.end_turn(first, "stopped", {first: STOPPED})
        assert await journal.turn(first) == TurnRecord(
            "stopped", id=first, chat_key=CHAT, begun_at=began, ended_at=clock.now()
        )

    async def test_a_turn_ends_with_the_message_that_began_it_and_with_no_other(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        first, second = inbound(1).request_id, inbound(2).request_id
        for number in (1, 2):
            await journal.receive(inbound(number))
        began = clock.now()
        await journal.begin_turn(first, CHAT, [first, second])
        await clock.advance(1)
        await journal.finish(second, WITHDRAWN)
        assert await journal.turn(first) == TurnRecord("running", id=first, chat_key=CHAT, begun_at=began)
        await journal.finish(first, InboxEnd("stopped"))
        assert await journal.turn(first) == TurnRecord(
            "stopped", id=first, chat_key=CHAT, begun_at=began, ended_at=began + 1
        )

    async def test_what_is_carried_out_anew_without_a_change_that_is_refused_is_written(
        self, journal: Journal
    ) -> None:
        first = inbound(1).request_id
        await journal.receive(inbound(1))
        wrong: Any = "lost"
        begun = journal.begin_turn(first, CHAT, [first])
        refused = journal.put_outbox([outbound(2, state=wrong)])
        with pytest.raises(errors.StorageError):
            await refused
        await begun
        record = await journal.inbound(first)
        assert record is not None
        assert (record.state, record.turn_id) == ("in_turn", first)

    async def test_a_message_that_comes_again_in_one_go_with_its_end_stays_ended(
        self, journal: Journal
    ) -> None:
        name = inbound(1).request_id
        changes = [
            journal.receive(inbound(1)),
            journal.finish(name, ANSWERED),
            journal.receive(inbound(1)),
        ]
        assert await asyncio.gather(*changes) == [True, None, False]
        with pytest.raises(errors.IllegalTransition, match="answered"):
            await journal.join_turn(name, [name])

    async def test_a_message_that_is_put_and_sent_in_one_go_is_known_as_sent(self, journal: Journal) -> None:
        ready = outbound(1)
        changes = [
            journal.put_outbox([ready]),
            journal.update_outbox(ready.begin()),
            journal.update_outbox(ready.begin().arrive("5")),
        ]
        await asyncio.gather(*changes)
        with pytest.raises(errors.IllegalTransition, match="sent"):
            await journal.update_outbox(ready.begin())
        assert [row.state for row in await journal.deliveries(ready.request_id)] == ["sent"]

    async def test_the_first_end_counts_and_dead_is_a_state_of_its_own(self, journal: Journal) -> None:
        for number, end in ((1, WITHDRAWN), (2, InboxEnd("dead", "unreadable"))):
            await journal.receive(inbound(number))
            await journal.finish(inbound(number).request_id, end)
            with pytest.raises(errors.IllegalTransition, match=end.state):
                await journal.finish(inbound(number).request_id, InboxEnd("handled", "later"))
        records = [await journal.inbound(inbound(number).request_id) for number in (1, 2)]
        assert [(record.state, record.detail) for record in records if record] == [
            ("withdrawn", None),
            ("dead", "unreadable"),
        ]

    async def test_an_edit_before_the_turn_replaces_what_an_inbound_says_and_keeps_its_place(
        self, journal: Journal
    ) -> None:
        for number in (1, 2):
            await journal.receive(inbound(number, message_id="9"))
        await journal.begin_turn(inbound(1).request_id, CHAT, [inbound(1).request_id])
        edited = inbound(1, message_id="9", text="改过的 ✏️ תוקן\ud800")
        assert await journal.amend(edited)
        journal = await self.restart(journal)
        kept = edited.model_copy(update={"text": "改过的 ✏️ תוקן\ufffd"})
        assert await still_open(journal) == [kept, inbound(2, message_id="9")]
        record = await journal.inbound(edited.request_id)
        assert record is not None
        assert (record.inbound, record.state) == (kept, "in_turn")

    async def test_what_is_finished_or_unknown_is_not_amended(self, journal: Journal) -> None:
        await journal.receive(inbound(1))
        await journal.finish(inbound(1).request_id, ANSWERED)
        assert not await journal.amend(inbound(1, text="too late"))
        assert not await journal.amend(inbound(2, text="never taken in"))
        record = await journal.inbound(inbound(1).request_id)
        assert record is not None
        assert record.inbound == inbound(1)
        assert await journal.unfinished() == []

    async def test_everything_about_one_message_is_found_in_the_order_it_came(self, journal: Journal) -> None:
        deleted = inbound(1, kind="delete", message_id="9")
        edited = inbound(2, kind="edit", message_id="9")
        await journal.receive(deleted)
        await journal.receive(edited)
        await journal.receive(inbound(3, message_id="8"))
        await journal.receive(inbound(4, message_id="9", chat_key="telegram:chat:6"))
        await journal.receive(inbound(5))
        original = inbound(6, message_id="9")
        await journal.receive(original)
        await journal.finish(edited.request_id, ANSWERED)
        journal = await self.restart(journal)
        found = await journal.about(CHAT, "9")
        assert [(one.inbound, one.state) for one in found] == [
            (deleted, "queued"),
            (edited, "answered"),
            (original, "queued"),
        ]
        assert await journal.about(CHAT, "") == []
        (key,) = found[0].inbound.keys[:1]
        assert await journal.about(CHAT, "", key) == found[:1]
        assert await journal.about(CHAT, "9", key) == found
        assert await journal.about(ChatKey.parse("telegram:chat:6"), "", key) == []

    async def test_everything_about_each_item_of_an_album_is_found_by_any_of_them(
        self, journal: Journal
    ) -> None:
        early = inbound(1, kind="edit", message_id="c", changes="album")
        other = inbound(2, kind="edit", message_id="x")
        album = inbound(3, message_id="a", keys=("album",), items={"a": "one", "b": "", "c": "三"})
        second = inbound(4, kind="edit", message_id="b", changes="album")
        elsewhere = inbound(5, message_id="b", chat_key="telegram:chat:6")
        for one in (early, other, album, second, elsewhere):
            await journal.receive(one)
        journal = await self.restart(journal)
        whole = [early, album, second]
        assert [one.inbound for one in await journal.about(CHAT, "a")] == whole
        for edit in (early, second):
            found = await journal.about(CHAT, edit.message_id or "", edit.changes)
            assert [one.inbound for one in found] == whole
        assert [one.inbound for one in await journal.about(CHAT, "b")] == [
            second
        ]  # no row says of what album that is

    async def test_what_answers_or_quotes_a_message_is_found(self, journal: Journal) -> None:
        quote = Quoted(user_id="5", text='he said "7"', message_id="9")
        quoting = inbound(1, quoted=(quote,), message_id="11")
        answering = inbound(2, answers="9", message_id="12")
        await journal.receive(quoting)
        await journal.receive(answering)
        await journal.receive(inbound(3, message_id="9", text='"9"'))
        await journal.receive(inbound(4, answers="9", chat_key="telegram:chat:6", message_id="13"))
        await journal.receive(inbound(5, answers="99", message_id="14"))
        await journal.finish(quoting.request_id, ANSWERED)
        journal = await self.restart(journal)
        assert [one.inbound for one in await journal.quoting(CHAT, "9")] == [quoting, answering]
        assert await journal.quoting(CHAT, "7") == []
        assert await journal.quoting(CHAT, "") == []
        assert await journal.quoting(CHAT, '"') == []

    async def test_the_unfinished_are_read_as_many_at_a_time_as_are_wanted(self, journal: Journal) -> None:
        for number in (3, 1, 2):
            await journal.receive(inbound(number))
        assert await still_open(journal, limit=2) == [inbound(3), inbound(1)]
        assert await journal.unfinished(limit=0) == []
        assert await still_open(journal, 1, inbound(3).request_id) == [inbound(1)]
        assert await still_open(journal, 2, "unknown") == [inbound(3), inbound(1)]
        await journal.finish(inbound(3).request_id, ANSWERED)
        assert await still_open(journal, limit=2) == [inbound(1), inbound(2)]

    async def test_what_is_unfinished_comes_with_the_state_of_its_turn_and_all_about_its_message(
        self, journal: Journal
    ) -> None:
        first, edit, gone, plain, elsewhere = (
            inbound(1, message_id="9"),
            inbound(2, message_id="9", kind="edit"),
            inbound(3, message_id="9", kind="edit"),
            inbound(4, message_id=None),
            inbound(5, message_id="9", chat_key="telegram:chat:6", chat_id="6"),
        )
        for one in (first, edit, gone, plain, elsewhere, inbound(6, message_id=None)):
            await journal.receive(one)
        await journal.finish(gone.request_id, ANSWERED)
        await journal.begin_turn(first.request_id, CHAT, [first.request_id, plain.request_id])
        await journal.stop_turn(first.request_id)
        await journal.begin_turn(elsewhere.request_id, elsewhere.chat_key, [elsewhere.request_id])
        journal = await self.restart(journal)
        found = await journal.unfinished()
        assert [(row.inbound, row.turn, [one.inbound for one in row.about]) for row in found] == [
            (first, "stopping", [first, edit, gone]),
            (edit, None, [first, edit, gone]),
            (plain, "stopping", [plain]),
            (elsewhere, "running", [elsewhere]),
            (inbound(6, message_id=None), None, [inbound(6, message_id=None)]),
        ]
        assert [row.record for row in found] == [
            await journal.inbound(row.inbound.request_id) for row in found
        ]
        assert found[0].about[2].state == "answered"

    async def test_changes_reach_the_disk_in_the_order_of_the_calls_whoever_waits(
        self, journal: Journal
    ) -> None:
        await journal.receive(inbound(1))
        # Begun in one order, awaited in the other.
        claimed = journal.begin_turn(inbound(1).request_id, CHAT, [inbound(1).request_id])
        begun = asyncio.ensure_future(journal.begin_step(step(1)))
        ended = journal.end_step(inbound(1).request_id, step(1).id, {"content": "ok"})
        await journal.finish(inbound(1).request_id, ANSWERED)
        # All of it is on disk although nobody has waited for it.
        again = await self.restart(journal)
        (record,) = await again.steps(inbound(1).request_id)
        assert record.result == {"content": "ok"}
        found = await again.inbound(inbound(1).request_id)
        assert found is not None
        assert (found.state, found.turn_id) == ("answered", inbound(1).request_id)
        await asyncio.gather(ended, begun, claimed)

    async def test_the_newest_request_is_the_greatest_of_all(self, journal: Journal) -> None:
        assert await journal.newest() == ""
        for number in (2, 7, 3):
            await journal.receive(inbound(number))
        await journal.finish(inbound(7).request_id, ANSWERED)
        journal = await self.restart(journal)
        await journal.open()
        assert await journal.newest() == inbound(7).request_id

    async def test_steps_are_kept_in_the_order_they_began_with_how_they_ended(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        result = {"type": "tool_result", "content": [{"type": "text", "text": "搜索 🔍 תוצאה"}]}
        call = step(
            1, id="call-1", kind="model", name="claude", ended_at=clock.now() + 1, result={"uuid": "u"}
        )
        await journal.begin_step(call)
        for number in (5, 4):
            await journal.begin_step(step(number, began_at=clock.now() - number, parent_id="call-1"))
        await journal.begin_step(step(5, request=2))
        await clock.advance(3)
        await journal.end_step(step(5).request_id, step(5).id, result)
        journal = await self.restart(journal)
        first, second, third = await journal.steps(step(1).request_id)
        assert first == call
        assert second == step(
            5, began_at=clock.now() - 8, ended_at=clock.now(), result=result, parent_id="call-1"
        )
        # It began and may have run: nobody knows how it ended.
        assert (third.id, third.ended_at, third.result) == (step(4).id, None, None)
        assert [one.ended_at for one in await journal.steps(step(5, request=2).request_id)] == [None]
        assert await journal.steps("unknown") == []

    async def test_a_step_that_begins_again_or_ends_again_stays_as_it_is(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        await journal.begin_step(step(1))
        await journal.end_step(step(1).request_id, step(1).id, {"n": 1})
        ended = clock.now()
        await clock.advance(5)
        await journal.begin_step(step(1, name="other", began_at=5.0))
        await journal.end_step(step(1).request_id, step(1).id, {"n": 2})
        await journal.end_step(step(1).request_id, "unknown", {"n": 3})
        assert await journal.steps(step(1).request_id) == [step(1, ended_at=ended, result={"n": 1})]

    async def test_a_kind_of_step_that_does_not_exist_is_refused(self, journal: Journal) -> None:
        with pytest.raises(errors.StorageError):
            await journal.begin_step(step(1, kind="dance"))
        assert await journal.steps(step(1).request_id) == []

    async def test_sweeping_takes_the_steps_of_what_it_forgets_and_leaves_those_of_what_goes_on(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        for number in (1, 2, 3):
            await journal.receive(inbound(number, keys=()))
            await journal.begin_step(step(number, request=number, began_at=clock.now()))
        await journal.begin_step(step(1, request=9, began_at=clock.now()))  # of a turn that no chat caused
        await journal.finish(inbound(1).request_id, ANSWERED)
        await clock.advance(DAY)
        await journal.finish(inbound(3).request_id, ANSWERED)
        assert await journal.sweep(clock.now() - 1) == 3
        left = [len(await journal.steps(step(1, request=request).request_id)) for request in (1, 2, 3, 9)]
        assert left == [0, 1, 1, 0]

    async def test_messages_wait_for_the_platform_alone_once_their_inbound_is_finished(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        for number in (1, 2):
            await journal.receive(inbound(number))
        await journal.put_outbox([outbound(5, text="先 👍"), outbound(1, kind="notice")])
        await journal.put_outbox([outbound(3), outbound(4), outbound(2, request=2), outbound(6)])
        await journal.update_outbox(replace(outbound(3), state="sending"))
        await sent_as(journal, replace(outbound(4), state="sent", message_id="4"))
        await journal.update_outbox(replace(outbound(6), state="failed"))
        assert await journal.undelivered() == []
        began = clock.now()
        await clock.advance(1)
        await journal.finish(inbound(1).request_id, ANSWERED)
        await journal.update_outbox(replace(outbound(3), state="ready"))
        journal = await self.restart(journal)
        first, notice, second = await journal.undelivered()
        assert (notice.id, notice.kind) == (outbound(1).id, "notice")
        assert (first.id, first.text, first.target) == (outbound(5).id, "先 👍", {"chat_id": "5"})
        assert (first.created_at, first.changed_at) == (began, began)
        assert (second.id, second.state, second.created_at, second.changed_at) == (
            *(outbound(3).id, "ready"),
            *(began, began + 1),
        )

    async def test_a_reply_nobody_took_in_a_message_for_waits_too(self, journal: Journal) -> None:
        await journal.put_outbox([outbound(1, request=77)])
        assert [row.id for row in await journal.undelivered()] == [outbound(1).id]

    async def test_a_reply_is_found_by_the_id_the_chat_shows_and_the_newest_without(
        self, journal: Journal
    ) -> None:
        for number in (1, 2, 3, 4):
            await journal.put_outbox([outbound(number, request=number)])
            state: OutboxState = "unknown" if number == 3 else "sent"
            await sent_as(journal, replace(outbound(number), state=state, message_id=f"m{number}"))
        await journal.put_outbox([outbound(5, request=5, kind="notice"), outbound(6, request=6)])
        await sent_as(journal, replace(outbound(5), state="sent", message_id="m5"))
        await journal.put_outbox([outbound(7, request=7, chat_key="telegram:chat:6")])
        await sent_as(journal, replace(outbound(7), state="sent", message_id="m1"))
        journal = await self.restart(journal)
        assert await journal.delivered_as(CHAT, "m1") == inbound(1).request_id
        assert await journal.delivered_as(ChatKey.parse("telegram:chat:6"), "m1") == inbound(7).request_id
        assert await journal.delivered_as(CHAT, None) == inbound(6).request_id
        for unknown in ("m3", "m5", "m7", ""):
            assert await journal.delivered_as(CHAT, unknown) is None
        assert await journal.delivered_as(ChatKey.parse("telegram:chat:9"), None) is None

    async def test_the_messages_that_other_rows_of_a_chat_have_are_known(self, journal: Journal) -> None:
        keys = ("slack:chat:C1", "slack:chat:C1:thread:1.2", "slack:chat:C11")
        rows = [outbound(number, chat_key=keys[(number - 1) % 3]) for number in range(1, 8)]
        await journal.put_outbox(rows)
        for row in rows[:5]:
            await sent_as(journal, replace(row, state="sent", message_id=f"m{row.id[-1]}"))
        await journal.update_outbox(replace(rows[5], state="sending", message_id="m6"))
        journal = await self.restart(journal)
        assert await journal.claimed_ids(rows[6]) == {"m1", "m2", "m4", "m5"}
        assert await journal.claimed_ids(rows[1]) == {"m1", "m4", "m5"}
        assert await journal.claimed_ids(outbound(9, chat_key=keys[2])) == {"m3", "m6"}

    async def test_a_reply_is_found_by_who_was_answered_below_a_chat_and_above_a_thread(
        self, journal: Journal
    ) -> None:
        keys = ("slack:chat:C1", "slack:chat:C1:thread:1.2", "slack:chat:C11:thread:1.2")
        top, thread, other = map(ChatKey.parse, keys)
        for number, (chat, who) in enumerate(((thread, "U1"), (thread, "U2"), (other, "U1"), (top, "U1")), 1):
            await journal.receive(inbound(number, chat_key=chat, user_id=who))
            target = {"channel": "C1", "thread_ts": f"{number}.0"}
            await journal.put_outbox(
                [replace(outbound(number, request=number, chat_key=chat), target=target)]
            )
            await sent_as(journal, replace(outbound(number), state="sent", message_id=f"m{number}"))
        journal = await self.restart(journal)
        place = {"channel": "C1", "thread_ts": "4.0"}

        async def found(chat: ChatKey, who: str, message_id: str | None = None) -> str | None:
            return await journal.delivered_near(chat, who, place, message_id)

        one, two, four = (inbound(number).request_id for number in (1, 2, 4))
        assert [await found(top, who) for who in ("U1", "U2", "U3")] == [one, two, None]
        assert [await found(top, "U1", name) for name in ("m1", "m2", "m3")] == [one, None, None]
        assert await found(ChatKey.parse("slack:chat:C1:thread:4.0"), "U1") == four
        assert await found(ChatKey.parse("slack:chat:C1:thread:4.0"), "U2") is None
        assert await found(ChatKey.parse("slack:chat:C1:thread:4.0"), "U1", "m4") == four
        place["thread_ts"] = "5.0"
        assert await found(ChatKey.parse("slack:chat:C1:thread:5.0"), "U1") is None

    async def test_a_chat_that_is_gone_is_remembered_until_it_is_open_again(self, journal: Journal) -> None:
        await journal.close_target("telegram", "5", "blocked")
        await journal.close_target("slack", "5", "archived")
        await journal.close_target("telegram", "5", "kicked 👢")
        await journal.open_target("telegram", "6")
        journal = await self.restart(journal)
        assert await journal.closed_targets() == {("telegram", "5"): "kicked 👢", ("slack", "5"): "archived"}
        await journal.open_target("telegram", "5")
        await journal.sweep(1e12)
        assert await journal.closed_targets() == {("slack", "5"): "archived"}
