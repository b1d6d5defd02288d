"""Live display of running turns: typing indicators, reactions on waiting messages, titles, previews and progress."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from bot import errors, text
from bot.contracts.base import Message
from bot.contracts.channel import Streaming
from bot.contracts.environment import off_loop, started
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Card, CardState, Inbound
from bot.contracts.tools import MCP, Effect, ToolCall, ToolResult
from bot.core import outgoing
from bot.core.chat import Chat, Phase, Turn, plain
from bot.core.chats import Fact
from bot.core.feature import Display, Feature, Hooks, Runtime
from bot.core.outbox import LiveText
from bot.core.outgoing import Address, OutboxRow
from bot.core.reply import shortened
from bot.core.tasks import TaskEvent
from bot.features.live.partial_markdown import beginning, has_begun
from bot.telemetry import log as telemetry
from bot.telemetry.log import waiting_for_model
from bot.text import named
from bot.tools import context
from bot.tools.dispatch import CallWrapper, Registry
from bot.tools.permissions.patterns import ARGUMENTS
from bot.words import names, say

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
"""Interval in seconds at which a progress message updates its elapsed times if nothing else in the message changes."""
SHOWN_AFTER = 0.4  # seconds from a turn's start to its typing indicator; a faster answer needs no indicator
SIGN_SECONDS = 5.0  # timeout in seconds for the call that shows an indicator
CLOSE_SECONDS = 1.0  # timeout in seconds for clearing all indicators at shutdown
MOST_MARKED = 10_000
"""Max size of the set of messages that already got a reaction. A full set is cleared; a second reaction does no harm."""
TITLE = 60  # max characters of a conversation's title
State = Literal["running", "failed", "stopped", "waiting", "done"]

ALONE_SECONDS = 8.0
"""Seconds after which a single running item is shown. Two or more items are shown after `TOGETHER_SECONDS`."""
TOGETHER_SECONDS = 2.0
BUSY_SECONDS = 5.0  # seconds without an answer after which people are told that the model does not answer
MOST = 12  # max items listed; running and failed items are listed first
LABEL = 60
"""Max characters of a task's label. The note after the label may have twice as many."""
_SHOWN: dict[State, tuple[str, CardState]] = {
    "running": ("▸", "in_progress"),
    "failed": ("✗", "error"),
    "stopped": ("■", "error"),
    "waiting": ("○", "pending"),
    "done": ("✓", "complete"),
}
"""For each state of an item: its symbol, and its status on a card. If there are too many items, earlier states have priority.
"""
_ORDER = list(_SHOWN)
_ENDS: dict[str, State] = {"ended": "done", "failed": "failed", "stopped": "stopped"}


# ------------------------------------------------------------ progress


@dataclass(slots=True)
class WorkItem:
    """A subagent's task or a tool call. Times are in epoch seconds. `note` is the item's current step, or its error."""

    id: str
    label: str
    since: float
    state: State = "waiting"
    began: float | None = None
    over: float | None = None
    note: str = ""
    call: bool = False
    """True for a tool call of the turn, whose label is Markdown. False for a subagent's task."""

    @property
    def open(self) -> bool:
        return self.state in {"waiting", "running"}

    def end(self, at: float, state: State, note: str = "") -> None:
        if self.open:
            self.state, self.over, self.note = state, at, note

    @property
    def title(self) -> str:
        return self.label.replace("`", "") if self.call else text.preview(self.label, LABEL)

    def details(self, now: float) -> list[str]:
        took = (now if self.over is None else self.over) - (self.began or 0.0)
        words = [_duration(took)] if self.began is not None else []
        words += [say(f"progress.state_{self.state}")] if self.state in {"waiting", "stopped"} else []
        return words + ([text.preview(self.note, 2 * LABEL)] if self.note else [])


@dataclass(slots=True)
class ProgressState:
    """Collects the events of a turn's work: the newest state of every task and tool call."""

    items: dict[str, WorkItem] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    """Start times (epoch seconds) of model requests that have had no answer for some seconds."""

    def record(self, event: TaskEvent) -> None:
        item = self.items.setdefault(event.task_id, WorkItem(event.task_id, event.label, event.at))
        if not item.open:
            return
        if event.kind == "started":
            item.state, item.began = "running", event.at
        elif event.kind == "model":
            key = "progress.step_of" if event.most_calls else "progress.step"
            item.note = say(key, step=event.calls, most=event.most_calls)
        elif event.kind in _ENDS:
            item.end(event.at, _ENDS[event.kind], event.error)

    def began(self, call: ToolCall, at: float) -> None:
        self.items[call.id] = WorkItem(call.id, _action(call), at, "running", at, call=True)

    def noted(self, call_id: str, words: str | None, at: float) -> None:
        """Update a tool call with the progress that it reports. If `words` is None, the call waits for a person."""
        if (item := self.items.get(call_id)) is not None and item.open:
            item.since = item.since if item.state == "running" else at
            item.state, item.note = ("waiting", "") if words is None else ("running", words)

    def ended(self, call_id: str, at: float, *, failed: bool) -> None:
        if (item := self.items.get(call_id)) is not None:
            item.end(at, "failed" if failed else "done")

    def close(self, at: float) -> None:
        """Mark all running items as stopped, because the turn has ended."""
        for item in self.items.values():
            item.end(at, "stopped")

    @property
    def counts(self) -> Counter[State]:
        return Counter(item.state for item in self.items.values())

    @property
    def busy(self) -> bool:
        """Return True while an item runs or waits, or a model request has no answer."""
        return bool(self.waits) or any(item.open for item in self.items.values())

    def without_model(self, now: float) -> bool:
        return bool(self.waits) and now - min(self.waits) >= BUSY_SECONDS

    def is_visible(self, now: float) -> bool:
        works = [one for one in self.items.values() if one.open and (one.state != "waiting" or not one.call)]
        waited = now - min((one.since for one in works), default=now)
        return waited >= (TOGETHER_SECONDS if len(works) > 1 else ALONE_SECONDS) or self.without_model(now)

    def shown(self, now: float) -> LiveText:
        """Return the progress message at the time `now`. If no item runs, the message is a summary. A single item takes one line."""
        items, counts = list(self.items.values()), self.counts
        several = len(items) > 1
        ranked = sorted(items, key=lambda one: (_ORDER.index(one.state), -one.since))
        busy = [say("progress.model_busy")] if self.without_model(now) or not items else []
        open_ = any(one.open for one in items)
        key = "working" if open_ else "stopped" if counts["stopped"] else "done"
        title = say(f"progress.{key}", done=counts["done"], total=len(items))
        title += f", {say('progress.failed', count=counts['failed'])}" if counts["failed"] else ""
        until = now if self.busy else max((one.over for one in items if one.over is not None), default=now)
        elapsed = until - min((one.since for one in items), default=until)
        lines, cards = [f"**{title}** · {_duration(elapsed)}"] if several else [], list[Card]()
        for one in (one for one in items if one in ranked[:MOST]):
            symbol, status = _SHOWN[one.state]
            details, label = one.details(now), one.label if one.call else text.literal(one.title)
            mark = f"{symbol} " if several or one.state != "running" else ""
            lines.append(mark + " · ".join([label, *map(text.literal, details)]))
            cards.append(Card(one.id, one.title, status, " · ".join(details)))
        lines += [say("progress.more", count=len(items) - MOST)] if len(items) > MOST else []
        title = busy[0] if busy else title if several else items[0].title
        return LiveText("\n".join([*lines, *busy]), title=title, cards=tuple(cards))


def _action(call: ToolCall) -> str:
    server, _, tool = call.name.removeprefix(MCP).partition("__")
    if tool:
        return say("progress.server", tool=f"`{named(tool)}`", server=f"`{named(server)}`")
    key = f"call_{call.name}"
    value = call.input.get(ARGUMENTS[call.name][1] if call.name in ARGUMENTS else "query")
    if key not in names("progress") or not isinstance(value, str):
        return say("progress.call", what=f"`{named(call.name)}`")
    return say(f"progress.{key}", what=f"`{named(value)}`")


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(max(0, int(seconds)), 60)
    if minutes:
        return say("receipt.minutes", minutes=minutes, seconds=seconds)
    return say("receipt.seconds", seconds=seconds)


# ------------------------------------------------------------ display


class TurnDisplay:
    """Displays one running turn. The log stores only the final texts of its live messages.

    The preview shows the answer while the model writes it, beginning with the first complete sentence. The final answer
    replaces the text in the same messages. The preview is redacted, and its end is held back while a secret or a Markdown
    construct could begin there. A progress message shows the turn's work and is deleted at the turn's end. On channels
    without live messages, people are told once that the model does not answer.
    """

    def __init__(self, owner: LiveTurns, chat: Chat, turn: Turn) -> None:
        self._owner, self._run, self._chat, self._turn = owner, owner.run, chat, turn
        self._to = to = turn.first
        self._channel, manifest = self._run.channels[to.channel], self._run.manifests[to.channel]
        streaming = getattr(self._run.settings.channels.get(to.channel), "streaming", None)
        self._streaming = streaming if isinstance(streaming, Streaming) else Streaming(enabled=False)
        edits = manifest.edits if self._streaming.enabled else None
        self._every = 0.0 if edits is None else edits.every[to.chat_type]
        """Interval in seconds between two edits of a live message; 0 if the channel has no live messages."""
        self._indicate_every = manifest.indicate_every
        self._suspended = False
        self.words: Callable[[], str] | None = None
        """Function that returns the unfinished answer; "" once the answer is complete. None before the answer begins."""
        self._written_since = 0.0  # start of the answer in monotonic seconds
        self._drafts = self._streaming.drafts and to.chat_type == "direct"
        self._drafted, self._drafted_at = "", 0.0
        self._grew_at = float("-inf")
        self.board = ProgressState()
        self._news = self._progress_over = False
        self._preview: asyncio.Task[None] | None = None
        self._progress: asyncio.Task[None] | None = None
        self._signs = owner.start(self._indicate_while_working())

    def update(self) -> None:
        """Update the display after a change of the chat. Close the display once the turn and its live messages have ended. If the
        turn starts or stops waiting for a person, change the indicator.
        """
        turn, to = self._turn, self._to
        if self._chat.turn is not turn:
            self._signs.cancel()
            if not any(row.live and row.turn == turn.id for row in self._chat.outbox.values()):
                self.close()
        elif self._suspended != (turn.phase is Phase.SUSPENDED):
            self._suspended = not self._suspended
            sign = self._owner.sign(to, self._channel.suspend(to.target)) if self._suspended else None
            self._owner.show_sign(sign or self._owner.indicate(to, working=True))

    def close(self) -> list[asyncio.Task[None]]:
        """End the display: cancel its tasks and return them."""
        tasks = [one for one in (self._signs, self._preview, self._progress) if one is not None]
        for task in tasks:
            task.cancel()
        self._run.live.forget(self._turn.id)
        self._owner.turns.pop(self._turn.id)
        if left := [one for one in self._owner.in_chat.pop(self._chat.key) if one is not self]:
            self._owner.in_chat[self._chat.key] = left
        return tasks

    # ------------------------------------------------------------ preview

    def preview(self, words: Callable[[], str]) -> None:
        """Start to show an answer."""
        if not self._every:
            return
        self.words, self._written_since = words, self._run.clock.monotonic()
        if self._preview is None:
            self._preview = self._owner.start(self._show_preview())

    async def _show_preview(self) -> None:
        clock, chat, turn = self._run.clock, self._chat, self._turn
        after, every = self._streaming.after_ms / 1000, self._every
        while True:
            began = self._written_since + after
            shown = bool(self._drafted or self._run.live.live_rows(chat, turn.id, "preview"))
            if not shown and (wait := began - clock.monotonic()) > 0:
                await clock.sleep(wait)
                continue
            late = clock.monotonic() >= began + SENTENCE_SECONDS
            written = "" if self.words is None else self.words()
            words = self._run.redact(self._run.redact.settled(text.clean(written)))
            # The last character may be an incomplete grapheme.
            words = words[: text.border(words, len(words) - 1)]
            parts = await off_loop(len(words), LONG, partial(self._split, words, anything=shown or late))
            if chat.turn is not turn or turn.phase is Phase.STOPPING:
                return
            show = self._show_draft if self._drafts else self._show_parts
            changed = await show(parts) if parts else False
            if changed is None:
                return
            if changed:
                self._grew_at = clock.monotonic()
            await clock.sleep(every if changed else min(every, CHECK_SECONDS * (2 if shown else 1)))

    async def _show_draft(self, parts: Sequence[LiveText]) -> bool:
        """Show the last part of the answer as a draft. Return True if this call sent the draft."""
        words, now = parts[-1].words, self._run.clock.monotonic()
        if words == self._drafted and now - self._drafted_at < DRAFT_SECONDS:
            return False
        shown = await self._run.live.draft(self._chat, self._to, words)
        if shown:
            self._drafted, self._drafted_at = words, now
        self._drafts = shown is not None
        return bool(shown)

    async def _show_parts(self, parts: Sequence[LiveText]) -> bool | None:
        """Show the parts in order, and end at the first part that cannot be shown now. Return True if a message changed,
        None if no part can be shown any more.
        """
        changed, live = False, self._run.live
        rows = live.live_rows(self._chat, self._turn.id, "preview")
        for number, part in enumerate(parts):
            if number < len(rows) and live.shows(rows[number], part):
                continue
            shown = await live.show(self._chat, self._to, "preview", part, number=number)
            if not shown:
                return None if shown is None else changed
            changed = True
        return changed

    def _split(self, words: str, *, anything: bool) -> list[LiveText]:
        """Split the text into messages to show now. Before the first complete sentence, return [] unless `anything` is true."""
        split, shown = self._channel.split, beginning(words)
        if not (anything or has_begun(words, shown)):
            return []
        limits = self._channel.reading_limits if self._run.settings.delivery.long_as_files else None
        shorter = shortened(shown.words, limits, goes_on=True)
        closing, sure = "" if shorter.ends_in_one else shown.closing, shorter.at(shown.sure)
        parts = split(shorter.words)
        if not parts:
            return []
        *whole, last = parts
        messages = [LiveText(part, sure=part) for part in whole]
        # If an earlier message opened the Markdown marks, leave out `closing`, except the end of a code block.
        unsure = len(shorter.words) - sure
        inside = unsure <= len(last)
        ending = last + (closing if inside or closing.startswith("\n") else "")
        if len(split(ending + GOES_ON)) == 1:
            messages.append(LiveText(ending, GOES_ON, sure=last[: len(last) - unsure] if inside else ""))
        return messages

    # ------------------------------------------------------------ progress

    def changing_board(self) -> ProgressState:
        """Return the turn's progress, which the caller changes now. People see the change soon."""
        self._news = True
        if self._progress is None or self._progress.done():
            self._progress = self._owner.start(
                self._show_progress() if self._every else self._tell_of_silence()
            )
        return self.board

    async def _tell_of_silence(self) -> None:
        clock, to = self._run.clock, self._to
        while self.board.busy and not self._progress_over:
            if self.board.without_model(clock.now()):
                self._progress_over = True
                words = say("progress.model_busy")
                rows = outgoing.rows(self._run, f"{to.request_id}/busy", Address.of(to), words)
                self._run.chats.append(*(Fact(self._chat.key, row, to.request_id) for row in rows))
            await clock.sleep(CHECK_SECONDS)

    async def _show_progress(self) -> None:
        clock, board, live = self._run.clock, self.board, self._run.live
        while not (live.live_rows(self._chat, self._turn.id, "progress") or board.is_visible(clock.now())):
            if not board.busy:
                return
            await clock.sleep(CHECK_SECONDS)
        old = 0.0
        while not self._progress_over and (board.busy or self._news):
            if self._news or old >= (BUSY_SECONDS if board.waits else FRESH_SECONDS):
                self._news, old = False, 0.0
                if board.items or board.waits:
                    shown = await live.show(self._chat, self._to, "progress", board.shown(clock.now()))
                    self._progress_over = shown is None
                    self._news = self._news or not shown  # try again if the rate limit prevented the update
                else:
                    for row in live.live_rows(self._chat, self._turn.id, "progress"):
                        await live.end(row)
            await clock.sleep(self._every)
            old += self._every

    # ------------------------------------------------------------ indicators

    async def _indicate_while_working(self) -> None:
        """Show a typing indicator while the turn works. At the end, also clear an indicator that an earlier process showed."""
        turn, to, clock, channel = self._turn, self._to, self._run.clock, self._channel
        shown, title = turn.id < self._run.boot, text.preview(to.readable, TITLE) if to.opens else ""
        try:
            await clock.sleep(SHOWN_AFTER)
            while True:
                grows = clock.monotonic() - self._grew_at < GROWS_SECONDS
                if not (_unasked(turn) or turn.phase is Phase.SUSPENDED or grows):
                    shown = True
                    await self._owner.indicate(to, working=True)
                if title:
                    named = self._run.redact(text.clean(title))
                    await self._owner.sign(to, channel.entitle(to.target, named))
                title = ""
                await clock.sleep(self._indicate_every)
        finally:
            if shown:
                self._owner.show_sign(self._owner.indicate(to, working=False))


_UNSHOWN: frozenset[Effect] = frozenset({"message", "delegate"})


class LiveTurns:
    """Watches the chats and displays their running turns."""

    def __init__(self, runtime: Runtime) -> None:
        self.run = runtime
        self.turns: dict[str | None, TurnDisplay] = {}
        self.in_chat = defaultdict[ChatKey, list[TurnDisplay]](list)
        self._seen: set[str] = set()
        self._signs: set[asyncio.Future[None]] = set()
        runtime.chats.watch(self._update)
        runtime.live.last_words |= {"preview": self._last_preview, "progress": self._last_progress}

    def begin(self, turn: Turn) -> None:
        """Make the turn's progress message tell people when the model does not answer. Must be called in the turn's asyncio task."""
        if not _unasked(turn):
            waiting_for_model.set(partial(self._waiting, turn.id))

    def preview(self, chat: Chat, to: Inbound, words: Callable[[], str]) -> None:
        """Start to show an answer. `words` returns the current text; "" once the answer is complete."""
        del chat
        if (shown := self.turns.get(to.request_id)) is not None:
            shown.preview(words)

    async def close(self) -> None:
        """Stop all displays. The messages stay in the chats, and the next process continues to edit them."""
        tasks = [task for shown in list(self.turns.values()) for task in shown.close()]
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._signs:
            await asyncio.wait(self._signs, timeout=CLOSE_SECONDS)

    def _last_preview(self, row: OutboxRow, seen: str) -> LiveText:
        """Return the shown text and a remark that the answer is unfinished. For a complete answer, return "" to delete the
        preview.
        """
        shown = self.turns.get(row.turn)
        if shown is not None and shown.words is not None and not shown.words():
            return LiveText("")
        return LiveText(f"{seen}\n\n{say('turn.interrupted')}")

    def _last_progress(self, row: OutboxRow, _: str) -> LiveText:
        """Return the last text of a stopped turn's progress message. For other turns, return "", which deletes the message."""
        shown, now = self.turns.get(row.turn), self.run.clock.now()
        if shown is None:
            return LiveText("")
        shown.board.close(now)
        return shown.board.shown(now) if shown.board.counts["stopped"] else LiveText("")

    # ------------------------------------------------------------ progress

    def _board(self, request_id: str) -> ProgressState:
        """Return the progress of a turn. If the turn is not displayed, nobody sees the returned object."""
        shown = self.turns.get(request_id)
        return ProgressState() if shown is None else shown.changing_board()

    def record(self, event: TaskEvent) -> None:
        self._board(event.request_id).record(event)

    def calls(self, inner: CallWrapper, registry: Registry) -> CallWrapper:
        """Return a wrapper that shows running calls. A call is not shown while it waits for approval. Calls that send
        messages or start subagents are never shown. Calls inside a subagent are shown together with the subagent.
        """
        now = self.run.clock.now

        async def wrapper(call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
            async def shown() -> ToolResult:
                turn = context.current()
                self._board(turn.request_id).began(call, now())

                def noted(words: str | None) -> None:
                    self._board(turn.request_id).noted(call.id, words, now())

                context.progress.set(noted)
                if said := _said_before(turn.view(), call.id):
                    noted(said)
                result = await run()
                # A cancelled call does not reach this line. When the turn is stopped, such a call is shown as stopped.
                self._board(turn.request_id).ended(call.id, now(), failed=result.failed)
                return result

            tool = registry.get(call.name)
            alone = tool is None or tool.effects <= _UNSHOWN or telemetry.current().task is not None
            return await inner(call, run if alone else shown)

        return wrapper

    @contextlib.contextmanager
    def _waiting(self, request_id: str, seconds: float) -> Iterator[None]:
        """While the `with` block runs, show that the model has not answered. The model has been silent for `seconds` already."""
        since = self.run.clock.now() - seconds
        self._board(request_id).waits.append(since)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # the turn is not displayed any more
                self._board(request_id).waits.remove(since)

    # ------------------------------------------------------------ signs

    def _update(self, chat: Chat) -> None:
        if chat.task is not None:
            return  # a subagent's work appears in the turn that started the subagent
        turn, busy = chat.turn, len(self.turns) >= self.run.settings.queue.max_concurrent_turns
        if turn is not None:
            busy = turn.phase is not Phase.ENDING
            if turn.boot == self.run.boot and turn.id not in self.turns:
                self.turns[turn.id] = TurnDisplay(self, chat, turn)
                self.in_chat[chat.key].append(self.turns[turn.id])
        for shown in list(self.in_chat.get(chat.key, ())):
            shown.update()
        for inbound in chat.waiting if busy else ():
            self._mark(inbound)

    def _mark(self, inbound: Inbound) -> None:
        channel, name = self.run.channels[inbound.channel], inbound.request_id
        addressed = plain(inbound) and inbound.addressed != "chat"
        if name < self.run.boot or name in self._seen or not addressed or inbound.message_id is None:
            return
        if len(self._seen) >= MOST_MARKED:
            self._seen.clear()
        self._seen.add(name)
        if self.run.limits.spare(Address.of(inbound), reserve=0):
            self.show_sign(self.sign(inbound, channel.react(inbound.target, inbound.message_id)))

    async def indicate(self, to: Inbound, *, working: bool) -> None:
        if self.run.limits.spare(Address.of(to), reserve=1 if working else 0):
            await self.sign(to, self.run.channels[to.channel].indicate(to.target, working=working))

    async def sign(self, to: Inbound, call: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(SIGN_SECONDS):
                await call
        except (TimeoutError, errors.DeliveryFailed) as error:
            if isinstance(error, errors.DeliveryThrottled):
                self.run.limits.freeze(Address.of(to), error, cosmetic=True)
            self.run.log.write("delivery", "a sign could not be shown", level="debug", cause=str(error))

    def show_sign(self, showing: Awaitable[None]) -> None:
        task = asyncio.ensure_future(showing)
        self._signs.add(task)
        task.add_done_callback(self._signs.discard)

    def start(self, showing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        return started(showing, self.run.log, "a turn cannot be shown any more")


def _unasked(turn: Turn) -> bool:
    """Return True if no message of the turn addresses the bot, so that nobody expects an answer."""
    return all(one.addressed == "chat" for one in turn.left)


def _said_before(view: Sequence[Message], call_id: str) -> str:
    """Return the model's thinking just before a call of its last answer; "" if there is no thinking."""
    content = next((one["content"] for one in reversed(view) if one["role"] == "assistant"), ())
    said = ""
    for block in content:
        if block.get("id") == call_id:
            return said
        if block.get("type") in {"thinking", "tool_use"}:
            said = str(block.get("thinking") or "")
    return ""


def _build(runtime: Runtime) -> Hooks:
    turns = LiveTurns(runtime)
    return Hooks(display=Display(turns.begin, turns.preview, turns.calls, turns.record, turns.close))


FEATURE = Feature("live", _build)
