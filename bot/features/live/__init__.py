"""Live display of running turns: typing indicators, reactions on waiting messages, titles, previews and progress."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bot import errors, text
from bot.contracts.channel import Reacts, Sessions, Streaming
from bot.contracts.environment import off_loop
from bot.contracts.inbound import Inbound
from bot.contracts.tools import ToolCall
from bot.core.chat import Chat, Phase, Turn, plain
from bot.core.chats import Fact
from bot.core.feature import Display, Feature, Hooks, Runtime
from bot.core.long_blocks import LongBlocks
from bot.core.outbox import LiveForm
from bot.core.outgoing import Address, OutboxRow
from bot.core.tasks.limits import TaskEvent
from bot.features.live.partial_markdown import beginning, has_begun
from bot.features.live.progress_view import BUSY_SECONDS, ProgressState
from bot.telemetry.context import on_waiting_for_model
from bot.words import say

GOES_ON = " …"  # suffix of an unfinished answer
SENTENCE_SECONDS = 5.0
"""Timeout in seconds for the first complete sentence of an answer. After the timeout, people see an incomplete sentence."""
DRAFT_SECONDS = 20.0
"""Interval in seconds at which an unchanged draft is sent again. Telegram deletes a draft after 30 s."""
CHECK_SECONDS = 0.5  # interval in seconds between checks for changes
GROWS_SECONDS = 5.0
"""Seconds during which an answer counts as growing after an edit. A growing answer needs no typing indicator."""
LONG = 2_000  # min characters of a text that is split on a worker thread, because splitting would block the event loop
FRESH_SECONDS = 10.0
"""Interval in seconds between updates of the elapsed times in a progress message in which nothing else changes."""
SHOWN_AFTER = 0.4  # seconds from a turn's start to its typing indicator; a faster answer needs no indicator
SIGN_SECONDS = 5.0  # timeout in seconds for the call that shows an indicator
CLOSE_SECONDS = 1.0  # timeout in seconds for clearing all indicators at shutdown
MOST_MARKED = 10_000
"""Max size of the set of messages that already got a reaction. A full set is cleared; a second reaction does no harm."""
TITLE = 60  # max characters of a conversation's title


# ------------------------------------------------------------ previews


@dataclass(slots=True, eq=False)
class _Preview:
    to: Inbound
    words: Callable[[], str]
    since: float  # start of the answer in monotonic seconds
    drafts: bool
    drafted: str = ""
    drafted_at: float = 0.0
    changed_at: float = float("-inf")
    over: bool = False
    task: asyncio.Task[None] | None = None


class Previews:
    """Shows the answer of each turn while the model writes it, beginning with the first complete sentence. The final answer
    replaces the text in the same messages. The text is redacted. Its end is held back while a secret or a Markdown construct
    could begin there.
    """

    def __init__(self, runtime: Runtime, streaming: Mapping[str, Streaming]) -> None:
        self._run = runtime
        self._live = runtime.live
        self._streaming = streaming
        self._long_blocks = LongBlocks(runtime.channels, on=runtime.configuration.delivery.long_as_files)
        self._open: dict[str | None, _Preview] = {}
        runtime.live.last_words["preview"] = self._last

    def begin(self, chat: Chat, to: Inbound, words: Callable[[], str]) -> None:
        """Start to show an answer. `words` returns the current text; "" once the answer is complete."""
        edits, streaming = self._run.manifests[to.channel].edits, self._streaming.get(to.channel)
        if edits is None or streaming is None:
            return
        preview = self._open.get(to.request_id)
        if preview is None:
            preview = _Preview(to, words, 0.0, streaming.drafts and to.chat_type == "direct")
            self._open[to.request_id] = preview
            after, every = streaming.after_ms / 1000, edits.every[to.chat_type]
            preview.task = self._live.start(self._show(chat, preview, after, every))
        preview.words, preview.since = words, self._run.clock.monotonic()

    def grows(self, turn: str) -> bool:
        """Return True if the shown answer changed within the last `GROWS_SECONDS`."""
        preview = self._open.get(turn)
        return preview is not None and self._run.clock.monotonic() - preview.changed_at < GROWS_SECONDS

    def end(self, turn: str) -> None:
        """Stop the preview of a turn."""
        preview = self._open.pop(turn, None)
        if preview is not None and preview.task is not None:
            preview.task.cancel()

    def _last(self, row: OutboxRow, seen: str) -> tuple[str, LiveForm]:
        """Return the text with which the preview in `row` ends: the shown text and a remark that it is unfinished. For a
        complete answer, return "", which deletes the preview.
        """
        preview = self._open.get(row.turn)
        if preview is not None and not preview.words():
            return "", LiveForm()
        return f"{seen}\n\n{say('turn.interrupted')}", LiveForm()

    async def _show(self, chat: Chat, preview: _Preview, after: float, every: float) -> None:
        clock, turn = self._run.clock, preview.to.request_id
        while not preview.over:
            began = preview.since + after
            stands = bool(preview.drafted or self._live.of(chat, turn, "preview"))
            if not stands and (wait := began - clock.monotonic()) > 0:
                await clock.sleep(wait)
                continue
            late = clock.monotonic() >= began + SENTENCE_SECONDS
            parts = await self._parts(preview, anything=stands or late)
            if chat.turn is None or chat.turn.id != turn or chat.turn.phase is Phase.STOPPING:
                return
            show = self._draft if preview.drafts else self._show_parts
            changed = bool(parts) and await show(chat, preview, parts)
            if changed:
                preview.changed_at = clock.monotonic()
            await clock.sleep(every if changed else min(every, CHECK_SECONDS * (2 if stands else 1)))

    async def _draft(self, chat: Chat, preview: _Preview, parts: Sequence[tuple[str, LiveForm]]) -> bool:
        """Show the last part of the answer as a draft. Return True if the draft was sent now."""
        words, now = parts[-1][0], self._run.clock.monotonic()
        if words == preview.drafted and now - preview.drafted_at < DRAFT_SECONDS:
            return False
        shown = await self._live.draft(chat, preview.to, words)
        if shown:
            preview.drafted, preview.drafted_at = words, now
        preview.drafts = shown is not None
        return bool(shown)

    async def _show_parts(self, chat: Chat, preview: _Preview, parts: Sequence[tuple[str, LiveForm]]) -> bool:
        """Show the parts in order, and end at the first one that cannot be shown now. Return True if a message changed."""
        changed = False
        rows = self._live.of(chat, preview.to.request_id, "preview")
        for number, (words, form) in enumerate(parts):
            if number < len(rows) and self._live.shows(rows[number], words, form):
                continue
            shown = await self._live.show(chat, preview.to, "preview", words, form, number=number)
            preview.over = preview.over or shown is None
            if not shown:
                break
            changed = True
        return changed

    async def _parts(self, preview: _Preview, *, anything: bool) -> list[tuple[str, LiveForm]]:
        words = self._run.redact(self._run.settled(text.clean(preview.words())))
        # The last character may be an incomplete grapheme.
        words = words[: text.border(words, len(words) - 1)]
        work = partial(self._split, preview.to.channel, words, anything=anything)
        return await off_loop(len(words), LONG, work)

    def _split(self, channel: str, words: str, *, anything: bool) -> list[tuple[str, LiveForm]]:
        """Split the text into messages to show now. Before the first complete sentence, return [] unless `anything` is true."""
        split, shown = self._run.channels[channel].split, beginning(words)
        if not (anything or has_begun(words, shown)):
            return []
        shorter = self._long_blocks.taken_out(channel, shown.words, goes_on=True)
        closing, sure = "" if shorter.ends_in_one else shown.closing, shorter.at(shown.sure)
        parts = split(shorter.words)
        if not parts:
            return []
        *whole, last = parts
        messages = [(part, LiveForm(sure=part)) for part in whole]
        # `closing` closes only marks that the last message opened. It closes no marks of earlier messages.
        unsure = len(shorter.words) - sure
        inside = unsure <= len(last)
        ending = last + (closing if inside or closing.startswith("\n") else "")
        if len(split(ending + GOES_ON)) == 1:
            sure_of_last = last[: len(last) - unsure] if inside else ""
            messages.append((ending, LiveForm(sure=sure_of_last, mark=GOES_ON)))
        return messages


# ------------------------------------------------------------ progress


@dataclass(slots=True, eq=False)
class _Watched:
    chat: Chat
    to: Inbound
    board: ProgressState = field(default_factory=ProgressState)
    news: bool = False
    over: bool = False
    task: asyncio.Task[None] | None = None


class Progress:
    """Shows the running work of each turn in a progress message, which is deleted at the turn's end.

    Implements `tools.dispatch.ToolWatch`; `record` receives the events of subagents. The message changes as often as the
    rate limits allow. On channels without progress messages, people are told once that the model does not answer.
    """

    def __init__(self, runtime: Runtime, streaming: Mapping[str, Streaming]) -> None:
        self._run = runtime
        self._live = runtime.live
        self._streaming = streaming
        self._clock = runtime.clock
        self._open: dict[str | None, _Watched] = {}
        runtime.live.last_words["progress"] = self._last

    def begin(self, chat: Chat, to: Inbound) -> None:
        """Start to show the work of a turn."""
        self._open.setdefault(to.request_id, _Watched(chat, to))

    def end(self, turn: str) -> None:
        """Stop the progress message of a turn."""
        watched = self._open.pop(turn, None)
        if watched is not None and watched.task is not None:
            watched.task.cancel()

    def _last(self, row: OutboxRow, _: str) -> tuple[str, LiveForm]:
        """Return the last text of a stopped turn's progress message. For other turns, return "", which deletes the message."""
        watched = self._open.get(row.turn)
        if watched is None:
            return "", LiveForm()
        now = self._clock.now()
        watched.board.close(now)
        if not watched.board.counts["stopped"]:
            return "", LiveForm()
        shown = watched.board.shown(now)
        return shown.words, LiveForm(shown.title, shown.cards)

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
        """While the `with` block runs, show that the model has not answered. It has been silent for `seconds` already."""
        since = self._clock.now() - seconds
        self._tell(request_id, lambda board: board.waits.append(since))
        try:
            yield
        finally:
            self._tell(request_id, lambda board: board.waits.remove(since))

    def _tell(self, request_id: str, happened: Callable[[ProgressState], None]) -> None:
        watched = self._open.get(request_id)
        if watched is None:
            return
        happened(watched.board)
        watched.news = True
        if watched.task is None or watched.task.done():
            to = watched.to
            edits = self._run.manifests[to.channel].edits if to.channel in self._streaming else None
            showing = self._show(watched, edits.every[to.chat_type]) if edits else self._say(watched)
            watched.task = self._live.start(showing)

    async def _say(self, watched: _Watched) -> None:
        to = watched.to
        while watched.board.busy and not watched.over:
            if watched.board.without_model(self._clock.now()):
                watched.over = True
                words = say("progress.model_busy")
                rows = self._run.saying.rows(f"{to.request_id}/busy", Address.of(to), words)
                self._run.chats.append(*(Fact(watched.chat.key, row, to.request_id) for row in rows))
            await self._clock.sleep(CHECK_SECONDS)

    async def _show(self, watched: _Watched, every: float) -> None:
        clock, board = self._clock, watched.board
        while not (self._stands(watched) or board.is_visible(clock.now())):
            if not board.busy:
                return
            await clock.sleep(CHECK_SECONDS)
        old = 0.0
        while not watched.over and (board.busy or watched.news):
            if watched.news or old >= (BUSY_SECONDS if board.waits else FRESH_SECONDS):
                watched.news = False
                await self._change(watched)
                old = 0.0
            await clock.sleep(every)
            old += every

    def _stands(self, watched: _Watched) -> list[OutboxRow]:
        return self._live.of(watched.chat, watched.to.request_id, "progress")

    async def _change(self, watched: _Watched) -> None:
        if not (watched.board.items or watched.board.waits):
            for row in self._stands(watched):
                await self._live.end(row)
            return
        now = watched.board.shown(self._clock.now())
        form = LiveForm(now.title, now.cards)
        shown = await self._live.show(watched.chat, watched.to, "progress", now.words, form)
        watched.over = shown is None
        # If the rate limit prevented the update, try again.
        watched.news = watched.news or not shown


# ------------------------------------------------------------ turns


class LiveTurns:
    """Watches the chats and displays their running turns. The log stores only the final texts of live messages."""

    def __init__(self, runtime: Runtime, previews: Previews, progress: Progress) -> None:
        self._run = runtime
        self._previews = previews
        self._progress = progress
        self._channels = runtime.channels
        self._turns: dict[str, asyncio.Task[None]] = {}
        self._suspended: set[str] = set()
        self._seen: set[str] = set()
        self._signs: set[asyncio.Task[None]] = set()
        runtime.chats.watch(self._update)

    def begin(self, turn: Turn) -> None:
        """Make the turn's progress show when the model does not answer. Must be called in the turn's asyncio task."""
        if not _unasked(turn):
            on_waiting_for_model(partial(self._progress.waiting, turn.id))

    async def close(self) -> None:
        """Stop all displays. The messages stay in the chats, and the next process continues to edit them."""
        tasks = list(self._turns.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._signs:
            await asyncio.wait(self._signs, timeout=CLOSE_SECONDS)

    def _update(self, chat: Chat) -> None:
        if chat.task is not None:
            return  # a subagent's work appears in the turn that started the subagent
        turn = chat.turn
        if turn is not None and turn.boot == self._run.boot:
            if turn.id not in self._turns:
                self._turns[turn.id] = self._run.live.start(self._show(chat, turn))
            self._suspend(turn)
        busy = len(self._turns) >= self._run.slots if turn is None else turn.phase is not Phase.ENDING
        for inbound in chat.waiting if busy else ():
            self._mark(inbound)

    async def _show(self, chat: Chat, turn: Turn) -> None:
        self._progress.begin(chat, turn.first)
        signs = self._run.live.start(self._indicate_while_working(turn))
        until = self._run.chats.until
        try:
            await until(chat.key, lambda: chat.turn is not turn or None)
            signs.cancel()
            await asyncio.wait([signs])
            await until(
                chat.key,
                lambda: not any(row.live and row.turn == turn.id for row in chat.outbox.values()) or None,
            )
        finally:
            signs.cancel()
            self._previews.end(turn.id)
            self._progress.end(turn.id)
            self._run.live.forget(turn.id)
            self._suspended.discard(turn.id)
            del self._turns[turn.id]

    async def _indicate_while_working(self, turn: Turn) -> None:
        """Show a typing indicator while the turn works. At the end, also clear an indicator that an earlier process showed."""
        first, sleep = turn.first, self._run.clock.sleep
        channel, every = self._channels[first.channel], self._run.manifests[first.channel].indicate_every
        shown, title = turn.id < self._run.boot, text.preview(first.readable, TITLE) if first.opens else ""
        try:
            await sleep(SHOWN_AFTER)
            while True:
                if not (_unasked(turn) or turn.phase is Phase.SUSPENDED or self._previews.grows(turn.id)):
                    shown = True
                    await self._indicate(first, working=True)
                if title and isinstance(channel, Sessions):
                    named = self._run.redact(text.clean(title))
                    await self._sign(first, channel.entitle(first.target, named))
                title = ""
                await sleep(every)
        finally:
            if shown:
                self._start(self._indicate(first, working=False))

    async def _indicate(self, to: Inbound, *, working: bool) -> None:
        if self._run.limits.spare(Address.of(to), reserve=1 if working else 0):
            await self._sign(to, self._channels[to.channel].indicate(to.target, working=working))

    def _suspend(self, turn: Turn) -> None:
        """On platforms that can display it, show that a turn waits for a person, or that it works again."""
        channel, waits = self._channels[turn.first.channel], turn.phase is Phase.SUSPENDED
        if waits == (turn.id in self._suspended) or not isinstance(channel, Sessions):
            return
        self._suspended ^= {turn.id}
        suspended = self._sign(turn.first, channel.suspend(turn.first.target)) if waits else None
        self._start(suspended or self._indicate(turn.first, working=True))

    def _mark(self, inbound: Inbound) -> None:
        channel, name = self._channels[inbound.channel], inbound.request_id
        if name < self._run.boot or name in self._seen or not isinstance(channel, Reacts):
            return
        if not plain(inbound) or inbound.addressed == "chat" or inbound.message_id is None:
            return
        if len(self._seen) >= MOST_MARKED:
            self._seen.clear()
        self._seen.add(name)
        if self._run.limits.spare(Address.of(inbound), reserve=0):
            self._start(self._sign(inbound, channel.react(inbound.target, inbound.message_id)))

    def _start(self, showing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(showing)
        self._signs.add(task)
        task.add_done_callback(self._signs.discard)

    async def _sign(self, to: Inbound, call: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(SIGN_SECONDS):
                await call
        except (TimeoutError, errors.DeliveryFailed) as error:
            if isinstance(error, errors.DeliveryThrottled):
                self._run.limits.freeze(Address.of(to), error, cosmetic=True)
            self._run.log.write("delivery", "a sign could not be shown", level="debug", cause=str(error))


def _unasked(turn: Turn) -> bool:
    """Return True if no message of the turn addresses the bot, so that nobody expects an answer."""
    return all(one.addressed == "chat" for one in turn.left)


def _build(runtime: Runtime) -> Hooks:
    found = {name: getattr(settings, "streaming", None) for name, settings in runtime.settings.items()}
    streaming = {name: one for name, one in found.items() if isinstance(one, Streaming) and one.enabled}
    previews, progress = Previews(runtime, streaming), Progress(runtime, streaming)
    turns = LiveTurns(runtime, previews, progress)
    return Hooks(display=Display(turns.begin, previews.begin, progress, progress.record, turns.close))


FEATURE = Feature("live", _build)
