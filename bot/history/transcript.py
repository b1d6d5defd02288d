"""`Transcript`: the full model messages of every chat, one file a session, for resume, replay and fork."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bot import errors
from bot.batch import Batcher
from bot.contracts import Clock, Disk, Ids, Json, Log, OpenFile
from bot.history import jsonl, names, reading
from bot.history.reading import LineType, Loaded, TranscriptLine

__all__ = ["LineType", "Loaded", "Transcript", "TranscriptLine"]

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_NAMED = 5  # places of lines that cannot be read, told to the operator
_SESSION = re.compile(rf"[{_CROCKFORD}]{{26}}")


@dataclass(frozen=True, slots=True)
class _Append:
    chat_key: str
    lines: tuple[TranscriptLine, ...]


@dataclass(frozen=True, slots=True)
class _Begin:
    chat_key: str


class Transcript:
    """Sessions of every chat in `folder/<encoded chatKey>/<session>.jsonl`; the newest is the current one."""

    def __init__(self, folder: Path, *, disk: Disk, ids: Ids, clock: Clock, log: Log) -> None:
        self._folder = folder
        self._disk = disk
        self._ids = ids
        self._log = log
        self._files = jsonl.Files(disk, log=log, clock=clock, index=reading.uuid_of)
        self._writer: Batcher[_Append | _Begin, str] = Batcher("transcript", self._work)

    async def append(self, chat_key: str, lines: Sequence[TranscriptLine]) -> str:
        """Write lines, in order, to their session, or to the current one (begun where there is none); returns
        the current session once they are on disk.

        A line whose uuid is in its session already is not written again. Raises `errors.StorageError`; none of
        the lines is kept then, so the caller may append them again.
        """
        return await self._writer.put(_Append(chat_key, tuple(lines)))

    async def new_session(self, chat_key: str) -> str:
        """Begin an empty session, which is the current one from now on; earlier ones stay on disk."""
        return await self._writer.put(_Begin(chat_key))

    async def load(self, chat_key: str) -> list[TranscriptLine]:
        """The lines of the current session, in order; [] where there is none. Leaves out what it cannot read."""
        return (await self.read(chat_key, whole=True)).lines

    async def read(self, chat_key: str, *, whole: bool = False) -> Loaded:
        """What counts of the current session: with a boundary that names what it leaves, no more than from there on.
        `whole`: all of it. Leaves out what it cannot read. Raises `errors.StorageError`.
        """
        try:
            loaded, name = await asyncio.to_thread(self._read, chat_key, whole=whole)
        except OSError as error:
            raise errors.StorageError(f"the transcript cannot be read: {error}") from error
        if loaded.unreadable:
            self._log.write(
                "storage",
                f"{len(loaded.unreadable)} lines of the transcript cannot be read and were left out",
                level="warn",
                chat_key=chat_key,
                unreadable=len(loaded.unreadable),
                file=name,
                offsets=loaded.unreadable[:_NAMED],
            )
        return loaded

    async def ended(self, chat_key: str, request_id: str) -> Json | None:
        """How a turn of the current session ended, however long ago; None where it did not."""
        try:
            return await asyncio.to_thread(self._ended, chat_key, request_id)
        except OSError as error:
            raise errors.StorageError(f"the transcript cannot be read: {error}") from error

    async def sessions(self, chat_key: str) -> list[str]:
        """The sessions of a chat, oldest first."""
        try:
            return await asyncio.to_thread(self._sessions, chat_key)
        except OSError as error:
            raise errors.StorageError(f"the transcript cannot be read: {error}") from error

    async def has(self, chat_key: str) -> bool:
        """Whether this chat has a transcript, be its current session empty."""
        return bool(await self.sessions(chat_key))

    async def close(self) -> None:
        """Write what waits."""
        await self._writer.close()

    # Reading, on any thread.

    def _sessions(self, chat_key: str) -> list[str]:
        found = self._disk.names(self._folder / names.encode(chat_key))
        stems = (file.removesuffix(".jsonl") for file in found if file.endswith(".jsonl"))
        return sorted(stem for stem in stems if _SESSION.fullmatch(stem))

    def _read(self, chat_key: str, *, whole: bool) -> tuple[Loaded, str]:
        found = self._opened(chat_key)
        if found is None:
            return Loaded([]), ""
        file, name = found
        with closing(file):
            return (reading.whole(file) if whole else reading.newest(file)), name

    def _ended(self, chat_key: str, request_id: str) -> Json | None:
        found = self._opened(chat_key)
        if found is None:
            return None
        with closing(found[0]) as file:
            return reading.turn_end(file, request_id)

    def _opened(self, chat_key: str) -> tuple[OpenFile, str] | None:
        """The file of the current session as it is now, and its name."""
        with jsonl.locked(self._folder, shared=True):
            sessions = self._sessions(chat_key)
            if not sessions:
                return None
            path = self._path(chat_key, sessions[-1])
            return self._disk.open(path), path.name

    def _path(self, chat_key: str, session: str) -> Path:
        return self._folder / names.encode(chat_key) / f"{session}.jsonl"

    # Writing, on the writer's thread.

    def _work(self, batch: list[_Append | _Begin]) -> list[str | errors.StorageError]:
        try:
            with jsonl.locked(self._folder):
                return [self._carry_out(item) for item in batch]
        except OSError as error:
            return [errors.StorageError(f"the transcript cannot be written: {error}")] * len(batch)

    def _carry_out(self, item: _Append | _Begin) -> str | errors.StorageError:
        try:
            sessions = self._sessions(item.chat_key)
            if isinstance(item, _Append):
                if sessions:
                    current = sessions[-1]
                elif all(line.session_id for line in item.lines):
                    current = self._begin(item.chat_key, sessions)
                else:
                    current = self._named(item.chat_key, sessions)  # its first lines will make the file
                self._write(item, current)
                return current
            return self._begin(item.chat_key, sessions)
        except (OSError, TypeError, ValueError, RecursionError) as error:
            return errors.StorageError(f"the transcript cannot be written: {error}")

    def _begin(self, chat_key: str, sessions: list[str]) -> str:
        session = self._named(chat_key, sessions)
        self._disk.replace(self._path(chat_key, session), b"")
        return session

    def _named(self, chat_key: str, sessions: list[str]) -> str:
        """The name of a session that is about to begin."""
        session = self._ids.ulid()
        if sessions and session <= sessions[-1]:
            # The clock went back over a restart; the newest session must still be the last by name.
            session = _after(sessions[-1])
        jsonl.tidy(self._disk, self._path(chat_key, session).parent)
        return session

    def _write(self, item: _Append, current: str) -> None:
        sessions: dict[str, dict[str, bytes]] = {}
        for line in item.lines:
            session = line.session_id or current
            if not _SESSION.fullmatch(session):
                raise ValueError("a session is named by a ULID")
            sessions.setdefault(session, {}).setdefault(line.uuid, _dumped(line, session))
        for session, lines in sessions.items():
            path = self._path(item.chat_key, session)
            self._files.tail(path)
            fresh = {uuid: raw for uuid, raw in lines.items() if not self._files.has(path, uuid)}
            if fresh:
                self._files.append(path, list(fresh.values()), fresh)


def _dumped(line: TranscriptLine, session: str) -> bytes:
    fields: Json = {
        "v": line.v,
        "uuid": line.uuid,
        "parentUuid": line.parent_uuid,
        "type": line.type,
        "ts": line.ts,
        "chatKey": line.chat_key,
        "sessionId": session,
        "requestId": line.request_id,
        "message": line.message,
        "data": line.data,
    }
    return jsonl.dumps({k: v for k, v in fields.items() if v is not None or k == "parentUuid"})


def _after(ulid: str) -> str:
    head, last = ulid[:-1], ulid[-1]
    if last == _CROCKFORD[-1]:
        return _after(head) + _CROCKFORD[0]
    return head + _CROCKFORD[_CROCKFORD.index(last) + 1]
