"""Assembles the events of one streamed answer into its content blocks.

Blocks are plain objects that can be sent back as they are: unknown types stay untouched, thinking keeps its
signature, fields without a value and blank text blocks (which the provider refuses in a request) are left out.
The cost is linear in what arrives: a tool's input is parsed once, when its block ends.

Server-sent events are read from bytes to JSON objects. The provider's library has a decoder too; it drops frames without an `event:`
line, which proxies send, and has no limit. This one takes the name of an event from the object itself, is linear in the bytes, and ends.
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
"""Of one stream, with all its framing: some hundred bytes for each token of the largest answers there are."""


class EventStream:
    """Fed with chunks as they come; gives the events that became whole."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._left = max_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = ""

    def feed(self, chunk: bytes) -> list[Json]:
        """Raises `errors.StreamBroken` for what is no event of JSON, and where the stream is too long."""
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
                self._field(line)
            elif self._data:
                events.extend(self._dispatch())
            else:
                self._name = ""
        if rest:
            self._line.append(rest)
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._name = value.decode("utf-8", "replace")

    def _dispatch(self) -> list[Json]:
        data, name = b"\n".join(self._data), self._name
        self._data.clear()
        self._name = ""
        if data == b"[DONE]":  # some proxies end like this
            return []
        try:
            event = json.loads(data.decode())
        except (ValueError, RecursionError):
            raise errors.StreamBroken("The provider streamed an event that is not JSON.") from None
        if not isinstance(event, dict):
            raise errors.StreamBroken("The provider streamed an event that is no JSON object.")
        if name:
            event.setdefault("type", name)
        return [event]


def endless(message: str) -> errors.StreamBroken:
    """A stream that would not end: asking again would cost as much again, so it is not retried."""
    error = errors.StreamBroken(message)
    error.retryable = False
    return error


MAX_CHARACTERS = 8 * 1024 * 1024
"""Of all blocks together; the largest output of today's models is a tenth of it."""

MAX_DEPTH = 100
"""Of a tool's input: deeper than any schema, and far from where encoding it again would fail."""

CUTTING = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
"""Stop reasons after which the last block may be unfinished, whatever it looks like."""

_KNOWN = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})


class Accumulator:
    """Fed with the events of one answer, in order. `done` once the answer is whole.

    Raises `errors.StreamBroken` for a stream that breaks the protocol. Unknown events and deltas are passed over. No call gets one of
    the ids that are `taken`.
    """

    def __init__(self, taken: Collection[str] = (), max_characters: int = MAX_CHARACTERS) -> None:
        self.done = False
        self._taken = set(taken)
        self.started = False
        self.begun = False
        """True once something of a block has come."""
        self.stop_reason: str | None = None
        self.stop_details: Json | None = None
        self.model = ""
        self._left = max_characters
        self._blocks: dict[int, _Block] = {}
        self._usage: dict[str, int] = {}
        self._summing: list[Json] = []

    def feed(self, event: Json) -> TextDelta | ToolInputDelta | None:
        kind = event.get("type")
        if kind == "message_start":
            self._start(event)
        elif kind in {"content_block_start", "content_block_delta", "content_block_stop"}:
            if not self.started or self.done:
                raise errors.StreamBroken("A content block came outside a message.")
            return self._block_event(str(kind), event)
        elif kind == "message_delta":
            self._message_delta(event)
        elif kind == "message":
            self._whole(event)
        elif kind == "message_stop":
            self._stop()
        return None

    def _start(self, event: Json) -> None:
        if self.started:
            raise errors.StreamBroken("A second message began in one stream.")
        self.started = True
        message = _object(event.get("message"))
        model = message.get("model")
        self.model = model if isinstance(model, str) else ""
        self._count(_object(message.get("usage")))

    def _whole(self, message: Json) -> None:
        """An answer that is one object, as of an endpoint that does not stream."""
        self._start({"message": message})
        content = message.get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            self._blocks[index] = _Block(block)
            self._blocks[index].close()
        self._message_delta({"delta": message})
        self._stop()

    def _block_event(self, kind: str, event: Json) -> TextDelta | ToolInputDelta | None:
        index = event.get("index")
        if not isinstance(index, int):
            raise errors.StreamBroken("A content block came without its index.")
        if kind == "content_block_start":
            if index in self._blocks:
                raise errors.StreamBroken("A content block began twice.")
            begun = self._blocks[index] = _Block(event.get("content_block"))
            if begun.is_call:
                # Some providers count their calls anew in each answer.
                begun.value["id"] = fitting_id(begun.value["id"], self._taken)
                self._taken.add(begun.value["id"])
            return None
        block = self._blocks.get(index)
        if block is None or block.closed:
            raise errors.StreamBroken("A delta came for a content block that is not open.")
        if kind == "content_block_stop":
            block.close()
            return None
        delta = _object(event.get("delta"))
        self._left -= sum(len(value) for value in delta.values() if isinstance(value, str))
        if self._left < 0:
            raise endless("The answer is larger than any model's: given up.")
        self.begun = True
        return block.add(delta)

    def _message_delta(self, event: Json) -> None:
        delta = _object(event.get("delta"))
        reason = delta.get("stop_reason")
        if isinstance(reason, str) and reason:
            self.stop_reason = reason
        details = delta.get("stop_details")
        if isinstance(details, dict):
            self.stop_details = {key: value for key, value in details.items() if value is not None}
        self._count(_object(event.get("usage")))

    def _stop(self) -> None:
        if not self.started or not (self.stop_reason or self._blocks):
            raise errors.StreamBroken("The answer ended without a reason to stop.")
        for block in self._blocks.values():
            # A block that was never closed: its text counts, its tool call does not.
            block.close(whole=False)
        if self.stop_reason in CUTTING and self._blocks:
            self._blocks[max(self._blocks)].discard()
        calls = any(block.is_call for block in self._blocks.values())
        self.stop_reason = self.stop_reason or ("tool_use" if calls else "end_turn")
        self.done = True

    def _count(self, usage: Json) -> None:
        """Usage is cumulative: what is named replaces what was."""
        further = _object(usage.get("cache_creation")) | _object(usage.get("server_tool_use"))
        for key, value in (usage | further).items():
            if _is_count(value):
                self._usage[key] = value
        iterations = usage.get("iterations")
        if isinstance(iterations, list):
            self._summing = [one for one in map(_object, iterations) if one.get("type") == "compaction"]

    @property
    def content(self) -> list[Json]:
        ordered = (self._blocks[index] for index in sorted(self._blocks))
        return [block.value for block in ordered if not block.blank]

    @property
    def cut(self) -> frozenset[str]:
        """Ids of the tool calls that did not arrive whole. Their input is `{}`."""
        calls = (block for block in self._blocks.values() if block.is_call)
        return frozenset(block.value["id"] for block in calls if not block.whole)

    @property
    def usage(self) -> Usage:
        return Usage(
            input_tokens=self._total("input_tokens"),
            output_tokens=self._total("output_tokens"),
            cache_read_tokens=self._total("cache_read_input_tokens"),
            cache_write_tokens=self._total("cache_creation_input_tokens"),
            cache_hour_tokens=self._total("ephemeral_1h_input_tokens"),
            searches=self._total("web_search_requests"),
        )

    def _total(self, name: str) -> int:
        """Tokens of this kind, with those of a summary made by the provider: it reports them apart and bills them
        alike.
        """
        beside = (int(one[name]) for one in self._summing if _is_count(one.get(name)))
        return self._usage.get(name, 0) + sum(beside)


def together(deltas: Sequence[TextDelta | ToolInputDelta]) -> Iterator[TextDelta | ToolInputDelta]:
    """The same deltas, with neighbours of one text or one tool's input joined: each costs all that it passes."""
    for _, some in itertools.groupby(deltas, key=_of_what):
        pieces = list(some)
        if isinstance(pieces[0], TextDelta):
            yield TextDelta("".join(one.text for one in pieces if isinstance(one, TextDelta)))
        else:
            inputs = [one for one in pieces if isinstance(one, ToolInputDelta)]
            yield replace(inputs[0], partial_json="".join(one.partial_json for one in inputs))


def _of_what(delta: TextDelta | ToolInputDelta) -> tuple[str, str]:
    return ("", "") if isinstance(delta, TextDelta) else (delta.tool_use_id, delta.name)


class _Block:
    """One content block as it grows."""

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
        if self.is_call and not all(isinstance(start.get(k), str) and start[k] for k in ("id", "name")):
            raise errors.StreamBroken("A tool call came without id or name.")

    @property
    def is_call(self) -> bool:
        return self.type == "tool_use"

    @property
    def blank(self) -> bool:
        return self.type == "text" and not str(self.value.get("text", "")).strip()

    def add(self, delta: Json) -> TextDelta | ToolInputDelta | None:
        kind, piece = delta.get("type"), ""
        if kind == "text_delta" and self.type == "text":
            piece = _words(delta.get("text"))
            self._pieces.append(piece)
            shown = self._shown(piece)
            return TextDelta(shown) if shown else None
        if kind == "input_json_delta" and (self.is_call or "input" in self.value):
            piece = _words(delta.get("partial_json"))
            self._pieces.append(piece)
            named = piece and self.is_call
            return ToolInputDelta(self.value["id"], self.value["name"], piece) if named else None
        if kind == "thinking_delta" and self.type == "thinking":
            self._pieces.append(_words(delta.get("thinking")))
        elif kind == "signature_delta":
            self._signature.append(_words(delta.get("signature")))
        elif kind == "compaction_delta" and self.type == "compaction":
            self.value |= {name: delta[name] for name in ("content", "encrypted_content") if name in delta}
        elif kind == "citations_delta" and delta.get("citation") is not None:
            self.value.setdefault("citations", []).append(delta["citation"])
        return None

    def _shown(self, piece: str) -> str:
        """The piece for display; half of a surrogate pair waits for its other half."""
        piece = self._half + piece
        self._half = piece[-1] if piece and "\ud800" <= piece[-1] <= "\udbff" else ""
        return text.clean(piece.removesuffix(self._half) if self._half else piece)

    def discard(self) -> None:
        """The last block of an answer that was cut: a call in it is not to be trusted."""
        if self.is_call:
            self.whole = False
            self.value["input"] = {}

    def close(self, *, whole: bool = True) -> None:
        if self.closed:
            return
        self.closed = True
        joined = "".join(self._pieces)
        if self.type in {"text", "thinking"}:
            self.value[self.type] = text.clean(_words(self.value.get(self.type)) + joined)
        elif self.is_call:
            parsed = _parse(joined, self.value.get("input")) if whole else None
            self.whole = parsed is not None
            self.value["input"] = parsed or {}
        elif joined:  # a server's own tool: nothing is executed here
            self.value["input"] = _parse(joined, {}) or {}
        if self._signature:
            self.value["signature"] = "".join(self._signature)


def _parse(raw: str, given: Any) -> Json | None:
    """The input of a tool call; None where it is no whole JSON object, read strictly."""
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
    """A copy that UTF-8 can carry."""
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
