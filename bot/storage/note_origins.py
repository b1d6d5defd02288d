"""Keeps the sources of each line of a text when the text is rewritten."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.provenance import Taint
from bot.storage import jsonl

Span = Literal["turn", "up_to", "any"]


@dataclass(frozen=True, slots=True)
class Written:
    """A source of a line: a turn and its time (`ts` in epoch milliseconds). `taint` is the untrusted-text
    level of this turn's context. `chat_key` is None if an operator wrote the line outside any chat.
    `span` says which turns the source stands for: this turn only, all turns up to this one, or any turn
    (then `request_id` is "").
    """

    ts: int
    request_id: str
    chat_key: ChatKey | None
    user_id: str | None
    taint: Taint = Taint.NONE
    span: Span = "turn"


MOST = 50
"""Max sources stored per line, newest first."""
_BEFORE = "before"
_Source = TypeVar("_Source")


def carried(
    before: Sequence[tuple[str, tuple[_Source, ...]]],
    after: Sequence[str],
    new: Sequence[_Source],
) -> list[tuple[_Source, ...]]:
    """Return the sources of each line of a new text, computed from the sources of the old text and the `new`
    sources.

    An unchanged line keeps its sources. Any other line may paraphrase deleted lines, so it also gets the
    sources of deleted lines. No content loses its source. Above the limit, the newest sources are kept.
    """
    left: dict[str, list[tuple[_Source, ...]]] = {}
    for line, sources in before:
        left.setdefault(line, []).append(sources)
    kept = [left[line].pop(0) if left.get(line) else None for line in after]
    gone = (source for lines in left.values() for sources in lines for source in sources)
    fresh = tuple(dict.fromkeys((*gone, *new)))
    if len(fresh) > MOST:
        fresh = fresh[-MOST:]
    return [fresh if sources is None else sources for sources in kept]


def noted(
    raw: bytes, written: Sequence[Sequence[Written]], before: tuple[bytes, bytes] = (b"", b"")
) -> bytes:
    """Return the content of the file that stores a text's sources. The content describes the previous text
    (`before`) too, because the text file is replaced later than the sources file.
    """
    writers = list(dict.fromkeys(by for line in written for by in line))
    places = {by: at for at, by in enumerate(writers)}
    about: Json = {
        "v": 1,
        "sha256": digest_of(raw),
        "writers": [_as_json(by) for by in writers],
        "lines": [[places[by] for by in line] for line in written],
    }
    if (old := _about(*before)) is not None:
        about[_BEFORE] = {name: value for name, value in old.items() if name != _BEFORE}
    return json.dumps(about, ensure_ascii=False).encode() + b"\n"


def sources(raw: bytes, note: bytes) -> tuple[tuple[Written, ...], ...]:
    """Return the stored sources of each line. If the text was changed without its sources, every line gets ()."""
    count = raw.count(b"\n") + 1
    unknown: tuple[tuple[Written, ...], ...] = ((),) * count
    about = _about(raw, note)
    if about is None:
        return unknown
    try:
        writers = [_writer(one) for one in about["writers"]]
        found = tuple(tuple(writers[at] for at in line) for line in about["lines"])
    except (KeyError, TypeError, IndexError, ValueError, AttributeError):
        return unknown
    return found if len(found) == count else unknown


def _as_json(by: Written) -> Json:
    return {
        "ts": by.ts,
        "request_id": by.request_id,
        "chat_key": str(by.chat_key) if by.chat_key is not None else "",
        "user_id": by.user_id,
        "taint": by.taint,
        "span": by.span,
    }


def _writer(told: Json) -> Written:
    key = told["chat_key"]
    typed = {"chat_key": ChatKey.parse(key) if key else None, "taint": Taint(told["taint"])}
    return Written(**told | typed)


def _about(raw: bytes, note: bytes) -> Json | None:
    """Return the stored entry whose hash matches this text; None if there is no such entry."""
    about = jsonl.loads(note) or {}
    digest = digest_of(raw)
    told = (about, about.get(_BEFORE))
    return next((one for one in told if isinstance(one, dict) and one.get("sha256") == digest), None)


def digest_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()
