"""Outlines a chat's sessions for people who go back to one: the current one, how each began, where its turns end. Finds a turn by its
requestId in the transcripts of all chats. Blocking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bot import ulids
from bot.contracts.environment import Disk, OpenFile
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import Boundary, MessageEvent, TranscriptLine, TurnEnd, TurnStart
from bot.core import jsonl
from bot.history.transcript import reading
from bot.history.transcript.lines import parsed

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
    for raw in jsonl.lines_backwards(file):
        line = parsed(raw) if raw.strip() else None
        if line is not None:
            return line.ts
    return 0


def outline(file: OpenFile, session: str, *, is_current: bool) -> SessionOutline:
    """Read through a session."""
    count, first = 0, None
    for raw in jsonl.lines(file):
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
    for raw in jsonl.lines(file):
        at += len(raw) + 1
        yield min(at, file.size), raw


@dataclass(frozen=True, slots=True)
class FoundTurn:
    """A turn, and the session that it was written to first: a fork has a copy of it. `request_id` is the turn's own; what
    joined a turn was asked for by another.
    """

    request_id: str
    chat_key: ChatKey
    session: str
    lines: list[TranscriptLine]


def find_turn(disk: Disk, folder: Path, request_id: str) -> FoundTurn | None:
    """The turn that a message was answered in, with all lines of its session; None where no transcript has it. Reads the
    transcripts of every chat that has no other one later. Raises OSError.
    """
    if not ulids.FORM.fullmatch(request_id):
        return None
    found = None
    for file in _sessions(disk, folder):
        if (found is None or file.stem < found.stem) and _speaks_of(disk, file, request_id):
            found = file
    if found is None:
        return None
    with closing(disk.open(found)) as opened:
        lines = reading.whole(opened).lines
    for line in lines:
        joined = isinstance(line.event, MessageEvent) and request_id in line.event.sources
        if (joined or line.request_id == request_id) and line.chat_key is not None:
            return FoundTurn(line.request_id or request_id, line.chat_key, found.stem, lines)
    return None


def _sessions(disk: Disk, folder: Path) -> Iterator[Path]:
    for chat in disk.names(folder):
        if not chat.startswith("."):
            for name in disk.names(folder / chat):
                file = folder / chat / name
                if file.suffix == ".jsonl" and ulids.FORM.fullmatch(file.stem):
                    yield file


def _speaks_of(disk: Disk, file: Path, request_id: str) -> bool:
    """True if a line belongs to the turn; a boundary may name it long after it."""
    named, joined = f'"requestId":"{request_id}"'.encode(), f'"{request_id}"'.encode()
    with closing(disk.open(file)) as opened:
        return any(named in raw or (joined in raw and reading.is_message(raw)) for raw in jsonl.lines(opened))
