"""What a journal knows of what people were asked to allow."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bot.contracts.approvals import Approval, ApprovalRecord, Verdict
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.journal import Journal
from bot.testing.clock import FakeClock
from tests.contracts.journal_rig import DAY, JournalRig, inbound

HERE = ChatKey.parse("slack:chat:C1")


def approval(call: str = "call1", fingerprint: str = "f1", chat_key: ChatKey = HERE) -> Approval:
    return Approval(
        request_id="R1",
        call_id=call,
        chat_key=chat_key,
        tool="run_shell",
        fingerprint=fingerprint,
        shown="make 漢字\n👍",
        why="rule",
        rule="",
        channel="slack",
        user_id="U1",
        granted=False,
        lasting=True,
    )


class ApprovalsContract(JournalRig):
    async def test_a_question_is_written_once_and_found_after_a_restart(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        began = clock.now()
        record = ApprovalRecord("A1", approval(), began)
        assert await journal.ask("A1", approval()) == record
        await clock.advance(1)
        journal = await self.restart(journal)
        assert await journal.ask("A2", approval()) == record
        assert await journal.open_approvals() == [record]
        assert await journal.approval("A1") == record
        assert await journal.approval("A2") is None
        other = await journal.ask("A3", approval(fingerprint="f2"))
        assert [one.id for one in await journal.open_approvals()] == ["A1", other.id]

    async def test_what_was_decided_since_a_time_is_found(self, journal: Journal, clock: FakeClock) -> None:
        for name in ("A1", "A2", "A3"):
            await journal.ask(name, approval(fingerprint=name))
        await journal.resolve("A2", Verdict("denied", UserRef("slack", "U8")))
        await clock.advance(60)
        await journal.resolve("A1", Verdict("expired"))
        journal = await self.restart(journal)
        since = clock.now()
        assert [one.id for one in await journal.decided_since(since - 60)] == ["A1", "A2"]
        assert [one.id for one in await journal.decided_since(since)] == ["A1"]
        assert await journal.decided_since(since + 1) == []

    async def test_the_first_verdict_counts(self, journal: Journal, clock: FakeClock) -> None:
        await journal.ask("A1", approval())
        verdicts = [
            Verdict("approved", UserRef("slack", "U7"), "chat"),
            Verdict("denied", UserRef("slack", "U8")),
            Verdict("expired"),
        ]
        assert await asyncio.gather(*(journal.resolve("A1", one) for one in verdicts)) == [True, False, False]
        journal = await self.restart(journal)
        assert not await journal.resolve("A1", Verdict("stopped"))
        assert not await journal.resolve("A9", Verdict("stopped"))
        record = await journal.ask("A2", approval())
        assert (record.id, record.verdict, record.decided_at) == ("A1", verdicts[0], clock.now())
        assert await journal.open_approvals() == []

    async def test_what_an_inbound_has_decided_is_found_by_it(self, journal: Journal) -> None:
        for name, verdict in (
            ("A1", Verdict("denied", UserRef("slack", "U8"))),
            ("A2", Verdict("approved", UserRef("slack", "U8"), "chat", "Ann", "R7")),
            ("A3", Verdict("expired")),
        ):
            await journal.ask(name, approval(fingerprint=name))
            await journal.resolve(name, verdict)
        await journal.ask("A4", approval(fingerprint="A4"))
        journal = await self.restart(journal)
        found = await journal.decided_by("R7")
        assert found is not None
        assert found.verdict is not None
        assert (found.id, found.verdict.request_id) == ("A2", "R7")
        assert [await journal.decided_by(name) for name in ("R8", "")] == [None, None]

    async def test_what_was_allowed_for_longer_holds_for_exactly_that(self, journal: Journal) -> None:
        for name, scope, ended in (
            ("f1", "chat", "approved"),
            ("f2", "always", "approved"),
            ("f3", "once", "approved"),
            ("f4", "always", "denied"),
        ):
            await journal.ask(name, approval(name, name))
            await journal.resolve(name, Verdict(ended, UserRef("slack", "U7"), scope))  # type: ignore[arg-type]
        journal = await self.restart(journal)
        for call, scope, by in (("again", "today", "U8"), ("once", "once", "U9")):
            await journal.ask(call, approval(call))
            await journal.resolve(call, Verdict("approved", UserRef("slack", by), scope))  # type: ignore[arg-type]
        first, _, newest = found = await journal.lasting()
        assert [one.verdict and (one.id, one.verdict.scope) for one in found] == [
            ("f1", "chat"),
            ("f2", "always"),
            ("again", "today"),
        ]
        assert await journal.lasting("f1") == [first, newest]
        assert [await journal.lasting(name) for name in ("f3", "f4", "f5")] == [[], [], []]
        assert newest.verdict is not None
        await journal.amend_approval(replace(first, used=2))
        await journal.amend_approval(replace(newest, verdict=replace(newest.verdict, scope="once")))
        assert await (await self.restart(journal)).lasting("f1") == [replace(first, used=2)]

    async def test_sweeping_keeps_what_holds_and_what_a_turn_still_asks(
        self, journal: Journal, clock: FakeClock
    ) -> None:
        await journal.receive(inbound(1))
        for name in ("once", "chat", "always", "forgotten"):
            await journal.ask(name, approval(name, name))
            if name != "forgotten":
                await journal.resolve(name, Verdict("approved", UserRef("slack", "U7"), name))  # type: ignore[arg-type]
        await journal.ask("waits", replace(approval("waits"), request_id=inbound(1).request_id))
        await clock.advance(30 * DAY)
        await journal.sweep(clock.now())
        names = ("once", "chat", "always", "forgotten", "waits")
        assert [name for name in names if await journal.approval(name)] == ["chat", "always", "waits"]
