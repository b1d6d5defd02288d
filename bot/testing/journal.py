"""A journal that fails when it is told to, around another one."""

from __future__ import annotations

import asyncio
import threading
from asyncio import Future
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn, TypeVar

from bot import errors
from bot.contracts.journal import DataLoss, FinalTurnState, InboxEnd, Journal, PostedWrites, Unfinished
from bot.contracts.outbound import OutboxRow
from bot.testing.disk import due, kill

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
        "resolve",
        "close_target",
        "open_target",
        "put_job",
        "put_locale",
        "listen",
        "remove_job",
        "lease",
        "put_lines",
        "drop_lines",
        "forget_loss",
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


Delegating: Any = object
"""Base of what has by name all methods of another object: to the type checker it may have any."""


class FaultyJournal(Delegating):  # type: ignore[misc]
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

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return lambda *args, **more: self._call(name, lambda: method(*args, **more))

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

    async def probe(self) -> str:
        try:
            return await self._call("probe", self._inner.probe)
        except errors.StorageError as error:
            return str(error)

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


class FaultyPostedWrites(Delegating):  # type: ignore[misc]
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

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return lambda *args, **more: self._post(name, lambda: method(*args, **more))

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
