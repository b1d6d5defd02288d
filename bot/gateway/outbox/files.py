"""Files on their way out: the bytes that people will get, kept under `.ship/outgoing` from the moment a message is meant until its
row has ended. What becomes of the original meanwhile is no matter.

A file is named by the SHA-256 of what it holds, so that the same bytes are kept once. It stays while a row uses it.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakValueDictionary

from bot import errors
from bot.contracts.environment import Disk, Log
from bot.contracts.outbound import OutboxRow, OutgoingFile, StoredFile
from bot.core.outgoing_files import OutgoingLimits, shown_name


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file in the store for a row to come; `use` is the name of this use of it until then, `markdown` as in `OutgoingFile`."""

    stored: StoredFile
    use: str
    markdown: str = ""


class OutgoingFiles:
    """The store. `disk` may block; it is used on other threads."""

    def __init__(self, folder: Path, *, disk: Disk, log: Log, limits: OutgoingLimits) -> None:
        self._folder = folder
        self._disk = disk
        self._log = log
        self.limits = limits
        self._uses: dict[str, set[str]] = {}
        self._sizes: dict[str, int] = {}
        self._numbers = itertools.count()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def keep(self, files: Sequence[OutgoingFile]) -> list[KeptFile]:
        """Keep all of these files, or none, for rows that have to follow. Raises `errors.FileRefused`."""
        kept: list[KeptFile] = []
        whole = False
        try:
            for file in files:
                stored, use = await self.put(file)
                kept.append(KeptFile(stored, use, file.markdown))
            whole = True
        finally:
            if not whole:
                for one in kept:
                    await self.drop(one.stored, one.use)
        return kept

    async def put(self, file: OutgoingFile) -> tuple[StoredFile, str]:
        """Keep a file; what its row has, and the name of this use of it, which `hold` ends. Raises `errors.FileRefused`."""
        digest = await asyncio.to_thread(lambda: hashlib.sha256(file.data).hexdigest())
        use = f"put {next(self._numbers)}"
        known = digest in self._uses
        if not known and sum(self._sizes.values()) + len(file.data) > self.limits.total:
            raise errors.FileRefused("too many files wait for their platforms")
        self._uses.setdefault(digest, set()).add(use)
        self._sizes[digest] = len(file.data)
        try:
            async with self._lock(digest):
                await asyncio.to_thread(self._disk.replace, self._folder / digest, file.data)
        except OSError as error:
            self._end(digest, use)
            self._log.write("storage", "a file cannot be kept for sending", level="error", cause=str(error))
            raise errors.FileRefused("the disk does not take the file") from error
        return StoredFile(shown_name(file.name), file.mime_type, len(file.data), digest, file.path), use

    def hold(self, row: OutboxRow, use: str | None = None) -> None:
        """A row uses its file from now on, in the place of an earlier `use`."""
        if row.file is not None:
            self._uses.setdefault(row.file.sha256, set()).add(row.id)
            self._sizes[row.file.sha256] = row.file.size
            if use is not None:
                self._uses[row.file.sha256].discard(use)

    async def drop(self, stored: StoredFile, use: str) -> None:
        """Drop what was put and gets no row."""
        if self._end(stored.sha256, use):
            await self._remove(stored.sha256)

    async def load(self, stored: StoredFile) -> OutgoingFile:
        """The file of a row, as it was put. Raises `errors.FileRefused` where it is gone or damaged."""
        try:
            data = (
                await asyncio.to_thread(self._disk.read, self._folder / stored.sha256)
                if stored.sha256
                else b""
            )
            whole = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest() == stored.sha256)
        except OSError as error:
            raise errors.FileRefused(f"the kept file cannot be read: {error.strerror}") from error
        if not whole:
            raise errors.FileRefused("the kept file is gone or damaged")
        return OutgoingFile(stored.name, stored.mime_type, data, stored.path)

    async def release(self, row: OutboxRow) -> None:
        """A row has ended: its file goes where no other one uses it."""
        if row.file is not None and self._end(row.file.sha256, row.id):
            await self._remove(row.file.sha256)

    async def keep_only(self, rows: Iterable[OutboxRow]) -> None:
        """At a start: `rows` are all that an earlier process left; what no row uses goes."""
        for row in rows:
            self.hold(row)
        try:
            names = await asyncio.to_thread(self._disk.names, self._folder)
        except OSError as error:
            self._log.write("storage", "old files cannot be looked for", level="warn", cause=str(error))
            return
        for name in names:
            await self._remove(name)

    def _end(self, digest: str, use: str) -> bool:
        """True if that was the last use."""
        uses = self._uses.get(digest)
        if uses is None or use not in uses:
            return False
        uses.discard(use)
        if uses:
            return False
        del self._uses[digest], self._sizes[digest]
        return True

    async def _remove(self, digest: str) -> None:
        async with self._lock(digest):
            if digest in self._uses:
                return  # it was put once more
            try:
                await asyncio.to_thread(self._disk.remove, self._folder / digest)
            except OSError as error:
                self._log.write("storage", "a file that was sent stays", level="warn", cause=str(error))

    def _lock(self, digest: str) -> asyncio.Lock:
        """One change of a file at a time."""
        return self._locks.setdefault(digest, asyncio.Lock())
