"""Finding a turn by its requestId in the transcripts of all chats. Blocking."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import MessageEvent, TranscriptLine
from bot.history import pieces, reading

_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


@dataclass(frozen=True, slots=True)
class FoundTurn:
    """A turn, and the session that it was written to first: a fork has a copy of it. `request_id` is the turn's own; what
    joined a turn was asked for by another.
    """

    request_id: str
    chat_key: ChatKey
    session: str
    lines: list[TranscriptLine]


def find(disk: Disk, folder: Path, request_id: str) -> FoundTurn | None:
    """The turn that a message was answered in, with all lines of its session; None where no transcript has it. Reads the
    transcripts of every chat that has no other one later. Raises OSError.
    """
    if not _ULID.fullmatch(request_id):
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
                if file.suffix == ".jsonl" and _ULID.fullmatch(file.stem):
                    yield file


def _speaks_of(disk: Disk, file: Path, request_id: str) -> bool:
    """True if a line belongs to the turn; a boundary may name it long after it."""
    named, joined = f'"requestId":"{request_id}"'.encode(), f'"{request_id}"'.encode()
    with closing(disk.open(file)) as opened:
        return any(
            named in raw or (joined in raw and reading.is_message(raw)) for raw in pieces.lines(opened)
        )
