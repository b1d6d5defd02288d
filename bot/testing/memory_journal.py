"""A journal in memory: for tests that need one and have nothing to lose."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from asyncio import Future
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NoReturn, TypeVar, get_args

from bot import errors, text
from bot.contracts.approvals import Approval, ApprovalRecord, Verdict
from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound, Listening
from bot.contracts.journal import (
    INBOX_FAILURE,
    DataLoss,
    FinalState,
    FinalTurnState,
    InboxEnd,
    InboxRecord,
    Job,
    LineRow,
    Locale,
    StepKind,
    StepRecord,
    TurnRecord,
    Unfinished,
)
from bot.contracts.outbound import OUTBOX_FAILURES, OutboundKind, OutboxRow, OutboxState
from bot.testing.journal import Delegating

R = TypeVar("R")


@dataclasses.dataclass(frozen=True, slots=True)
class _Lease:
    holder: str | None
    number: int
    taken_at: float
    until: float


def at_once(method: Callable[..., R]) -> Callable[..., Coroutine[Any, Any, R]]:
    """Carried out when it is called, not when it is awaited, as in every journal."""

    def called(*args: Any, **more: Any) -> Coroutine[Any, Any, R]:
        try:
            return _given(method(*args, **more))
        except errors.ShipmateError as error:
            return _raised(error)

    return called


class MemoryJournal(Delegating):  # type: ignore[misc]
    """`contracts.journal.Journal` that is kept as long as the object is; `close` loses nothing."""

    def __init__(self, clock: Clock) -> None:
        self._tables = _Tables(clock)
        self.inbox = self._tables.inbox
        self.post = MemoryPostedWrites(self._tables)
        self.pending_writes = 0

    async def flush(self) -> bool:
        return True

    def health(self) -> str:
        return ""

    def lost(self) -> DataLoss | None:
        return None

    async def forget_loss(self) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return at_once(getattr(self._tables, name))


class MemoryPostedWrites(Delegating):  # type: ignore[misc]
    """`contracts.journal.PostedWrites`: carried out at once, and never refused. What cannot be written is not."""

    def __init__(self, tables: _Tables) -> None:
        self._tables = tables

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._tables, name)

        def posted(*args: Any, **more: Any) -> Future[Any]:
            future: Future[Any] = asyncio.get_running_loop().create_future()
            try:
                future.set_result(method(*args, **more))
            except (errors.StorageError, errors.IllegalTransition):
                future.set_result(None)
            return future

        return posted


def _raise_illegal(troubles: Sequence[str]) -> None:
    if told := "; ".join(filter(None, troubles)):
        raise errors.IllegalTransition(told)


class _Tables:
    """The tables of a journal, and what it does with them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.inbox: dict[str, InboxRecord] = {}
        self._turns: dict[str, TurnRecord] = {}
        self._approvals: dict[str, ApprovalRecord] = {}
        self._keys: dict[str, tuple[str, float]] = {}
        self._chats: set[ChatKey] = set()
        self._dead: dict[tuple[str, str], tuple[str, str, float]] = {}
        self._steps: dict[tuple[str, str], StepRecord] = {}
        self._outbox: dict[str, OutboxRow] = {}
        self._closed: dict[tuple[str, str], str] = {}
        self._jobs: dict[str, Job] = {}
        self._locales: dict[UserRef, Locale] = {}
        self._listening: dict[ChatKey, Listening] = {}
        self._leases: dict[str, _Lease] = {}
        self._lines: dict[int, LineRow] = {}
        self._once: dict[str, tuple[float, float]] = {}

    def open(self) -> None: ...
    def close(self) -> None: ...
    def probe(self) -> str:
        return ""

    def newest(self) -> str:
        return max(self.inbox, default="")

    # The inbox.

    def receive(self, inbound: Inbound) -> bool:
        now, whole = self._clock.now(), _as_kept(inbound)
        keys = [text.clean(f"{inbound.channel}:{key}") for key in inbound.keys]
        if any(key in self._keys for key in keys):
            return False
        if not whole.request_id or whole.request_id in self.inbox:
            raise errors.StorageError("an inbound needs a requestId of its own")
        self.inbox[whole.request_id] = InboxRecord(
            inbound=whole, received_at=now, changed_at=now, amends=self._amended(whole)
        )
        self._keys.update((key, (whole.request_id, now)) for key in keys)
        self._chats.add(whole.chat_key)
        return True

    def _amended(self, edit: Inbound) -> str | None:
        """The open message that an edit is about."""
        if edit.kind != "edit":
            return None
        key = None if edit.changes is None else text.clean(f"{edit.channel}:{edit.changes}")
        named, _ = self._keys.get(key or "", (None, 0.0))
        place, message_id = (edit.chat_key, edit.user_id), edit.message_id
        for row in self.inbox.values():
            one = row.inbound
            same = named == one.request_id or (message_id is not None and one.message_id == message_id)
            if same and row.open and one.kind == "message" and (one.chat_key, one.user_id) == place:
                return one.request_id
        return None

    def begin_turn(self, turn_id: str, chat_key: ChatKey, members: Sequence[str]) -> None:
        name = text.clean(turn_id)
        if name not in self._turns:
            self._turns[name] = TurnRecord(id=name, chat_key=_key(chat_key), begun_at=self._clock.now())
        wrong = [self._move_turn(name, TurnRecord.run)]
        _raise_illegal(wrong + [self._join(member, name) for member in members])

    def join_turn(self, turn_id: str, members: Sequence[str]) -> None:
        _raise_illegal([self._join(member, text.clean(turn_id)) for member in members])

    def suspend_turn(self, turn_id: str) -> None:
        _raise_illegal([self._move_turn(turn_id, TurnRecord.suspend)])

    def resume_turn(self, turn_id: str) -> None:
        _raise_illegal([self._move_turn(turn_id, TurnRecord.run)])

    def stop_turn(self, turn_id: str) -> None:
        if text.clean(turn_id) in self._turns:
            _raise_illegal([self._move_turn(turn_id, TurnRecord.stop)])

    def end_turn(
        self,
        turn_id: str,
        state: FinalTurnState,
        members: Mapping[str, InboxEnd],
        say: Sequence[OutboxRow] = (),
    ) -> None:
        wrong = [self._move_turn(turn_id, lambda turn: turn.end(state))]
        wrong += [self._finish(member, end) for member, end in members.items()]
        self.put_outbox(say)
        _raise_illegal(wrong)

    def finish(self, request_id: str, end: InboxEnd, say: Sequence[OutboxRow] = ()) -> None:
        wrong = self._finish(request_id, end)
        self._end_open(text.clean(request_id), end.of_turn)
        self.put_outbox(say)
        _raise_illegal([wrong])

    def _end_open(self, turn_id: str, state: FinalTurnState) -> None:
        """End a turn where there is one that has not ended."""
        if turn_id in self._turns and self._turns[turn_id].open:
            self._move_turn(turn_id, lambda turn: turn.end(state))

    def _join(self, member: str, turn_id: str) -> str:
        row = self.inbox.get(text.clean(member))
        trouble = self._moved(member, lambda status: status.join(turn_id))
        if not trouble and row is not None and row.turn_id not in {None, turn_id}:
            self._end_open(row.turn_id or "", "done")
        return trouble

    def _moved(self, request_id: str, move: Callable[[InboxRecord], InboxRecord]) -> str:
        """Make a transition of an inbound; the trouble where there is none, or its state does not allow that."""
        row = self.inbox.get(text.clean(request_id))
        if row is None:
            return f"{request_id} is missing"
        try:
            after = move(row)
        except errors.IllegalTransition as error:
            return f"{request_id}: {error}"
        if after != row:
            self._set(after)
        return ""

    def _move_turn(self, turn_id: str, move: Callable[[TurnRecord], TurnRecord]) -> str:
        """Make a transition of a turn; the trouble where there is none, or its state does not allow that."""
        turn = self._turns.get(text.clean(turn_id))
        if turn is None:
            return f"{turn_id} is missing"
        try:
            after = move(turn)
        except errors.IllegalTransition as error:
            return f"{turn_id}: {error}"
        if turn.open and not after.open:
            after = dataclasses.replace(after, ended_at=self._clock.now())
        self._turns[turn.id] = after
        return ""

    def _finish(self, request_id: str, end: InboxEnd) -> str:
        if end.state not in get_args(FinalState):
            raise errors.StorageError(f"no inbound ends as {end.state}")
        detail = None if end.detail is None else text.clean(end.detail)
        merged_into = None if end.merged_into is None else text.clean(end.merged_into)
        return self._moved(request_id, lambda status: status.end(InboxEnd(end.state, detail, merged_into)))

    def amend(self, inbound: Inbound, edits: Sequence[str] = ()) -> bool:
        row = self.inbox.get(text.clean(inbound.request_id))
        if row is None or not row.open:
            return False
        self._set(dataclasses.replace(row, inbound=_as_kept(inbound)))
        name = row.inbound.request_id
        _raise_illegal([self._moved(edit, lambda status: status.merge(name)) for edit in edits])
        return True

    def unfinished(self, limit: int | None = None, after: str = "") -> list[Unfinished]:
        begin = list(self.inbox).index(after) + 1 if after in self.inbox else 0
        return [self._unfinished(row) for row in list(self.inbox.values())[begin:] if row.open][:limit]

    def _unfinished(self, row: InboxRecord) -> Unfinished:
        place, turn = (row.inbound.chat_key, row.inbound.message_id), self._turns.get(row.turn_id or "")
        about = [
            other
            for name, other in sorted(self.inbox.items())
            if other is row
            or (place[1] is not None and (other.inbound.chat_key, other.inbound.message_id) == place)
        ]
        return Unfinished(row, None if turn is None else turn.state, tuple(about))

    def inbound(self, request_id: str) -> InboxRecord | None:
        return self.inbox.get(text.clean(request_id))

    def turn(self, turn_id: str) -> TurnRecord | None:
        return self._turns.get(text.clean(turn_id))

    def about(self, chat_key: ChatKey, message_id: str, key: str | None = None) -> list[InboxRecord]:
        here, sought = _key(chat_key), text.clean(message_id)
        rows = [row.inbound for row in self.inbox.values() if row.inbound.chat_key == here]
        named = None if key is None else text.clean(key)
        same = [row for row in rows if row.message_id == sought or named in row.keys]
        items = {item for row in same for item in row.items}
        found = {row.request_id for row in rows if row in same or row.message_id in items}
        return [row for row in self.inbox.values() if row.inbound.request_id in found]

    def quoting(self, chat_key: ChatKey, message_id: str) -> list[InboxRecord]:
        here, sought = _key(chat_key), text.clean(message_id)
        rows = [row for row in self.inbox.values() if row.inbound.chat_key == here]
        return [row for row in rows if row.inbound.message_id is not None and row.inbound.quotes(sought)]

    def said_in(
        self, chat: ChatKey, *, since: float = 0.0, until: float = math.inf, limit: int
    ) -> list[InboxRecord]:
        here = _key(chat)
        rows = [row for row in self.inbox.values() if here.contains(row.inbound.chat_key)]
        said = [
            row for row in rows if row.inbound.message_id is not None and since <= row.received_at <= until
        ]
        return said[::-1][:limit]

    def knows(self, chat_key: ChatKey) -> bool:
        return _key(chat_key) in self._chats

    def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> None:
        self._dead[channel, key] = (raw, reason, self._clock.now())

    # Steps.

    def begin_step(self, step: StepRecord) -> None:
        if step.kind not in get_args(StepKind):
            raise errors.StorageError(f"there is no kind of step {step.kind}")
        request_id, name = text.clean(step.request_id), text.clean(step.id)
        kept = dataclasses.replace(step, request_id=request_id, id=name, result=_json(step.result))
        self._steps.setdefault((request_id, name), kept)

    def end_step(self, request_id: str, step_id: str, result: Json) -> None:
        key = (text.clean(request_id), text.clean(step_id))
        step = self._steps.get(key)
        if step is not None and step.ended_at is None:
            self._steps[key] = dataclasses.replace(step, ended_at=self._clock.now(), result=_json(result))

    def steps(self, request_id: str) -> list[StepRecord]:
        return [step for step in self._steps.values() if step.request_id == text.clean(request_id)]

    # The outbox.

    def put_outbox(self, rows: Sequence[OutboxRow]) -> None:
        now = self._clock.now()
        for row in rows:
            _checked(row)
        for row in rows:
            whole = dataclasses.replace(_as_written(row), created_at=now, changed_at=now)
            self._outbox.setdefault(whole.id, whole)
            for other in list(self._outbox.values()):
                if whole.replaces is not None and (other.request_id, other.message_id) == (
                    whole.request_id,
                    whole.replaces,
                ):
                    self._set_row(other, other.make_way())

    def update_outbox(self, row: OutboxRow) -> None:
        fresh = _as_written(row)
        old = self._outbox.get(fresh.id)
        if old is None:
            raise errors.IllegalTransition(f"outbox row {row.id} is missing")
        self._set_row(old, old.update(fresh))

    def _set_row(self, before: OutboxRow, after: OutboxRow) -> None:
        if after != before:
            self._outbox[after.id] = dataclasses.replace(after, changed_at=self._clock.now())

    def deliveries(self, request_id: str) -> list[OutboxRow]:
        return [row for row in self._outbox.values() if row.request_id == text.clean(request_id)]

    def undelivered(self) -> list[OutboxRow]:
        rows = (row for row in self._outbox.values() if row.state in {"ready", "sending"})
        return [row for row in rows if not self._is_open(row.request_id)]

    def with_files(self) -> list[OutboxRow]:
        return [row for row in self._outbox.values() if row.open and row.file is not None]

    def claimed_ids(self, row: OutboxRow) -> frozenset[str]:
        chat = _key(row.chat_key).chat
        others = (one for one in self._outbox.values() if one.id != text.clean(row.id))
        return frozenset(one.message_id for one in others if one.message_id and chat.contains(one.chat_key))

    def untold(self) -> list[OutboxRow]:
        return [row for row in self._outbox.values() if row.untold]

    def delivered_as(self, chat_key: ChatKey, message_id: str | None) -> str | None:
        for row in reversed(self._outbox.values()):
            ours = (row.kind, row.chat_key) == ("reply", _key(chat_key))
            named = message_id is None or (row.state, row.message_id) == ("sent", text.clean(message_id))
            if ours and named:
                return row.request_id
        return None

    def delivered_near(
        self, chat_key: ChatKey, user_id: str, target: Mapping[str, str], message_id: str | None
    ) -> str | None:
        here = _key(chat_key)
        for row in reversed(self._outbox.values()):
            below, above = here.contains(row.chat_key), row.chat_key.contains(here)
            near = row.chat_key != here and (below or (above and row.target == dict(target)))
            named = message_id is None or (row.state, row.message_id) == ("sent", text.clean(message_id))
            asked = self.inbox.get(row.request_id)
            theirs = asked is not None and asked.inbound.user_id == text.clean(user_id)
            if row.kind == "reply" and near and named and theirs:
                return row.request_id
        return None

    def close_target(self, channel: str, chat_id: str, reason: str) -> None:
        self._closed[text.clean(channel), text.clean(chat_id)] = text.clean(reason)

    def open_target(self, channel: str, chat_id: str) -> None:
        self._closed.pop((text.clean(channel), text.clean(chat_id)), None)

    def closed_targets(self) -> dict[tuple[str, str], str]:
        return dict(self._closed)

    # Jobs, locales and leases.

    def put_job(self, job: Job) -> None:
        kept = Job(text.clean(job.id), _key(job.chat_key), _json(job.spec))
        self._jobs[kept.id] = kept

    def remove_job(self, job_id: str) -> bool:
        return self._jobs.pop(text.clean(job_id), None) is not None

    def jobs(self) -> list[Job]:
        return list(self._jobs.values())

    def listen(self, chat: ChatKey, listening: Listening) -> None:
        key = _key(chat)
        self._chats.add(key)
        self._listening[key] = listening

    def listening(self) -> dict[ChatKey, Listening]:
        return dict(self._listening)

    def put_locale(self, person: UserRef, locale: Locale) -> None:
        language, zone = (one and text.clean(one) for one in (locale.language, locale.zone))
        kept = dataclasses.replace(locale, language=language, zone=zone)
        self._locales[UserRef(text.clean(person.channel), text.clean(person.user_id))] = kept

    def locales(self) -> dict[UserRef, Locale]:
        return dict(self._locales)

    def lease(self, name: str, holder: str, seconds: float) -> int | None:
        now, key, who = self._clock.now(), text.clean(name), text.clean(holder)
        row = self._leases.get(key, _Lease(None, 0, now, now))
        if row.holder not in {None, who} and now < row.until:
            if now < row.taken_at:
                until = now + row.until - row.taken_at
                self._leases[key] = dataclasses.replace(row, taken_at=now, until=until)
            return None
        number = row.number if row.holder == who else row.number + 1
        self._leases[key] = _Lease(who, number, now, now + seconds)
        return number

    # Lines.

    def put_lines(self, rows: Sequence[tuple[int, str, Callable[[], bytes]]]) -> bool:
        for number, file, lines in rows:
            self._lines[number] = LineRow(number, text.clean(file), lines())
        return True

    def drop_lines(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._lines.pop(number, None)

    def kept_lines(self) -> list[LineRow]:
        return [self._lines[number] for number in sorted(self._lines)]

    # All of it.

    def once(self, key: str, now: float, every: float) -> bool:
        row = self._once.get(text.clean(key))
        if row is not None and row[0] <= now < row[0] + every:
            return False
        self._once[text.clean(key)] = (now, now + every)
        return row is None or row[0] <= now

    def ask(self, name: str, asked: Approval) -> ApprovalRecord:
        for row in self._approvals.values():
            if row.asked.key == asked.key:
                return row
        if name in self._approvals:
            raise errors.StorageError(f"another approval is called {name}")
        return self._approvals.setdefault(name, ApprovalRecord(name, asked, self._clock.now()))

    def resolve(self, name: str, verdict: Verdict) -> bool:
        row = self._approvals.get(name)
        if row is None:
            return False
        try:
            self._approvals[name] = row.resolve(verdict, self._clock.now())
        except errors.IllegalTransition:
            return False
        return True

    def approval(self, name: str) -> ApprovalRecord | None:
        return self._approvals.get(name)

    def decided_by(self, request_id: str) -> ApprovalRecord | None:
        decided = (
            (row, row.verdict.request_id) for row in self._approvals.values() if row.verdict is not None
        )
        return next((row for row, by in decided if by and by == request_id), None)

    def open_approvals(self) -> list[ApprovalRecord]:
        return [row for row in self._approvals.values() if row.open]

    def decided_since(self, at: float) -> list[ApprovalRecord]:
        return [
            row for row in self._approvals.values() if row.decided_at is not None and row.decided_at >= at
        ]

    def lasting(self, fingerprint: str | None = None) -> list[ApprovalRecord]:
        given = (row for row in self._approvals.values() if row.verdict is not None and row.verdict.lasts)
        call = None if fingerprint is None else fingerprint.partition(":")[0]
        return [row for row in given if call in {None, row.asked.fingerprint.partition(":")[0]}]

    def amend_approval(self, record: ApprovalRecord) -> None:
        self._approvals[record.id] = record

    def sweep(self, before: float, *, failed: float | None = None) -> int:
        lost = before if failed is None else failed
        ages = {"sent": before} | dict.fromkeys(OUTBOX_FAILURES, lost)

        def ended(row: InboxRecord) -> bool:
            return not row.open and row.changed_at < (lost if row.state == INBOX_FAILURE else before)

        def over(row: OutboxRow) -> bool:
            return row.changed_at < ages.get(row.state, 0) and not self._is_open(row.request_id)

        _drop(self._once, lambda _, row: row[1] < before)
        _drop(self._approvals, lambda _, row: row.asked_at < before and self._is_over(row))
        gone = _drop(self.inbox, lambda _, row: ended(row))
        needed = set(self.inbox) | {row.turn_id for row in self.inbox.values()}
        _drop(self._turns, lambda name, row: row.begun_at < before and name not in needed)
        return gone + sum(
            (
                _drop(self._steps, lambda key, row: row.began_at < before and key[0] not in self.inbox),
                _drop(self._outbox, lambda _, row: over(row)),
                _drop(self._keys, lambda _, row: row[1] < before and not self._is_open(row[0])),
                _drop(self._dead, lambda _, row: row[-1] < lost),
            )
        )

    def _is_over(self, row: ApprovalRecord) -> bool:
        lasts = row.verdict is not None and row.verdict.lasts
        return not lasts and row.asked.request_id not in self.inbox

    def _is_open(self, request_id: str) -> bool:
        row = self.inbox.get(request_id)
        return row is not None and row.open

    def _set(self, row: InboxRecord) -> None:
        self.inbox[row.inbound.request_id] = dataclasses.replace(row, changed_at=self._clock.now())


async def _given(result: R) -> R:
    return result


async def _raised(error: errors.ShipmateError) -> NoReturn:
    raise error


def _key(chat_key: ChatKey) -> ChatKey:
    return ChatKey.parse(text.clean(str(chat_key)))


def _checked(row: OutboxRow) -> None:
    if row.kind not in get_args(OutboundKind) or row.state not in get_args(OutboxState):
        raise errors.StorageError(f"there is no {row.kind} that is {row.state}")


def _as_written(row: OutboxRow) -> OutboxRow:
    told: dict[str, Any] = {
        field.name: text.clean(value)
        for field in dataclasses.fields(row)
        if isinstance(value := getattr(row, field.name), str)
    }
    return dataclasses.replace(row, chat_key=_key(row.chat_key), target=_json(row.target or {}), **told)


def _as_kept(inbound: Inbound) -> Inbound:
    return Inbound.model_validate(_json(inbound.model_dump(mode="python", by_alias=True)))


def _json(value: Mapping[str, Any] | None) -> Any:
    """The value as a disk gives it back."""
    return (
        None if value is None else json.loads(text.clean(json.dumps(value, ensure_ascii=False, default=dict)))
    )


def _drop(rows: dict[Any, Any], over: Callable[[Any, Any], bool]) -> int:
    gone = [key for key, row in rows.items() if over(key, row)]
    for key in gone:
        del rows[key]
    return len(gone)
