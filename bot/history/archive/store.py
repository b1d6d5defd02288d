"""`ChatStore` with the journal of lines: the archive as the gateway writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bot import errors
from bot.batch import Batcher
from bot.contracts.archive import ArchiveLine
from bot.contracts.environment import Clock, Disk, Log
from bot.contracts.identity import ChatKey
from bot.core import file_names, jsonl
from bot.core.archive import store
from bot.history.line_stream import LineStream, Ticket, missing

FILES = "chats"
"""The first part of the names of its files in the journal."""
KEPT_BYTES = 16 * 1024 * 1024
"""Of lines that the disk refused; what comes on top is written at the next start where its row is in the journal, else lost (to the
archive alone: the journal has what was said).
"""


@dataclass(frozen=True, slots=True)
class _Entry:
    chat_key: ChatKey
    raw: bytes
    ticket: Ticket | None = None


class ChatStore(store.ChatStore):
    """`contracts.archive.Archive` whose lines stand in the order of `append`."""

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk,
        log: Log,
        archive_after_lines: int = 1000,
        clock: Clock | None = None,
        stream: LineStream | None = None,
    ) -> None:
        super().__init__(folder, disk=disk, log=log, archive_after_lines=archive_after_lines, clock=clock)
        self._stream = stream
        self._writer: Batcher[_Entry | None, None] = Batcher("archive", self._write, patient=True)
        # Lines that the disk refused, by chat; touched by the writer's thread alone.
        self.kept: dict[ChatKey, list[_Entry]] = {}

    async def append(self, line: ArchiveLine, *, hurry: bool = True) -> None:
        """Write one line; returns once it is on disk. Raises `errors.StorageError`; the line is then kept, in memory and in the
        journal, and written before the next one.
        """
        fields = line.model_dump(by_alias=True)
        raw = jsonl.dumps({key: value for key, value in fields.items() if value is not None})
        if self._stream is None:
            await self._writer.put(_Entry(line.chat_key, raw), hurry=hurry)
            return
        name = file_names.encode(line.chat_key)
        ticket = self._stream.put(f"{FILES}/{name}", lambda: raw)
        await self._writer.put(_Entry(line.chat_key, raw, ticket), hurry=hurry)
        await self._stream.lasting([self.files.main(name)], [ticket])

    async def flush(self) -> None:
        """As `contracts.archive.Archive.flush`."""
        await self._writer.flush()

    async def close(self) -> None:
        """Write what waits, lines that the disk refused before included."""
        if self.kept:
            await self._writer.put(None)
        await self._writer.close()
        if lost := sum(entry.ticket is None for kept in self.kept.values() for entry in kept):
            self._log.write(
                "storage", f"{lost} lines of the archive could not be written", level="error", lines=lost
            )

    # Writing, on the writer's thread.

    def _write(self, batch: list[_Entry | None]) -> Sequence[errors.StorageError | None]:
        entries = [entry for entry in batch if entry is not None]
        chats: dict[ChatKey, list[_Entry]] = {}
        for entry in entries:
            chats.setdefault(entry.chat_key, []).append(entry)
        written: dict[ChatKey, int] = {}
        failures: dict[ChatKey, errors.StorageError] = {}
        try:
            with jsonl.locked(self.folder):
                self.tidy_once()
                for key, some in chats.items():
                    written[key] = self._write_chat(key, some, failures)
                # The disk works (again): write what quiet chats still owe.
                for key in [] if failures else list(self.kept):
                    self._write_chat(key, [], {})
        except OSError as error:
            # Not even the lock can be had.
            for key in chats.keys() - written.keys():
                failures[key] = self._keep(key, chats[key], error)
        results: list[errors.StorageError | None] = []
        for item in batch:
            if item is None:
                results.append(None)
                continue
            written[item.chat_key] = written.get(item.chat_key, 0) - 1
            results.append(failures[item.chat_key] if written[item.chat_key] < 0 else None)
        return results

    def replay(self, name: str, lines: Sequence[bytes]) -> Path:
        """As `line_stream.Replays.replay`."""
        main = self.files.main(name)
        with jsonl.locked(self.folder):
            self.tidy_once()
            self.files.recover(name)
            self._tails.tail(main)  # repaired
            older = [self.files.archive(name, number) for number in self.files.numbers(name)]
            left = missing(lines, map(self.disk.open, [main, *reversed(older)]))
            while left:
                del left[: self.write_some(name, left, sync=self._stream is None)]
        return main

    def _write_chat(
        self, key: ChatKey, entries: list[_Entry], failures: dict[ChatKey, errors.StorageError]
    ) -> int:
        """Write lines of one chat after those it owes; returns how many of `entries` are written."""
        owed = self.kept.pop(key, [])
        due = owed + entries
        done = 0
        name = file_names.encode(key)
        try:
            while done < len(due):
                some = self.write_some(name, [entry.raw for entry in due[done:]], sync=self._stream is None)
                self._written(name, due[done : done + some])
                done += some
            if self._stream is not None and any(entry.ticket is None for entry in owed):
                # The journal does not have these.
                self.disk.sync(self.files.main(name))
                self.disk.sync(self.folder)
        except OSError as error:
            failures[key] = self._keep(key, due[done:], error, told=not entries)
        return max(0, done - len(owed))

    def _written(self, name: str, entries: Sequence[_Entry]) -> None:
        tickets = [entry.ticket for entry in entries if entry.ticket is not None]
        if self._stream is not None and tickets:
            self._stream.written([self.files.main(name)], tickets)

    def _keep(
        self, key: ChatKey, entries: list[_Entry], error: OSError, *, told: bool = False
    ) -> errors.StorageError:
        room = KEPT_BYTES - sum(len(entry.raw) for lines in self.kept.values() for entry in lines)
        kept = self.kept.setdefault(key, [])
        lost = 0
        for entry in entries:
            room -= len(entry.raw)
            if room >= 0:
                kept.append(entry)
            else:
                lost += entry.ticket is None
        if not told:
            self._log.write(
                "storage",
                f"the archive cannot be written: {error}; {len(kept)} lines wait in memory",
                level="error",
                chat_key=key,
                waiting=len(kept),
            )
        if lost:
            self._log.write(
                "storage",
                f"{lost} lines of the archive are lost: there is no room for more in memory",
                level="error",
                chat_key=key,
                lost=lost,
            )
        return errors.StorageError(f"the archive cannot be written: {error}")
