"""Queues the messages with which a turn answers, waits for their delivery, and previews an answer that still streams."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import jiter

from bot import errors, text
from bot.contracts.channel import ReadingLimits
from bot.contracts.environment import Redact, off_loop
from bot.contracts.messages import Inbound, OutgoingFile, Sent
from bot.contracts.model import ModelReply, TextDelta, ToolInputDelta
from bot.core import blocks, events, file_words
from bot.core.chat import Chat
from bot.core.chats import Chats, Fact
from bot.core.events import StoredFile
from bot.core.long_blocks import shortened
from bot.core.outgoing import Address
from bot.core.outgoing_files import OutgoingFiles
from bot.tags import SEND, SILENT
from bot.telemetry import redaction
from bot.tools.permissions.display import named
from bot.words import say

LONGEST_WAIT = 10.0
"""Max seconds for which a turn waits for a postponed message. A message with a longer delay is sent after the turn."""
MISSED_CHARS = 60
"""Max characters of an undelivered answer that a notice quotes."""
SHORT = 2_000
"""Max characters of a text that is split on the event loop. A longer text is split on a thread, because splitting takes long."""


@dataclass(frozen=True, slots=True)
class ReplyPorts:
    """Access of a reply to its channel. `split` splits a text, and `show` shows a preview. Blocks of the text that exceed
    the `limits` are sent as files; None means no limits.
    """

    split: Callable[[str], list[str]]
    show: Callable[[Inbound, Callable[[], str]], object]
    limits: ReadingLimits | None
    redact: Redact
    files: OutgoingFiles


def question(asked: Inbound) -> str:
    """Return the question in a slash command as a quote with its author; "" for other messages. The answer shows the quote,
    because a group's members do not see slash commands.
    """
    if asked.chat_type != "group" or asked.message_id is not None or asked.due is not None or not asked.text:
        return ""
    return f"> `{named(asked.user_name or asked.user_id)}`: {text.preview(asked.text, 500)}\n\n"


@dataclass(eq=False)
class ChatReply:
    """Implements `tools.context.Reply` for one turn. The outbox rows of a step always have the same ids. So a step that is
    repeated after a crash sends nothing twice.
    """

    chat: Chat
    turn: str
    to: Inbound
    chats: Chats
    ports: ReplyPorts

    def __post_init__(self) -> None:
        self._ending: str | None = None

    @property
    def _rows(self) -> dict[str, events.RowEnded | None]:
        turn = self.chat.turn
        return turn.rows if turn is not None and turn.id == self.turn else {}

    def end_with(self, step_id: str | None) -> None:
        """Declare that this step's message is the last message of the turn. None means that no step's message is the last."""
        self._ending = step_id

    def said(self, step_id: str) -> bool:
        """Return True if a message of this step is queued or delivered. Return False if its delivery has failed."""
        name = f"{self.turn}/{step_id}/0"
        end = self._rows.get(name)
        return name in self._rows and (end is None or end.state != "failed")

    def preview(self, words: Callable[[], str]) -> None:
        self.ports.show(self.to, words)

    def queued(self, step_id: str) -> list[str]:
        return [one for one in self._rows if one.startswith(f"{self.turn}/{step_id}/")]

    async def leave(self, words: str, step: str, files: Sequence[OutgoingFile] = ()) -> None:
        """Queue a message and then `files`, without waiting for the delivery. If the step's message is already queued, do
        nothing. If a file cannot be sent, queue nothing and raise `errors.FileRefused`.
        """
        if self.queued(step):
            return
        ports, channel = self.ports, self.to.channel
        for file in files:
            await ports.files.check(channel, file)
        words = text.clean(self._with_notes(words))
        words = await off_loop(len(words), redaction.LONG, lambda: ports.redact(words))
        try:
            shorter = await off_loop(len(words), SHORT, lambda: shortened(words, ports.limits))
            for file in shorter.files:
                await ports.files.check(channel, file)
            await self._queue(shorter.words, step, [*shorter.files, *files])
        except errors.FileRefused:
            await self._queue(words, step, files)

    async def send(
        self, words: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        """Queue a message with files and wait for its delivery (see `tools.context.Reply`)."""
        step = step_id or "said"
        await self.leave(words, step, files)
        return await self.chats.until(self.chat.key, lambda: self._outcome(step))

    def _with_notes(self, words: str) -> str:
        """Return a message's text with pending notes below it. The turn's first message begins with the question of a slash
        command and a notice about undelivered answers.
        """
        if all(end is not None and end.state == "failed" for end in self._rows.values()):
            lost = [one.text for one in self.chat.missed if one.turn != self.turn]
            which = ", ".join(f"“{text.preview(one, MISSED_CHARS)}”" for one in lost)
            words = question(self.to) + words
            words = f"{say('delivery.missed', which=which)}\n\n{words}" if lost else words
        turn, running = self.chat.turn, self.chat.context.running
        notes = [one for one, told in running.notes.items() if not told] if running is not None else []
        return "\n\n".join(filter(None, (words, *notes, file_words.below(turn.unread) if turn else "")))

    async def _queue(self, words: str, step: str, files: Sequence[OutgoingFile]) -> None:
        parts = await off_loop(len(words), SHORT, lambda: self.ports.split(words))
        nothing: contextlib.AbstractAsyncContextManager[list[StoredFile]] = contextlib.nullcontext([])
        async with self.ports.files.kept(files) if files else nothing as kept:
            if self.queued(step):
                return
            first = f"{self.turn}/{step}/0"
            said: list[tuple[str, StoredFile | None]] = [(part, None) for part in parts]
            said += [(file.markdown, stored) for file, stored in zip(files, kept, strict=True)]
            queued = [
                Address.of(self.to).queued(
                    f"{self.turn}/{step}/{at}",
                    part,
                    part_of=first if at else None,
                    last=at == len(parts) - 1,
                    ends=step == self._ending and stored is None,
                    replaces=self.to.renews or None if not at and not self._rows else None,
                    file=stored,
                )
                for at, (part, stored) in enumerate(said)
            ]
            self.chats.append(*(Fact(self.chat.key, one, self.turn) for one in queued))

    def _outcome(self, step: str) -> list[Sent] | None:
        """Return the messages of a step that were delivered; None while any outbox row of the step is neither delivered nor
        failed. Raises `errors.DeliveryFailed`.
        """
        sent, missing = list[Sent](), list[str]()
        rows, names = self._rows, self.queued(step)
        for name in names:
            end = rows[name]
            if end is None:
                row = self.chat.outbox.get(name)
                if row is None or row.not_before is None or row.not_before - row.queued_at < LONGEST_WAIT:
                    return None
                raise errors.DeliveryDeferred("put off", wait=row.not_before - row.queued_at)
            if end.state == "failed" and end.reason == errors.FileRefused.code:
                missing += [end.missing] if end.missing else []
            elif end.state == "failed":
                failed = errors.TargetGone if end.reason == errors.TargetGone.code else errors.DeliveryFailed
                raise errors.DeliveryPartial(sent=len(sent), parts=len(names)) if sent else failed(end.reason)
            elif end.state == "sent":
                sent.append(Sent(end.message_id or ""))
            elif f"{name}'" not in rows:
                raise errors.DeliveryUncertain(end.reason)
        if missing:
            raise errors.FilesMissing(names=missing)
        return sent


class NoReply:
    """Reply of a subagent task. It sends nothing, because the task's last text is returned as a report."""

    def end_with(self, step_id: str | None) -> None: ...

    def said(self, step_id: str) -> bool:
        del step_id
        return False

    def queued(self, step_id: str) -> list[str]:
        del step_id
        return []

    def preview(self, words: Callable[[], str]) -> None: ...

    async def leave(self, words: str, step: str) -> None: ...

    async def send(self, words: str, step_id: str) -> list[Sent]:
        del words, step_id
        return []


class PartialReply:
    """Collects an answer while it streams. If `plain` is False, only the text of `chat_send` calls is shown."""

    def __init__(self, *, plain: bool = True) -> None:
        self._shows_plain = plain
        self._text = ""
        self._calls: dict[str, str] = {}
        """Input (partial JSON) of each `chat_send` call so far, by call id."""
        self._first: tuple[str, str] | None = None
        """Id and name of the first tool call."""

    def take(self, event: TextDelta | ToolInputDelta | ModelReply) -> None:
        if isinstance(event, TextDelta):
            self._text += event.text
        elif isinstance(event, ToolInputDelta):
            self._first = self._first or (event.tool_use_id, event.name)
            if event.name == SEND:
                self._calls[event.tool_use_id] = self._calls.get(event.tool_use_id, "") + event.partial_json
        elif self._first is None:  # a call without input sends no input events
            calls = blocks.tool_calls(event.content)
            self._first = (calls[0].id, calls[0].name) if calls else None

    @property
    def speaks(self) -> bool:
        """Return True if the answer begins with text for people. Of the tool calls, only `chat_send` has such text."""
        return self._first[1] == SEND if self._first is not None else self._shows_plain and bool(self._text)

    def shown(self) -> str:
        """Return the first message's text so far. Plain text counts only while no tool call has begun."""
        if self._first is None:
            return _aloud(self._text.strip())
        return self._message(self._first[0]) if self.speaks else ""

    def words(self) -> str:
        """Return the text for people: the text of `chat_send` calls or, if there is none, the plain text."""
        sent = [words for call in self._calls if (words := self._message(call).strip())]
        return "\n\n".join(sent) or _aloud(self._text.strip())

    def _message(self, call: str) -> str:
        """Return the text of a `chat_send` call so far."""
        try:
            raw = self._calls.get(call, "").encode("utf-8", "replace")
            value = jiter.from_json(raw, partial_mode="trailing-strings", cache_mode="none")
        except ValueError:
            return ""
        words = value.get("text") if isinstance(value, dict) else None
        return _aloud(words) if isinstance(words, str) else ""


def _aloud(words: str) -> str:
    """Return the cleaned text; "" if it is, or may become, the marker for a silent answer."""
    words = text.clean(words)
    return "" if SILENT.startswith(words.strip()) or words.lstrip().startswith(SILENT) else words
