"""Progress: a message that shows the running work of a turn and is deleted when the turn ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from bot.contracts.inbound import Inbound
from bot.contracts.tools import ToolCall
from bot.core.chat import Chat
from bot.core.chats import Fact
from bot.core.feature import Runtime
from bot.core.outbox import LiveForm
from bot.core.outbox_row import Address, OutboxRow
from bot.core.tasks.report import TaskEvent
from bot.features.live.previews import Previewing
from bot.features.live.progress_view import BUSY_SECONDS, ProgressState
from bot.words import say

LOOK_SECONDS = 0.5
"""Interval in seconds between checks for changes to show."""
FRESH_SECONDS = 10.0
"""Interval in seconds between updates of the elapsed times if nothing else changes."""


@dataclass(slots=True, eq=False)
class _Watched:
    chat: Chat
    to: Inbound
    board: ProgressState = field(default_factory=ProgressState)
    news: bool = False
    told: bool = False
    over: bool = False
    task: asyncio.Task[None] | None = None


class Progress:
    """Implements `tools.dispatch.ToolWatch`; `record` receives the events of tasks. Every event is recorded,
    and the latest state is shown as often as rate limits allow. On channels without progress messages,
    people are told once that the model does not answer.
    """

    def __init__(self, runtime: Runtime, previewing: Previewing) -> None:
        self._live = runtime.live
        self._chats = runtime.chats
        self._saying = runtime.saying
        self._manifests = runtime.manifests
        self._on = frozenset(previewing.after)
        self._clock = runtime.clock
        self._open: dict[str | None, _Watched] = {}
        runtime.live.last_words["progress"] = self._last

    def begin(self, chat: Chat, to: Inbound) -> None:
        """Start showing the work of a turn."""
        self._open.setdefault(to.request_id, _Watched(chat, to))

    def end(self, turn: str) -> None:
        """Stop showing the work of a turn."""
        watched = self._open.pop(turn, None)
        if watched is not None and watched.task is not None:
            watched.task.cancel()

    def _last(self, row: OutboxRow, _: str) -> tuple[str, LiveForm]:
        """Return the final text of the progress message if the turn was stopped; otherwise return "", which
        deletes the message.
        """
        watched = self._open.get(row.turn)
        if watched is None:
            return "", LiveForm()
        now = self._clock.now()
        watched.board.close(now)
        if not watched.board.stopped:
            return "", LiveForm()
        shown = watched.board.shown(now)
        return shown.words, LiveForm(shown.title, shown.cards)

    # ------------------------------------------------------------ events

    def record(self, event: TaskEvent) -> None:
        self._tell(event.request_id, lambda board: board.record(event))

    def began(self, request_id: str, call: ToolCall) -> None:
        self._tell(request_id, lambda board: board.began(call, self._clock.now()))

    def noted(self, request_id: str, call_id: str, words: str | None) -> None:
        self._tell(request_id, lambda board: board.noted(call_id, words, self._clock.now()))

    def ended(self, request_id: str, call_id: str, *, failed: bool) -> None:
        self._tell(request_id, lambda board: board.ended(call_id, self._clock.now(), failed=failed))

    @contextlib.contextmanager
    def waiting(self, request_id: str, seconds: float) -> Iterator[None]:
        """Show during the block that the model has not answered for this number of seconds."""
        since = self._clock.now() - seconds
        self._tell(request_id, lambda board: board.waits(since))
        try:
            yield
        finally:
            self._tell(request_id, lambda board: board.goes_on(since))

    def _tell(self, request_id: str, happened: Callable[[ProgressState], None]) -> None:
        watched = self._open.get(request_id)
        if watched is None:
            return
        happened(watched.board)
        watched.news = True
        if watched.task is None or watched.task.done():
            edits = self._manifests[watched.to.channel].edits if watched.to.channel in self._on else None
            showing = self._show(watched, edits.every[watched.to.chat_type]) if edits else self._say(watched)
            watched.task = self._live.start(showing)

    # ------------------------------------------------------------ display

    async def _say(self, watched: _Watched) -> None:
        """Tell people once that the model does not answer."""
        to = watched.to
        while watched.board.busy and not watched.told:
            if watched.board.without_model(self._clock.now()):
                watched.told = True
                words = say("progress.model_busy")
                rows = self._saying.rows(f"{to.request_id}/busy", Address.of(to), words)
                self._chats.append(*(Fact(watched.chat.key, row, to.request_id) for row in rows))
            await self._clock.sleep(LOOK_SECONDS)

    async def _show(self, watched: _Watched, every: float) -> None:
        """Update the progress message while work is running."""
        clock, board = self._clock, watched.board
        while not (self._stands(watched) or board.is_visible(clock.now())):
            if not board.busy:
                return
            await clock.sleep(LOOK_SECONDS)
        old = 0.0
        while not watched.over and (board.busy or watched.news):
            if watched.news or old >= (BUSY_SECONDS if board.waiting else FRESH_SECONDS):
                watched.news = False
                await self._change(watched)
                old = 0.0
            await clock.sleep(every)
            old += every

    def _stands(self, watched: _Watched) -> list[OutboxRow]:
        return self._live.of(watched.chat, watched.to.request_id, "progress")

    async def _change(self, watched: _Watched) -> None:
        if watched.board.empty:
            for row in self._stands(watched):
                await self._live.end(row)
            return
        now = watched.board.shown(self._clock.now())
        form = LiveForm(now.title, now.cards)
        shown = await self._live.show(watched.chat, watched.to, "progress", now.words, form)
        watched.over = shown is None
        # If the rate limit prevented an update, the changes still have to be shown.
        watched.news = watched.news or not shown
