"""Answers of the fake Messages API: replies, their frames in a stream, and functions that make a stream fail."""

from __future__ import annotations

import asyncio
import enum
import itertools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bot.contracts.base import Json
from bot.testing.anthropic_rules import error_body

AUTO = "auto"
"""Placeholder for a stop reason: `tool_use` if the reply has a tool call, else `end_turn`."""


class Halt(enum.Enum):
    """Fault that happens between two frames of a stream."""

    CUT = "the connection is cut"
    STALL = "nothing comes any more"


Frame = bytes | Halt | asyncio.Event
Edit = Callable[[list[Frame]], list[Frame]]


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the model. `delay` is the time before the answer and `gap` the time between frames, both in seconds of the
    server's clock. `hold` is an event that delays the answer until it is set. `edit` is a function that changes the frames.
    """

    blocks: tuple[Json, ...] = ()
    stop_reason: str | None = AUTO
    stop_details: Json | None = None
    delay: float = 0.0
    gap: float = 0.0
    hold: asyncio.Event | None = None
    usage: Json = field(default_factory=dict)
    edit: Edit | None = None

    @property
    def reason(self) -> str | None:
        if self.stop_reason != AUTO:
            return self.stop_reason
        calls = any(block["type"] == "tool_use" for block in self.blocks)
        return "tool_use" if calls else "end_turn"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error answer with a status and a body."""

    status: int
    body: Json | str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"


Answer = Reply | Failure


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def tool_use(name: str, input: Json | str | None = None, id: str | None = None) -> Json:  # noqa: A002
    return {"type": "tool_use", "id": id, "name": name, "input": {} if input is None else input}


def thinking(words: str = "Let me think.", signature: str = "sig") -> Json:
    """Return a thinking block. A server with `bind_thinking` replaces the signature."""
    return {"type": "thinking", "thinking": words, "signature": signature}


def reply(*blocks: Json | str, **how: Any) -> Reply:
    """Return a reply made of these blocks; a string becomes a text block."""
    return Reply(tuple(text(block) if isinstance(block, str) else block for block in blocks), **how)


def sse(event: Json, name: str | None = None) -> bytes:
    data = json.dumps(event, separators=(",", ":"))
    return f"event: {name or event['type']}\ndata: {data}\n\n".encode()


PING = sse({"type": "ping"})


def frames(
    answer: Reply, message: Json, usage: Json, *, chunk: int, pings: int, whole: Collection[str] = ()
) -> list[Frame]:
    """Return the frames of an answer, with `pings` ping frames after the first frame."""
    wire: list[Frame] = [sse({"type": "message_start", "message": message}), *[PING] * pings]
    for index, block in enumerate(answer.blocks):
        wire.extend(_block_frames(index, block, chunk, held=block.get("name") in whole))
    delta: Json = {"stop_reason": answer.reason, "stop_sequence": None}
    if answer.stop_details is not None:
        delta["stop_details"] = answer.stop_details
    wire.append(sse({"type": "message_delta", "delta": delta, "usage": usage}))
    wire.append(sse({"type": "message_stop"}))
    return answer.edit(wire) if answer.edit is not None else wire


def _block_frames(index: int, block: Json, chunk: int, *, held: bool) -> list[Frame]:
    start, deltas = dict(block), list[Json]()
    if block["type"] == "text":
        start["text"] = ""
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"], chunk)]
        deltas += [{"type": "citations_delta", "citation": one} for one in start.pop("citations", ())]
    elif block["type"] == "thinking":
        start |= {"thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"], chunk)
        ]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif block["type"] == "tool_use":
        start["input"] = {}
        raw = (
            block["input"]
            if isinstance(block["input"], str)
            else json.dumps(block["input"], ensure_ascii=False)
        )
        cut = ["", *_pieces("" if raw == "{}" else raw, chunk)]
        pieces = _held(cut, block["input"]) if held else cut
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return [
        sse({"type": "content_block_start", "index": index, "content_block": start}),
        *(
            b""
            if held and at and not delta["partial_json"]
            else sse({"type": "content_block_delta", "index": index, "delta": delta})
            for at, delta in enumerate(deltas)
        ),
        sse({"type": "content_block_stop", "index": index}),
    ]


def _pieces(words: str, chunk: int) -> Sequence[str]:
    return [words[at : at + chunk] for at in range(0, len(words), chunk)]


def _held(pieces: Sequence[str], given: Json | str) -> Sequence[str]:
    """Return a tool call's input in as many pieces as `pieces`. No argument is split: the piece in which it would end has it whole."""
    items = given.items() if isinstance(given, dict) else ()
    ends = [*itertools.accumulate((len(json.dumps({k: v}, ensure_ascii=False)) for k, v in items))]
    raw, come, told, held = "".join(pieces), 0, 0, list[str]()
    for piece in pieces:
        come += len(piece)
        upto = len(raw) if come == len(raw) else max((end for end in ends if end <= come), default=0)
        held.append(raw[told:upto])
        told = max(told, upto)
    return held


# The following functions make a stream fail. `after` is a number of frames; the frame `message_start` is number 1.


def edited(answer: Reply, edit: Edit) -> Reply:
    """Return the reply with an additional `edit` of its frames, which runs after the earlier edits."""
    before = answer.edit
    return replace(answer, edit=edit if before is None else lambda wire: edit(before(wire)))


def _then(answer: Reply, after: int, *tail: Frame) -> Reply:
    return edited(answer, lambda wire: [*wire[:after], *tail])


def cut(answer: Reply, after: int = 4) -> Reply:
    """Return the reply with the connection cut after `after` frames."""
    return _then(answer, after, Halt.CUT)


def stall(answer: Reply, after: int = 4) -> Reply:
    """Return the reply with no frame after the first `after` frames; the connection stays open."""
    return _then(answer, after, Halt.STALL)


def end_early(answer: Reply, after: int = 4) -> Reply:
    """Return the reply with a stream that ends cleanly after `after` frames, without message_stop."""
    return _then(answer, after)


def error_event(
    answer: Reply, after: int = 4, kind: str = "overloaded_error", message: str = "Overloaded"
) -> Reply:
    """Return the reply with an error event in place of all frames after the first `after` frames."""
    event = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_midstream"}
    return _then(answer, after, sse(event))


def garble(answer: Reply, after: int = 4) -> Reply:
    """Insert a frame of invalid JSON after the first `after` frames, and return the new reply."""
    return edited(
        answer,
        lambda wire: [
            *wire[:after],
            b'event: content_block_delta\ndata: {"type": "content\n\n',
            *wire[after:],
        ],
    )


def unknown_event(answer: Reply, after: int = 4) -> Reply:
    """Return the reply with an event of an unknown type inserted after `after` frames; all other frames are valid."""
    event = sse({"type": "brand_new_event", "index": 0, "value": [1, None]})
    return edited(answer, lambda wire: [*wire[:after], event, *wire[after:]])


def nameless(answer: Reply) -> Reply:
    """Return the reply with frames that lack the `event:` line, as some proxies send them."""
    return edited(
        answer,
        lambda wire: [
            frame[frame.index(b"data:") :] if isinstance(frame, bytes) else frame for frame in wire
        ],
    )


def pause(answer: Reply, gate: asyncio.Event, after: int = 4) -> Reply:
    """Return the reply with a pause after `after` frames; the stream continues when the gate is set."""
    return edited(answer, lambda wire: [*wire[:after], gate, *wire[after:]])


def empty_body() -> Reply:
    """Return a reply with status 200 and an empty event stream."""
    return Reply(edit=lambda _: [])


def html_page(status: int = 200, title: str = "Sign in to the network") -> Failure:
    """Return a proxy's error page in HTML."""
    page = f"<!DOCTYPE html><html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>"
    return Failure(status, page, content_type="text/html; charset=utf-8")


def unknown_block(kind: str = "brand_new_block") -> Reply:
    """Return a reply with a block of an unknown type before a text block."""
    return reply({"type": kind, "payload": {"a": [1, None, "é"]}, "note": None}, text("After the new block."))


def unknown_stop() -> Reply:
    return reply("Stopped for a new reason.", stop_reason="brand_new_reason")


def cut_call(name: str = "chat_send", raw: str = '{"text": "hel') -> Reply:
    """Return a reply with a tool call that was cut off by `max_tokens`."""
    return reply("Calling.", tool_use(name, raw), stop_reason="max_tokens")


def refusal(category: str | None = "cyber") -> Reply:
    details = {"type": "refusal", "category": category, "explanation": "This request was declined."}
    return reply("I can", stop_reason="refusal", stop_details=details)


def pause_turn(*blocks: Json | str) -> Reply:
    return reply(*(blocks or ("Still searching.",)), stop_reason="pause_turn")


def null_stop() -> Reply:
    """Return a reply whose stop reason is null."""
    return reply("An answer", stop_reason=None)


def error(status: int, kind: str, message: str, *, code: str | None = None, **headers: str) -> Failure:
    """Return an error answer of the API. Each `_` in the names of `headers` becomes `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Failure(status, error_body(kind, message, "req_refused", code), named)


def rate_limited(retry_after: float | str | None = None, code: str | None = None) -> Failure:
    headers = {} if retry_after is None else {"retry_after": str(retry_after)}
    message = "This request would exceed your organization's rate limit of 50 requests per minute."
    return error(429, "rate_limit_error", message, code=code, **headers)


def overloaded() -> Failure:
    return error(529, "overloaded_error", "Overloaded")


def prompt_too_long(tokens: int = 213_462, window: int = 200_000) -> Failure:
    return error(400, "invalid_request_error", f"prompt is too long: {tokens} tokens > {window} maximum")


def too_large_page() -> Failure:
    """Return a proxy's error page with status 413."""
    return html_page(413, "413 Request Entity Too Large")


def refused_key() -> Failure:
    return error(401, "authentication_error", "invalid x-api-key")


def unpaid() -> Failure:
    return error(402, "billing_error", "Your credit balance is too low to access the Anthropic API.")


def forbidden() -> Failure:
    return error(
        403, "permission_error", "Your API key does not have permission to use the specified resource."
    )
