"""Displays running turns: activity indicators, reactions on queued messages, titles, previews and progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial

from bot import errors, text
from bot.contracts.channel import Reacts, Suspends, Titles
from bot.contracts.inbound import Inbound
from bot.core.chat import Chat, Phase, Turn
from bot.core.feature import Runtime
from bot.core.message_versions import plain
from bot.core.outbox_row import Address
from bot.features.live.previews import Previews
from bot.features.live.progress import Progress
from bot.telemetry.context import on_waiting_for_model

SHOWN_AFTER = 0.4
"""Seconds of a turn before an indicator is shown; a faster answer needs no indicator."""
SIGN_SECONDS = 5.0
"""Timeout in seconds for showing an indicator."""
CLOSE_SECONDS = 1.0
"""Timeout in seconds for clearing all indicators at shutdown."""
MOST_MARKED = 10_000
"""Max messages remembered as marked. Marking a message twice does no harm."""

TITLE = 60
"""Max characters of a conversation's title."""


class LiveTurns:
    """Watches chats and displays running turns. Only the final texts of live messages are stored as events."""

    def __init__(self, runtime: Runtime, previews: Previews, progress: Progress) -> None:
        self._previews = previews
        self._progress = progress
        self._live = runtime.live
        self._chats = runtime.chats
        self._channels = runtime.channels
        self._manifests = runtime.manifests
        self._limits = runtime.limits
        self._slots = runtime.slots
        self._boot = runtime.boot
        self._redact = runtime.redact
        self._clock = runtime.clock
        self._log = runtime.log
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._suspended: set[str] = set()
        self._seen: set[str] = set()
        self._signs: set[asyncio.Task[None]] = set()
        runtime.chats.watch(self._look_at)

    def begin(self, turn: Turn) -> None:
        """Let the current asyncio task, which belongs to a turn, report a model that does not answer."""
        if not _unasked(turn):
            on_waiting_for_model(partial(self._progress.waiting, turn.id))

    async def close(self) -> None:
        """Stop displaying. The next process continues to use the messages in the chats."""
        tasks = list(self._turns.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._signs:
            await asyncio.wait(self._signs, timeout=CLOSE_SECONDS)

    def _look_at(self, chat: Chat) -> None:
        if chat.task is not None:
            return  # a subagent is displayed with the turn that started it
        turn = chat.turn
        if turn is not None and turn.boot == self._boot:
            if turn.id not in self._turns:
                self._turns[turn.id] = self._live.start(self._show(chat, turn))
            self._suspend(turn)
        busy = len(self._turns) >= self._slots if turn is None else turn.phase is not Phase.ENDING
        for inbound in chat.waiting if busy else ():
            self._mark(inbound)

    # ------------------------------------------------------------ a turn

    async def _show(self, chat: Chat, turn: Turn) -> None:
        """Display a turn until the turn has ended and its live messages have their final text."""
        self._progress.begin(chat, turn.first)
        signs = self._live.start(self._work(turn))
        try:
            await self._chats.until(chat.key, lambda: _over(chat, turn) or None)
            signs.cancel()
            await asyncio.wait([signs])
            await self._chats.until(
                chat.key,
                lambda: not any(row.live and row.turn == turn.id for row in chat.outbox.values()) or None,
            )
        finally:
            signs.cancel()
            self._previews.end(turn.id)
            self._progress.end(turn.id)
            self._live.forget(turn.id)
            self._suspended.discard(turn.id)
            del self._turns[turn.id]

    async def _work(self, turn: Turn) -> None:
        """Show an indicator while the turn works. An indicator shown by an earlier process is cleared in any case."""
        first = turn.first
        channel, every = self._channels[first.channel], self._manifests[first.channel].indicate_every
        shown, title = turn.id < self._boot, text.preview(first.readable, TITLE) if first.opens else ""
        try:
            await self._clock.sleep(SHOWN_AFTER)
            while True:
                if not (_unasked(turn) or turn.phase is Phase.SUSPENDED or self._previews.grows(turn.id)):
                    shown = True
                    await self._indicate(first, working=True)
                if title and isinstance(channel, Titles):
                    named = self._redact(text.clean(title))
                    await self._sign(first, channel.entitle(first.target, named))
                title = ""
                await self._clock.sleep(every)
        finally:
            if shown:
                self._start(self._indicate(first, working=False))

    async def _indicate(self, to: Inbound, *, working: bool) -> None:
        if self._limits.spare(Address.of(to), reserve=1 if working else 0):
            await self._sign(to, self._channels[to.channel].indicate(to.target, working=working))

    def _suspend(self, turn: Turn) -> None:
        """Show that a turn waits for a person if the platform can display this; afterwards show that the
        turn works again.
        """
        channel = self._channels[turn.first.channel]
        waits = turn.phase is Phase.SUSPENDED
        if waits == (turn.id in self._suspended) or not isinstance(channel, Suspends):
            return
        if waits:
            self._suspended.add(turn.id)
            self._start(self._sign(turn.first, channel.suspend(turn.first.target)))
        else:
            self._suspended.discard(turn.id)
            self._start(self._indicate(turn.first, working=True))

    # ------------------------------------------------------------ queued messages

    def _mark(self, inbound: Inbound) -> None:
        """Mark a message as seen once it is queued or has joined a turn."""
        channel, name = self._channels[inbound.channel], inbound.request_id
        if name < self._boot or name in self._seen or not isinstance(channel, Reacts):
            return
        if not plain(inbound) or inbound.addressed == "chat" or inbound.message_id is None:
            return
        if len(self._seen) >= MOST_MARKED:
            self._seen.clear()
        self._seen.add(name)
        if self._limits.spare(Address.of(inbound), reserve=0):
            self._start(self._sign(inbound, channel.react(inbound.target, inbound.message_id)))

    # ------------------------------------------------------------ inside

    def _start(self, showing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(showing)
        self._signs.add(task)
        task.add_done_callback(self._signs.discard)

    async def _sign(self, to: Inbound, call: Awaitable[None]) -> None:
        """Show an indicator; a failure is only logged."""
        try:
            async with asyncio.timeout(SIGN_SECONDS):
                await call
        except (TimeoutError, errors.DeliveryFailed) as error:
            if isinstance(error, errors.DeliveryThrottled):
                self._limits.freeze(Address.of(to), error, cosmetic=True)
            self._log.write("delivery", "a sign could not be shown", level="debug", cause=str(error))


def _unasked(turn: Turn) -> bool:
    """Return True if nobody addressed the bot, so that nobody waits for an answer."""
    return all(one.addressed == "chat" for one in turn.left)


def _over(chat: Chat, turn: Turn) -> bool:
    return chat.turn is not turn
