"""Progress: one message shows what a turn has at work, and is changed while that goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bot.contracts.channel import Manifest
from bot.contracts.outbound import OutboundKind, OutboxRow
from bot.contracts.tasks import TaskEvent
from bot.gateway.address import Address
from bot.gateway.live.message import LiveDeps, LiveMessage
from bot.gateway.live.progress_view import ProgressState

LOOK_SECONDS = 1.0
"""Seconds between two looks for something to show."""
FRESH_SECONDS = 10.0
"""So long a board stands on which nothing has happened: then its times are brought up to date."""
KIND: OutboundKind = "progress"
INTERRUPTED = "\n(interrupted)"


@dataclass(slots=True, eq=False)
class _Watched:
    to: Address
    message: LiveMessage
    board: ProgressState = field(default_factory=ProgressState)
    news: bool = False
    task: asyncio.Task[None] | None = None
    busy: bool = False
    over: bool = False


class Progress:
    """`contracts.tasks.TaskEvents` and `contracts.tools.ToolWatch` for turns that a chat has caused. Whatever happens counts; what is
    shown is the newest, as fast as the budgets of the chat allow, and at last the summary.
    """

    def __init__(self, deps: LiveDeps, manifests: Mapping[str, Manifest], on: Collection[str]) -> None:
        self._deps = deps
        self._manifests = manifests
        self._on = on
        self._open: dict[str, _Watched] = {}

    # ------------------------------------------------------------ turns

    def begin(self, to: Address) -> None:
        """A turn begins: what it has at work is shown here, where the channel can do that and is set to."""
        if self._manifests[to.channel].edits is not None and to.channel in self._on:
            self._open.setdefault(to.request_id, _Watched(to, LiveMessage(to, KIND, self._deps)))

    async def adopt(self, to: Address, rows: Sequence[OutboxRow]) -> None:
        """After a crash: go on in the message that was there."""
        for row in rows:
            if row.kind != KIND or not row.open:
                continue
            if row.state == "ready":
                await self._deps.outbox.end_live(row)
            else:
                self.begin(to)
                if (watched := self._open.get(to.request_id)) is not None:
                    watched.message = LiveMessage(to, KIND, self._deps, row)

    async def end(self, to: Address) -> None:
        """The turn is over: what is shown of it is summed up."""
        watched = self._open.pop(to.request_id, None)
        if watched is None:
            return
        await _halt(watched)
        now = self._deps.clock.now()
        watched.board.close(now)
        if watched.message.words:
            shown = watched.board.shown(now)
            if watched.board.empty:
                await watched.message.last(watched.message.words + INTERRUPTED)
            else:
                await watched.message.last(shown.words, shown.title, shown.cards)
        else:
            await watched.message.end()

    def leave(self, to: Address) -> None:
        """The turn goes on in another process."""
        watched = self._open.pop(to.request_id, None)
        if watched is not None:
            _stop(watched)

    async def close(self) -> None:
        """Show nothing more."""
        tasks = [watched.task for watched in self._open.values() if watched.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ------------------------------------------------------------ what happens

    def told(self, event: TaskEvent) -> None:
        watched = self._open.get(event.request_id)
        if watched is not None:
            watched.board.told(event)
            self._news(watched)

    def began(self, request_id: str, call_id: str, tool: str) -> None:
        watched = self._open.get(request_id)
        if watched is not None:
            watched.board.began(call_id, tool, self._deps.clock.now())
            self._news(watched)

    def ended(self, request_id: str, call_id: str, *, failed: bool) -> None:
        watched = self._open.get(request_id)
        if watched is not None:
            watched.board.ended(call_id, self._deps.clock.now(), failed=failed)
            self._news(watched)

    def _news(self, watched: _Watched) -> None:
        watched.news = True
        if watched.task is None or watched.task.done():
            every = self._manifests[watched.to.channel].edits
            if every is not None:
                watched.task = asyncio.create_task(self._show(watched, every.every[watched.to.chat_type]))
                watched.task.add_done_callback(self._done)

    # ------------------------------------------------------------ what is shown

    async def _show(self, watched: _Watched, every: float) -> None:
        """Show a board until nothing on it is at work any more."""
        clock, board, message = self._deps.clock, watched.board, watched.message
        while not (message.words or board.worth(clock.now())):
            if not board.busy:
                return
            await clock.sleep(LOOK_SECONDS)
            if watched.over:
                return
        old = 0.0
        while not message.over:
            if watched.news or old >= FRESH_SECONDS:
                now = board.shown(clock.now())
                watched.news, watched.busy = False, True
                await message.show(now.words, now.title, now.cards)
                watched.busy = False
                old = 0.0
                # What found no room is still news.
                watched.news = watched.news or message.words != now.words
            if watched.over or not (board.busy or watched.news):
                return
            await clock.sleep(every)
            old += every

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._deps.log.write(
                "error", f"progress cannot be shown: {type(error).__name__}: {error}", level="error"
            )


def _stop(watched: _Watched) -> None:
    watched.over = True
    if watched.task is not None and not watched.busy:
        watched.task.cancel()


async def _halt(watched: _Watched) -> None:
    _stop(watched)
    if watched.task is not None:
        await asyncio.wait([watched.task])
