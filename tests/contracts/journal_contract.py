"""What every journal does. A suite for one of them subclasses `JournalContract` and says how it is opened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from typing import Literal, cast, get_args

import pytest

from bot import errors
from bot.contracts.approvals import QuestionButtons
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Command, Quoted
from bot.contracts.journal import (
    ANSWERED,
    WITHDRAWN,
    FinalState,
    FinalTurnState,
    InboxEnd,
    InboxState,
    InboxWrites,
    Journal,
    TurnState,
)
from bot.contracts.outbound import OutboxState, StoredFile
from bot.testing.clock import FakeClock
from tests.contracts.journal_approvals import ApprovalsContract
from tests.contracts.journal_records import RecordsContract
from tests.contracts.journal_rig import DAY, inbound, outbound, sent_as, still_open
from tests.contracts.journal_shared import SharedContract

CHAT = ChatKey.parse("telegram:chat:5")


class JournalContract(RecordsContract, SharedContract, ApprovalsContract):
    """Inbox, outbox, and all of it together."""

    async def test_an_inbound_comes_back_as_it_was_after_a_restart(self, journal: Journal) -> None:
        whole = inbound(
            text="你好 👩‍👩‍👧 שלום\x00\n",
            kind="edit",
            chat_type="group",
            addressed="mention",
            command=Command(name="new", args="x"),
            message_id="9",
            user_name="名",
            attachments=(Attachment(kind="photo", name="猫.png", size=3),),
            quoted=(Quoted(user_id=None, text="before", ts=4, from_self=True),),
        )
        assert await journal.receive(whole)
        journal = await self.restart(journal)
        assert await still_open(journal) == [whole]

    async def test_an_event_seen_before_by_any_of_its_keys_is_refused_and_leaves_nothing(
        self, journal: Journal
    ) -> None:
        assert await journal.receive(inbound(1))
        again = inbound(2, keys=("new", "message:5:1"), chat_key="telegram:chat:6")
        assert not await journal.receive(again)
        journal = await self.restart(journal)
        assert not await journal.receive(inbound(3, keys=("update:1",)))
        assert await still_open(journal) == [inbound(1)]
        assert not await journal.knows(ChatKey.parse("telegram:chat:6"))
        # Nor were the other keys of the one that was refused taken down.
        assert await journal.receive(inbound(4, keys=("new",)))

    async def test_keys_of_different_channels_are_apart(self, journal: Journal) -> None:
        assert await journal.receive(inbound(1))
        assert await journal.receive(inbound(2, keys=inbound(1).keys, channel="slack"))

    async def test_an_inbound_without_keys_is_never_a_duplicate(self, journal: Journal) -> None:
        assert await journal.receive(inbound(1, keys=()))
        assert await journal.receive(inbound(2, keys=()))

    async def test_of_one_event_delivered_many_times_at_once_one_is_taken_in(self, journal: Journal) -> None:
        deliveries = (inbound(number, keys=("same",)) for number in range(20))
        taken = await asyncio.gather(*(journal.receive(delivery) for delivery in deliveries))
        assert sorted(taken) == [False] * 19 + [True]
        assert len(await still_open(journal)) == 1

    async def test_one_that_cannot_be_written_does_not_fail_those_beside_it(self, journal: Journal) -> None:
        same = [
            inbound(1),
            inbound(2),
            inbound(3, request_id=inbound(1).request_id),
            inbound(4, request_id=""),
        ]
        results = await asyncio.gather(*map(journal.receive, same), return_exceptions=True)
        assert results[:2] == [True, True]
        assert [isinstance(result, errors.StorageError) for result in results[2:]] == [True, True]
        assert await still_open(journal) == same[:2]
        # What was refused does not count as seen.
        assert await journal.receive(inbound(3))

    async def test_what_is_queued_or_in_a_turn_is_unfinished_oldest_first_until_it_ends(
        self, journal: Journal
    ) -> None:
        for number in (3, 1, 2, 5, 4):
            await journal.receive(inbound(number))
        await journal.begin_turn(inbound(5).request_id, CHAT, [inbound(5).request_id])
        await journal.finish(inbound(1).request_id, ANSWERED)
        await journal.begin_turn(inbound(2).request_id, CHAT, [inbound(2).request_id])
        await journal.finish(inbound(2).request_id, InboxEnd("dead"))
        journal = await self.restart(journal)
        assert await still_open(journal) == [inbound(3), inbound(5), inbound(4)]

    async def test_finishing_again_changes_nothing_and_what_is_unknown_is_an_error(
        self, journal: Journal
    ) -> None:
        await journal.receive(inbound(1))
        for _ in range(2):
            await journal.finish(inbound(1).request_id, ANSWERED)
            with pytest.raises(errors.IllegalTransition, match="missing"):
                await journal.join_turn("unknown", ["unknown"])
            with pytest.raises(errors.IllegalTransition, match="missing"):
                await journal.finish("unknown", ANSWERED)
        assert await journal.unfinished() == []

    @pytest.mark.parametrize("after", ["begun", "in_turn", *get_args(FinalState)])
    @pytest.mark.parametrize("before", [None, "queued", "in_turn", *get_args(FinalState)])
    async def test_an_inbound_on_file_goes_where_its_state_lets_it_and_nowhere_else(
        self, journal: Journal, before: InboxState | None, after: InboxState | Literal["begun"]
    ) -> None:
        name = inbound(1).request_id
        if before is not None:
            await journal.receive(inbound(1))
        await journal.receive(inbound(2))
        await journal.begin_turn(inbound(2).request_id, CHAT, [inbound(2).request_id])

        def goes(writes: InboxWrites, to: InboxState | Literal["begun"]) -> Awaitable[None]:
            if to == "begun":
                return writes.begin_turn(inbound(2).request_id, CHAT, [name])
            if to == "in_turn":
                return writes.join_turn(inbound(2).request_id, [name])
            return writes.finish(name, InboxEnd(cast("FinalState", to)))

        if before not in {None, "queued"}:
            await goes(journal, before)
        legal = before in {after, "queued", "in_turn"}
        reached = "in_turn" if after == "begun" else after
        if legal:
            await goes(journal, after)
        else:
            with pytest.raises(errors.IllegalTransition, match=before or "missing"):
                await goes(journal, after)
            await goes(journal.post, after)  # nobody is told but the log
        journal = await self.restart(journal)
        found = await journal.inbound(name)
        assert (found.state if found else None) == (reached if legal else before)

    async def test_a_turn_that_begins_with_what_has_ended_has_the_rest_and_is_an_error(
        self, journal: Journal
    ) -> None:
        names = [inbound(number).request_id for number in (1, 2, 3)]
        for number in (1, 2, 3):
            await journal.receive(inbound(number))
        await journal.finish(names[1], WITHDRAWN)
        with pytest.raises(errors.IllegalTransition, match=f"{names[1]}: .*withdrawn.*; unknown is missing"):
            await journal.begin_turn(names[0], CHAT, [names[0], names[1], "unknown", names[2]])
        journal = await self.restart(journal)
        records = [await journal.inbound(name) for name in names]
        assert [(one.state, one.turn_id) for one in records if one is not None] == [
            ("in_turn", names[0]),
            ("withdrawn", None),
            ("in_turn", names[0]),
        ]
        turn = await journal.turn(names[0])
        assert turn is not None
        assert turn.state == "running"

    @pytest.mark.parametrize("before", [None, *get_args(FinalTurnState)])
    async def test_the_end_of_a_turn_that_cannot_end_is_an_error_and_takes_nothing_of_it_back(
        self, journal: Journal, before: FinalTurnState | None
    ) -> None:
        name = inbound(1).request_id
        await journal.receive(inbound(1))
        if before is not None:
            await journal.begin_turn(name, CHAT, [name])
            await journal.end_turn(name, before, {})
        end = journal.end_turn(name, "done", {name: ANSWERED}, [outbound(1)])
        if before == "done":
            await end
        else:
            with pytest.raises(errors.IllegalTransition, match=before or "missing"):
                await end
        journal = await self.restart(journal)
        turn, record = await journal.turn(name), await journal.inbound(name)
        assert (turn.state if turn else None) == before
        assert record is not None
        assert record.state == "answered"  # else it would be answered again after a restart
        assert [row.id for row in await journal.deliveries(name)] == [outbound(1).id]

    async def test_a_conversation_is_known_from_its_first_inbound_on_for_ever(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        assert not await journal.knows(ChatKey.parse("telegram:chat:5"))
        await journal.receive(inbound(1))
        await journal.finish(inbound(1).request_id, ANSWERED)
        await clock.advance(DAY)
        await journal.sweep(clock.now())
        journal = await self.restart(journal)
        assert await journal.knows(ChatKey.parse("telegram:chat:5"))
        assert not await journal.knows(ChatKey.parse("telegram:chat:55"))

    async def test_a_buried_event_is_no_inbound_and_may_be_buried_again(self, journal: Journal) -> None:
        for _ in range(2):
            await journal.keep_dead_letter("telegram", "update:1", '{"poison":"\ud800\x00"}', "no chat")
        assert await journal.unfinished() == []
        assert await journal.receive(inbound(1))

    async def test_a_row_is_read_as_it_was_written_with_all_that_is_known_of_it(
        self, journal: Journal
    ) -> None:
        first = replace(outbound(1), step_id="call_1", replaces="m7")
        buttons = QuestionButtons("01APPROVAL", ("once", "deny"))
        again = replace(outbound(2), repeat_of=first.id, state="sending", not_before=5.5, buttons=buttons)
        again = replace(again, part_of=first.id, closes_as="May I?")
        await journal.put_outbox([first])
        await journal.put_outbox([again])
        first = replace(first, state="unknown", reason="uncertain", untold=True)
        again = replace(
            again, delayed=True, attempts=3, not_before=7.25, text="other words 你好", closes_as=None
        )
        await sent_as(journal, first)
        await journal.update_outbox(again)
        journal = await self.restart(journal)
        found = await journal.deliveries(first.request_id)
        assert [replace(row, created_at=0.0, changed_at=0.0) for row in found] == [first, again]
        assert [row.id for row in await journal.untold()] == [first.id]
        await journal.update_outbox(replace(first, untold=False))
        assert await journal.untold() == []

    async def test_a_row_has_its_file_until_it_is_swept(self, journal: Journal) -> None:
        file = StoredFile("数据.csv", "text/csv", 12, "a" * 64, "out/数据.csv")
        row = replace(outbound(1, text=""), file=file)
        await journal.put_outbox([row, outbound(2)])
        journal = await self.restart(journal)
        (found,) = await journal.with_files()
        assert (found.id, found.file) == (row.id, file)
        await sent_as(journal, replace(row, state="sent", message_id="m1"))
        assert await journal.with_files() == []
        found, other = await journal.deliveries(row.request_id)
        assert (found.file, other.file) == (file, None)

    async def test_rows_keep_their_order_and_go_to_what_became_of_them(self, journal: Journal) -> None:
        hello = outbound(2, text="שלום 👋")
        await journal.put_outbox([hello, outbound(1, kind="notice")])
        await journal.put_outbox([outbound(3, request=2)])
        await journal.update_outbox(replace(hello, state="sending"))
        await journal.update_outbox(replace(hello, state="sent", message_id="77"))
        await journal.update_outbox(replace(outbound(1), state="failed", reason="gone"))
        journal = await self.restart(journal)
        first, second = await journal.deliveries(outbound(1).request_id)
        assert (first.id, first.text, first.kind, first.state, first.message_id, first.reason) == (
            outbound(2).id,
            "שלום 👋",
            "reply",
            "sent",
            "77",
            None,
        )
        assert (second.kind, second.state, second.message_id, second.reason) == (
            "notice",
            "failed",
            None,
            "gone",
        )
        (third,) = await journal.deliveries(outbound(3, request=2).request_id)
        assert (third.state, third.chat_key, third.request_id) == (
            "ready",
            ChatKey.parse("telegram:chat:5"),
            outbound(3, request=2).request_id,
        )
        assert await journal.deliveries("unknown") == []

    async def test_a_row_that_takes_the_place_of_a_preview_ends_the_row_of_that(
        self, journal: Journal
    ) -> None:
        shown = replace(outbound(1, kind="preview"), state="sending", message_id="m1")
        other = replace(outbound(2, kind="preview"), state="sending", message_id="m2")
        elsewhere = replace(outbound(3, request=2, kind="preview"), state="sending", message_id="m1")
        await journal.put_outbox([shown, other, elsewhere])
        await journal.put_outbox([outbound(4, replaces="m1"), outbound(5)])
        found = [*await journal.deliveries(shown.request_id), *await journal.deliveries(elsewhere.request_id)]
        assert [(row.id, row.state) for row in found] == [
            (shown.id, "sent"),
            (other.id, "sending"),
            (outbound(4).id, "ready"),
            (outbound(5).id, "ready"),
            (elsewhere.id, "sending"),
        ]

    async def test_a_row_written_again_stays_as_it_is(self, journal: Journal) -> None:
        await journal.put_outbox([outbound(1)])
        await sent_as(journal, replace(outbound(1), state="sent", message_id="77"))
        await journal.put_outbox([outbound(1, text="another"), outbound(2)])
        await journal.put_outbox([])
        records = await journal.deliveries(outbound(1).request_id)
        assert [(record.text, record.state) for record in records] == [
            ("answer 1", "sent"),
            ("answer 2", "ready"),
        ]

    async def test_rows_are_written_all_or_none(self, journal: Journal) -> None:
        results = await asyncio.gather(
            journal.put_outbox([outbound(1), outbound(2, kind=None)]),
            journal.put_outbox([outbound(3)]),
            return_exceptions=True,
        )
        assert [isinstance(result, errors.StorageError) for result in results] == [True, False]
        assert [record.id for record in await journal.deliveries(outbound(1).request_id)] == [outbound(3).id]

    async def test_a_state_that_does_not_exist_is_refused(self, journal: Journal) -> None:
        await journal.put_outbox([outbound(1)])
        with pytest.raises(errors.IllegalTransition):
            await journal.update_outbox(outbound(1, state="lost"))
        assert [record.state for record in await journal.deliveries(outbound(1).request_id)] == ["ready"]

    @pytest.mark.parametrize("after", get_args(OutboxState))
    @pytest.mark.parametrize("before", [None, *get_args(OutboxState)])
    async def test_a_row_on_file_goes_where_its_state_lets_it_and_nowhere_else(
        self, journal: Journal, before: OutboxState | None, after: OutboxState
    ) -> None:
        row = replace(outbound(1), state=before or "ready", message_id="m1")
        await journal.put_outbox([row] if before else [])
        legal = {
            "ready": {"ready", "sending", "failed"},
            "sending": {"ready", "sending", "sent", "failed", "unknown"},
            "sent": {"sent"},
            "failed": {"failed"},
            "unknown": {"unknown"},
        }
        new = replace(row, state=after, message_id="m2")
        if before is not None and after in legal[before]:
            await journal.update_outbox(new)
        else:
            with pytest.raises(errors.IllegalTransition, match=before or "missing"):
                await journal.update_outbox(new)
            new = row
            await journal.post.update_outbox(replace(row, state=after))  # nobody is told but the log
        journal = await self.restart(journal)
        found = [(row.state, row.message_id) for row in await journal.deliveries(row.request_id)]
        assert found == ([(new.state, new.message_id)] if before else [])

    @pytest.mark.parametrize("move", ["begin", "suspend", "resume", "stop"])
    @pytest.mark.parametrize(
        ("before", "ways"),
        [
            (None, {"begin": "running", "stop": None}),
            (
                "running",
                {"begin": "running", "suspend": "suspended", "resume": "running", "stop": "stopping"},
            ),
            (
                "suspended",
                {"begin": "running", "suspend": "suspended", "resume": "running", "stop": "stopping"},
            ),
            ("stopping", dict.fromkeys(("begin", "suspend", "resume", "stop"), "stopping")),
            *((end, {}) for end in get_args(FinalTurnState)),
        ],
    )
    async def test_a_turn_on_file_goes_where_its_state_lets_it_and_nowhere_else(
        self, journal: Journal, before: TurnState | None, ways: dict[str, TurnState | None], move: str
    ) -> None:
        await journal.receive(inbound(1))
        name = inbound(1).request_id
        moves = {
            "begin": lambda: journal.begin_turn(name, CHAT, [name]),
            "suspend": lambda: journal.suspend_turn(name),
            "resume": lambda: journal.resume_turn(name),
            "stop": lambda: journal.stop_turn(name),
        }
        if before is not None:
            await moves["begin"]()
        if before in {"suspended", "stopping"}:
            await moves["suspend" if before == "suspended" else "stop"]()
        elif before in get_args(FinalTurnState):
            await journal.end_turn(name, cast("FinalTurnState", before), {})
        if move in ways:
            await moves[move]()
        else:
            with pytest.raises(errors.IllegalTransition, match=before or "missing"):
                await moves[move]()
        found = await journal.turn(name)
        assert (found.state if found else None) == ways.get(move, before)

    async def test_once_is_true_once_in_its_time_for_each_key_across_restarts(self, journal: Journal) -> None:
        assert await journal.once("a", 1000.0, 60)
        assert not await journal.once("a", 1000.0, 60)
        assert await journal.once("b", 1000.0, 60)
        journal = await self.restart(journal)
        assert not await journal.once("a", 1059.9, 60)
        assert await journal.once("a", 1060.0, 60)
        assert not await journal.once("a", 1060.0, 60)

    async def test_once_asked_many_times_at_once_is_true_once(self, journal: Journal) -> None:
        answers = await asyncio.gather(*(journal.once("a", 1000.0, 60) for _ in range(20)))
        assert sorted(answers) == [False] * 19 + [True]

    async def test_a_clock_set_back_does_not_silence_for_longer_than_the_time(self, journal: Journal) -> None:
        assert await journal.once("a", 1_000_000.0, 60)
        assert not await journal.once("a", 1000.0, 60)
        assert not await journal.once("a", 1059.0, 60)
        assert await journal.once("a", 1060.0, 60)

    async def test_sweeping_keeps_what_may_still_silence(self, journal: Journal) -> None:
        await journal.once("long", 1000.0, 10 * DAY)
        await journal.once("short", 1000.0, 60)
        assert await journal.sweep(1000.0 + DAY) == 0
        assert not await journal.once("long", 1000.0 + DAY, 10 * DAY)

    async def test_sweeping_forgets_what_is_over_and_keeps_what_is_not(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        for number in (1, 2, 3):
            await journal.receive(inbound(number))
            await journal.put_outbox([outbound(number, request=number)])
            await sent_as(journal, replace(outbound(number), state="sent", message_id=f"{number}"))
        await journal.put_outbox([outbound(8, request=1), outbound(9, request=1)])
        await sent_as(journal, replace(outbound(8), state="unknown"))
        await journal.finish(inbound(1).request_id, ANSWERED)
        await clock.advance(DAY)
        await journal.finish(inbound(3).request_id, ANSWERED)
        await journal.receive(inbound(4))
        before = clock.now() - 1
        # Of 1: its row, two messages that went out or may have, its two keys. Of 3, which ended just now: keys
        # and answer.
        assert await journal.sweep(before) == 5 + 3
        assert await journal.sweep(before) == 0
        journal = await self.restart(journal)
        assert await still_open(journal) == [inbound(2), inbound(4)]
        assert [record.state for record in await journal.deliveries(inbound(1).request_id)] == ["ready"]
        # A turn that goes on has to know what it sent, and that its event was seen.
        assert [record.message_id for record in await journal.deliveries(inbound(2).request_id)] == ["2"]
        assert not await journal.receive(inbound(5, keys=inbound(2).keys))
        assert not await journal.receive(inbound(5, keys=inbound(4).keys))
        assert await journal.receive(inbound(5, keys=inbound(1).keys))

    async def test_what_went_wrong_may_be_kept_for_longer(self, journal: Journal, clock: FakeClock) -> None:
        dead = InboxEnd("dead")
        for number, end, state in ((1, ANSWERED, "sent"), (2, dead, "failed"), (3, dead, "unknown")):
            await journal.receive(inbound(number))
            await journal.put_outbox([outbound(number, request=number)])
            await sent_as(journal, outbound(number, state=state))
            await journal.finish(inbound(number).request_id, end)
        await journal.keep_dead_letter("telegram", "update:9", "{}", "no chat")
        began = clock.now()
        await clock.advance(8 * DAY)
        keys = 3 * 2
        assert await journal.sweep(clock.now() - 7 * DAY, failed=began - 1) == 2 + keys
        assert await journal.inbound(inbound(1).request_id) is None
        found = await journal.inbound(inbound(2).request_id)
        assert found is not None
        assert found.state == "dead"
        assert [row.state for row in await journal.deliveries(inbound(3).request_id)] == ["unknown"]
        assert await journal.sweep(clock.now(), failed=clock.now()) == 2 * 2 + 1

    async def test_sweeping_ends_however_much_there_is(self, journal: Journal, clock: FakeClock) -> None:
        await asyncio.gather(*(journal.receive(inbound(number)) for number in range(2_100)))
        await asyncio.gather(
            *(journal.finish(inbound(number).request_id, ANSWERED) for number in range(2_100))
        )
        await clock.advance(1)
        assert await journal.sweep(clock.now()) == 3 * 2_100

    async def test_what_utf8_cannot_carry_does_no_harm_anywhere(self, journal: Journal) -> None:
        bad, ours, back = "x\ud800\x00", "x\ud800", f"x\ufffd{self.nul}"
        key = ChatKey("telegram", bad)
        assert await journal.receive(
            inbound(1, text=bad, chat_key=key, user_id=ours, keys=(bad,), target={bad: bad}, request_id=ours)
        )
        assert not await journal.receive(inbound(2, keys=(bad,)))
        await journal.begin_turn(ours, key, [ours])
        await journal.suspend_turn(ours)
        await journal.stop_turn(ours)
        assert await journal.knows(key)
        (found,) = await still_open(journal)
        assert (found.text, found.target) == ("x\ufffd\x00", {"x\ufffd\x00": "x\ufffd\x00"})
        await journal.put_outbox(
            [outbound(1, id=ours, request_id=ours, chat_key=key, target={bad: bad}, text=bad)]
        )
        await sent_as(journal, outbound(1, id=ours, text=bad, state="sent", message_id=bad))
        (record,) = await journal.deliveries(ours)
        assert (record.state, record.text, record.message_id) == ("sent", back, back)
        assert await journal.once(bad, 1.0, 1.0)
        await journal.keep_dead_letter(bad, bad, bad, bad)
        await journal.end_turn(ours, "done", {ours: InboxEnd("merged", bad, bad)})
        assert await journal.unfinished() == []

    async def test_closing_is_safe_twice_and_waits_for_what_was_begun(self, journal: Journal) -> None:
        receiving = [asyncio.create_task(journal.receive(inbound(number))) for number in range(50)]
        await asyncio.sleep(0)
        await journal.close()
        await journal.close()
        assert await asyncio.gather(*receiving) == [True] * 50
        journal = await self.restart(journal)
        assert len(await still_open(journal)) == 50
