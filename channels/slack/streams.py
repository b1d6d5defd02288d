"""Shows unfinished answers and progress as Slack's text streams, in threads of direct chats. In a channel, only one
person would see a stream, so messages are edited there instead.
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
from channels.slack import render, web_api
from channels.slack.manifest import is_direct

MAX_PER_MINUTE = 15
"""Max streams started per minute. Slack accepts about twenty `chat.stopStream` calls per minute and workspace."""
MAX_SECONDS = 270.0
"""Max age in seconds of a stream, after which its message is edited instead. Slack itself stops a stream after five minutes."""
_LINK = re.compile(r"\w://|\bwww\.", re.IGNORECASE)
"""Pattern of text that may be a link. Links are not streamed, because Slack would fetch them (streams have no `unfurl_links`)."""
_NO_WORDS = re.compile(r"\W|_")


@dataclass(slots=True)
class _Stream:
    """Content that Slack has confirmed for an open stream. If `unsure`, a response was lost, so Slack may have more."""

    channel: str
    ts: str
    began: float
    words: str
    title: str = ""
    cards: tuple[Card, ...] = ()
    unsure: bool = False


class Streams:
    """Streams that this process has opened. Methods raise `web_api.CALL_ERRORS`. While a stream of an earlier process is
    open, an edit of its message fails with `web_api.CONFLICT`.
    """

    def __init__(self, client: AsyncWebClient, clock: Clock, log: Log) -> None:
        self._client = client
        self._clock = clock
        self._log = log
        self._supported = True
        self._started: deque[float] = deque(maxlen=MAX_PER_MINUTE)
        self._open: dict[tuple[str, str], _Stream] = {}

    async def begin(self, message: Outbound) -> str | None:
        """Start a stream and return its `ts`. Return None if the message must be posted instead. After a workspace has
        refused streams as unsupported, no stream is started again.
        """
        target, words = message.target, render.render(message.sure)
        now = self._clock.monotonic()
        full = len(self._started) == MAX_PER_MINUTE and now - self._started[0] < 60.0
        fits = message.goes_on and "thread_ts" in target and is_direct(target["channel"])
        if full or not (self._supported and fits):
            return None
        content = _chunks(message) if message.cards else {"markdown_text": words}
        if not message.cards and (not words.strip() or _LINK.search(words)):
            return None
        self._started.append(now)
        try:
            answer = await self._client.chat_startStream(
                channel=target["channel"], thread_ts=target["thread_ts"], **content
            )
        except web_api.CALL_ERRORS as error:
            if web_api.may_pass(error):
                raise
            self._supported = web_api.error_code(error) not in web_api.UNSUPPORTED
            self._log.write(
                "delivery", "Slack does not take a stream", level="warn", error=web_api.name(error)
            )
            return None
        ts = str(answer["ts"])
        channel = target["channel"]
        self._open[channel, ts] = _Stream(channel, ts, now, words, message.title, message.cards)
        return ts

    async def show(self, message: Outbound, markdown: str, place: tuple[str, str], ending: Json) -> bool:
        """Append to a stream. If the message is final, stop the stream with the fields `ending`. Return False if the message
        must be edited instead.
        """
        stream = self._open.get(place)
        if stream is None:
            return False
        words = render.render(message.sure) if message.goes_on else markdown
        content = self._delta(stream, message, words)
        if content is None:
            await self.end(place)
            return False
        try:
            if not message.goes_on:
                await self._client.chat_stopStream(channel=stream.channel, ts=stream.ts, **ending, **content)
                self._open.pop(place, None)
            elif content:
                await self._client.chat_appendStream(channel=stream.channel, ts=stream.ts, **content)
        except web_api.CALL_ERRORS as error:
            if web_api.may_pass(error):
                stream.unsure = stream.unsure or not web_api.is_rate_limited(error)
                raise
            await self.end(place)
            return False
        if content:
            stream.words, stream.title, stream.cards = words, message.title, message.cards
        return True

    def is_open(self, channel: str, ts: str) -> bool:
        return (channel, ts) in self._open

    async def end(self, place: tuple[str, str]) -> None:
        """Stop a stream and keep its text, so that its message can be edited."""
        channel, ts = place
        try:
            await self._client.chat_stopStream(channel=channel, ts=ts)
        except web_api.CALL_ERRORS as error:
            # After a permanent refusal, Slack stops the stream itself within five minutes. Until then, edits fail with
            # CONFLICT.
            if web_api.may_pass(error):
                raise
        self._open.pop(place, None)

    def _delta(self, stream: _Stream, message: Outbound, words: str) -> Json | None:
        """Return the content to append; {} if nothing is new. Return None if appending cannot produce the message."""
        if stream.unsure or self._clock.monotonic() - stream.began > MAX_SECONDS:
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


def _chunks(message: Outbound, cards: Sequence[Card] | None = None, *, titled: bool = True) -> Json:
    """Return the title and the cards as chunks of a stream. A card's detail is in its title, because Slack replaces titles
    but appends to details.
    """
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
    """Return True if a post of the bot is an open stream of `message`. Such a post has no metadata, so its text is compared."""
    shown, words = _words(text.unescaped(str(post.get("text") or ""))), _words(message.text)
    return "metadata" not in post and bool(shown) and (words.startswith(shown) or shown.startswith(words))


def _words(markdown: str) -> str:
    return _NO_WORDS.sub("", markdown)
