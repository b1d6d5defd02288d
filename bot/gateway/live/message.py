"""Messages that change while a turn runs: the answer that the model still writes, and the progress of what a turn has at work."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from bot import errors
from bot.contracts.channel import Manifest
from bot.contracts.environment import Clock, Log, off_loop
from bot.contracts.outbound import Address, LiveForm, OutboundKind, OutboxRow
from bot.contracts.tasks import TaskEvent
from bot.contracts.tools import ToolCall
from bot.core.long_blocks import LongBlocks
from bot.features.live.partial_markdown import RenderablePrefix
from bot.features.live.preview_parts import Previewing, preview_parts, settled
from bot.features.live.progress_view import BUSY_SECONDS, ProgressState
from bot.gateway.outbox.live_message import LiveMessage
from bot.gateway.outbox.worker import OutboxWorker
from bot.words import say


@dataclass(frozen=True, slots=True)
class LiveDeps:
    """The collaborators of everything that is shown live."""

    outbox: OutboxWorker
    clock: Clock
    log: Log


SENTENCE_SECONDS = 5.0
"""So long the first sentence of an answer is waited for before anything of it is shown."""
DRAFT_SECONDS = 20.0
"""Until a draft that stays as it is is shown again: it goes by itself after 30 s."""
LOOK_SECONDS = 0.5
"""Interval between two looks for something to show."""
GROWS_SECONDS = 5.0
"""So long after a change a message counts as one that grows: a sign of work beside it lasts as long."""
LONG = 2_000
"""Characters beyond which the parts of a text are counted where nothing else waits for it."""


NONE = Previewing({}, str)


def unseen() -> None:
    """Nobody wants to know when something is shown."""


@dataclass(slots=True, eq=False)
class _Showing:
    """The display of a turn that a task keeps up to date; `busy` while a change is on its way, `halted` once nothing more is to be shown."""

    to: Address
    task: asyncio.Task[None] | None = field(default=None, kw_only=True)
    busy: bool = field(default=False, kw_only=True)
    halted: bool = field(default=False, kw_only=True)

    def stop(self) -> None:
        """Show nothing more."""
        self.halted = True
        if self.task is not None and not self.busy:
            self.task.cancel()

    async def stop_and_wait(self) -> None:
        """The same; what is on its way is waited for, so that it does not come after what follows."""
        self.stop()
        if self.task is not None:
            await asyncio.wait([self.task])


_S = TypeVar("_S", bound=_Showing)


class _ByTurn(Generic[_S]):
    """Displays of turns that run, by their requestIds."""

    def __init__(self, deps: LiveDeps, manifests: Mapping[str, Manifest]) -> None:
        self._deps = deps
        self._manifests = manifests
        self._open: dict[str, _S] = {}

    def leave(self, to: Address) -> None:
        """Its turn goes on in another process."""
        if (showing := self._open.pop(to.request_id, None)) is not None:
            showing.stop()

    async def close(self) -> None:
        """Show nothing more."""
        tasks = [showing.task for showing in self._open.values() if showing.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, showing: _S, work: Coroutine[Any, Any, None]) -> None:
        showing.task = asyncio.create_task(work)
        showing.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            cause = f"{type(error).__name__}: {error}"
            self._deps.log.write("error", f"a turn cannot be shown any more: {cause}", level="error")


@dataclass(slots=True, eq=False)
class _Preview(_Showing):
    """`messages` are the parts of one answer, in order. Without `words` they stand for nothing. `buried`: a question stands below."""

    messages: list[LiveMessage]
    shown: Callable[[], None]
    words: Callable[[], str] = str
    drafts: bool = False
    drafted: str = ""
    drafted_at: float = 0.0
    changed_at: float = float("-inf")
    buried: bool = False

    @property
    def over(self) -> bool:
        return self.halted or any(message.over for message in self.messages)


class Previews(_ByTurn[_Preview]):
    """One for each turn at most, in as many messages as it takes. What is shown is the beginning of what the answer will be,
    redacted and from its first whole sentence on: its end is held back where a secret could begin in it, and so is
    Markdown that is half open (`partial_markdown`).
    """

    def __init__(
        self,
        deps: LiveDeps,
        manifests: Mapping[str, Manifest],
        previewing: Previewing,
        long_blocks: LongBlocks,
    ) -> None:
        super().__init__(deps, manifests)
        self._previewing = previewing
        self._long_blocks = long_blocks

    def begin(self, to: Address, words: Callable[[], str], shown: Callable[[], None]) -> None:
        """An answer is being written: `words` gives what there is of it, for as long as it stands open. `shown` is called
        before anything of it is.
        """
        edits, after = self._manifests[to.channel].edits, self._previewing.after.get(to.channel)
        if edits is None or after is None:
            return
        preview = self._open.get(to.request_id)
        if preview is None:
            drafts = to.channel in self._previewing.drafts and to.chat_type == "direct"
            preview = _Preview(to, [self._message(to)], shown, drafts=drafts)
            self._open[to.request_id] = preview
        preview.words = words
        if preview.task is None:
            self._start(preview, self._show(preview, after, edits.every[to.chat_type]))

    def grows(self, to: Address) -> bool:
        """True while people see an answer that grows."""
        preview = self._open.get(to.request_id)
        now = self._deps.clock.monotonic()
        return preview is not None and now - preview.changed_at < GROWS_SECONDS

    def bury(self, to: Address) -> None:
        """A question is asked in a chat: what comes then is to stand below it."""
        for preview in self._open.values():
            preview.buried = preview.buried or preview.to.chat_key == to.chat_key

    async def _unbury(self, preview: _Preview) -> None:
        """Go on in a new message, where a question stands below the old ones."""
        if not preview.buried:
            return
        old, preview.messages, preview.buried = preview.messages, [self._message(preview.to)], False
        for message in old:
            await message.last("")

    async def take(self, to: Address, parts: int) -> list[str]:
        """A reply of so many parts is ready: the messages in whose places the first of them come. The rows of the reply end
        theirs; others go at the end of the turn.
        """
        preview = self._open.pop(to.request_id, None)
        if preview is None:
            return []
        await preview.stop_and_wait()
        await self._unbury(preview)
        places: list[str] = []
        for message in preview.messages[:parts]:
            if (place := await message.place()) is None:
                break  # what stands below it would stand above the part that takes its place
            places.append(place)
        if left := [message for message in preview.messages[len(places) :] if message.stands]:
            self._open[to.request_id] = _Preview(to, left, unseen)
        return places

    async def end(self, to: Address) -> None:
        """Its turn is over: an answer that is still open will not be complete any more, and says so. What stands for nothing goes."""
        preview = self._open.pop(to.request_id, None)
        if preview is None:
            return
        await preview.stop_and_wait()
        for message in preview.messages:
            ending = f"\n\n{say('turn.interrupted')}" if message is preview.messages[-1] else ""
            await message.last(message.words + ending if preview.words() else "")

    async def adopt(self, to: Address, rows: Sequence[OutboxRow]) -> None:
        """After a crash: what was shown of an answer is this process's to go on with."""
        for row in rows:
            if row.kind != "preview" or not row.open:
                continue
            if row.state == "ready":
                await self._message(to, row).end()
            else:
                preview = self._open.setdefault(to.request_id, _Preview(to, [], unseen, row.text.strip))
                preview.messages.append(self._message(to, row))

    def _message(self, to: Address, row: OutboxRow | None = None) -> LiveMessage:
        return self._deps.outbox.live_message(to, "preview", row)

    async def _show(self, preview: _Preview, after: float, every: float) -> None:
        clock = self._deps.clock
        await clock.sleep(after)
        late = clock.monotonic() + SENTENCE_SECONDS
        while not preview.over:
            changed = False
            # Nothing is shown before an earlier answer that waits.
            if not self._deps.outbox.waits(preview.to.chat_key) and (
                parts := await self._readable(preview, anything=clock.monotonic() >= late)
            ):
                preview.busy = True
                preview.shown()
                await self._unbury(preview)
                changed = await (
                    self._draft(preview, parts[-1][0]) if preview.drafts else self._show_parts(preview, parts)
                )
                preview.busy = False
                if preview.halted:
                    return
            if changed:
                preview.changed_at = clock.monotonic()
            begun = any(message.words for message in preview.messages)
            await clock.sleep(every if changed else min(every, 2 * LOOK_SECONDS if begun else LOOK_SECONDS))

    async def _draft(self, preview: _Preview, words: str) -> bool:
        """True where it was shown now."""
        now = self._deps.clock.monotonic()
        same = words == preview.drafted and now - preview.drafted_at < DRAFT_SECONDS
        if same or not self._deps.outbox.spare(preview.to, edit=True):
            return False
        preview.drafts = await self._deps.outbox.draft(preview.to, words)
        preview.drafted, preview.drafted_at = words, now
        return True

    async def _show_parts(self, preview: _Preview, parts: Sequence[tuple[str, LiveForm]]) -> bool:
        """Each in its message, in order: nothing stands below what is not complete. True where one was changed."""
        changed = False
        for number, (words, form) in enumerate(parts):
            if number == len(preview.messages):
                preview.messages.append(self._message(preview.to))
            message = preview.messages[number]
            if message.shows(words, form):
                continue
            if preview.over:
                break
            await message.show(words, form)
            if not message.shows(words, form):
                break
            changed = True
        return changed

    async def _readable(self, preview: _Preview, *, anything: bool) -> list[tuple[str, LiveForm]]:
        """The messages to show now; none where there is nothing that stands for itself, unless it may be `anything`."""
        words = settled(self._previewing, preview.words())
        anything = anything or bool(preview.drafted) or any(message.words for message in preview.messages)
        split, shorten = partial(self._deps.outbox.split, preview.to), partial(self._shortened, preview.to)
        return await off_loop(
            len(words), LONG, lambda: preview_parts(words, split, shorten, anything=anything)
        )

    def _shortened(self, to: Address, shown: RenderablePrefix) -> RenderablePrefix:
        """A beginning with what stands for its long code and tables."""
        shorter = self._long_blocks.taken_out(to.channel, shown.words, goes_on=True)
        closing = "" if shorter.ends_in_one else shown.closing
        return RenderablePrefix(shorter.words, closing, sure=shorter.at(shown.sure))


FRESH_SECONDS = 10.0
"""So long a board stands on which nothing has happened: then its times are brought up to date."""
KIND: OutboundKind = "progress"


@dataclass(slots=True, eq=False)
class _Watched(_Showing):
    message: LiveMessage
    board: ProgressState = field(default_factory=ProgressState)
    news: bool = False
    told: bool = False


class Progress(_ByTurn[_Watched]):
    """`contracts.tasks.TaskEvents` and `contracts.tools.ToolWatch` for turns that a chat has caused. Whatever happens counts; what is
    shown is the newest, as fast as the budgets of the chat allow, until the turn is over. Where a channel shows none, people read
    of a model that does not answer, once.
    """

    def __init__(self, deps: LiveDeps, manifests: Mapping[str, Manifest], on: Collection[str]) -> None:
        super().__init__(deps, manifests)
        self._on = on

    # ------------------------------------------------------------ turns

    def begin(self, to: Address) -> None:
        """A turn begins: what it has at work is shown here, where the channel can do that and is set to."""
        self._open.setdefault(to.request_id, _Watched(to, self._message(to)))

    async def adopt(self, to: Address, rows: Sequence[OutboxRow]) -> None:
        """After a crash: go on in the message that was there."""
        for row in rows:
            if row.kind != KIND or not row.open:
                continue
            if row.state == "ready":
                await self._message(to, row).end()
            else:
                self.begin(to)
                self._open[to.request_id].message = self._message(to, row)

    def _message(self, to: Address, row: OutboxRow | None = None) -> LiveMessage:
        return self._deps.outbox.live_message(to, KIND, row)

    async def end(self, to: Address) -> None:
        """The turn is over: what is shown of it goes, but for what was stopped."""
        watched = self._open.pop(to.request_id, None)
        if watched is None:
            return
        await watched.stop_and_wait()
        now = self._deps.clock.now()
        watched.board.close(now)
        shown = watched.board.shown(now)
        if watched.message.words and watched.board.stopped:
            await watched.message.last(shown.words, LiveForm(shown.title, shown.cards))
        else:
            await watched.message.last("")

    # ------------------------------------------------------------ what happens

    def record(self, event: TaskEvent) -> None:
        self._tell(event.request_id, lambda board: board.record(event))

    def began(self, request_id: str, call: ToolCall) -> None:
        self._tell(request_id, lambda board: board.began(call, self._deps.clock.now()))

    def noted(self, request_id: str, call_id: str, words: str | None) -> None:
        self._tell(request_id, lambda board: board.noted(call_id, words, self._deps.clock.now()))

    def ended(self, request_id: str, call_id: str, *, failed: bool) -> None:
        self._tell(request_id, lambda board: board.ended(call_id, self._deps.clock.now(), failed=failed))

    @contextlib.contextmanager
    def waiting(self, to: Address, seconds: float) -> Iterator[None]:
        """For the block a model is waited for that has not answered for so many seconds."""
        since = self._deps.clock.now() - seconds
        self._tell(to.request_id, lambda board: board.waits(since))
        try:
            yield
        finally:
            self._tell(to.request_id, lambda board: board.goes_on(since))

    def _tell(self, request_id: str, happened: Callable[[ProgressState], None]) -> None:
        watched = self._open.get(request_id)
        if watched is None:
            return
        happened(watched.board)
        watched.news = True
        if watched.task is None or watched.task.done():
            edits = self._manifests[watched.to.channel].edits if watched.to.channel in self._on else None
            self._start(
                watched,
                self._show(watched, edits.every[watched.to.chat_type]) if edits else self._say(watched),
            )

    # ------------------------------------------------------------ what is shown

    async def _say(self, watched: _Watched) -> None:
        """Say once that a model does not answer."""
        outbox, clock = self._deps.outbox, self._deps.clock
        while watched.board.busy and not watched.told:
            if watched.board.without_model(clock.now()):
                watched.told = True
                batch = outbox.submit(watched.to, [say("progress.model_busy")], kind="notice")
                with contextlib.suppress(errors.DeliveryFailed):  # it is in the log already
                    await outbox.outcome(batch)
            await clock.sleep(LOOK_SECONDS)

    async def _show(self, watched: _Watched, every: float) -> None:
        """Show a board until nothing on it is at work any more."""
        clock, board = self._deps.clock, watched.board
        while not (watched.message.words or board.is_visible(clock.now())):
            if not board.busy:
                return
            await clock.sleep(LOOK_SECONDS)
            if watched.halted:
                return
        old = 0.0
        while not watched.message.over:
            if watched.news or old >= (BUSY_SECONDS if board.waiting else FRESH_SECONDS):
                watched.news, watched.busy = False, True
                await self._change(watched)
                watched.busy = False
                old = 0.0
            if watched.halted or not (board.busy or watched.news):
                return
            await clock.sleep(every)
            old += every

    async def _change(self, watched: _Watched) -> None:
        message, board = watched.message, watched.board
        if board.empty:
            await message.last("")
            watched.message = self._message(watched.to)
            return
        now = board.shown(self._deps.clock.now())
        await message.show(now.words, LiveForm(now.title, now.cards))
        # What found no room is still news.
        watched.news = watched.news or not message.shows(now.words)
