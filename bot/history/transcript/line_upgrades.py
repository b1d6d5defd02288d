"""Reads out of a line of an older version the facts that lines have as fields since: in version 1 they stood in words and keys."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from bot import tags, ulids
from bot.contracts.archive import ArchiveKey
from bot.contracts.base import Json, Message
from bot.contracts.tools import OMISSION, Omission

_NOTE = re.compile(
    r"\n?\[… (?P<lines>\d{1,18}) lines, (?P<characters>\d{1,18}) characters omitted; "
    r"whole result: artifact (?P<artifact>[0-9A-Z]{26}), read it with read_artifact\]\n?"
)
_HEAD = 0.6
"""The part of a shortened result that stood before its note."""
_REMOVED = "[message removed]"
_ADOPTED = re.compile(r"archive:(-?\d{1,18}):(\w+):(.*)", re.DOTALL)


def upgraded(version: int, kind: str, message: Message | None, data: Json) -> tuple[Message | None, Json]:
    """The message and the data of a line as the newest version has them. What cannot be read stays as it is."""
    if kind == "boundary":
        return message, _with_ids_by_message(_with_times(data) if version < 2 else data)
    if version >= 2 or kind not in {"user", "assistant"} or not isinstance(message, dict):
        return message, data
    if isinstance(sources := data.get("sources"), list):
        data = _with_key(data, sources)
    content = message.get("content")
    if kind == "user" and isinstance(content, list) and all(isinstance(block, dict) for block in content):
        if hidden := _hidden(message):
            data = data | {"unquoted": hidden}
        message = {**message, "content": [_with_omission(block) for block in content]}
    return message, data


def _with_omission(block: Json) -> Json:
    """A result says by itself what it does not show. What is quoted in it may look like the note; the real one stands
    where the head has its share.
    """
    content = block.get("content") if block.get("type") == "tool_result" else None
    notes = list(_NOTE.finditer(content)) if isinstance(content, str) else []
    if not isinstance(content, str) or not notes:
        return block
    size = len(content)
    note = min(notes, key=lambda one: abs(one.start() - _HEAD * (size - len(one[0]))))
    left_out = Omission(
        note["artifact"], int(note["lines"]), int(note["characters"]), note.start(), note.end()
    )
    return block | {OMISSION: left_out.packed()}


def _hidden(message: Message) -> list[str]:
    """The ids of what a message quotes without its words."""
    if _REMOVED not in str(message["content"]):
        return []
    quoted = (one for one in tags.of(message) if one is not None and one.name == tags.QUOTES)
    rows = (row for one in quoted for row in one.rows if "id" in row)
    return [str(row["id"]) for row in rows if row.get("text") == _REMOVED]


def _with_key(data: Json, sources: list[Any]) -> Json:
    """A message that was taken from the archive has the key of its line apart from its sources."""
    found = [_adopted(one) for one in sources]
    adopted = next(filter(None, found), None)
    if adopted is None:
        return data
    left = [one for one, key in zip(sources, found, strict=True) if key is None]
    return data | {"sources": left, "adopted": ArchiveKey(int(adopted[1]), adopted[2], adopted[3])}


def _adopted(source: Any) -> re.Match[str] | None:
    return _ADOPTED.fullmatch(str(source))


def _with_times(data: Json) -> Json:
    """The turns that a boundary leaves say when they began."""
    kept = data.get("kept")
    turns = kept.get("turns") if isinstance(kept, dict) else None
    if not isinstance(kept, dict) or not isinstance(turns, list):
        return data
    return data | {"kept": kept | {"turns": [_with_time(turn) for turn in turns]}}


def _with_ids_by_message(data: Json) -> Json:
    """Give each message of a checkpoint the ids that it named for all of them together."""
    kept = data.get("kept")
    turns = kept.get("turns") if isinstance(kept, dict) else None
    if not isinstance(kept, dict) or not isinstance(turns, list) or not (ids := kept.get("unquoted")):
        return data
    named = (turn.get("uuids") for turn in turns if isinstance(turn, dict))
    uuids = itertools.chain.from_iterable(one for one in named if isinstance(one, list))
    return data | {"kept": kept | {"unquoted": [[uuid, ids] for uuid in uuids]}}


def _with_time(turn: Any) -> Any:
    if not isinstance(turn, Mapping):
        return turn
    name, sources = turn.get("requestId"), turn.get("sources")
    if isinstance(sources, list) and (adopted := next(filter(None, map(_adopted, sources)), None)):
        return {**turn, "began": int(adopted[1])}
    if not isinstance(name, str) or ulids.FORM.fullmatch(name) is None:
        return turn
    return {**turn, "began": round(ulids.made_at(name) * 1000)}
