"""The journal's port: inbox, turns, steps, outbox, jobs and leases, durable across restarts."""

from __future__ import annotations

import math
from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, Self

from bot import errors
from bot.contracts.approvals import ApprovalStore
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound, Listening
from bot.contracts.outbound import OutboxRow

FinalState = Literal["answered", "failed", "stopped", "withdrawn", "merged", "handled", "dead"]
InboxState = Literal["queued", "in_turn"] | FinalState
FinalTurnState = Literal["done", "failed", "stopped", "withdrawn"]
TurnState = Literal["running", "suspended", "stopping"] | FinalTurnState
StepKind = Literal["model", "tool"]
OPEN_INBOX: tuple[InboxState, ...] = ("queued", "in_turn")
"""The states of an inbound that has not ended."""
GIVEN_UP: tuple[FinalState, ...] = ("stopped", "withdrawn")
"""The ends of an inbound that its person wants no answer to."""
INBOX_FAILURE: FinalState = "dead"
"""The end of an inbound that somebody may have to look at for longer."""
OPEN_TURN: tuple[TurnState, ...] = ("running", "suspended", "stopping")
"""The states of a turn that has not ended."""


@dataclass(frozen=True, slots=True)
class DataLoss:
    """A loss of data that an earlier process had written, and when it was found (epoch seconds)."""

    what: Literal["damaged", "gone"]
    at: float


@dataclass(frozen=True, slots=True)
class InboxEnd:
    """The end of an inbound.

    answered, failed, stopped: by its turn; stopped also while it waited. withdrawn: its author deleted it. merged: an
    edit is part of the message `merged_into` (a requestId). handled: it needed no turn, or was a command. dead: it can
    never be carried out. `detail` is for people alone.
    """

    state: FinalState
    detail: str | None = None
    merged_into: str | None = None

    @property
    def of_turn(self) -> FinalTurnState:
        """The end of the turn whose first message ends so."""
        match self.state:
            case "failed" | "stopped" | "withdrawn" as state:
                return state
            case "dead":
                return "failed"
            case _:
                return "done"


ANSWERED = InboxEnd("answered")
FAILED = InboxEnd("failed")
STOPPED = InboxEnd("stopped")
WITHDRAWN = InboxEnd("withdrawn")


@dataclass(frozen=True, slots=True)
class InboxStatus:
    """The state of an inbound. Its transitions are methods that return it as it is afterwards:

        queued ──join──► in_turn ──end──► answered, failed, stopped, withdrawn, handled, merged, dead
           └───────────────────────end──────▲

    One that has ended never goes on: that raises `errors.IllegalTransition`. `turn_id` is the requestId of the first message of
    the turn that it was part of, `merged_into` that of the message which has the words of an edit.
    """

    state: InboxState = "queued"
    turn_id: str | None = None
    merged_into: str | None = None
    detail: str | None = None

    @property
    def open(self) -> bool:
        """True until it has ended."""
        return self.state in OPEN_INBOX

    def join(self, turn_id: str) -> Self:
        """A turn has it, from its beginning or from now on. What was part of another turn is no part of that any more."""
        self._leave("in_turn")
        return replace(self, state="in_turn", turn_id=turn_id)

    def merge(self, message: str) -> Self:
        """A message has the words of this edit, which has only to be finished. One that has ended keeps its end."""
        return replace(self, merged_into=message) if self.open else self

    def end(self, end: InboxEnd) -> Self:
        """The first end counts; the same one again changes nothing."""
        if self.state == end.state:
            return self
        self._leave(end.state)
        return replace(self, state=end.state, detail=end.detail, merged_into=end.merged_into)

    def _leave(self, to: InboxState) -> None:
        if not self.open:
            raise errors.IllegalTransition(f"an inbound that is {self.state} cannot become {to}")


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRecord(InboxStatus):
    """One inbound and what became of it. Times are epoch seconds. `amends` is the requestId of the message that an edit is
    about, where that had not ended when the edit was taken in: then it came in time.
    """

    inbound: Inbound
    received_at: float
    changed_at: float
    amends: str | None = None


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An inbound that has not ended, with all that a start needs to know of it."""

    record: InboxRecord
    turn: TurnState | None
    """The state of the turn that has it."""
    about: tuple[InboxRecord, ...]
    """What is on file about its message, itself among that, oldest first; of an album, about the item whose id it has."""

    @property
    def inbound(self) -> Inbound:
        return self.record.inbound


@dataclass(frozen=True, slots=True)
class TurnStatus:
    """The state of a turn on file. Its transitions are methods that return it as it is afterwards:

        running ⇄ suspended ──stop──► stopping ──end──► done, failed, stopped, withdrawn
              └──────────────────end──────────────────────▲

    One that is being stopped stays so until it ends. One that has ended never goes on: that raises `errors.IllegalTransition`.
    """

    state: TurnState = "running"

    @property
    def open(self) -> bool:
        """True until it has ended."""
        return self.state in OPEN_TURN

    def run(self) -> Self:
        """It begins again, or goes on after it was suspended."""
        return self._go("running")

    def suspend(self) -> Self:
        """It waits for a person."""
        return self._go("suspended")

    def stop(self) -> Self:
        """It is being stopped: whatever begins it again only ends it."""
        return self._go("stopping")

    def end(self, state: FinalTurnState) -> Self:
        """The first end counts; the same one again changes nothing."""
        return self if self.state == state else self._leave(state)

    def _go(self, state: TurnState) -> Self:
        after = self._leave(state)
        return self if self.state == "stopping" else after

    def _leave(self, to: TurnState) -> Self:
        if not self.open:
            raise errors.IllegalTransition(f"a turn that is {self.state} cannot become {to}")
        return replace(self, state=to)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRecord(TurnStatus):
    """One turn of a chat. Its id is the requestId of its first message. Times are epoch seconds."""

    id: str
    chat_key: ChatKey
    begun_at: float
    ended_at: float | None = None


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One model call or one tool call of a turn. A tool call that began and has no `ended_at` may have run.

    `id` is the `tool_use` id of a tool call, and any unique name of a model call. `name` is the tool's or the
    model's. `parent_id` is the step that this one is part of: the call of a task. `result` is what a resumed turn and a receipt need of it: of a tool call the `tool_result` block.
    """

    request_id: str
    id: str
    kind: StepKind
    name: str
    began_at: float
    ended_at: float | None = None
    result: Json | None = None
    parent_id: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One job: `spec` is the gateway's own description of what and when (`gateway.jobs.store`); the journal only keeps it."""

    id: str
    chat_key: ChatKey
    spec: Json


class InboxWrites(Protocol):
    """Writes about an inbound that was taken in, and its turn."""

    def begin_turn(self, turn_id: str, chat_key: ChatKey, members: Sequence[str]) -> Awaitable[None]:
        """Write that a turn runs and has these inbound (requestIds), its first one among them; one of another turn, which ends
        with that, is of this one. Begun again, a suspended turn runs. An inbound that is not there, or has ended, raises
        `errors.IllegalTransition` once the others are written; a turn that has ended raises it before.
        """
        ...

    def join_turn(self, turn_id: str, members: Sequence[str]) -> Awaitable[None]:
        """Write that a turn has these inbound too, as `begin_turn` does."""
        ...

    def suspend_turn(self, turn_id: str) -> Awaitable[None]:
        """Write that a turn waits for a person. The same again is legal, and a turn that is being stopped stays so; one that
        is not there, or has ended, raises `errors.IllegalTransition`. So do the next two.
        """
        ...

    def resume_turn(self, turn_id: str) -> Awaitable[None]:
        """Write that a suspended turn runs again."""
        ...

    def stop_turn(self, turn_id: str) -> Awaitable[None]:
        """Write that a turn is being stopped: whatever begins it again only ends it. Of one that has not begun nothing is written:
        whoever begins it writes its stop behind that.
        """
        ...

    def end_turn(
        self,
        turn_id: str,
        state: FinalTurnState,
        members: Mapping[str, InboxEnd],
        say: Sequence[OutboxRow] = (),
    ) -> Awaitable[None]:
        """Write how a turn and the inbound in it (by requestId) ended, and the rows of its last words, in one transaction.
        The first end of each counts, and the same one again is legal. A turn or an inbound that is not there, or has ended
        otherwise, raises `errors.IllegalTransition` once all the rest is written: else the inbound would be answered again.
        """
        ...

    def finish(self, request_id: str, end: InboxEnd, say: Sequence[OutboxRow] = ()) -> Awaitable[None]:
        """Write how an inbound ended, and the rows of the last words about it, in one transaction, as
        `end_turn`. The turn that it began, if that still runs, ends with it.
        """
        ...

    def amend(self, inbound: Inbound, edits: Sequence[str] = ()) -> Awaitable[bool | None]:
        """Replace what an unfinished inbound says (found by its requestId); False where it is finished, None where a
        posted one is kept. `edits` are the requestIds of the edits whose words it has now: from now on they name it in
        `merged_into`, and are open until they are finished. One that is not there raises `errors.IllegalTransition`.
        """
        ...


class OutboxWrites(Protocol):
    """Writes about messages that have to go out."""

    def put_outbox(self, rows: Sequence[OutboxRow]) -> Awaitable[None]:
        """Write new rows as they are, all or none; one whose id is there already stays as it is. A row that `replaces`
        the message of a preview ends that preview's row, in the same transaction.
        """
        ...

    def update_outbox(self, row: OutboxRow) -> Awaitable[None]:
        """Write what became of a row. Raises `errors.IllegalTransition` where it is not there, and where
        `OutboxRow.update` does.
        """
        ...


@dataclass(frozen=True, slots=True)
class LineRow:
    """Whole lines of one file that are on disk in the journal. The file has them as well, or will have them."""

    number: int
    file: str
    lines: bytes


class LineWrites(Protocol):
    """Lines that are on disk with a commit of the journal, until the disk has them in their files (write-ahead)."""

    def put_lines(self, rows: Sequence[tuple[int, str, Callable[[], bytes]]]) -> Future[bool | None]:
        """Write rows, each with a number of its own, the name of a file and what gives its lines. The lines may be asked for several
        times, on another thread. True once they are on disk.
        """
        ...

    def drop_lines(self, numbers: Sequence[int]) -> Awaitable[None]: ...


class PostedWrites(InboxWrites, OutboxWrites, LineWrites, Protocol):
    """Writes that are never refused: those that the disk does not take are kept in memory, and written in the order of
    the calls once it takes something again. Nobody has to await them. Awaited, they return once they are on disk, or
    once the disk has refused them. What cannot follow is not written, and is an error in the log alone. An inbound is closed
    after all that was posted before, or together with it.
    """


class Inbox(InboxWrites, Protocol):
    """Inbound messages and their turns. An inbound is queued, then in a turn, then it has ended; one that needs no turn
    ends as it is. A turn runs, may be suspended, and ends.
    """

    async def receive(self, inbound: Inbound) -> bool:
        """Write an inbound, whose requestId is new; False where one of its keys was seen before (nothing is written then)."""
        ...

    async def unfinished(self, limit: int | None = None, after: str = "") -> list[Unfinished]:
        """Every inbound that has not ended, oldest first, at most `limit`; those alone that came after
        the one with the requestId `after`, where that is known. Fewer than `limit` are all there are. One whose end was
        posted is finished, whatever the disk says.
        """
        ...

    async def inbound(self, request_id: str) -> InboxRecord | None: ...
    async def turn(self, turn_id: str) -> TurnRecord | None: ...
    async def about(self, chat_key: ChatKey, message_id: str, key: str | None = None) -> list[InboxRecord]:
        """Every inbound about one message of a chat (itself, its edits, its deletion), in the order they came; and what
        was taken in there with this `key`. Where an album is among them, every inbound about each of its items too.
        """
        ...

    async def quoting(self, chat_key: ChatKey, message_id: str) -> list[InboxRecord]:
        """Every message of a chat that answers this one, or came with its words, in the order they came."""
        ...

    async def said_in(
        self, chat: ChatKey, *, since: float = 0.0, until: float = math.inf, limit: int
    ) -> list[InboxRecord]:
        """Messages of people in a chat and in its threads that were taken in between these times (epoch seconds), the newest first,
        at most `limit`: messages with an id, their changes, and commands.
        """
        ...

    async def knows(self, chat_key: ChatKey) -> bool:
        """True if this conversation ever received an inbound."""
        ...

    async def listen(self, chat: ChatKey, listening: Listening) -> None:
        """Remember what the bot listens to in a chat."""
        ...

    async def listening(self) -> dict[ChatKey, Listening]:
        """The same of every chat where somebody has said so."""
        ...

    async def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> None: ...


class Steps(Protocol):
    """Every model and tool call of a turn, with its result: none that ended is ever executed again."""

    async def begin_step(self, step: StepRecord) -> None:
        """Write that a step begins (or, with `ended_at`, that it took place); again, it changes nothing."""
        ...

    async def end_step(self, request_id: str, step_id: str, result: Json) -> None: ...
    async def steps(self, request_id: str) -> list[StepRecord]:
        """In the order in which they began."""
        ...


class Outbox(OutboxWrites, Protocol):
    """Messages to send, and the outcome of each."""

    async def deliveries(self, request_id: str) -> list[OutboxRow]: ...
    async def undelivered(self) -> list[OutboxRow]:
        """Rows in the states ready and sending whose inbound has ended, or is unknown, oldest first: they wait for
        the platform alone.
        """
        ...

    async def with_files(self) -> list[OutboxRow]:
        """Rows in the states ready and sending that have a file."""
        ...

    async def claimed_ids(self, row: OutboxRow) -> frozenset[str]:
        """The message ids of other rows of its chat, up to some that were written shortly before it."""
        ...

    async def untold(self) -> list[OutboxRow]:
        """Messages that will not arrive, and whose chat has still to hear that, oldest first."""
        ...

    async def delivered_as(self, chat_key: ChatKey, message_id: str | None) -> str | None:
        """The requestId of the reply that a chat shows under this id; where that is None, of its newest reply, whatever
        became of it.
        """
        ...

    async def delivered_near(
        self, chat_key: ChatKey, user_id: str, target: Mapping[str, str], message_id: str | None
    ) -> str | None:
        """The same of what a person was answered beside this chat: in its threads (whose chatKeys go on with `:`), or to
        exactly this `target` from the conversation that it is a thread of.
        """
        ...

    async def close_target(self, channel: str, chat_id: str, reason: str) -> None:
        """Remember that a chat can no longer be written to."""
        ...

    async def open_target(self, channel: str, chat_id: str) -> None: ...
    async def closed_targets(self) -> dict[tuple[str, str], str]:
        """(channel, chat id) → reason."""
        ...


@dataclass(frozen=True, slots=True)
class Locale:
    """The language (`bot.words`) and the time zone (of the tz database) in which a person is spoken to: those of their app when
    they last wrote, or those they have chosen. None is not known.
    """

    language: str | None = None
    language_chosen: bool = False
    zone: str | None = None
    zone_chosen: bool = False


class JobRows(Protocol):
    """Jobs by id."""

    async def put_job(self, job: Job) -> None: ...
    async def remove_job(self, job_id: str) -> bool: ...
    async def jobs(self) -> list[Job]:
        """In the order in which they were first put."""
        ...


class LocaleRows(Protocol):
    """The locales of people."""

    async def put_locale(self, person: UserRef, locale: Locale) -> None:
        """Remember in which language and time zone a person is spoken to."""
        ...

    async def locales(self) -> dict[UserRef, Locale]: ...


class Leases(Protocol):
    """Leases for work that one process at a time may do."""

    async def lease(self, name: str, holder: str, seconds: float) -> int | None:
        """Take or renew a lease; its fencing number, which grows with every change of holder. None where another
        holder has it and it has not run out.
        """
        ...


class Journal(Inbox, Steps, Outbox, JobRows, LocaleRows, Leases, ApprovalStore, Protocol):
    """All of it, in one store. Every call returns once the change is on disk, or raises `StorageError`; changes
    reach the disk in the order of the calls (not in that of awaiting them).
    """

    @property
    def post(self) -> PostedWrites:
        """The same writes, as ones that are never refused."""
        ...

    @property
    def pending_writes(self) -> int:
        """The number of posted writes that the disk has refused and not taken since. They are tried again by themselves."""
        ...

    async def flush(self) -> bool:
        """Write what is pending now; False where the disk still refuses it."""
        ...

    async def open(self) -> None:
        """Open now rather than at the first call. Raises `errors.StorageError` where that is not possible."""
        ...

    async def newest(self) -> str:
        """The greatest requestId that is known; "" where there is none."""
        ...

    def health(self) -> str:
        """The trouble with the disk; "" where the last change reached it."""
        ...

    def lost(self) -> DataLoss | None:
        """The last loss that this journal knows of, found by this process or by an earlier one. A journal that was never
        there before counts as one that is gone, until `forget_loss`.
        """
        ...

    async def forget_loss(self) -> None:
        """Nothing was lost: `lost` gives None from now on, after a restart too. Raises `errors.StorageError`."""
        ...

    async def kept_lines(self) -> list[LineRow]:
        """Every row of lines that was not dropped, by its number."""
        ...

    async def once(self, key: str, now: float, every: float) -> bool:
        """True at most once in `every` seconds for this key, across restarts."""
        ...

    async def sweep(self, before: float, *, failed: float | None = None) -> int:
        """Forget finished inbound with their steps, what was sent, and keys older than `before` (epoch seconds); dead
        inbound, dead letters and what could not be delivered older than `failed`, or else `before`. Counts them. Of
        what is not finished everything stays.
        """
        ...

    async def probe(self) -> str:
        """Write something and see whether it reaches the disk; "" where it does, else what is wrong."""
        ...

    async def close(self) -> None: ...
