"""Approvals: a tool call that waits until somebody who may has said yes or no."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bot import errors, text
from bot.contracts.approvals import (
    CHOICES,
    LASTING,
    SECONDS,
    Approval,
    ApprovalRecord,
    Choice,
    Ended,
    OpenQuestion,
    Scope,
    Verdict,
    lasting,
    runs,
    together,
)
from bot.contracts.channel import Manifest
from bot.contracts.environment import Clock, Ids, Log, ends_within, storage_errors_logged
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Journal
from bot.contracts.outbound import Address, OutboxRow
from bot.core.access import Memberships
from bot.core.locales import Locales, ReaderLocale
from bot.core.operator_chats import OperatorChats, who_decided
from bot.features.admissions.wording import answer_to_decider as answer_about_person
from bot.features.approvals.wording import (
    SHOWN,
    QuestionWords,
    act,
    answer_to_decider,
    buttons_of,
    decides_each,
    file_of,
    is_called,
    outcome,
    question,
    short_name,
    that_hold,
    waiting_notice,
)
from bot.gateway.admissions import AdmissionService
from bot.gateway.conversation import Turn
from bot.gateway.delivery import Delivery
from bot.gateway.operators import QuestionCopies, copies_of
from bot.gateway.turn_queue import TurnSuspension
from bot.tools.permissions.display import changed_lines, in_words, named
from bot.words import language as language_now
from bot.words import own_zone, say, speaking, times
from bot.words import zone as zone_now

ASK_AGAIN = 15.0
"""Seconds until a question is asked again that may not have arrived."""
REACHED_SECONDS = 3.0
"""Seconds in which an operator has to have a question in view, so that a group where nobody may decide shows it without buttons."""
RECENT = 24 * 3_600.0
"""Seconds after a decision in which a start sees to it that its question says so."""
LONG = 26
"""Letters of the whole name, which buttons have."""
SCOPES: dict[str, Scope] = {"once": "once", "chat": "chat", "today": "today", "always": "always"}


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A question whose turn waits in this process."""

    record: ApprovalRecord
    first: Inbound
    answer: asyncio.Future[Verdict]

    def decided(self, verdict: Verdict) -> None:
        if not self.answer.done():
            self.answer.set_result(verdict)


class ApprovalService:
    """`contracts.approvals.Approvals` in the chats."""

    def __init__(
        self,
        *,
        suspension: TurnSuspension,
        journal: Journal,
        delivery: Delivery,
        operators: Collection[UserRef],
        chats: OperatorChats,
        memberships: Memberships,
        copies: QuestionCopies,
        locales: Locales,
        admissions: AdmissionService,
        manifests: Mapping[str, Manifest],
        clock: Clock,
        ids: Ids,
        log: Log,
    ) -> None:
        self._suspension = suspension
        self._journal = journal
        self._delivery = delivery
        self._operators = operators
        self._chats = chats
        self._memberships = memberships
        self._copies = copies
        self._locales = locales
        self._admissions = admissions
        self._manifests = manifests
        self._clock = clock
        self._ids = ids
        self._log = log
        self._asked: set[str] = set()
        self._waiting: dict[str, _Waiting] = {}

    # ------------------------------------------------------------ the turn that waits

    async def decide(self, asked: Approval, *others: Approval) -> Verdict:
        """As `contracts.approvals.Approvals`. One question at a time in a chat: its turn has one place to lend."""
        async with self._suspension.alone(asked.chat_key):
            if others:
                await self._decide_together([asked, *others])
            return await self._decided(asked)

    async def _decide_together(self, calls: Sequence[Approval]) -> None:
        """Ask about calls of a step that nothing has decided by one question. Its answer, or that each waits, is on file for each then."""
        since = self._clock.now() - RECENT
        asked = [*await self._journal.open_approvals(), *await self._journal.decided_since(since)]
        known = {one.asked.key for one in asked}
        left = [one for one in calls if one.key not in known and await self._given(one) is None]
        # Those that the same people may decide.
        for may in dict.fromkeys((one.granted, one.own) for one in left):
            some = [one for one in left if (one.granted, one.own) == may]
            verdict = await self._decided(together(some)) if len(some) > 1 else Verdict("nobody")
            for one in some if verdict.ended not in {"nobody", "unattended"} else ():
                record = await self._journal.ask(self._ids.ulid(), one)
                if not decides_each(verdict):
                    await self._journal.resolve(record.id, replace(verdict, request_id=""))

    async def _decided(self, asked: Approval) -> Verdict:
        if (given := await self._given(asked)) is not None and given.verdict is not None:
            if runs(given.asked.fingerprint) == runs(asked.fingerprint):
                await self._journal.amend_approval(replace(given, used=given.used + 1))
                return given.verdict
            before, now = given.asked.script, asked.script
            lines = await asyncio.to_thread(changed_lines, before, now, 2) if before else ""
            asked = replace(asked, why="changed", shown=f"{asked.shown}\n{lines}".strip())
        turn = self._suspension.turn(asked.chat_key)
        if turn is None or asked.user_id is None or not self._anybody(asked, turn.first):
            return Verdict("nobody")
        if turn.first.due is not None:
            return Verdict("unattended")
        self._asked.add(asked.request_id)
        record = await self._journal.ask(self._ids.ulid(), asked)
        if record.verdict is not None:
            # Decided before a restart, which may have come before the question said so.
            await self._end_copies(record)
            return record.verdict
        with self._suspension.waiting(turn, "approval") as waits:
            if not waits:
                return await self._end(record.id, Verdict("steered"))
            waiting = _Waiting(record, turn.first, asyncio.get_running_loop().create_future())
            self._waiting[record.id] = waiting
            try:
                async with self._suspension.suspended(), self._delivery.suspended(Address.of(turn.first)):
                    return await self._wait(waiting)
            finally:
                del self._waiting[record.id]

    async def _given(self, asked: Approval) -> ApprovalRecord | None:
        """What allows a call for longer, as it is now or as it was when what it runs was another text. What somebody allowed who
        is no operator holds for those who might allow it themselves.
        """
        found = await self._lasting(asked.fingerprint) if asked.lasting else []
        theirs = [
            one for by, one in found if asked.granted or by.scope == "always" or by.by in self._operators
        ]
        return lasting(theirs, asked.chat_key, asked.fingerprint)

    async def _lasting(self, fingerprint: str | None = None) -> list[tuple[Verdict, ApprovalRecord]]:
        """What was approved for longer, of one call or all, but for a day that is over where it is read."""
        today, records = times.local(self._clock.now()).date(), await self._journal.lasting(fingerprint)
        found = [(one.verdict, one.decided_at or 0.0, one) for one in records if one.verdict is not None]
        return [(by, one) for by, at, one in found if by.scope != "today" or times.local(at).date() == today]

    async def _wait(self, waiting: _Waiting) -> Verdict:
        record = waiting.record
        left = record.expires_at - self._clock.now()
        asking = asyncio.create_task(self._show(waiting))
        try:
            ended = await ends_within(max(0.0, min(left, SECONDS)), waiting.answer, self._clock)
        finally:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking
        verdict = waiting.answer.result() if ended else Verdict("expired")
        if not verdict.by:
            verdict = await self._end(record.id, verdict)
        self._close(record)
        return verdict

    async def _end(self, name: str, verdict: Verdict) -> Verdict:
        """Record how it ended, unless somebody was quicker: then that is how."""
        if await self._journal.resolve(name, verdict):
            return verdict
        record = await self._journal.approval(name)
        return record.verdict if record is not None and record.verdict is not None else verdict

    async def _show(self, waiting: _Waiting) -> None:
        """Ask in the chat, and operators in theirs, wherever that was not surely done before a restart: asked twice, it is
        the same question.
        """
        name, first = waiting.record.id, waiting.first
        # Under a name of its own: it is no part of what the turn answers.
        here = replace(Address.of(first), request_id=name)
        done, whole = set[ChatKey](), set[ChatKey]()
        with storage_errors_logged(self._log, "the outbox cannot be read"):
            rows = await self._journal.deliveries(name)
            done = {copy[0].chat_key for copy in _delivered(rows)}
            whole = {row.chat_key for row in rows if row.file is not None and row.state == "sent"}
        own = self._elsewhere(first, name, own=waiting.record.asked.own)
        places = [
            (spoken, to)
            for spoken, to in ((ReaderLocale(language_now(), zone_now(), own_zone()), here), *own)
            if to.chat_key not in done
        ]
        if places:
            self._log.write("approval", "people are asked", approval=name, tool=waiting.record.asked.tool)
        choices = self._choices(waiting.record.asked, first.person)
        operators = that_hold(waiting.record.asked, CHOICES)
        async with asyncio.TaskGroup() as group:
            asked = dict[ChatKey, asyncio.Task[bool]]()
            for spoken, to in places:
                if to is not here:
                    with speaking(*spoken):
                        # Operators need not be where it was asked.
                        where = say("approval.asked_in", place=self._place(first, to))
                        asking = self._ask(to, waiting, operators, place=where, whole=to.chat_key in whole)
                        asked[to.chat_key] = group.create_task(asking)
            if here.chat_key not in done:
                buttons = choices
                if not choices and here.chat_type == "group" and not done and not await _any(asked.values()):
                    # Operators may be among those who read the group; nothing else shows them the question.
                    buttons = operators
                asking = self._ask(here, waiting, buttons, whole=here.chat_key in whole)
                asked[here.chat_key] = group.create_task(asking)
        done |= {to for to, sent in asked.items() if sent.result()}
        if here.chat_type == "direct" and not (choices or done - {here.chat_key}):
            # Nobody has it in view who may decide: the person would wait for nothing.
            self._log.write("approval", "no operator can be reached", level="warn", approval=name)
            waiting.decided(Verdict("nobody"))

    async def _ask(
        self, to: Address, waiting: _Waiting, choices: tuple[Choice, ...], *, place: str = "", whole: bool
    ) -> bool:
        """Ask in one place; True where the question is there. A call that is too long for a message comes in a file above it (`whole`:
        it is there already), so that nobody can press a button before they can see all of it. Where that is not to be had, nothing is
        allowed for longer.
        """
        record, first = waiting.record, waiting.first
        if not choices:
            # The call is for those who decide about it.
            return await self._send(record, to, waiting_notice(record), choices)
        cut = self._cut(record, to.channel)
        if cut and not whole:
            file = file_of(record.asked)
            whole = await self._until_there(
                record.id, lambda: self._delivery.send(to, "", kind="notice", files=[file])
            )
        if cut and not whole:
            choices = tuple(one for one in choices if one not in LASTING)
        question = self._question(record, first, to.chat_key, choices)
        return await self._send(record, to, question.with_place(place) if place else question, choices)

    async def _send(
        self, record: ApprovalRecord, to: Address, question: QuestionWords, choices: tuple[Choice, ...]
    ) -> bool:
        buttons = buttons_of(record, choices)
        return await self._until_there(
            record.id,
            lambda: self._delivery.send(
                to, question.words, kind="notice", buttons=buttons, while_open=question.while_open
            ),
        )

    async def _until_there(self, name: str, send: Callable[[], Awaitable[object]]) -> bool:
        """Send again and again until it is there, unless that is refused: nobody decides what they never saw. Whether it is there.
        Who calls this cancels it once it is decided.
        """
        while True:
            try:
                await send()
            except errors.DeliveryFailed as error:
                self._log.write(
                    "approval", "a question did not arrive", level="warn", approval=name, cause=str(error)
                )
                if not isinstance(error, (errors.DeliveryUncertain, errors.DeliveryThrottled)):
                    return False
            else:
                return True
            await self._clock.sleep(ASK_AGAIN)

    def _anybody(self, asked: Approval, first: Inbound) -> bool:
        """True where somebody may decide who will see the question: those of the page and the terminal see their own chat."""
        return asked.granted or any(
            operator == first.person or self._manifests[operator.channel].access != "local"
            for operator in self._operators
            if operator.channel in self._manifests
        )

    def _choices(self, asked: Approval, person: UserRef) -> tuple[Choice, ...]:
        """The answers that a person may give: the buttons below the question in their direct chat."""
        if person in self._operators:
            return that_hold(asked, CHOICES)
        if person != asked.person or not (asked.granted or asked.own):
            return ()
        return that_hold(asked, ("once", "chat", "deny") if asked.granted else ("once", "deny"))

    def _close(self, record: ApprovalRecord) -> None:
        """Show everywhere how it ended, now or before. Nobody waits for that."""
        self._copies.close(record.id, partial(outcome, record.asked))

    def _place(self, first: Inbound, to: Address) -> str:
        """The place where it was asked, as it is read elsewhere."""
        place = self._memberships.place(first)
        if first.channel == to.channel:
            return place
        return say("place.elsewhere", place=place, channel=first.channel.title())

    def _cut(self, record: ApprovalRecord, channel: str) -> bool:
        """True where the question shows the call in part on this channel."""
        return len(record.asked.shown) > SHOWN and self._delivery.shows_long_in_files(channel)

    def _question(
        self, record: ApprovalRecord, first: Inbound, chat_key: ChatKey, choices: tuple[Choice, ...]
    ) -> QuestionWords:
        return question(
            record,
            first,
            chat_key,
            choices,
            manifests=self._manifests,
            cut=self._cut(record, chat_key.channel),
            asker_decides=first.person in self._operators,
        )

    async def _end_copies(self, record: ApprovalRecord) -> None:
        """The same of what is decided on file, and what goes with it."""
        if record.verdict is not None and record.asked.admits:
            await self._admissions.announce(record, record.verdict)
        else:
            self._close(record)

    async def recover(self) -> None:
        """End the questions that were decided in the last day, before or after a restart: a kill may have come before they
        said so. Raises nothing.
        """
        with storage_errors_logged(self._log, "what was decided cannot be read"):
            for record in await self._journal.decided_since(self._clock.now() - RECENT):
                await self._end_copies(record)

    async def open_in(self, chat_key: ChatKey, person: UserRef) -> list[OpenQuestion]:
        """The open questions of a chat, as a person sees them who opens it now. Raises `errors.StorageError`."""
        now, found = self._clock.now(), []
        for record in await self._journal.open_approvals():
            if record.asked.chat_key != chat_key or record.expires_at <= now or record.asked.admits:
                continue
            choices, ts = self._choices(record.asked, person), int(record.asked_at * 1000)
            rows = await self._journal.deliveries(record.id)
            for copy in copies_of(
                row for row in rows if row.chat_key == chat_key and row.buttons is not None
            ):
                offered = any(row.buttons is not None and row.buttons.choices for row in copy)
                for row in copy if offered else copy[-1:]:
                    words = row.text if offered else await self._for_viewer(record, row, choices)
                    buttons = buttons_of(record, choices if row is copy[-1] else ())
                    found.append(OpenQuestion(row.id, words, ts, buttons))
        return found

    async def _for_viewer(self, record: ApprovalRecord, row: OutboxRow, choices: tuple[Choice, ...]) -> str:
        """The words of a question that was shown to somebody who may not decide, for who may give these answers now."""
        asked = await self._journal.inbound(record.asked.request_id)
        if asked is None or not choices:
            return row.text
        with speaking(row.language, row.zone, row.own_zone):
            return self._question(record, asked.inbound, row.chat_key, choices).words

    def _elsewhere(self, first: Inbound, name: str, *, own: bool) -> Iterator[tuple[ReaderLocale, Address]]:
        """The direct chats of the operators, each with how they are spoken to, who need not be where it was asked; none where an operator asked, or where it
        concerns nobody but who asked.
        """
        if first.person in self._operators or own:
            return
        for operator, to in self._chats.people(name):
            yield self._locales.of_person(operator), to

    def waits(self, chat_key: ChatKey) -> bool:
        """True where the turn of a chat waits for a decision."""
        return any(waiting.first.chat_key == chat_key for waiting in self._waiting.values())

    def cancel(self, turn: Turn) -> None:
        """The person of a turn has written something else: what it waits for is off."""
        for waiting in list(self._waiting.values()):
            if waiting.first is turn.first:
                waiting.decided(Verdict("steered"))

    async def over(self, request_id: str, *, begun: bool) -> None:
        """A turn has ended: what it still waited for, in this process or (`begun`) in one before, is off.

        Raises `errors.StorageError`.
        """
        if request_id not in self._asked and not begun:
            return
        self._asked.discard(request_id)
        for record in await self._journal.open_approvals():
            if record.asked.request_id == request_id:
                await self._journal.resolve(record.id, Verdict("stopped"))
                if (waiting := self._waiting.get(record.id)) is not None:
                    waiting.decided(Verdict("stopped"))
                else:
                    self._close(record)

    # ------------------------------------------------------------ the person who decides

    async def approve(self, inbound: Inbound) -> str:
        """`/approve [name] [once|chat|today|always|each]`, or its button; what to say of it."""
        words = inbound.args.split()
        last = words.pop().lower() if words and words[-1].lower() in {*SCOPES, "each"} else ""
        ended: Ended = "steered" if last == "each" else "approved"
        return await self._decide(inbound, " ".join(words), ended, SCOPES.get(last, "once"))

    async def deny(self, inbound: Inbound) -> str:
        """`/deny [name]`, or its button; what to say of it."""
        return await self._decide(inbound, inbound.args, "denied", "once")

    async def listed(self, inbound: Inbound) -> str:
        """`/approvals`: what was allowed for longer, and `/approvals NAME` takes it back; what to say of it."""
        if inbound.person not in self._operators:
            return say("approval.not_yours")
        if inbound.chat_type != "direct":
            return say("commands.allow_privately")
        found = await self._lasting()
        if not inbound.args:
            how = say("approvals.how", prefix=self._manifests[inbound.channel].command_prefix)
            lines = [self._line(*one) for one in found]
            return "\n".join([*lines, how]) if lines else say("approvals.none")
        for verdict, record in found:
            if is_called(record, inbound.args.upper()):
                await self._journal.amend_approval(replace(record, verdict=replace(verdict, scope="once")))
                self._note(record, inbound, "taken back")
                return say("approvals.gone", name=short_name(record))
        return say("approval.no_such", name=text.preview(inbound.args, 40))

    def _line(self, verdict: Verdict, record: ApprovalRecord) -> str:
        asked, now = record.asked, self._clock.now()
        what = {
            "name": short_name(record),
            "act": act(asked),
            "call": named(asked.shown),
            "chat": asked.chat_key,
        }
        when = times.recent(record.decided_at or now, now)
        by = who_decided(verdict, "approval.an_operator")
        return say(f"approvals.line_{verdict.scope}", **what, by=by, time=when, count=record.used)

    def afresh(self, press: Inbound) -> Turn | str:
        """[Start over without it]: the turn whose question it stands below, or what to say to who may not press it."""
        asked = self._waiting[press.args].record.asked if press.args in self._waiting else None
        if asked is None or (turn := self._suspension.turn(asked.chat_key)) is None:
            return say("approval.unknown")
        return turn if press.person in {*self._operators, asked.person} else say("approval.not_yours")

    async def _decide(self, inbound: Inbound, name: str, ended: Ended, scope: Scope) -> str:
        by = inbound.person
        verdict = Verdict(ended, by, scope, inbound.user_name or "", inbound.request_id)
        earlier = await self._journal.decided_by(inbound.request_id)
        if earlier is not None and earlier.verdict is not None:
            # A kill came before its answer, and perhaps before the question said so.
            await self._end_copies(earlier)
            return _answer_text(earlier.asked, earlier.verdict)
        record = await self._named(inbound, name)
        if isinstance(record, str):
            await self._end_late_copies(name)
            return record
        refusal = await self._refusal(record, inbound, scope)
        if refusal or (ended == "steered" and not record.asked.step):
            self._note(record, inbound, "refused")
            return refusal or say("approval.nothing")
        if record.asked.admits:
            settled = await self._admissions.press(record, verdict)
            return _answer_text(record.asked, verdict) if settled else say("approval.unknown")
        if not await self._journal.resolve(record.id, verdict):
            return say("approval.unknown")
        self._note(record, inbound, ended, scope=scope)
        if (waiting := self._waiting.get(record.id)) is not None:
            waiting.decided(verdict)
        else:
            self._close(record)
        return _answer_text(record.asked, verdict)

    async def _refusal(self, record: ApprovalRecord, inbound: Inbound, scope: Scope) -> str:
        """The sentence for somebody who may not decide so; "" where they may."""
        asker = record.asked.granted and inbound.person == record.asked.person
        if inbound.person not in self._operators and (not asker or scope == "always"):
            return say("approval.not_always" if asker else "approval.not_yours")
        if scope in LASTING and not record.asked.lasting:
            return say("approval.once_only")
        lasts = scope in LASTING and len(record.asked.shown) > SHOWN
        return say("approval.not_whole") if lasts and not await self._offered(record, inbound, scope) else ""

    async def _offered(self, record: ApprovalRecord, inbound: Inbound, scope: Scope) -> bool:
        """True where a copy of the question stands in the chat of an inbound that offers this, or does so to who may decide by now: all
        of the call is to be seen there.
        """
        rows = await self._journal.deliveries(record.id)
        return any(
            row.buttons is not None
            and (scope in row.buttons.choices or not self._cut(record, row.chat_key.channel))
            for copy in _delivered(rows)
            for row in copy
            if inbound.chat_key.shows(row.chat_key)
        )

    async def _end_late_copies(self, name: str) -> None:
        """End the copies of a question that is decided: one that arrived late, or whose change a kill cut off, still has its
        buttons.
        """
        record = await self._journal.approval(name.upper()) if name else None
        if record is not None and record.verdict is not None:
            await self._end_copies(record)

    async def _named(self, inbound: Inbound, name: str) -> ApprovalRecord | str:
        """The approval that is meant: by name, or the only one that stands in this chat, or in its threads; else what to say."""
        now = self._clock.now()
        waiting = await self._journal.open_approvals()
        records = [one for one in waiting if one.expires_at > now]
        if wanted := name.upper():
            found = [one for one in records if is_called(one, wanted)]
            return found[0] if len(found) == 1 else await self._unknown(name, waiting)
        calls = [one for one in records if not one.asked.admits]
        stands = {one.id: await self._stands_in(one, inbound) for one in calls}
        here = [one for one in calls if inbound.chat_key in stands[one.id]]
        near = [one for one in calls if stands[one.id]]
        if len(here) == 1 or len(near) == 1:
            return (here or near)[0]
        if not near:
            return say("approval.nothing")
        names = ", ".join(
            say(
                "approval.one",
                name=short_name(one),
                act=act(one.asked),
                shown=named(in_words(one.asked.shown)),
            )
            for one in near
        )
        prefix = self._manifests[inbound.channel].command_prefix
        return say("approval.which", name=short_name(near[0]), names=names, prefix=prefix)

    async def _stands_in(self, record: ApprovalRecord, inbound: Inbound) -> set[ChatKey]:
        """The conversations in which a question stands before who wrote an inbound there: where it was asked, and an operator's copy
        in their direct chat.
        """
        asked_in, here = record.asked.chat_key, inbound.chat_key
        found = {asked_in} if here.shows(asked_in) else set[ChatKey]()
        if inbound.person in self._operators:
            rows = await self._journal.deliveries(record.id)
            shown = [row.chat_key for row in rows if row.buttons is not None and row.buttons.choices]
            direct = inbound.chat_type == "direct"
            found |= {key for key in shown if here.shows(key) or (direct and key.shows(here))}
        return found

    async def _unknown(self, name: str, waiting: Iterable[ApprovalRecord]) -> str:
        """The sentence on a name that no question has which waits. A button has the whole name of one that there was."""
        wanted = name.upper()
        ended = [*waiting, *await self._journal.decided_since(self._clock.now() - RECENT)]
        if len(wanted) == LONG or any(is_called(one, wanted) for one in ended):
            return say("approval.unknown")
        return say("approval.no_such", name=text.preview(name, 40))

    def _note(
        self, record: ApprovalRecord, inbound: Inbound, decision: str, *, scope: Scope = "once"
    ) -> None:
        self._log.write(
            "approval",
            f"{record.asked.tool}: {decision}",
            chat_key=record.asked.chat_key,
            request_id=record.asked.request_id,
            approval=record.id,
            decision=decision,
            scope=scope,
            by=str(inbound.person),
            rule=record.asked.rule or None,
            fingerprint=record.asked.fingerprint,
        )


async def _any(sends: Collection[asyncio.Task[bool]]) -> bool:
    """True once one of these has arrived; False where none will, or that takes long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REACHED_SECONDS):
            for sent in asyncio.as_completed(sends):
                if await sent:
                    return True
    return False


def _delivered(rows: Collection[OutboxRow]) -> Iterator[list[OutboxRow]]:
    """The copies of a question that are whole in their chats."""
    repeated = {row.repeat_of for row in rows}
    for copy in copies_of(row for row in rows if row.buttons is not None):
        if all(row.state == "sent" or row.id in repeated for row in copy):
            yield copy


def _answer_text(asked: Approval, verdict: Verdict) -> str:
    return answer_about_person(verdict) if asked.admits else answer_to_decider(verdict)
