"""The lines of a transcript as JSON: `parsed` is the only reader of one, `dumped` the only writer."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from bot.contracts.base import Frozen, Json, Message
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import (
    VERSION,
    Boundary,
    Event,
    Injection,
    LineType,
    Mask,
    MessageEvent,
    Meta,
    TranscriptLine,
    TurnEnd,
    TurnStart,
    key,
)
from bot.core import jsonl

LEAD = b'{"v":%d,"uuid":"' % VERSION
"""The beginning of a line of ours."""
_EVENTS: Mapping[str, TypeAdapter[Event]] = {
    "user": TypeAdapter(MessageEvent),
    "assistant": TypeAdapter(MessageEvent),
    **{event.type: TypeAdapter(event) for event in (TurnStart, Injection, TurnEnd, Boundary, Mask, Meta)},
}


class _Raw(Frozen):
    """A line whose `data` is not looked into yet."""

    v: Literal[3] = VERSION  # none in a line of another making
    uuid: str
    parent_uuid: str | None = None
    type: LineType
    ts: int
    chat_key: ChatKey | None
    session_id: str = ""
    request_id: str | None = None
    message: Json | None = None
    data: Json | None = None


def parsed(raw: bytes) -> TranscriptLine | None:
    """One line; None where it is none, or of another version."""
    found = _raw(raw)
    with contextlib.suppress(ValidationError):
        return None if found is None else _line(found)
    return None


def event(kind: LineType, message: Message | None, data: Json | None) -> Event:
    """The event of a line. Raises `pydantic.ValidationError`."""
    told = data or {}
    if kind in {"user", "assistant"}:
        told = told | {"role": kind, "message": message}
    return _EVENTS[kind].validate_python(told)


def dumped(line: TranscriptLine, session: str) -> bytes:
    """A line as it is on disk, in this session. `message` is kept as it is: order of keys, numbers, all."""
    data = data_of(line.event)
    told: Json = {
        "v": line.v,
        "uuid": line.uuid,
        "parentUuid": line.parent_uuid,
        "type": line.type,
        "ts": line.ts,
        "chatKey": str(line.chat_key or ""),
        "sessionId": session,
        "requestId": line.request_id,
        "message": line.message,
        "data": data or None,
    }
    return jsonl.dumps(
        {name: value for name, value in told.items() if value is not None or name == "parentUuid"}
    )


def data_of(told: Event) -> Json:
    """The data of an event: what is not as it would be if nothing were told."""
    left = {"role", "message"} if isinstance(told, MessageEvent) else frozenset[str]()
    return {name: value for name, value in _data(told).items() if name not in left}


def _data(told: Any) -> Json:
    found = (
        (name, field_key, getattr(told, name), default)
        for name, field_key, default in _fields(told.__class__)
    )
    return {
        field_key: _plain(value) if name not in {"chosen_model", "chosen_effort"} else value or None
        for name, field_key, value, default in found
        if value is not default and value != default
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return _data(value) if is_dataclass(value) else value


@functools.cache
def _fields(of: Any) -> tuple[tuple[str, str, Any], ...]:
    return tuple((one.name, key(one.name), one.default) for one in fields(of))


def _line(raw: _Raw) -> TranscriptLine:
    return TranscriptLine(
        uuid=raw.uuid,
        parent_uuid=raw.parent_uuid,
        ts=raw.ts,
        chat_key=raw.chat_key,
        session_id=raw.session_id,
        request_id=raw.request_id,
        event=event(raw.type, raw.message, raw.data),
    )


def _raw(raw: bytes) -> _Raw | None:
    if raw.startswith(LEAD):
        # Half the time of what follows, which takes more for JSON.
        with contextlib.suppress(ValidationError):
            return _Raw.model_validate_json(raw)
    value = jsonl.loads(raw)
    if value is None:
        return None
    keyless = ({**value, "chatKey": None},) if isinstance(value.get("chatKey"), str) else ()
    for one in (value, *keyless):
        with contextlib.suppress(ValidationError):
            return _Raw.model_validate(one)
    return None
