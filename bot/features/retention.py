"""Retention: deletes data older than a chat's retention time from the log and from everything derived from the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

from bot import errors, ulids
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.core import events
from bot.core.archive_files import ArchiveFiles
from bot.core.chats import TITLE, Fact
from bot.core.feature import Feature, Hooks, Runtime
from bot.storage import file_names, jsonl
from bot.system import JumpSafeClock

INTERVAL_SECONDS = 3_600.0
SLICE = 5_000  # max events deleted per transaction, because new events wait until the transaction ends
_DAY = 86_400.0
_FILE = ".bin"


class Retention:
    """Deletes expired data. A chat's retention time applies to its threads too, except to a thread with its own retention time."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime
        self._settings = runtime.settings.history
        self._archives = ArchiveFiles(runtime.settings.home / "chats", runtime.disk)
        self._of_page = [runtime.settings.home / name for name in ("sent", "received")]
        """Folders of the web page's files. Each folder has a subfolder for each chat."""
        self._steady = JumpSafeClock(runtime.clock)

    async def watch(self) -> None:
        while True:
            try:
                await self._run_once()
            except errors.StorageError as error:
                words = "what is too old cannot be removed now"
                self._run.log.write("retention", words, level="warn", cause=str(error))
            await self._run.clock.sleep(INTERVAL_SECONDS)

    async def _run_once(self) -> None:
        with errors.as_storage_error("the archive cannot be read"):
            on_disk = await asyncio.to_thread(lambda: set(self._on_disk()))
        for chat in sorted({*on_disk, *await self._run.event_log.chats()}, key=str):
            days = self._settings.days(chat)
            if days is None:
                continue
            since = self._steady.now() - days * _DAY
            gone = await self._expire_events(chat, since)
            title = self._run.chats.facts[TITLE].get(str(chat))
            if title and chat not in await self._run.event_log.spoken_in(chat):
                # A person chose the conversation's name, and the log has no message of the conversation any more.
                await self._run.chats.get(chat)
                self._run.chats.append(Fact(chat, events.FactSet(TITLE, str(chat), None)))
            with errors.as_storage_error("the archive cannot be written"):
                lines, files = await asyncio.to_thread(self._expire_files, chat, int(since * 1000))
            if gone or lines or files:
                words = f"what is older than {days} days is gone"
                counts: Json = {"days": days, "events": gone, "lines": lines, "files": files}
                self._run.log.write("retention", words, level="action", chat_key=chat, **counts)

    async def _expire_events(self, key: ChatKey, since: float) -> int:
        """Delete expired events of finished turns from the beginning of a chat's log; return their number. The newest event stays."""
        log, chats = self._run.event_log, self._run.chats
        first, end = await log.older(key, since)
        if first >= end:
            return 0
        chat = await chats.get(key)
        waits = chat.turn is not None or (chat.open_since is not None and chat.open_since <= first)
        if waits or chat.seq == first:
            return 0
        chats.append(Fact(key, events.Expired(end, since)))
        chats.append(*(Fact(key, one) for one in chat.context.out_of_reach))
        await log.committed(patient=False)
        end = min(end, chat.position.first)
        for at in range(first, end, SLICE):
            await log.delete_before(key, min(at + SLICE, end))
        return end - first

    def _on_disk(self) -> Iterator[ChatKey]:
        """Yield the chats that have files on disk. Some of them may have no events in the log any more."""
        names = {name for one in self._of_page for name in self._run.disk.names(one)}
        for name in {*self._archives.chats(), *names}:
            with contextlib.suppress(errors.IdentityInvalid):  # the file name is no chatKey
                yield ChatKey.parse(self._archives.chat_key(name) or "")

    def _expire_files(self, chat: ChatKey, before: int) -> tuple[int, int]:
        """Delete archive lines and web files older than `before` (epoch ms). Return the numbers of deleted lines and files."""
        name, disk = file_names.encode(chat), self._run.disk
        with jsonl.locked(self._archives.folder):
            self._archives.recover(name)
            lines = sum(self._expire_lines(path, before) for path in self._archives.of(name))
        old = [
            home / name / file
            for home in self._of_page
            for file in disk.names(home / name)
            if file.endswith(_FILE) and ulids.FORM.fullmatch(stem := file.partition(".")[0])
            if ulids.made_at(stem) * 1000 < before
        ]
        for path in old:
            disk.remove(path)
        return lines, len(old)

    def _expire_lines(self, path: Path, before: int) -> int:
        gone, lines = 0, self._run.disk.read(path).splitlines(keepends=True)
        for number, raw in enumerate(lines, 1):
            ts = (jsonl.loads(raw) or {}).get("ts")
            if isinstance(ts, int | float):
                if ts >= before:
                    break
                gone = number
        else:
            gone = len(lines) if gone else 0
        if 0 < gone < len(lines):
            self._run.disk.replace(path, b"".join(lines[gone:]))
        elif gone:
            self._run.disk.remove(path)
        return gone


def _build(runtime: Runtime) -> Hooks:
    return Hooks(serves=(Retention(runtime).watch,) if runtime.settings.history.keep_days else ())


FEATURE = Feature("retention", _build)
