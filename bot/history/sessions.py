"""Outlines a chat's sessions for people who go back to one: the current one, how each began, where its turns end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bot.contracts.environment import Disk, OpenFile
from bot.contracts.transcript import Boundary, MessageEvent, TranscriptLine, TurnEnd, TurnStart
from bot.history import jsonl, pieces, reading
from bot.history.transcript_lines import parsed

POINTER = "current.json"
"""Names the session that was gone back to. It counts as long as no newer one has begun since."""


@dataclass(frozen=True, slots=True)
class SessionOutline:
    """A session: when it was last written to (ms), how many messages it has, and the first that a person wrote."""

    session: str
    current: bool
    messages: int = 0
    last_ts: int = 0
    first: TranscriptLine | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A turn that was not taken back: its own requestId, all that it answered, and the offset behind its last line."""

    request_id: str
    sources: frozenset[str]
    end: int


def current(disk: Disk, folder: Path, sessions: Sequence[str]) -> str:
    """The current one of these: the newest, unless an earlier one was gone back to since that began."""
    newest = sessions[-1]
    if len(sessions) == 1:
        return newest
    told = jsonl.loads(disk.read(folder / POINTER)) or {}
    wanted = str(told.get("session"))
    return wanted if told.get("newest") == newest and wanted in sessions else newest


def point_to(disk: Disk, folder: Path, session: str, sessions: Sequence[str]) -> None:
    """Make an earlier session the current one."""
    disk.replace(folder / POINTER, jsonl.dumps({"session": session, "newest": sessions[-1]}))


def last_ts(file: OpenFile) -> int:
    """The time of the newest line that can be read (ms); 0 where there is none."""
    for raw in pieces.lines_backwards(file):
        line = parsed(raw) if raw.strip() else None
        if line is not None:
            return line.ts
    return 0


def outline(file: OpenFile, session: str, *, is_current: bool) -> SessionOutline:
    """Read through a session."""
    count, first = 0, None
    for raw in pieces.lines(file):
        if reading.is_message(raw):
            count += 1
            if first is None and (line := parsed(raw)) is not None and line.type == "user":
                first = line
    return SessionOutline(session, is_current, count, last_ts(file), first)


def points(file: OpenFile) -> list[Point]:
    """The turns of a session, oldest first, without those that were withdrawn or taken back."""
    found: list[tuple[Point, set[str]]] = []
    request_id, sources, uuids = "", set[str](), set[str]()
    for end, raw in _with_ends(file):
        if reading.is_message(raw):
            uuids.add(reading.uuid_of(raw))
            if b'"sources"' not in raw:
                continue
        elif not any(kind in raw for kind in (b'"turn_start"', b'"turn_end"', b'"boundary"')):
            continue
        line = parsed(raw)
        event = line.event if line is not None else None
        if line is not None and isinstance(event, TurnStart):
            request_id = line.request_id or ""
            sources, uuids = {request_id}, set()
        elif isinstance(event, TurnEnd):
            if uuids and event.status != "withdrawn":
                found.append((Point(request_id, frozenset(sources), end), uuids))
            sources, uuids = set(), set()
        elif isinstance(event, Boundary) and event.reason == "undo":
            found = [(point, own) for point, own in found if own.isdisjoint(event.dropped)]
        elif isinstance(event, MessageEvent):
            sources.update(event.sources)
    return [point for point, _ in found]


def _with_ends(file: OpenFile) -> Iterator[tuple[int, bytes]]:
    """Every line with the offset behind it."""
    at = 0
    for raw in pieces.lines(file):
        at += len(raw) + 1
        yield min(at, file.size), raw
