"""Slack's message streams, for the Slack fake. A streamed message grows for at most five minutes, and cannot be
edited while its stream is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.contracts.base import Json
from bot.testing._slack_world import ApiError, Post, World

STREAM_SECONDS = 300.0
"""Timeout in seconds after which a stream closes, even if text is still being appended."""
MARKDOWN_LIMIT = 12_000


@dataclass(slots=True)
class Stream:
    until: float
    stopped: bool = False


class Streams:
    """Holds all streams, by conversation and message timestamp."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._streams: dict[tuple[str, str], Stream] = {}

    def begin(self, channel: str, post: Post, words: str) -> None:
        _grow(post, words)
        self._streams[channel, post.ts] = Stream(self._world.clock.monotonic() + STREAM_SECONDS)

    def grow(self, channel: str, post: Post, words: str) -> None:
        self._live(channel, post.ts)
        _grow(post, words)

    def stop(self, channel: str, post: Post, words: str) -> None:
        stream = self._live(channel, post.ts)
        _grow(post, words)
        stream.stopped = True

    def is_open(self, channel: str, ts: str) -> bool:
        stream = self._streams.get((channel, ts))
        return stream is not None and not stream.stopped and self._world.clock.monotonic() < stream.until

    def stop_all(self, channel: str, posts: Sequence[Post]) -> list[str]:
        """Stop the open streams among `posts`, as the stop button does; return the timestamps of the stopped messages."""
        stopped = [post.ts for post in posts if self.is_open(channel, post.ts)]
        for ts in stopped:
            self._streams[channel, ts].stopped = True
        return stopped

    def _live(self, channel: str, ts: str) -> Stream:
        if not self.is_open(channel, ts):
            raise ApiError("message_not_in_streaming_state")
        return self._streams[channel, ts]


def streamed(params: Json, *, needed: bool) -> str:
    """Return the text that a call appends, after checking the call. Raises `ApiError`. The product sends no `chunks`."""
    words = params.get("markdown_text")
    if "chunks" in params:
        raise ApiError("invalid_chunks")
    if (needed and words is None) or (words is not None and not (isinstance(words, str) and words)):
        raise ApiError("no_text")
    return words or ""


def _grow(post: Post, words: str) -> None:
    if len(post.text) + len(words) > MARKDOWN_LIMIT:
        raise ApiError("msg_too_long")
    post.text += words
