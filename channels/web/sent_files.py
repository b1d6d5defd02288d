"""Files that Shipmate has sent to browsers, kept for their links: `.ship/sent/<chat>/<message id>.bin`, a line of JSON and then the
bytes. Everything here blocks and raises OSError.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.outbound import OutgoingFile

FOLDER = "sent"
ENDING = ".bin"
TOTAL = 500_000_000
"""Bytes of all files; the oldest go first."""
_ID = re.compile(r"[0-9A-Z]{26}")


@dataclass(frozen=True, slots=True)
class SentFile:
    """One of them, as browsers are told of it."""

    id: str
    name: str
    size: int

    def json(self) -> dict[str, Any]:
        return asdict(self)


class SentFiles:
    """Those of all chats. A chat reaches its own alone."""

    def __init__(self, home: Path, disk: Disk) -> None:
        self._folder = home / FOLDER
        self._disk = disk

    def put(self, chat: ChatKey, name: str, file: OutgoingFile) -> SentFile:
        """Keep the file of the message `name`; the same again changes nothing."""
        path = self._path(chat, name)
        if path is None:
            raise OSError(0, "no name of a file")
        about = {"v": 1, "name": file.name, "mimeType": file.mime_type}
        self._make_room(len(file.data))
        self._disk.replace(path, json.dumps(about).encode("ascii") + b"\n" + file.data)
        return SentFile(name, file.name, len(file.data))

    def find(self, chat: ChatKey, name: str) -> SentFile | None:
        """The file of a message; None where there is none, or none any more."""
        if (found := self.open(chat, name)) is None:
            return None
        found[1].close()
        return found[0]

    def open(self, chat: ChatKey, name: str) -> tuple[SentFile, BinaryIO] | None:
        """The same with what it holds, to be read; the caller closes that."""
        if (path := self._path(chat, name)) is None:
            return None
        with contextlib.ExitStack() as unless_whole:
            try:
                file = unless_whole.enter_context(path.open("rb"))
                line = file.readline(4_096)
                size = os.fstat(file.fileno()).st_size - len(line)
                found = SentFile(name, str(json.loads(line)["name"]), size)
            except (FileNotFoundError, ValueError, KeyError, TypeError):
                return None
            unless_whole.pop_all()
        return found, file

    def _path(self, chat: ChatKey, name: str) -> Path | None:
        """None where a name is no id."""
        if _ID.fullmatch(name) is None:
            return None
        return self._folder / str(chat).replace(":", "%3A") / f"{name}{ENDING}"

    def _make_room(self, more: int) -> None:
        kept = [(path.stat(), path) for path in self._folder.glob(f"*/*{ENDING}")]
        total = sum(facts.st_size for facts, _ in kept) + more
        for facts, path in sorted(kept, key=lambda one: one[0].st_mtime):
            if total <= TOTAL:
                return
            self._disk.remove(path)
            total -= facts.st_size
