"""Assembles the server-sent events of one streamed answer into content blocks.

Blocks are plain objects that can be sent back to the provider. Unknown block types are kept unchanged, and
thinking blocks keep their signature. Fields without a value and blank text blocks are removed, because the
provider refuses them in a request. The input of a tool call is parsed once, when its block ends.

The decoder in the provider's library is not used: it drops frames without an `event:` line, which proxies
send, and has no size limit.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.model import TextDelta, ToolInputDelta, Usage
from bot.contracts.tools import fitting_id

MAX_BYTES = 64 * 1024 * 1024
"""Max bytes of one stream, framing included. This allows some hundred bytes for each token of the longest answers."""
MAX_DEPTH = 100
"""Max nesting depth of a tool's input. The limit is deeper than any schema and far below the depth at which
encoding the input again would fail.
"""
CUTTING = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
"""Stop reasons after which the last block may be incomplete even if it parses."""
_KNOWN = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})


class EventStream:
    """Decodes server-sent events. `feed` takes a chunk of bytes and returns the JSON objects that are complete."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._left = max_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = ""

    def feed(self, chunk: bytes) -> list[Json]:
        """Return the JSON objects that a chunk completes. Raises `errors.StreamBroken` for an event that is
        not a JSON object, and for a stream that is too long.
        """
        self._left -= len(chunk)
        if self._left < 0:
            raise endless("The answer is longer than any model's: given up.")
        events: list[Json] = []
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            line = end.removesuffix(b"\r")
            if self._line:
                line = b"".join((*self._line, end)).removesuffix(b"\r")
                self._line.clear()
            if line:
                name, _, value = line.partition(b":")
                value = value.removeprefix(b" ")
                if name == b"data":
                    self._data.append(value)
                elif name == b"event":
                    self._name = value.decode("utf-8", "replace")
            else:
                events += self._event()
        if rest:
            self._line.append(rest)
        return events

    def _event(self) -> list[Json]:
        data, name = b"\n".join(self._data), self._name
        self._data.clear()
        self._name = ""
        if data in {b"", b"[DONE]"}:  # some proxies end a stream with [DONE]
            return []
        try:
            event = json.loads(data.decode())
        except (ValueError, RecursionError):
            raise errors.StreamBroken("The provider streamed an event that is not JSON.") from None
        if not isinstance(event, dict):
            raise errors.StreamBroken("The provider streamed an event that is not a JSON object.")
        if name:
            event.setdefault("type", name)
        return [event]


def endless(message: str) -> errors.StreamBroken:
    """Return the error for a stream without an end. The request is not retried, because a retry would cost
    as much again.
    """
    error = errors.StreamBroken(message)
    error.retryable = False
    return error


class Accumulator:
    """Builds one answer from its events, in order. `done` is True once the answer is complete.

    Raises `errors.StreamBroken` if the stream breaks the protocol. Unknown events and deltas are ignored.
    Some providers restart the numbering of tool calls in each answer, so tool calls get ids that are not in
    `taken`.
    """

    def __init__(self, taken: Collection[str] = ()) -> None:
        self.done = False
        self.started = False
        self.begun = False
        """True once the first delta of a block has arrived."""
        self.stop_reason: str | None = None
        self.stop_details: Json | None = None
        self.model = ""
        self._taken = set(taken)
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, int] = {}
        self._summaries: list[Json] = []

    def feed(self, event: Json) -> TextDelta | ToolInputDelta | None:
        kind = event.get("type")
        if kind == "message_start":
            self._start(_object(event.get("message")))
        elif kind in {"content_block_start", "content_block_delta", "content_block_stop"}:
            return self._block_event(str(kind), event)
        elif kind == "message_delta":
            self._count(_object(event.get("usage")))
            self._stop_reason(_object(event.get("delta")))
        elif kind == "message":
            # The event has the whole answer, because the endpoint does not stream.
            self._start(event)
            content = event.get("content")
            for index, block in enumerate(content if isinstance(content, list) else ()):
                self._blocks[index] = _Block(block)
                self._blocks[index].close()
            self._stop_reason(event)
            self._stop()
        elif kind == "message_stop":
            self._stop()
        return None

    def _start(self, message: Json) -> None:
        if self.started:
            raise errors.StreamBroken("A second message began in one stream.")
        self.started = True
        self.model = _words(message.get("model"))
        self._count(_object(message.get("usage")))

    def _block_event(self, kind: str, event: Json) -> TextDelta | ToolInputDelta | None:
        index = event.get("index")
        if not self.started or self.done or not isinstance(index, int):
            raise errors.StreamBroken("A content block came outside a message, or without its index.")
        block = self._blocks.get(index)
        if kind == "content_block_start":
            if block is not None:
                raise errors.StreamBroken("A content block began twice.")
            block = self._blocks[index] = _Block(event.get("content_block"))
            if block.is_call:
                block.value["id"] = fitting_id(block.value["id"], self._taken)
                self._taken.add(block.value["id"])
            return None
        if block is None or block.closed:
            raise errors.StreamBroken("A delta came for a content block that is not open.")
        if kind == "content_block_stop":
            block.close()
            return None
        self.begun = True
        return block.add(_object(event.get("delta")))

    def _stop_reason(self, told: Json) -> None:
        self.stop_reason = _words(told.get("stop_reason")) or self.stop_reason
        details = told.get("stop_details")
        if isinstance(details, dict):
            self.stop_details = {key: value for key, value in details.items() if value is not None}

    def _stop(self) -> None:
        if not self.started or not (self.stop_reason or self._blocks):
            raise errors.StreamBroken("The answer ended without a reason to stop.")
        for block in self._blocks.values():
            if not block.closed:
                block.close(whole=False)
        if self.stop_reason in CUTTING and self._blocks:
            self._blocks[max(self._blocks)].discard_call()
        calls = any(block.is_call for block in self._blocks.values())
        self.stop_reason = self.stop_reason or ("tool_use" if calls else "end_turn")
        self.done = True

    def _count(self, usage: Json) -> None:
        """Update the token usage. Usage is cumulative, so each number replaces the previous number."""
        further = _object(usage.get("cache_creation")) | _object(usage.get("server_tool_use"))
        self._usage |= {name: value for name, value in (usage | further).items() if _is_count(value)}
        iterations = usage.get("iterations")
        if isinstance(iterations, list):
            self._summaries = [one for one in map(_object, iterations) if one.get("type") == "compaction"]

    @property
    def content(self) -> list[Json]:
        ordered = (self._blocks[index] for index in sorted(self._blocks))
        return [block.value for block in ordered if not block.blank]

    @property
    def cut(self) -> frozenset[str]:
        """Return the ids of the incomplete tool calls. An incomplete call has the input `{}`."""
        return frozenset(one.value["id"] for one in self._blocks.values() if one.is_call and not one.whole)

    @property
    def usage(self) -> Usage:
        def total(name: str) -> int:
            # The provider reports the tokens of its own summaries separately, and bills them at the same price.
            apart = (int(one[name]) for one in self._summaries if _is_count(one.get(name)))
            return self._usage.get(name, 0) + sum(apart)

        return Usage(
            input_tokens=total("input_tokens"),
            output_tokens=total("output_tokens"),
            cache_read_tokens=total("cache_read_input_tokens"),
            cache_write_tokens=total("cache_creation_input_tokens"),
            cache_hour_tokens=total("ephemeral_1h_input_tokens"),
            searches=total("web_search_requests"),
        )


def joined(deltas: Sequence[TextDelta | ToolInputDelta]) -> Iterator[TextDelta | ToolInputDelta]:
    """Yield the deltas with neighbouring deltas of the same text or tool input joined. Fewer deltas are
    cheaper, because each delta passes through every layer.
    """
    keys = ("" if isinstance(delta, TextDelta) else delta.tool_use_id for delta in deltas)
    for _, pairs in itertools.groupby(zip(keys, deltas, strict=True), key=lambda pair: pair[0]):
        group = [delta for _, delta in pairs]
        first = group[0]
        if isinstance(first, TextDelta):
            yield TextDelta("".join(one.text for one in group if isinstance(one, TextDelta)))
        else:
            pieces = (one.partial_json for one in group if isinstance(one, ToolInputDelta))
            yield replace(first, partial_json="".join(pieces))


class _Block:
    """One content block while it is being built."""

    def __init__(self, start: Any) -> None:
        if not isinstance(start, dict) or not isinstance(start.get("type"), str):
            raise errors.StreamBroken("A content block came without its type.")
        self.type: str = start["type"]
        known = self.type in _KNOWN
        self.value: Json = {k: v for k, v in start.items() if v is not None} if known else dict(start)
        self.closed = False
        self.whole = True
        self._pieces: list[str] = []
        self._signature: list[str] = []
        self._half = ""
        self.is_call = self.type == "tool_use"
        if self.is_call and not (_words(start.get("id")) and _words(start.get("name"))):
            raise errors.StreamBroken("A tool call came without id or name.")

    @property
    def blank(self) -> bool:
        return self.type == "text" and not str(self.value.get("text", "")).strip()

    def add(self, delta: Json) -> TextDelta | ToolInputDelta | None:
        kind = delta.get("type")
        if kind == "text_delta" and self.type == "text":
            piece = _words(delta.get("text"))
            self._pieces.append(piece)
            # Half of a surrogate pair waits for the other half, so that both are displayed together.
            piece = self._half + piece
            self._half = piece[-1] if piece and "\ud800" <= piece[-1] <= "\udbff" else ""
            shown = text.clean(piece.removesuffix(self._half) if self._half else piece)
            return TextDelta(shown) if shown else None
        if kind == "input_json_delta" and (self.is_call or "input" in self.value):
            piece = _words(delta.get("partial_json"))
            self._pieces.append(piece)
            if piece and self.is_call:
                return ToolInputDelta(self.value["id"], self.value["name"], piece)
        elif kind == "thinking_delta" and self.type == "thinking":
            self._pieces.append(_words(delta.get("thinking")))
        elif kind == "signature_delta":
            self._signature.append(_words(delta.get("signature")))
        elif kind == "compaction_delta" and self.type == "compaction":
            self.value |= {name: delta[name] for name in ("content", "encrypted_content") if name in delta}
        elif kind == "citations_delta" and delta.get("citation") is not None:
            self.value.setdefault("citations", []).append(delta["citation"])
        return None

    def discard_call(self) -> None:
        if self.is_call:
            self.whole = False
            self.value["input"] = {}

    def close(self, *, whole: bool = True) -> None:
        self.closed = True
        raw = "".join(self._pieces)
        if self.type in {"text", "thinking"}:
            self.value[self.type] = text.clean(_words(self.value.get(self.type)) + raw)
        elif self.is_call:
            parsed = _parse(raw, self.value.get("input")) if whole else None
            self.whole = parsed is not None
            self.value["input"] = parsed or {}
        elif raw:  # the provider executes this tool itself
            self.value["input"] = _parse(raw, {}) or {}
        if self._signature:
            self.value["signature"] = "".join(self._signature)


def _parse(raw: str, given: Any) -> Json | None:
    """Return the parsed input of a tool call; None if the text is not a complete JSON object."""
    if not raw.strip():
        return given if isinstance(given, dict) else None
    try:
        value = text.strict_json(raw, parse_float=_finite)
        return _clean(value, MAX_DEPTH) if isinstance(value, dict) else None
    except (ValueError, RecursionError):
        return None


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number[:20])
    return value


def _clean(value: Any, depth: int) -> Any:
    """Return a copy of a value in which surrogates that UTF-8 cannot encode are replaced."""
    if depth < 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return text.clean(value)
    if isinstance(value, dict):
        return {text.clean(key): _clean(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_clean(item, depth - 1) for item in value]
    return value


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _words(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
