"""The part of an answer that is still being written which people are shown: its messages, each with its form."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bot import text
from bot.contracts.channel import ChannelSettings, Streaming
from bot.contracts.environment import Redact
from bot.contracts.outbound import LiveForm
from bot.features.live.partial_markdown import RenderablePrefix, beginning, has_begun

GOES_ON = " …"
"""Behind the words of an answer that is not complete."""


@dataclass(frozen=True, slots=True)
class Previewing:
    """`after`: by channel, how many seconds of writing an answer takes before it is shown; those that show none are not
    in it. `settled`: what of a text that goes on is sure to stand in the whole, redacted. `drafts`: the channels that show
    it as a draft in direct chats.
    """

    after: Mapping[str, float]
    settled: Redact
    drafts: Collection[str] = ()

    @classmethod
    def of(cls, channels: Mapping[str, ChannelSettings], settled: Redact) -> Previewing:
        """As the settings of the channels say."""
        found = {name: getattr(settings, "streaming", None) for name, settings in channels.items()}
        on = {name: one for name, one in found.items() if isinstance(one, Streaming) and one.enabled}
        drafts = frozenset(name for name, one in on.items() if one.drafts)
        return cls({name: one.after_ms / 1000 for name, one in on.items()}, settled, drafts)


def settled(previewing: Previewing, words: str) -> str:
    """The words that are sure to stand in the whole, redacted."""
    words = previewing.settled(text.clean(words))
    # What a reader sees as one character may be half of one.
    return words[: text.border(words, len(words) - 1)]


def preview_parts(
    words: str,
    split: Callable[[str], list[str]],
    shorten: Callable[[RenderablePrefix], RenderablePrefix],
    *,
    anything: bool,
) -> list[tuple[str, LiveForm]]:
    """The messages to show now; none where there is nothing that stands for itself, unless it may be `anything`."""
    shown = beginning(words)
    if not (anything or has_begun(words, shown)):
        return []
    shown = shorten(shown)
    parts = split(shown.words)
    if not parts:
        return []
    *whole, last = parts
    messages = [(part, LiveForm(sure=part)) for part in whole]
    # Marks that were opened in another message are not closed in this one.
    unsure = len(shown.words) - shown.sure
    inside = unsure <= len(last)
    closing = shown.closing if inside or shown.closing.startswith("\n") else ""
    ending = last + closing
    if len(split(ending + GOES_ON)) == 1:
        sure = last[: len(last) - unsure] if inside else ""
        messages.append((ending, LiveForm(sure=sure, mark=GOES_ON)))
    return messages
