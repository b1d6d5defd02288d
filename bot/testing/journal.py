"""A journal that fails when it is told to, around another one."""

from __future__ import annotations

import asyncio
import math
import threading
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from bot import errors
from bot.contracts.approvals import Approval, ApprovalRecord, Verdict
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Inbound, Listening
from bot.contracts.journal import (
    DataLoss,
    FinalTurnState,
    InboxEnd,
    InboxRecord,
    Job,
    Journal,
    LineRow,
    Locale,
    PostedWrites,
    StepRecord,
    TurnRecord,
    Unfinished,
)
from bot.contracts.outbound import OutboxRow
from bot.testing.disk import kill
from bot.testing.due import due

R = TypeVar("R")
RETRY_SECONDS = 0.5
"""Until what was posted and failed is carried out again."""

WRITES = frozenset(
    {
        "receive",
        "begin_turn",
        "join_turn",
        "suspend_turn",
        "resume_turn",
        "stop_turn",
        "end_turn",
        "finish",
        "amend",
        "keep_dead_letter",
        "begin_step",
        "end_step",
        "put_outbox",
        "update_outbox",
        "once",
        "ask",
        "settle",
        "close_target",
        "open_target",
        "put_job",
        "put_locale",
        "listen",
        "remove_job",
        "lease",
        "release",
        "put_lines",
        "drop_lines",
        "sweep",
    }
)
"""What changes the journal; a probe leaves nothing behind."""


@dataclass(slots=True)
class JournalFailure:
    """The `at`-th call of `kind` (a method's name; `write` stands for every one that changes something, `*` for
    all) fails.

    `before` it has been carried out, or `after`: then it is on disk, and its caller does not know. `then` says
    how: `errors.StorageError`, or kill -9 on this process. `times` failures in a row; None: for ever.
    """

    kind: str = "write"
    at: int = 1
    times: int | None = 1
    when: Literal["before", "after"] = "before"
    then: Literal["error", "kill"] = "error"

    def matches(self, name: str) -> bool:
        return self.kind in {name, "*"} or (self.kind == "write" and name in WRITES)


class FaultyJournal:
    """`contracts.journal.Journal` around another one. `done` lists the calls that were begun, of which `seen` hears at
    once; `die` is what a failure with `kill` does.
    """

    def __init__(
        self, inner: Journal, *, die: Callable[[], None] = kill, seen: Callable[[str], None] | None = None
    ) -> None:
        self._inner = inner
        self._die = die
        self._seen = seen
        self._failures: list[JournalFailure] = []
        self._lock = threading.Lock()
        self.done: list[str] = []
        self.post = FaultyPostedWrites(inner.post, self._due, die)

    def fail(self, failure: JournalFailure) -> None:
        """Arm a failure; calls are counted from now on."""
        self._failures.append(failure)

    def mend(self) -> None:
        """Everything works again."""
        self._failures.clear()

    @property
    def pending_writes(self) -> int:
        return self.post.pending + self._inner.pending_writes

    async def flush(self) -> bool:
        replayed = self.post.replay()
        await self.post.written()
        return replayed and await self._inner.flush()

    def health(self) -> str:
        return self._inner.health()

    def lost(self) -> DataLoss | None:
        return self._inner.lost()

    def open(self) -> Coroutine[Any, Any, None]:
        return self._call("open", self._inner.open)

    def newest(self) -> Coroutine[Any, Any, str]:
        return self._call("newest", self._inner.newest)

    def receive(self, inbound: Inbound) -> Coroutine[Any, Any, bool]:
        return self._call("receive", lambda: self._inner.receive(inbound))

    def begin_turn(self, turn_id: str, chat_key: ChatKey, members: Sequence[str]) -> Awaitable[None]:
        return self._call("begin_turn", lambda: self._inner.begin_turn(turn_id, chat_key, members))

    def join_turn(self, turn_id: str, members: Sequence[str]) -> Awaitable[None]:
        return self._call("join_turn", lambda: self._inner.join_turn(turn_id, members))

    def suspend_turn(self, turn_id: str) -> Awaitable[None]:
        return self._call("suspend_turn", lambda: self._inner.suspend_turn(turn_id))

    def resume_turn(self, turn_id: str) -> Awaitable[None]:
        return self._call("resume_turn", lambda: self._inner.resume_turn(turn_id))

    def stop_turn(self, turn_id: str) -> Awaitable[None]:
        return self._call("stop_turn", lambda: self._inner.stop_turn(turn_id))

    def end_turn(
        self,
        turn_id: str,
        state: FinalTurnState,
        members: Mapping[str, InboxEnd],
        say: Sequence[OutboxRow] = (),
    ) -> Awaitable[None]:
        return self._call("end_turn", lambda: self._inner.end_turn(turn_id, state, members, say))

    def finish(self, request_id: str, end: InboxEnd, say: Sequence[OutboxRow] = ()) -> Awaitable[None]:
        return self._call("finish", lambda: self._inner.finish(request_id, end, say))

    def amend(self, inbound: Inbound, edits: Sequence[str] = ()) -> Awaitable[bool | None]:
        return self._call("amend", lambda: self._inner.amend(inbound, edits))

    def unfinished(self, limit: int | None = None, after: str = "") -> Coroutine[Any, Any, list[Unfinished]]:
        return self._call("unfinished", lambda: self._unfinished(limit, after))

    async def _unfinished(self, limit: int | None, after: str) -> list[Unfinished]:
        left: list[Unfinished] = []
        while True:
            room = None if limit is None else limit - len(left)
            rows = await self._inner.unfinished(room, after)
            left += [row for row in rows if row.inbound.request_id not in self.post.closing]
            if room is None or len(rows) < room or len(left) == limit:
                return left
            after = rows[-1].inbound.request_id

    def turn(self, turn_id: str) -> Coroutine[Any, Any, TurnRecord | None]:
        return self._call("turn", lambda: self._inner.turn(turn_id))

    def inbound(self, request_id: str) -> Coroutine[Any, Any, InboxRecord | None]:
        return self._call("inbound", lambda: self._inner.inbound(request_id))

    def said_in(
        self, chat: ChatKey, *, since: float = 0.0, until: float = math.inf, limit: int
    ) -> Coroutine[Any, Any, list[InboxRecord]]:
        return self._call("said_in", lambda: self._inner.said_in(chat, since=since, until=until, limit=limit))

    def about(
        self, chat_key: ChatKey, message_id: str, key: str | None = None
    ) -> Coroutine[Any, Any, list[InboxRecord]]:
        return self._call("about", lambda: self._inner.about(chat_key, message_id, key))

    def quoting(self, chat_key: ChatKey, message_id: str) -> Coroutine[Any, Any, list[InboxRecord]]:
        return self._call("quoting", lambda: self._inner.quoting(chat_key, message_id))

    def knows(self, chat_key: ChatKey) -> Coroutine[Any, Any, bool]:
        return self._call("knows", lambda: self._inner.knows(chat_key))

    def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> Coroutine[Any, Any, None]:
        return self._call("keep_dead_letter", lambda: self._inner.keep_dead_letter(channel, key, raw, reason))

    def begin_step(self, step: StepRecord) -> Coroutine[Any, Any, None]:
        return self._call("begin_step", lambda: self._inner.begin_step(step))

    def end_step(self, request_id: str, step_id: str, result: Json) -> Coroutine[Any, Any, None]:
        return self._call("end_step", lambda: self._inner.end_step(request_id, step_id, result))

    def steps(self, request_id: str) -> Coroutine[Any, Any, list[StepRecord]]:
        return self._call("steps", lambda: self._inner.steps(request_id))

    def put_outbox(self, rows: Sequence[OutboxRow]) -> Awaitable[None]:
        return self._call("put_outbox", lambda: self._inner.put_outbox(rows))

    def update_outbox(self, row: OutboxRow) -> Awaitable[None]:
        return self._call("update_outbox", lambda: self._inner.update_outbox(row))

    def with_files(self) -> Coroutine[Any, Any, list[OutboxRow]]:
        return self._call("with_files", self._inner.with_files)

    def claimed_ids(self, row: OutboxRow) -> Coroutine[Any, Any, frozenset[str]]:
        return self._call("claimed_ids", lambda: self._inner.claimed_ids(row))

    def untold(self) -> Coroutine[Any, Any, list[OutboxRow]]:
        return self._call("untold", self._inner.untold)

    def deliveries(self, request_id: str) -> Coroutine[Any, Any, list[OutboxRow]]:
        return self._call("deliveries", lambda: self._inner.deliveries(request_id))

    def undelivered(self) -> Coroutine[Any, Any, list[OutboxRow]]:
        return self._call("undelivered", self._inner.undelivered)

    def delivered_as(self, chat_key: ChatKey, message_id: str | None) -> Coroutine[Any, Any, str | None]:
        return self._call("delivered_as", lambda: self._inner.delivered_as(chat_key, message_id))

    def delivered_near(
        self, chat_key: ChatKey, user_id: str, target: Mapping[str, str], message_id: str | None
    ) -> Coroutine[Any, Any, str | None]:
        return self._call(
            "delivered_near", lambda: self._inner.delivered_near(chat_key, user_id, target, message_id)
        )

    def close_target(self, channel: str, chat_id: str, reason: str) -> Coroutine[Any, Any, None]:
        return self._call("close_target", lambda: self._inner.close_target(channel, chat_id, reason))

    def open_target(self, channel: str, chat_id: str) -> Coroutine[Any, Any, None]:
        return self._call("open_target", lambda: self._inner.open_target(channel, chat_id))

    def closed_targets(self) -> Coroutine[Any, Any, dict[tuple[str, str], str]]:
        return self._call("closed_targets", self._inner.closed_targets)

    def put_job(self, job: Job) -> Coroutine[Any, Any, None]:
        return self._call("put_job", lambda: self._inner.put_job(job))

    def remove_job(self, job_id: str) -> Coroutine[Any, Any, bool]:
        return self._call("remove_job", lambda: self._inner.remove_job(job_id))

    def put_locale(self, person: UserRef, locale: Locale) -> Coroutine[Any, Any, None]:
        return self._call("put_locale", lambda: self._inner.put_locale(person, locale))

    def listen(self, chat: ChatKey, listening: Listening) -> Coroutine[Any, Any, None]:
        return self._call("listen", lambda: self._inner.listen(chat, listening))

    def listening(self) -> Coroutine[Any, Any, dict[ChatKey, Listening]]:
        return self._call("listening", self._inner.listening)

    def locales(self) -> Coroutine[Any, Any, dict[UserRef, Locale]]:
        return self._call("locales", self._inner.locales)

    def jobs(self) -> Coroutine[Any, Any, list[Job]]:
        return self._call("jobs", self._inner.jobs)

    def lease(self, name: str, holder: str, seconds: float) -> Coroutine[Any, Any, int | None]:
        return self._call("lease", lambda: self._inner.lease(name, holder, seconds))

    def ask(self, name: str, asked: Approval) -> Coroutine[Any, Any, ApprovalRecord]:
        return self._call("ask", lambda: self._inner.ask(name, asked))

    def settle(self, name: str, verdict: Verdict) -> Coroutine[Any, Any, bool]:
        return self._call("settle", lambda: self._inner.settle(name, verdict))

    def approval(self, name: str) -> Coroutine[Any, Any, ApprovalRecord | None]:
        return self._call("approval", lambda: self._inner.approval(name))

    def open_approvals(self) -> Coroutine[Any, Any, list[ApprovalRecord]]:
        return self._call("open_approvals", self._inner.open_approvals)

    def decided_by(self, request_id: str) -> Coroutine[Any, Any, ApprovalRecord | None]:
        return self._call("decided_by", lambda: self._inner.decided_by(request_id))

    def decided_since(self, at: float) -> Coroutine[Any, Any, list[ApprovalRecord]]:
        return self._call("decided_since", lambda: self._inner.decided_since(at))

    def lasting(self, fingerprint: str, chat_key: ChatKey) -> Coroutine[Any, Any, Verdict | None]:
        return self._call("lasting", lambda: self._inner.lasting(fingerprint, chat_key))

    def kept_lines(self) -> Coroutine[Any, Any, list[LineRow]]:
        return self._call("kept_lines", self._inner.kept_lines)

    def release(self, name: str, holder: str) -> Coroutine[Any, Any, None]:
        return self._call("release", lambda: self._inner.release(name, holder))

    def once(self, key: str, now: float, every: float) -> Coroutine[Any, Any, bool]:
        return self._call("once", lambda: self._inner.once(key, now, every))

    def sweep(self, before: float, *, failed: float | None = None) -> Coroutine[Any, Any, int]:
        return self._call("sweep", lambda: self._inner.sweep(before, failed=failed))

    async def probe(self) -> str:
        try:
            return await self._call("probe", self._inner.probe)
        except errors.StorageError as error:
            return str(error)

    def close(self) -> Coroutine[Any, Any, None]:
        return self._call("close", self._inner.close)

    def _call(self, name: str, call: Callable[[], Awaitable[R]]) -> Coroutine[Any, Any, R]:
        """The inner method is called at once, so that changes keep the order of the calls."""
        failure = self._due(name)
        if failure is None:
            carried_out = call()
            # A task that is cancelled before it begins closes its own coroutine, and none within that.
            return carried_out if isinstance(carried_out, Coroutine) else _awaited(carried_out)
        if failure.when == "after":
            return self._after(call(), failure, name)
        if failure.then == "kill":
            self._die()
        return _refused(name)

    async def _after(self, carried_out: Awaitable[R], failure: JournalFailure, name: str) -> R:
        await carried_out
        if failure.then == "kill":
            self._die()
        await _refused(name)

    def _due(self, name: str) -> JournalFailure | None:
        if self._seen is not None:
            self._seen(name)
        with self._lock:
            self.done.append(name)
            return due(self._failures, lambda failure: failure.matches(name))


class FaultyPostedWrites:
    """`contracts.journal.PostedWrites` of a `FaultyJournal`: what fails is kept, with all that is posted after it, and
    carried out in that order as soon as the first of it no longer fails: at the next post, by `replay`, or by itself
    after `RETRY_SECONDS`.
    """

    def __init__(
        self, inner: PostedWrites, due: Callable[[str], JournalFailure | None], die: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._due = due
        self._die = die
        self._held: deque[_Held] = deque()
        self._writing: set[Future[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def pending(self) -> int:
        return len(self._held)

    @property
    def closing(self) -> set[str]:
        """The inbound whose end is kept."""
        return {request_id for held in self._held for request_id in held.closes}

    def begin_turn(self, turn_id: str, chat_key: ChatKey, members: Sequence[str]) -> Future[None]:
        return self._post("begin_turn", lambda: self._inner.begin_turn(turn_id, chat_key, members))

    def join_turn(self, turn_id: str, members: Sequence[str]) -> Future[None]:
        return self._post("join_turn", lambda: self._inner.join_turn(turn_id, members))

    def suspend_turn(self, turn_id: str) -> Future[None]:
        return self._post("suspend_turn", lambda: self._inner.suspend_turn(turn_id))

    def resume_turn(self, turn_id: str) -> Future[None]:
        return self._post("resume_turn", lambda: self._inner.resume_turn(turn_id))

    def stop_turn(self, turn_id: str) -> Future[None]:
        return self._post("stop_turn", lambda: self._inner.stop_turn(turn_id))

    def end_turn(
        self,
        turn_id: str,
        state: FinalTurnState,
        members: Mapping[str, InboxEnd],
        say: Sequence[OutboxRow] = (),
    ) -> Future[None]:
        return self._post(
            "end_turn", lambda: self._inner.end_turn(turn_id, state, members, say), closes=tuple(members)
        )

    def finish(self, request_id: str, end: InboxEnd, say: Sequence[OutboxRow] = ()) -> Future[None]:
        return self._post("finish", lambda: self._inner.finish(request_id, end, say), closes=(request_id,))

    def amend(self, inbound: Inbound, edits: Sequence[str] = ()) -> Future[bool | None]:
        return self._post("amend", lambda: self._inner.amend(inbound, edits))

    def put_outbox(self, rows: Sequence[OutboxRow]) -> Future[None]:
        return self._post("put_outbox", lambda: self._inner.put_outbox(rows))

    def update_outbox(self, row: OutboxRow) -> Future[None]:
        return self._post("update_outbox", lambda: self._inner.update_outbox(row))

    def put_lines(self, rows: Sequence[tuple[int, str, Callable[[], bytes]]]) -> Future[bool | None]:
        return self._post("put_lines", lambda: self._inner.put_lines(rows))

    def drop_lines(self, numbers: Sequence[int]) -> Future[None]:
        return self._post("drop_lines", lambda: self._inner.drop_lines(numbers))

    def replay(self) -> bool:
        """Carry out what is kept; False where the first of it fails still."""
        while self._held:
            held = self._held[0]
            failure = self._due(held.name)
            if failure is not None and failure.when == "before":
                if failure.then == "kill":
                    self._die()
                for one in self._held:
                    one.kept()
                self._again()
                return False
            self._held.popleft()
            written = asyncio.ensure_future(held.write())
            self._writing.add(written)
            written.add_done_callback(self._writing.discard)
            if failure is not None and failure.then == "kill":
                written.add_done_callback(lambda _: self._die())
            written.add_done_callback(held.heard)
        return True

    async def written(self) -> None:
        """Return once what was carried out is on disk."""
        while self._writing:
            await asyncio.wait(self._writing)

    def _post(
        self, name: str, write: Callable[[], Awaitable[Any]], closes: tuple[str, ...] = ()
    ) -> Future[Any]:
        held = _Held(name, write, asyncio.get_running_loop().create_future(), closes)
        self._held.append(held)
        self.replay()
        return held.told

    def _again(self) -> None:
        if self._timer is None or self._timer.when() < asyncio.get_running_loop().time():
            self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self.replay)


@dataclass(slots=True, eq=False)
class _Held:
    """A posted write; `told` is what its caller has of it."""

    name: str
    write: Callable[[], Awaitable[Any]]
    told: Future[Any]
    closes: tuple[str, ...]

    def kept(self) -> None:
        if not self.told.done():
            self.told.set_result(None)

    def heard(self, written: Future[Any]) -> None:
        if not self.told.done():
            self.told.set_result(written.result())


async def _awaited(call: Awaitable[R]) -> R:
    return await call


async def _refused(name: str) -> NoReturn:
    raise errors.StorageError(f"injected: the journal cannot {name}")
