"""Admissions: strangers who ask to be let in, and what operators decide about them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from dataclasses import replace

from bot.access_list import AccessList
from bot.contracts.approvals import (
    ABOUT_A_PERSON,
    ApprovalRecord,
    QuestionButtons,
    Verdict,
)
from bot.contracts.channel import Manifest
from bot.contracts.environment import Clock, Log, storage_errors_logged
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal
from bot.contracts.outbound import ABOUT, ONLY_TO, Address
from bot.core.access import EVERY, Access, Memberships
from bot.core.locales import Locales
from bot.core.operator_chats import OperatorChats
from bot.core.saying import examples
from bot.features.admissions.wording import MOST, MOST_OPEN, approval_of, ended, question
from bot.gateway.delivery import Delivery
from bot.gateway.operators import QuestionCopies
from bot.words import paragraph, say, speaking

KEPT = 6 * 24 * 3600.0
"""Seconds after which somebody who was put off hears of no later yes: what says where they asked is on file for a week."""
REACHED_SECONDS = 3.0
"""Seconds in which an operator has to have a request, so that its person reads that one was asked."""
LOOK_EVERY = 2.0
"""Seconds between two looks for people who were let in, or kept out, in another way than through this process."""


class AdmissionService:
    """Asks operators about strangers, and carries out what they decide. A request is an approval (`Approval.admits`)."""

    def __init__(
        self,
        *,
        journal: Journal,
        delivery: Delivery,
        lists: AccessList,
        access: Access,
        memberships: Memberships,
        chats: OperatorChats,
        copies: QuestionCopies,
        locales: Locales,
        manifests: Mapping[str, Manifest],
        clock: Clock,
        log: Log,
    ) -> None:
        self._journal = journal
        self._delivery = delivery
        self._lists = lists
        self._access = access
        self._memberships = memberships
        self._chats = chats
        self._copies = copies
        self._locales = locales
        self._manifests = manifests
        self._clock = clock
        self._log = log
        self._asking = asyncio.Lock()
        self._deciding = asyncio.Lock()
        self._waiting: dict[UserRef, ApprovalRecord] | None = None
        """The newest request of each person who was not let in; None until they are read."""
        self._rules: list[tuple[frozenset[str] | frozenset[UserRef], ...]] = []
        self._unjudged: set[UserRef] = set()
        """Those that were not held against the newest rules of access."""

    async def ask(self, inbound: Inbound) -> str:
        """Ask operators about a stranger; returns what to tell that person, "" where they have been told. Done again after a
        crash, it is the same request.
        """
        await asyncio.to_thread(self._lists.note, inbound.channel, inbound.user_id, inbound.user_name)
        # One after another: each counts those before it.
        async with self._asking:
            open_ones = await self._journal.open_approvals()
            waiting = [one for one in open_ones if one.asked.admits and one.id != inbound.request_id]
            if any(one.asked.person == inbound.person for one in waiting):
                return ""
            record = await self._journal.ask(inbound.request_id, approval_of(inbound))
            if record.verdict is not None:
                return ""  # decided before a crash
            if self._waiting is not None:
                self._waiting[inbound.person] = record
                self._unjudged.add(inbound.person)
            for oldest in waiting[: max(0, len(waiting) + 1 - MOST_OPEN)]:
                await self.carry_out(oldest, Verdict("expired"))
            asking = await self._asked(inbound)
        if inbound.chat_type == "group" and not self._ephemeral(inbound.channel):
            return ""  # all of the group would read it
        key = "strangers.asked" if await _reached(asking) else "strangers.tell_them"
        return paragraph(say("strangers.hello"), say(key, who=inbound.person))

    async def _asked(self, inbound: Inbound) -> list[asyncio.Task[bool]]:
        """Write to operators where they have not had too many requests; returns what tells whether it has arrived."""
        asking = list[asyncio.Task[bool]]()
        chats = list(self._chats.people(inbound.request_id)) if await self._room(inbound) else []
        for operator, to in chats:
            buttons = QuestionButtons(inbound.request_id, ABOUT_A_PERSON)
            with speaking(*self._locales.of_person(operator)):
                words = question(
                    inbound, self._memberships.place(inbound), self._manifests[to.channel].command_prefix
                )
                sent = await self._delivery.send_once(to, words, str(to.chat_key), buttons)
            asking += [sent] if sent is not None else []
        return asking

    async def _room(self, inbound: Inbound) -> bool:
        """True where operators were written to about fewer than `MOST` other requests in a day, decided or not."""
        since = self._clock.now() - EVERY
        records = [*await self._journal.open_approvals(), *await self._journal.decided_since(since)]
        others = [
            one
            for one in records
            if one.asked.admits and one.asked_at > since and one.id != inbound.request_id
        ]
        if len(others) < MOST:
            return True
        shown = 0
        for one in others:  # the oldest first, of which operators were told
            shown += any(row.buttons is not None for row in await self._journal.deliveries(one.id))
            if shown == MOST:
                return False
        return True

    async def decide(self, who: UserRef, verdict: Verdict) -> tuple[()]:
        """Carry out what an operator has said of a person, or of a group by its id, and end the request of that person where there is one."""
        open_ones = [one for one in await self._journal.open_approvals() if one.asked.admits]
        record = next((one for one in open_ones if one.asked.person == who), None)
        if record is None or not await self.carry_out(record, verdict):
            await self._carry_out(who, verdict)
        return ()

    async def press(self, record: ApprovalRecord, verdict: Verdict) -> bool:
        """Settle it by a button, which may be older than what was said of the person elsewhere: that they are kept out stays."""
        standing = self._access.standing(_person(record), record.asked.chat_key.chat_id, "direct")
        if standing.reason in {"blocked", "never"}:
            await self.carry_out(record, Verdict("denied", scope="always"), done=True)
            return False
        return await self.carry_out(record, verdict)

    async def carry_out(self, record: ApprovalRecord, verdict: Verdict, *, done: bool = False) -> bool:
        """Carry out a verdict, unless that is `done`, and then end the request: where a crash comes between, it is carried out
        again. False where it has ended already.
        """
        async with self._deciding:
            current = await self._journal.approval(record.id)
            if current is None or current.verdict is not None:
                return False
            if not done:
                await self._carry_out(_person(record), verdict)
            await self._journal.resolve(record.id, verdict)
        await self.announce(record, verdict)
        return True

    async def announce(self, record: ApprovalRecord, verdict: Verdict) -> None:
        """Show operators how a request ended, and tell the person who is let in where they asked; again, it changes nothing."""
        if self._waiting is not None and self._waiting.get(_person(record), record).id == record.id:
            self._waiting.pop(_person(record), None)
            if verdict.ended == "denied":
                self._waiting[_person(record)] = replace(record, verdict=verdict)
        self._copies.close(record.id, ended)
        asked = await self._journal.inbound(record.id)
        if asked is None or asked.inbound.channel not in self._manifests:
            return
        to = Address.of(asked.inbound)
        with speaking(*self._locales.of(asked.inbound)):
            if verdict.ended == "approved":
                target = {name: value for name, value in to.target.items() if name not in {ONLY_TO, ABOUT}}
                buttons = examples(asked.inbound, self._manifests)
                await self._delivery.send_once(
                    replace(to, target=target), say("strangers.admitted"), "admitted", buttons
                )
            elif verdict.ended == "expired" and (to.chat_type != "group" or self._ephemeral(to.channel)):
                await self._delivery.send_once(to, say("strangers.gave_way"), "expired")

    def _ephemeral(self, channel: str) -> bool:
        """True where one person of a group can be told something that the others do not see."""
        return self._manifests[channel].ephemeral

    async def watch(self) -> None:
        """Let it count what the command line and the configuration say of people who wait."""
        while True:
            # At a start the button that was pressed before comes first: it says who decided.
            await self._clock.sleep(LOOK_EVERY)
            with storage_errors_logged(self._log, "who waits to be let in is not known"):
                await self._look()

    async def _look(self) -> None:
        if self._waiting is None:
            put_off = await self._journal.decided_since(self._clock.now() - KEPT)
            found = [*put_off, *await self._journal.open_approvals()]
            self._waiting = {_person(one): one for one in found if one.asked.admits}
        rules = [self._access.rules(channel) for channel in self._manifests]
        if rules != self._rules:
            self._rules = rules
            self._unjudged.update(self._waiting)
        for person in list(self._unjudged):
            if (record := self._waiting.get(person)) is not None:
                await self._hold_against_rules(record)
            self._unjudged.discard(person)

    async def _hold_against_rules(self, record: ApprovalRecord) -> None:
        standing = self._access.standing(_person(record), record.asked.chat_key.chat_id, "direct")
        if standing.reason == "stranger":
            return
        verdict = Verdict("approved") if standing.allowed else Verdict("denied", scope="always")
        if not record.open:
            if standing.allowed and record.state == "denied":
                await self.announce(record, verdict)
        elif not await self.carry_out(record, verdict, done=True) and self._waiting is not None:
            self._waiting.pop(_person(record), None)

    async def _carry_out(self, who: UserRef, verdict: Verdict) -> None:
        if verdict.ended == "approved":
            work, decision = self._lists.allow, "allowed"
        elif verdict.scope == "always":
            work, decision = self._lists.block, "blocked"
        elif verdict.ended == "expired":
            work, decision = self._lists.dismiss, "expired"
        else:
            work, decision = self._lists.dismiss, "not now"
        await asyncio.to_thread(work, who.channel, who.user_id)
        self._log.write(
            "admission",
            f"{who}: {decision}",
            channel=who.channel,
            user_id=who.user_id,
            decision=decision,
            by=str(verdict.by or ""),
        )


async def _reached(asking: Collection[asyncio.Task[bool]]) -> bool:
    """True once one of these has arrived; False where none does soon."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REACHED_SECONDS):
            for sent in asyncio.as_completed(asking):
                if await sent:
                    return True
    return False


def _person(record: ApprovalRecord) -> UserRef:
    return UserRef(record.asked.channel or "", record.asked.user_id or "")
