"""Format of the Messages API: the exact bytes of a request body, and the answer assembled from its streamed events.

This module does not use the provider's library, for two reasons. The library's decoder drops frames without an `event:` line,
which some proxies send. The library's accumulator parses the whole input of a tool call again with each piece.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot import errors, text
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest, TextDelta, ToolInputDelta, Usage
from bot.contracts.tools import fitting_id
from bot.identity_cache import IdentityCache

FALLBACKS = "server-side-fallback-2026-07-01"
"""Name of a beta feature: if the requested model refuses, the provider lets another of its models answer."""

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
_AT_ONCE = 256_000  # Number of encoded bytes after which other tasks may run
_GROUP = 16  # Number of messages that are encoded at a time
_FILES = frozenset({"image", "document"})
_MARK = "\udfff"  # Placeholder for base64 data: a lone surrogate, which no valid request contains


def body_of(request: ModelRequest) -> Json:
    """Return the request body as an object. Equal requests give equal bytes."""
    body: Json = {"model": request.model, "max_tokens": request.max_tokens}
    if request.system:
        body["system"] = list(request.system)
    if request.tools:
        body["tools"] = list(request.tools)
    body["messages"] = list(request.messages)
    if request.thinking is not None:
        body["thinking"] = request.thinking
    if request.effort is not None:
        body["output_config"] = {"effort": request.effort}
    if request.provider_fallbacks:
        body["fallbacks"] = "default"
    body["stream"] = True
    return body


def wire(request: ModelRequest) -> bytes:
    """Return a request's encoded bytes, which are cached for repeated calls. Raises ValueError or TypeError."""
    if not request.wire:
        request.wire.append(b"".join(pieces(request)))
    return request.wire[0]


async def encoded(request: ModelRequest) -> bytes:
    """Return the same bytes as `wire`, but let other tasks run during the encoding, because a body can be 25 MB long."""
    if not request.wire:
        made, left = list[bytes](), _AT_ONCE
        for piece in pieces(request):
            made.append(piece)
            left -= len(piece)
            if left < 0:
                left = _AT_ONCE
                await asyncio.sleep(0)
        request.wire.append(b"".join(made))
    return request.wire[0]


def pieces(request: ModelRequest) -> Iterator[bytes]:
    """Yield the encoded request, some messages at a time. Base64 data bypasses the encoder, which takes 14 ms per megabyte."""
    marked = body_of(request) | ({"tools": _MARK} if request.tools else {}) | {"messages": _MARK}
    *head, before, tail = _ENCODER.encode(marked).split(f'"{_MARK}"')
    if head:
        yield head[0].encode() + _TOOLS(request.tools)
    yield before.encode() + b"["
    for at in range(0, len(request.messages), _GROUP):
        data, group = list[str](), list[Message]()
        for message in request.messages[at : at + _GROUP]:
            content = list[Any]()
            for block in message["content"]:
                if isinstance(block, dict) and block.get("type") in _FILES:
                    data.append(block["source"]["data"])
                    block = block | {"source": block["source"] | {"data": _MARK}}  # noqa: PLW2901
                content.append(block)
            group.append({**message, "content": content} if isinstance(message["content"], list) else message)
        first, *rest = _ENCODER.encode(group)[1:-1].split(_MARK)
        yield b"," + first.encode() if at else first.encode()
        for file, after in zip(data, rest, strict=True):
            yield file.encode()
            yield after.encode()
    yield b"]" + tail.encode()


_TOOLS = IdentityCache[Sequence[Json], bytes](
    lambda tools: _ENCODER.encode(list(tools)).encode("utf-8", "replace"), most=16
)
"""Cache of encoded tool definitions. Most requests contain the same tuple, which is the largest part of a first request."""


def prefix_digest(system: Sequence[Json], tools: Sequence[Json]) -> str:
    """Return a digest of the system prompt and tools, which precede the messages of a request."""
    # Lone surrogates are replaced, because UTF-8 cannot encode them.
    dumped = _ENCODER.encode(list(system)).encode("utf-8", "replace")
    return hashlib.sha256(b"[%b,%b]" % (dumped, _TOOLS(tools))).hexdigest()[:16]


_FRAME_END = re.compile(rb"\r?\n\r?\n")
_DATA = re.compile(rb"(?:^|[\r\n])data: ?([^\r\n]*)")
_NAME = re.compile(rb"(?:^|[\r\n])event:[ \t]*([^\r\n]*?)[ \t]*(?=[\r\n]|$)")
MAX_EVENT, MAX_STREAM = 4_000_000, 64_000_000
"""Max bytes of one event, and of one stream. A stream needs some hundred bytes for each token of the answer."""


@dataclass(eq=False)
class EventStream:
    """Decodes server-sent events. `feed` takes a chunk of bytes and returns the JSON objects that are now complete."""

    _rest: bytes = b""
    _left: int = field(default_factory=lambda: MAX_STREAM)

    def feed(self, chunk: bytes) -> list[Json]:
        """Return the JSON objects that a chunk completes. Raises `errors.StreamBroken` if an event is not a JSON object, or if the
        event or stream is too long.
        """
        self._left -= len(chunk)
        *frames, self._rest = _FRAME_END.split(self._rest + chunk)
        if self._left < 0 or len(self._rest) > MAX_EVENT:
            failure = errors.StreamBroken("The answer is longer than any model's: given up.")
            failure.retryable = False  # a retry would cost as much again
            raise failure
        return [event for frame in frames if (event := _event(frame)) is not None]


def _event(frame: bytes) -> Json | None:
    data = b"\n".join(_DATA.findall(frame))
    if data in {b"", b"[DONE]"}:  # some proxies end a stream with [DONE]
        return None
    try:
        event = json.loads(data.decode())
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise errors.StreamBroken("The provider streamed an event that is not a JSON object.")
    names = _NAME.findall(frame)
    return {"type": names[-1].decode("utf-8", "replace")} | event if names else event


CUTTING = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
"""Stop reasons after which the last content block may be incomplete, even if it is valid JSON."""
_KNOWN = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
_FIELDS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}
"""For each type of delta, the name of the field that contains its text."""


class Accumulator:
    """Builds one answer from its events, in order. Later requests contain the answer, so the provider must accept it. Therefore
    signatures and blocks of unknown types are kept, and fields without a value and blank texts are removed. Tool calls get ids
    that are not in `taken`, because some providers use the same ids in each answer.
    """

    def __init__(self, taken: Collection[str] = ()) -> None:
        self.done = False
        self.started = False
        self.begun = False  # True once the first delta of a block has arrived
        self.stop_reason: str | None = None
        self.stop_details: Json | None = None
        self.model = ""
        self._taken = set(taken)
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, int] = {}

    def feed(self, event: Json) -> TextDelta | ToolInputDelta | None:  # noqa: C901 - one case a kind of event
        """Process an event and return its delta, if any. Ignore unknown events. Raises `StreamBroken` for an invalid event."""
        try:
            match event.get("type"):
                case "message_start":
                    if self.started:
                        raise ValueError("a second message in one stream")
                    self.started, self.model = True, str(event["message"].get("model") or "")
                    self._count(event["message"].get("usage") or {})
                case "content_block_start":
                    if not self.started or event["index"] in self._blocks:
                        raise ValueError("a content block outside of a message, or twice")
                    self._blocks[event["index"]] = _Block(event["content_block"], self._taken)
                case "content_block_delta":
                    self.begun = True
                    return self._blocks[event["index"]].add(event["delta"])
                case "content_block_stop":
                    self._blocks[event["index"]].close()
                case "message_delta":
                    self._count(event.get("usage") or {})
                    delta = event["delta"]
                    self.stop_reason = delta.get("stop_reason") or self.stop_reason
                    if details := delta.get("stop_details"):
                        self.stop_details = {
                            key: value for key, value in details.items() if value is not None
                        }
                case "message_stop":
                    self._stop()
        except (AttributeError, LookupError, TypeError, ValueError):
            raise errors.StreamBroken("The provider's stream breaks the protocol.") from None
        return None

    def _stop(self) -> None:
        if not (self.stop_reason or self._blocks):
            raise ValueError("an answer without a reason to stop")
        for index, block in self._blocks.items():
            if not block.closed or (self.stop_reason in CUTTING and index == max(self._blocks)):
                block.close(whole=False)
        calls = any(block.is_call for block in self._blocks.values())
        self.stop_reason = self.stop_reason or ("tool_use" if calls else "end_turn")
        self.done = True

    def _count(self, usage: Json) -> None:
        """Update the token usage. Usage is cumulative, so each number replaces the previous number."""
        further = (usage.get("cache_creation") or {}) | (usage.get("server_tool_use") or {})
        self._usage |= {name: value for name, value in (usage | further).items() if isinstance(value, int)}

    @property
    def content(self) -> list[Json]:
        ordered = (self._blocks[index].value for index in sorted(self._blocks))
        return [block for block in ordered if block["type"] != "text" or block.get("text", "").strip()]

    @property
    def cut(self) -> frozenset[str]:
        """Return the ids of the incomplete tool calls. An incomplete call has the input `{}`."""
        return frozenset(one.value["id"] for one in self._blocks.values() if one.is_call and not one.whole)

    @property
    def usage(self) -> Usage:
        counts = Counter(self._usage)
        return Usage(
            input_tokens=counts["input_tokens"],
            output_tokens=counts["output_tokens"],
            cache_read_tokens=counts["cache_read_input_tokens"],
            cache_write_tokens=counts["cache_creation_input_tokens"],
            cache_hour_tokens=counts["ephemeral_1h_input_tokens"],
            searches=counts["web_search_requests"],
        )


class _Block:
    def __init__(self, start: Json, taken: set[str]) -> None:
        self.is_call = start["type"] == "tool_use"
        self.value = {k: v for k, v in start.items() if v is not None or start["type"] not in _KNOWN}
        self.closed = False
        self.whole = True
        self._pieces = defaultdict[str, list[str]](list)
        if self.is_call and not (start["id"] and start["name"]):
            raise ValueError("a tool call without id or name")
        if self.is_call:
            self.value["id"] = fitting_id(start["id"], taken)
            taken.add(self.value["id"])

    def add(self, delta: Json) -> TextDelta | ToolInputDelta | None:
        if self.closed:
            raise ValueError("a delta after the end of its block")
        kind = delta["type"]
        if kind in _FIELDS:
            piece = delta[_FIELDS[kind]]
            self._pieces[_FIELDS[kind]].append(piece)
            if kind == "text_delta" and piece:
                return TextDelta(text.clean(piece))
            if kind == "input_json_delta" and piece and self.is_call:
                return ToolInputDelta(self.value["id"], self.value["name"], piece)
        elif kind == "citations_delta":
            self.value.setdefault("citations", []).append(delta["citation"])
        return None

    def close(self, *, whole: bool = True) -> None:
        self.closed = True
        raw = "".join(self._pieces.pop("partial_json", ()))
        for name, found in self._pieces.items():
            self.value[name] = text.clean(self.value.get(name, "") + "".join(found))
        self._pieces.clear()
        if raw.strip() or self.is_call:
            parsed = _parsed(raw, self.value.get("input")) if whole else None
            self.whole = parsed is not None
            self.value["input"] = parsed or {}


def _parsed(raw: str, given: Any) -> Json | None:
    """Return the input of a tool call; None if the text is not a complete JSON object."""
    try:
        value = text.strict_json(raw) if raw.strip() else given
        # Lone surrogates are replaced, since UTF-8 cannot encode them. Infinite numbers are refused.
        value = json.loads(text.clean(_ENCODER.encode(value)))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
