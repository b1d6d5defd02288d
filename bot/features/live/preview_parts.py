"""Splits an unfinished answer into the messages that are shown, each with its form."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bot import text
from bot.contracts.channel import ChannelSettings, Streaming
from bot.contracts.environment import Redact
from bot.core.outbox import LiveForm
from bot.features.live.partial_markdown import RenderablePrefix, beginning, has_begun

GOES_ON = " …"
"""Follows the text of an unfinished answer."""


@dataclass(frozen=True, slots=True)
class Previewing:
    """`after`: seconds of writing before an answer is shown, by channel; channels without previews are
    missing. `settled`: returns the part of an unfinished text that is final after redaction. `drafts`:
    channels that show drafts in direct chats.
    """

    after: Mapping[str, float]
    settled: Redact
    drafts: Collection[str] = ()

    @classmethod
    def of(cls, channels: Mapping[str, ChannelSettings], settled: Redact) -> Previewing:
        """Build from the channels' settings."""
        found = {name: getattr(settings, "streaming", None) for name, settings in channels.items()}
        on = {name: one for name, one in found.items() if isinstance(one, Streaming) and one.enabled}
        drafts = frozenset(name for name, one in on.items() if one.drafts)
        return cls({name: one.after_ms / 1000 for name, one in on.items()}, settled, drafts)


def settled(previewing: Previewing, words: str) -> str:
    """Return the part of a text that is final after redaction."""
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
    """Return the messages to show now; none before the first complete sentence, unless `anything` may be shown."""
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
