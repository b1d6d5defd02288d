"""Instruction files of folders: attached when a tool touches a file in them, once for each epoch.

Tools that touch files call `touch` with the path; the turn that appends their results takes `attached`
and appends it too. What is appended stays where it is: `clear` is for moments at which the view is cut anyway.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from pathlib import Path

from bot.context.files import Including, Unreadable
from bot.context.instructions import NAME
from bot.contracts.environment import Log
from bot.hidden_paths import hidden
from bot.tags import CONTEXT, Tag
from bot.vetting import Vetting

Stamp = tuple[int, int, int]
KEPT_BYTES = 4 * 1024 * 1024


class Contents:
    """Cache of file contents, valid as long as a file is unchanged; least recently used go first. Includes of a file
    may have changed without it: `clear` forgets everything.
    """

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._known: OrderedDict[Path, tuple[Stamp, str]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, path: Path, stamp: Stamp) -> str | None:
        known = self._known.get(path)
        if known is None or known[0] != stamp:
            return None
        self._known.move_to_end(path)
        return known[1]

    def put(self, path: Path, stamp: Stamp, words: str) -> None:
        self._drop(path)
        self._known[path] = (stamp, words)
        self._size += len(words)
        while self._size > self._limit:
            self._drop(next(iter(self._known)))

    def clear(self) -> None:
        self._known.clear()
        self._size = 0

    def _drop(self, path: Path) -> None:
        known = self._known.pop(path, None)
        self._size -= len(known[1]) if known is not None else 0


class Nested:
    """The instruction files of folders, for one chat. The project's own `Agent.md` is in the prompt already."""

    def __init__(self, root: Path, contents: Contents, log: Log, vetting: Vetting | None = None) -> None:
        self._root = root
        self._contents = contents
        self._log = log
        self._vetting = vetting
        self._touched: dict[Path, None] = {}
        # Never evicted: what is in the view must not come twice because its contents were forgotten.
        self._seen: set[tuple[Path, str]] = set()

    def touch(self, path: Path) -> None:
        """A tool has touched a file or a folder of the project."""
        self._touched[path] = None

    def clear(self) -> None:
        """The view was cut: what is needed may be attached again."""
        self._seen.clear()
        self._touched.clear()
        self._contents.clear()

    async def attached(self) -> list[Tag]:
        """Return the instructions for paths touched since the last call: from the project's root down, the nearest last."""
        touched, self._touched = list(self._touched), {}
        return await asyncio.to_thread(self._gather, touched) if touched else []

    def _gather(self, touched: list[Path]) -> list[Tag]:
        root = self._root.resolve()
        found: dict[Path, None] = {}
        for path in touched:
            try:
                real = (root / path).resolve()
            except (OSError, ValueError, RuntimeError):
                continue
            if not hidden(root, real):
                folders = [one for one in (real, *real.parents) if one.is_relative_to(root) and one != root]
                found |= dict.fromkeys(folder / NAME for folder in reversed(folders))
        # A folder stands before those in it, whatever was touched first.
        return [
            tag for file in sorted(found, key=lambda one: len(one.parts)) if (tag := self._tag(root, file))
        ]

    def _tag(self, root: Path, file: Path) -> Tag | None:
        try:
            words = self._read(root, file)
        except (Unreadable, OSError, RuntimeError) as error:
            self._log.write("prompt", "an instruction file cannot be read", level="warn", cause=str(error))
            return None
        mark = (file, hashlib.sha256(words.encode("utf-8", "replace")).hexdigest())
        if not words or mark in self._seen:
            return None
        self._seen.add(mark)
        name = file.relative_to(root)
        note = f"Instructions for what lies in {name.parent}/, from {name}."
        return Tag(CONTEXT, f"\n{words}\n", note)

    def _read(self, root: Path, file: Path) -> str:
        real = file.resolve()
        if not real.is_file():
            return ""
        if hidden(root, real):
            raise Unreadable("it is a link that leads to where instructions may not be")
        facts = real.stat()
        stamp = (facts.st_mtime_ns, facts.st_size, facts.st_ino)
        words = self._contents.get(file, stamp)
        if words is None:
            words = Including(root, self._log, self._vetting).text(real, file) or ""
            self._contents.put(file, stamp, words)
        return words
