"""Stores the request records of tasks beside their transcripts, from which the exact requests can be rebuilt.

The first line is about the task; the rest are written by `bot.agent.subagents.record`. Blocking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.history import artifacts, jsonl, names, pieces

TOOL = "task"
"""Source of artifacts that are transcripts of tasks."""
HEAD = "task"
"""The place in the first line of what is known of the task itself."""
_ULID = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")


@dataclass(frozen=True, slots=True)
class FoundTask:
    """A task of a turn. `lines` are [] where nothing was written down of what it asked."""

    id: str
    request_id: str
    chat_key: ChatKey
    lines: list[Json]


def find(disk: Disk, folder: Path, task_id: str) -> FoundTask | None:
    """A task of any chat by its id; None where no artifact is its transcript. Raises OSError."""
    if not _ULID.fullmatch(task_id):
        return None
    chats = (name for name in disk.names(folder) if not name.startswith("."))
    paths = (folder / chat / f"{task_id}.txt" for chat in chats)
    return next((found for path in paths if (found := _read(disk, path)) is not None), None)


def of_turn(disk: Disk, folder: Path, chat_key: ChatKey, request_id: str) -> Iterator[FoundTask]:
    """The tasks of a turn, in the order in which they began. Raises OSError."""
    home = folder / names.encode(chat_key)
    for name in disk.names(home):
        if name.endswith(".txt") and (found := _read(disk, home / name, request_id)) is not None:
            yield found


def _read(disk: Disk, path: Path, request_id: str | None = None) -> FoundTask | None:
    if not disk.size(path):
        return None
    about = artifacts.what_of(disk, path)
    if about.get("tool") != TOOL or (request_id is not None and about.get("requestId") != request_id):
        return None
    with closing(disk.open(artifacts.beside(path))) as file:
        lines = [line for raw in pieces.lines(file) if (line := jsonl.loads(raw)) is not None]
    whole = bool(lines) and HEAD in lines[0]
    try:
        chat_key = ChatKey.parse(str(about.get("chatKey")))
    except errors.IdentityInvalid:
        return None
    return FoundTask(path.stem, str(about.get("requestId")), chat_key, lines if whole else [])
