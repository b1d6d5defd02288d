"""Slack's message streams, for the Slack fake. A streamed message grows for at most five minutes, and cannot be
edited while its stream is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.contracts.base import Json
from bot.testing._slack_world import ApiError, Post, World

STREAM_SECONDS = 300.0
"""Timeout in seconds after which a stream closes, even if text is still being appended."""
MARKDOWN_LIMIT = 12_000
TASK_STATES = frozenset({"pending", "in_progress", "complete", "error"})


@dataclass(slots=True)
class Stream:
    """A streamed message. `title` and `tasks` come from the appended chunks; `words` is the streamed text."""

    until: float
    words: str = ""
    title: str = ""
    tasks: dict[str, Json] = field(default_factory=dict)
    stopped: bool = False


class Streams:
    """Holds all streams, by conversation and message timestamp."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._streams: dict[tuple[str, str], Stream] = {}

    def begin(self, channel: str, post: Post, params: Json) -> None:
        stream = Stream(self._world.clock.monotonic() + STREAM_SECONDS)
        _grow(stream, post, params)
        self._streams[channel, post.ts] = stream

    def grow(self, channel: str, post: Post, params: Json) -> None:
        _grow(self._live(channel, post.ts), post, params)

    def stop(self, channel: str, post: Post, params: Json) -> None:
        stream = self._live(channel, post.ts)
        _grow(stream, post, params)
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


def content(params: Json, chunks: Any, *, needed: bool) -> Json:
    """Return a call's text and chunks after checking both. Raises `ApiError`."""
    markdown = params.get("markdown_text")
    if markdown is not None and chunks is not None:
        raise ApiError("markdown_text_conflict")
    if chunks is not None and (not isinstance(chunks, list) or not chunks or not all(map(_is_chunk, chunks))):
        raise ApiError("invalid_chunks")
    if markdown is not None and not (isinstance(markdown, str) and markdown):
        raise ApiError("no_text")
    if needed and markdown is None and chunks is None:
        raise ApiError("no_text")
    if len(markdown or "") > MARKDOWN_LIMIT:
        raise ApiError("msg_too_long")
    return {"markdown_text": markdown or "", "chunks": chunks or []}


def _is_chunk(chunk: Any) -> bool:
    if not isinstance(chunk, dict):
        return False
    if chunk.get("type") == "plan_update":
        return bool(chunk.get("title"))
    if chunk.get("type") == "markdown_text":
        return bool(chunk.get("text"))
    named = chunk.get("type") == "task_update" and chunk.get("id") and chunk.get("title")
    return bool(named) and chunk.get("status") in TASK_STATES


def _grow(stream: Stream, post: Post, params: Json) -> None:
    words = stream.words + params["markdown_text"]
    words += "".join(chunk["text"] for chunk in params["chunks"] if chunk["type"] == "markdown_text")
    if len(words) > MARKDOWN_LIMIT:
        raise ApiError("msg_too_long")
    stream.words = words
    for chunk in params["chunks"]:
        if chunk["type"] == "plan_update":
            stream.title = chunk["title"]
        elif chunk["type"] == "task_update":
            stream.tasks[chunk["id"]] = chunk
    lines = [stream.title, *(f"{task['status']}: {task['title']}" for task in stream.tasks.values()), words]
    post.text = "\n".join(filter(None, lines))
