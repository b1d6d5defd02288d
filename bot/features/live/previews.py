"""Previews: shows an answer while the model writes it. The final answer replaces the text in the same messages."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from bot import text
from bot.contracts.channel import ChannelSettings, Streaming
from bot.contracts.environment import Redact, off_loop
from bot.contracts.inbound import Inbound
from bot.core.chat import Chat, Phase
from bot.core.feature import Runtime
from bot.core.long_blocks import LongBlocks
from bot.core.outbox import LiveForm
from bot.core.outbox_row import OutboxRow
from bot.features.live.partial_markdown import RenderablePrefix, beginning, has_begun
from bot.words import say

GOES_ON = " …"
"""Suffix shown after the text of an unfinished answer."""


@dataclass(frozen=True, slots=True)
class Previewing:
    """Settings of previews. `after` gives, by channel, the seconds of writing before an answer is shown; a
    channel without previews has no entry. `settled` returns the part of an unfinished text that redaction
    cannot change any more. `drafts` lists the channels that show drafts in direct chats.
    """

    after: Mapping[str, float]
    settled: Redact
    drafts: Collection[str] = ()

    @classmethod
    def of(cls, channels: Mapping[str, ChannelSettings], settled: Redact) -> Previewing:
        """Return the settings built from the channels' settings."""
        found = {name: getattr(settings, "streaming", None) for name, settings in channels.items()}
        on = {name: one for name, one in found.items() if isinstance(one, Streaming) and one.enabled}
        drafts = frozenset(name for name, one in on.items() if one.drafts)
        return cls({name: one.after_ms / 1000 for name, one in on.items()}, settled, drafts)


def settled(previewing: Previewing, words: str) -> str:
    """Return the part of a text that redaction cannot change any more."""
    words = previewing.settled(text.clean(words))
    # The last character may be half of a grapheme.
    return words[: text.border(words, len(words) - 1)]


def preview_parts(
    words: str,
    split: Callable[[str], list[str]],
    shorten: Callable[[RenderablePrefix], RenderablePrefix],
    *,
    anything: bool,
) -> list[tuple[str, LiveForm]]:
    """Return the messages to show now. Nothing is shown before the first complete sentence, unless
    `anything` is true.
    """
    shown = beginning(words)
    if not (anything or has_begun(words, shown)):
        return []
    shown = shorten(shown)
    parts = split(shown.words)
    if not parts:
        return []
    *whole, last = parts
    messages = [(part, LiveForm(sure=part)) for part in whole]
    # Marks opened in another message are not closed in this one.
    unsure = len(shown.words) - shown.sure
    inside = unsure <= len(last)
    closing = shown.closing if inside or shown.closing.startswith("\n") else ""
    ending = last + closing
    if len(split(ending + GOES_ON)) == 1:
        sure = last[: len(last) - unsure] if inside else ""
        messages.append((ending, LiveForm(sure=sure, mark=GOES_ON)))
    return messages


SENTENCE_SECONDS = 5.0
"""Timeout in seconds for the first complete sentence; after it, an incomplete sentence is shown."""
DRAFT_SECONDS = 20.0
"""Interval in seconds between repetitions of an unchanged draft; the platform deletes a draft after 30 s."""
LOOK_SECONDS = 0.5
"""Interval in seconds between checks for new text to show."""
GROWS_SECONDS = 5.0
"""Seconds after an edit during which a message counts as growing. The activity indicator stays on for that time."""
LONG = 2_000
"""Max characters of a text that is split on the event loop."""


@dataclass(slots=True, eq=False)
class _Preview:
    to: Inbound
    words: Callable[[], str]
    since: float
    """Time at which the answer began."""
    drafts: bool
    drafted: str = ""
    drafted_at: float = 0.0
    changed_at: float = float("-inf")
    over: bool = False
    task: asyncio.Task[None] | None = None


class Previews:
    """Shows the answer of each turn as soon as the first sentence is complete. The text is redacted. The end
    of the text is held back while a secret or a Markdown construct could begin there.
    """

    def __init__(self, runtime: Runtime, previewing: Previewing) -> None:
        self._live = runtime.live
        self._channels = runtime.channels
        self._manifests = runtime.manifests
        self._previewing = previewing
        self._long_blocks = LongBlocks(runtime.channels, on=runtime.configuration.delivery.long_as_files)
        self._clock = runtime.clock
        self._open: dict[str | None, _Preview] = {}
        runtime.live.last_words["preview"] = self._last

    def begin(self, chat: Chat, to: Inbound, words: Callable[[], str]) -> None:
        """Start showing an answer. `words` returns the current text of the answer, or "" once the answer has ended."""
        edits, after = self._manifests[to.channel].edits, self._previewing.after.get(to.channel)
        if edits is None or after is None:
            return
        preview = self._open.get(to.request_id)
        if preview is None:
            drafts = to.channel in self._previewing.drafts and to.chat_type == "direct"
            preview = self._open[to.request_id] = _Preview(to, words, 0.0, drafts)
            preview.task = self._live.start(self._show(chat, preview, after, edits.every[to.chat_type]))
        preview.words, preview.since = words, self._clock.monotonic()

    def grows(self, turn: str) -> bool:
        """Return True while people see a growing answer."""
        preview = self._open.get(turn)
        return preview is not None and self._clock.monotonic() - preview.changed_at < GROWS_SECONDS

    def end(self, turn: str) -> None:
        """Stop showing the answer of a turn."""
        preview = self._open.pop(turn, None)
        if preview is not None and preview.task is not None:
            preview.task.cancel()

    def _last(self, row: OutboxRow, seen: str) -> tuple[str, LiveForm]:
        """Return the final text for an answer that was never completed, with a remark; "" deletes the message."""
        preview = self._open.get(row.turn)
        if preview is not None and not preview.words():
            return "", LiveForm()
        return f"{seen}\n\n{say('turn.interrupted')}", LiveForm()

    async def _show(self, chat: Chat, preview: _Preview, after: float, every: float) -> None:
        clock, turn = self._clock, preview.to.request_id
        while not preview.over:
            began = preview.since + after
            stands = bool(preview.drafted or self._live.of(chat, turn, "preview"))
            if not stands and (wait := began - clock.monotonic()) > 0:
                await clock.sleep(wait)
                continue
            late = clock.monotonic() >= began + SENTENCE_SECONDS
            parts = await self._readable(preview, anything=stands or late)
            if chat.turn is None or chat.turn.id != turn or chat.turn.phase is Phase.STOPPING:
                return
            changed = bool(parts) and await (
                self._draft(chat, preview, parts[-1][0])
                if preview.drafts
                else self._show_parts(chat, preview, parts)
            )
            if changed:
                preview.changed_at = clock.monotonic()
            await clock.sleep(every if changed else min(every, 2 * LOOK_SECONDS if stands else LOOK_SECONDS))

    async def _draft(self, chat: Chat, preview: _Preview, words: str) -> bool:
        """Show the text as a draft; return True if the draft was sent now."""
        now = self._clock.monotonic()
        if words == preview.drafted and now - preview.drafted_at < DRAFT_SECONDS:
            return False
        shown = await self._live.draft(chat, preview.to, words)
        if shown:
            preview.drafted, preview.drafted_at = words, now
        preview.drafts = shown is not None
        return bool(shown)

    async def _show_parts(self, chat: Chat, preview: _Preview, parts: Sequence[tuple[str, LiveForm]]) -> bool:
        """Show each part in its message, in order, up to the first message that is incomplete. Returns True
        if a message changed.
        """
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

    async def _readable(self, preview: _Preview, *, anything: bool) -> list[tuple[str, LiveForm]]:
        words = settled(self._previewing, preview.words())
        split = self._channels[preview.to.channel].split
        shorten = functools.partial(self._shortened, preview.to.channel)
        return await off_loop(
            len(words), LONG, lambda: preview_parts(words, split, shorten, anything=anything)
        )

    def _shortened(self, channel: str, shown: RenderablePrefix) -> RenderablePrefix:
        """Return the text with long code blocks and tables taken out."""
        shorter = self._long_blocks.taken_out(channel, shown.words, goes_on=True)
        closing = "" if shorter.ends_in_one else shown.closing
        return RenderablePrefix(shorter.words, closing, sure=shorter.at(shown.sure))
