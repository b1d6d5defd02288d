"""`Memories`: the session memory of each chat. A memory is one Markdown file; a JSON file says which events
the memory covers.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.provenance import ANYBODYS, ORIGIN, Provenance, unpacked
from bot.storage import file_names, jsonl
from bot.storage.notes import Written, digest_of, noted, sources

LARGEST = 256 * 1024  # max bytes: a memory holds notes, not data sets
MOST_REMOVED = 2_000
"""Max ids of removed messages stored with a memory. The ids tell the model what to omit. The lines of other
removed messages are checked each time.
"""
LINES = ".lines"
"""Suffix of the file that stores the sources of each line."""


@dataclass(frozen=True, slots=True)
class SavedMemory:
    """A stored session memory. `covers` is the newest event that the memory covers, or None if that is
    unknown, e.g. after somebody edited the file. `ts` is in epoch milliseconds. `written` lists the
    source turns of each line, if known. `removed` lists the ids of messages that were removed before the
    memory was written. `origin` is the provenance of the memory (the authors of its text).
    """

    markdown: str
    covers: str | None
    ts: int = 0
    tokens: int = 0
    written: tuple[tuple[Written, ...], ...] = ()
    removed: tuple[str, ...] = ()
    origin: Provenance = ANYBODYS


class Memories:
    """Stores `folder/<encoded chatKey>/session.md`, `session.lines` and `covers.json`. Each file is replaced
    atomically, `covers.json` last. After a crash between two replacements, the coverage is unknown.
    """

    def __init__(self, folder: Path, *, disk: Disk) -> None:
        self._folder = folder
        self._disk = disk
        self._forgotten: Counter[ChatKey] = Counter()

    async def load(self, chat_key: ChatKey) -> SavedMemory | None:
        """Return a chat's memory, or None if the chat has none. Raises `errors.StorageError`."""
        with errors.as_storage_error("the memory cannot be read"):
            if not self._disk.exists(self._paths(chat_key)[0]):
                return None
            return await asyncio.to_thread(self._load, chat_key)

    async def save(self, chat_key: ChatKey, kept: SavedMemory) -> None:
        """Replace a chat's memory with this redacted memory. Raises `errors.StorageError`."""
        with errors.as_storage_error("the memory cannot be written"):
            await asyncio.to_thread(self._save, chat_key, kept, self._forgotten[chat_key])

    async def forget(self, chat_key: ChatKey) -> None:
        """Delete a chat's memory, even if a new one is just being written. Raises `errors.StorageError`."""
        self._forgotten[chat_key] += 1
        with errors.as_storage_error("the memory cannot be removed"):
            await asyncio.to_thread(self._forget, chat_key)

    # The methods below may run on any thread.

    def _paths(self, chat_key: ChatKey) -> tuple[Path, Path]:
        folder = self._folder / file_names.encode(chat_key)
        return folder / "session.md", folder / "covers.json"

    def _load(self, chat_key: ChatKey) -> SavedMemory | None:
        words, facts = self._paths(chat_key)
        raw = self._disk.read(words)
        if not raw or len(raw) > LARGEST:
            return None
        about = _facts(self._disk.read(facts))
        markdown = raw.decode("utf-8", "replace")
        written = sources(raw, self._disk.read(words.with_suffix(LINES)))
        removed = about.get("removed")
        known = tuple(map(str, removed)) if isinstance(removed, list) else ()
        origin = unpacked(about.get(ORIGIN))
        if about.get("sha256") != digest_of(raw):
            # An operator edited the file. Removed messages were no longer in the text at that time.
            return SavedMemory(
                markdown, None, written=written if any(written) else (), removed=known, origin=origin
            )
        covers, ts, tokens = about.get("covers"), about.get("ts"), about.get("tokens")
        return SavedMemory(
            markdown,
            covers if isinstance(covers, str) else None,
            ts if isinstance(ts, int) else 0,
            tokens if isinstance(tokens, int) else 0,
            written if any(written) else (),
            known,
            origin,
        )

    def _save(self, chat_key: ChatKey, kept: SavedMemory, forgotten: int) -> None:
        words, facts = self._paths(chat_key)
        raw = text.clean(kept.markdown).encode()
        about: Json = {"v": 1, "covers": kept.covers, "ts": kept.ts, "tokens": kept.tokens}
        about |= {
            "removed": kept.removed[-MOST_REMOVED:],
            "sha256": digest_of(raw),
            ORIGIN: kept.origin.packed(),
        }
        with jsonl.locked(self._folder):
            if self._forgotten[chat_key] != forgotten:
                return  # the memory was deleted while this thread waited for the lock
            self._disk.replace(words, raw)
            if kept.written:
                self._disk.replace(words.with_suffix(LINES), noted(raw, kept.written))
            self._disk.replace(facts, json.dumps(about).encode() + b"\n")

    def _forget(self, chat_key: ChatKey) -> None:
        words, facts = self._paths(chat_key)
        if not self._disk.names(self._folder):
            return
        with jsonl.locked(self._folder):
            for path in (facts, words.with_suffix(LINES), words):
                if path.name in self._disk.names(path.parent):
                    self._disk.remove(path)


def _facts(raw: bytes) -> Json:
    return jsonl.loads(raw) or {} if len(raw) <= LARGEST else {}
