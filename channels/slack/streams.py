"""Slack's own streams: answers and progress that grow in a thread of a direct chat. In shared channels only the one person a stream
is for would see it grow, so messages are edited there.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from slack_sdk.web.async_client import AsyncWebClient

from bot import text
from bot.contracts.base import Json
from bot.contracts.environment import Clock, Log
from bot.contracts.outbound import Card, Outbound
from channels.slack import address, failures, render

MOST_A_MINUTE = 15
"""Streams that are begun in a minute: Slack ends some twenty a minute in a workspace, and the end of one that it does not end would
be waited for by all. Others are messages that are edited.
"""
LONGEST_SECONDS = 270.0
"""Slack ends a stream after some five minutes; from here on its message is edited."""
_LINK = re.compile(r"\w://|\bwww\.", re.IGNORECASE)
"""Of streams nobody can tell Slack not to fetch what links lead to."""
_NO_WORDS = re.compile(r"\W|_")


@dataclass(slots=True)
class _Stream:
    """A stream as far as Slack has it. `unsure`: an answer of Slack was lost, so it may have more."""

    channel: str
    ts: str
    began: float
    words: str
    title: str = ""
    cards: tuple[Card, ...] = ()
    unsure: bool = False


class Streams:
    """The streams of this process that are open. One of an earlier process is found out by `failures.CONFLICT`. Methods raise what calls of
    the SDK do (`failures.CALL_ERRORS`).
    """

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock = clock
        self._log = log
        self._available = True
        self._begun: deque[float] = deque(maxlen=MOST_A_MINUTE)
        self._open: dict[tuple[str, str], _Stream] = {}

    async def begin(self, client: AsyncWebClient, message: Outbound) -> str | None:
        """Create a live message as a stream; its `ts`, None where it is to be posted. Slack without streams is asked once."""
        target, words = message.target, render.render(message.sure)
        now = self._clock.monotonic()
        full = len(self._begun) == MOST_A_MINUTE and now - self._begun[0] < 60.0
        if full or not (self._available and message.goes_on and _may_stream(message)):
            return None
        content = _chunks(message) if message.cards else {"markdown_text": words}
        if not message.cards and (not words.strip() or _LINK.search(words)):
            return None
        self._begun.append(now)
        try:
            answer = await client.chat_startStream(
                channel=target["channel"], thread_ts=target["thread_ts"], **content
            )
        except failures.CALL_ERRORS as error:
            if failures.may_pass(error):
                raise
            self._available = failures.error_code(error) not in failures.UNSUPPORTED
            self._log.write(
                "delivery", "Slack does not take a stream", level="warn", error=failures.name(error)
            )
            return None
        ts = str(answer["ts"])
        channel = target["channel"]
        self._open[channel, ts] = _Stream(channel, ts, now, words, message.title, message.cards)
        return ts

    async def show(
        self, client: AsyncWebClient, message: Outbound, markdown: str, place: tuple[str, str], ending: Json
    ) -> bool:
        """Let a stream grow into a message, and end, with what `ending` has, where that is its last state. False where its place has to be edited."""
        stream = self._open.get(place)
        if stream is None:
            return False
        words = render.render(message.sure) if message.goes_on else markdown
        content = self._news(stream, message, words)
        if content is None:
            await self.end(client, place)
            return False
        try:
            if not message.goes_on:
                await client.chat_stopStream(channel=stream.channel, ts=stream.ts, **ending, **content)
                self._open.pop(place, None)
            elif content:
                await client.chat_appendStream(channel=stream.channel, ts=stream.ts, **content)
        except failures.CALL_ERRORS as error:
            if failures.may_pass(error):
                stream.unsure = stream.unsure or not failures.is_rate_limited(error)
                raise
            await self.end(client, place)
            return False
        if content:
            stream.words, stream.title, stream.cards = words, message.title, message.cards
        return True

    def is_open(self, channel: str, ts: str) -> bool:
        return (channel, ts) in self._open

    async def end(self, client: AsyncWebClient, place: tuple[str, str]) -> None:
        """End a stream as it is, so that its message can be edited."""
        channel, ts = place
        try:
            await client.chat_stopStream(channel=channel, ts=ts)
        except failures.CALL_ERRORS as error:
            # One that does not let itself be ended ends by itself: until then its edits conflict.
            if failures.may_pass(error):
                raise
        self._open.pop(place, None)

    def _news(self, stream: _Stream, message: Outbound, words: str) -> Json | None:
        """Return the part that Slack lacks; {} where that is nothing, None where a stream cannot become the message."""
        if stream.unsure or self._clock.monotonic() - stream.began > LONGEST_SECONDS:
            return None
        if stream.cards:
            if not message.cards:
                return None
            known = set(stream.cards)
            new = tuple(card for card in message.cards if card not in known)
            return _chunks(message, new, titled=message.title != stream.title)
        if message.goes_on and stream.words.startswith(words):
            return {}
        if message.cards or not words.startswith(stream.words) or _LINK.search(words):
            return None
        rest = words[len(stream.words) :]
        return {"markdown_text": rest} if rest else {}


def _may_stream(message: Outbound) -> bool:
    target = message.target
    return "thread_ts" in target and address.is_direct(target["channel"])


def _chunks(message: Outbound, cards: Sequence[Card] | None = None, *, titled: bool = True) -> Json:
    """The title and cards as chunks. Slack replaces a title, and adds to details, which have the time: they stand in the title."""
    chunks: list[Json] = [{"type": "plan_update", "title": message.title}] if titled else []
    chunks += [
        {
            "type": "task_update",
            "id": card.id,
            "title": f"{card.title} · {card.detail}" if card.detail else card.title,
            "status": card.state,
        }
        for card in (message.cards if cards is None else cards)
    ]
    if not chunks:
        return {}
    return {"chunks": chunks} | ({"task_display_mode": "plan"} if cards is None else {})


def begun_as(message: Outbound, post: Json) -> bool:
    """True if a message of the bot's is a stream that was begun for `message`: a stream has no metadata while it is open, so its first
    words tell.
    """
    shown, words = _words(text.unescaped(str(post.get("text") or ""))), _words(message.text)
    return "metadata" not in post and bool(shown) and (words.startswith(shown) or shown.startswith(words))


def _words(markdown: str) -> str:
    return _NO_WORDS.sub("", markdown)
