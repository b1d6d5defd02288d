"""`Transcript`: the full model messages of every chat, one file a session, for resume, replay and fork."""

from __future__ import annotations

import asyncio
import functools
import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bot import errors, ulids
from bot.batch import Batcher
from bot.contracts.environment import Clock, Disk, Ids, Log, OpenFile
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import TranscriptLine, TurnEnd
from bot.core import file_names, jsonl
from bot.history.line_stream import LineStream, Ticket, missing
from bot.history.transcript import reading, sessions
from bot.history.transcript.lines import dumped
from bot.history.transcript.reading import LoadedLines
from bot.history.transcript.sessions import Point, SessionOutline

_COPIED = 1024 * 1024  # bytes of a session that are copied at once
_NAMED = 5  # places of lines that cannot be read, told to the operator
_CHATS = 4_000  # whose current session is remembered
FILES = "transcripts"
"""The first part of the names of its files in the journal."""


class _Row:
    """Lines of one session, and what they are on disk, which is found once, on whichever thread asks first."""

    def __init__(self, lines: Sequence[TranscriptLine], session: str) -> None:
        self._lines = lines
        self._session = session
        self._raws: dict[str, bytes] | None = None
        self.whole = False
        """True once the journal has been given all of it."""

    def raws(self) -> Mapping[str, bytes]:
        """By uuid. Raises TypeError, ValueError or RecursionError."""
        if self._raws is None:
            self._raws = {line.uuid: dumped(line, self._session) for line in self._lines}
        return self._raws

    def blob(self) -> bytes:
        """For the journal, which is not told what cannot be written: then the row is not `whole`."""
        try:
            made = b"".join(self.raws().values())
        except (TypeError, ValueError, RecursionError):
            return b""
        self.whole = True
        return made


@dataclass(frozen=True, slots=True)
class _Append:
    """Lines of a chat. `current` is its current session, "" where that is not known; of a session that has not begun, its name."""

    chat_key: ChatKey
    lines: tuple[TranscriptLine, ...]
    current: str = ""
    tickets: tuple[Ticket | None, ...] = ()
    rows: frozenset[_Row] = frozenset()


@dataclass(frozen=True, slots=True)
class _Begin:
    chat_key: ChatKey
    line: TranscriptLine | None


@dataclass(frozen=True, slots=True)
class _Resume:
    chat_key: ChatKey
    session: str
    line: TranscriptLine


@dataclass(frozen=True, slots=True)
class _Fork:
    chat_key: ChatKey
    end: int
    line: TranscriptLine


_Item = _Append | _Begin | _Resume | _Fork
_Answer = TypeVar("_Answer")


class Transcript:
    """Sessions of every chat in `folder/<encoded chatKey>/<session>.jsonl`; the newest is the current one, unless an
    earlier one was gone back to.
    """

    def __init__(
        self, folder: Path, *, disk: Disk, ids: Ids, clock: Clock, log: Log, stream: LineStream | None = None
    ) -> None:
        self._folder = folder
        self._stream = stream
        self._disk = disk
        self._ids = ids
        self._log = log
        self._files = jsonl.Files(disk, log=log, clock=clock, index=reading.uuid_of)
        self._writer: Batcher[_Item, str] = Batcher("transcript", self._work, patient=True)
        # Current sessions of the chats that were used last, or names of those that will begin.
        self._current_of: OrderedDict[ChatKey, str] = OrderedDict()
        self._path = functools.lru_cache(_CHATS)(self._named_path)
        # Rows in the journal by the uuids of lines whose `append` has not come to its end.
        self._ahead: dict[str, tuple[Ticket, _Row]] = {}

    def ahead(self, chat_key: ChatKey, lines: Sequence[TranscriptLine]) -> bool:
        """Put lines into the journal, so that they are on disk with whatever is posted to it next; `append` has to follow, until
        they are written, or `give_up`. False where they are on disk only once that has returned.
        """
        return self._put(chat_key, lines) and self._stream is not None and self._stream.send()

    def _put(self, chat_key: ChatKey, lines: Sequence[TranscriptLine]) -> bool:
        current = self._current_of.get(chat_key, "")
        if self._stream is None or not current:
            return False
        fresh: dict[str, list[TranscriptLine]] = {}
        for line in lines:
            if line.uuid not in self._ahead:
                fresh.setdefault(line.session_id or current, []).append(line)
        if not all(map(ulids.FORM.fullmatch, fresh)):
            return False
        for session, some in fresh.items():
            row = _Row(some, session)
            ticket = self._stream.put(
                f"{FILES}/{file_names.encode(chat_key)}/{session}.jsonl", row.blob, len(some)
            )
            if ticket is None:
                return False
            self._ahead.update(dict.fromkeys((line.uuid for line in some), (ticket, row)))
        return True

    async def kept(self, lines: Sequence[TranscriptLine]) -> bool:
        """Return once lines that were put `ahead` are on disk, in the journal; False where they are only once `append` has returned."""
        rows = [self._ahead.get(line.uuid) for line in lines]
        tickets = [row[0] if row is not None else None for row in rows]
        if self._stream is None or not await self._stream.kept(tickets):
            return False
        return all(row is not None and row[1].whole for row in rows)

    async def flush(self) -> None:
        """Return once that was tried with every line that was to be written before; none of them waits any longer."""
        if self._stream is not None:
            self._stream.send()  # first: of a write that a kill cuts off the journal has the whole
        await self._writer.flush()

    async def append(self, chat_key: ChatKey, lines: Sequence[TranscriptLine], *, hurry: bool = False) -> str:
        """Write lines, in order, to their session, or to the current one (begun where there is none); returns
        the current session once they are on disk.

        A line whose uuid is in its session already is not written again. Raises `errors.StorageError`; none of the lines is in
        a file then, and the caller appends them again, or gives them up: the journal may have them meanwhile.
        """
        self._put(chat_key, lines)
        if hurry and self._stream is not None:
            self._stream.send()
        return await self._append_all(chat_key, lines, hurry=hurry)

    async def write(self, chat_key: ChatKey, line: TranscriptLine) -> None:
        """Write one line to the current session. Raises `errors.StorageError`; it is nowhere then."""
        await self._append_all(chat_key, [line], hurry=True)

    async def _append_all(self, chat_key: ChatKey, lines: Sequence[TranscriptLine], *, hurry: bool) -> str:
        ahead = [self._ahead.get(line.uuid) for line in lines]
        tickets = [one[0] if one is not None else None for one in ahead]
        item = _Append(
            chat_key,
            tuple(lines),
            self._current_of.get(chat_key, ""),
            tuple(tickets),
            frozenset(one[1] for one in ahead if one is not None),
        )
        current = await self._writer.put(item, hurry=hurry or self._stream is None)
        self._note(chat_key, current)
        try:
            if self._stream is not None:
                await self._stream.lasting(self._files_of(chat_key, lines, current), tickets)
        finally:
            self._forget(lines, tickets)
        return current

    def give_up(self, lines: Sequence[TranscriptLine]) -> None:
        """Lines that were put ahead will not be appended any more."""
        self._forget(lines)

    def _forget(self, lines: Sequence[TranscriptLine], told: Sequence[Ticket | None] = ()) -> None:
        """The end of `append`; of tickets that are not `told` of, which came meanwhile, the stream is told."""
        ahead = [self._ahead.pop(line.uuid)[0] for line in lines if line.uuid in self._ahead]
        if self._stream is not None:
            self._stream.given_up(ticket for ticket in ahead if ticket not in told)

    def _note(self, chat_key: ChatKey, current: str) -> None:
        self._current_of[chat_key] = current
        self._current_of.move_to_end(chat_key)
        if len(self._current_of) > _CHATS:
            self._current_of.popitem(last=False)

    async def new_session(self, chat_key: ChatKey, line: TranscriptLine | None = None) -> str:
        """Begin a session, empty but for this line, which is the current one from now on; earlier ones stay on disk."""
        return await self._changed(_Begin(chat_key, line))

    async def resume(self, chat_key: ChatKey, session: str, line: TranscriptLine) -> None:
        """Make an earlier session the current one; `line` is its first new one. Raises `errors.StorageError`."""
        await self._changed(_Resume(chat_key, session, line))

    async def fork(self, chat_key: ChatKey, point: Point, line: TranscriptLine) -> str:
        """Begin a session that is a copy of the current one up to a point, and then `line`. All of it is there or
        nothing. Raises `errors.StorageError`.
        """
        return await self._changed(_Fork(chat_key, point.end, line))

    async def _changed(self, item: _Begin | _Resume | _Fork) -> str:
        """The session that is the current one from now on."""
        self._current_of.pop(item.chat_key, None)
        current = await self._writer.put(item)
        self._note(item.chat_key, current)
        return current

    async def outlines(self, chat_key: ChatKey, most: int) -> list[SessionOutline]:
        """The sessions of a chat that have messages, the one last written to first; `most` of them."""
        return await self._asked(self._outlines, chat_key, most) or []

    async def points(self, chat_key: ChatKey) -> list[Point]:
        """The turns of the current session, oldest first, without those that were taken back. Reads all of it."""
        return await self._asked(self._look, chat_key, sessions.points) or []

    async def current(self, chat_key: ChatKey) -> str | None:
        """The current session; None where there is none."""
        return await self._asked(self._current, chat_key)

    async def load(self, chat_key: ChatKey) -> list[TranscriptLine]:
        """The lines of the current session, in order; [] where there is none. Leaves out what it cannot read."""
        return (await self.read(chat_key, whole=True)).lines

    async def telling(
        self, chat_key: ChatKey, requests: Collection[str], counts: Callable[[TranscriptLine], bool]
    ) -> list[TranscriptLine]:
        """The lines of the current session that may tell of these turns (`reading.telling`), without all others in memory;
        all lines where some are of another making. Raises `errors.StorageError`.
        """
        look = functools.partial(reading.telling, requests=requests, counts=counts)
        found = await self._asked(self._look, chat_key, look)
        return found if found is not None else await self.load(chat_key)

    async def read(self, chat_key: ChatKey, *, whole: bool = False) -> LoadedLines:
        """Read the effective lines of the current session: with a checkpoint, no more than from there on. `whole`: all of
        it. Leaves out what it cannot read. Raises `errors.StorageError`.
        """
        how = reading.whole if whole else reading.newest
        loaded, name = await self._asked(self._named_look, chat_key, how) or (LoadedLines([]), "")
        if chat_key not in self._current_of:
            # Where there is none, the name of the one that will begin.
            self._note(chat_key, name.removesuffix(".jsonl") or self._ids.ulid())
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
        if loaded.circles:
            self._log.write(
                "storage",
                "lines of the transcript follow one another in a circle, which is left out",
                level="warn",
                chat_key=chat_key,
                file=name,
                uuids=loaded.circles[:_NAMED],
            )
        return loaded

    async def ended(self, chat_key: ChatKey, request_id: str) -> TurnEnd | None:
        """Return the end of a turn of the current session, however long ago; None if it did not end."""
        look = functools.partial(reading.turn_end, request_id=request_id)
        return await self._asked(self._look, chat_key, look)

    async def sessions(self, chat_key: ChatKey) -> list[str]:
        """The sessions of a chat, oldest first."""
        return await self._asked(self._sessions, chat_key) or []

    async def has(self, chat_key: ChatKey) -> bool:
        """True if this chat has a transcript, be its current session empty."""
        return bool(await self.sessions(chat_key))

    async def close(self) -> None:
        """Write what waits."""
        await self._writer.close()

    async def _asked(
        self, question: Callable[..., _Answer], chat_key: ChatKey, *about: object
    ) -> _Answer | None:
        """The answer of a thread; None of a chat that has nothing on file."""
        await self.flush()
        with errors.as_storage_error("the transcript cannot be read"):
            if not self._disk.exists(self._home(chat_key)):
                return None
            return await asyncio.to_thread(question, chat_key, *about)

    # Reading, on any thread.

    def _sessions(self, chat_key: ChatKey) -> list[str]:
        found = self._disk.names(self._home(chat_key))
        stems = (file.removesuffix(".jsonl") for file in found if file.endswith(".jsonl"))
        return sorted(stem for stem in stems if ulids.FORM.fullmatch(stem))

    def _current(self, chat_key: ChatKey) -> str | None:
        found = self._sessions(chat_key)
        return sessions.current(self._disk, self._home(chat_key), found) if found else None

    def _outlines(self, chat_key: ChatKey, most: int) -> list[SessionOutline]:
        with jsonl.locked(self._folder, shared=True):
            current = self._current(chat_key)
            found = self._sessions(chat_key)
        newest = heapq.nlargest(
            most, found, key=lambda one: (self._last_ts(chat_key, one), one == current, one)
        )
        outlines = []
        for session in newest:
            with closing(self._disk.open(self._path(chat_key, session))) as file:
                outlines.append(sessions.outline(file, session, is_current=session == current))
        return [one for one in outlines if one.messages]

    def _last_ts(self, chat_key: ChatKey, session: str) -> int:
        with closing(self._disk.open(self._path(chat_key, session))) as file:
            return sessions.last_ts(file)

    def _look(self, chat_key: ChatKey, look: Callable[[OpenFile], _Answer]) -> _Answer | None:
        found = self._named_look(chat_key, look)
        return None if found is None else found[0]

    def _named_look(
        self, chat_key: ChatKey, look: Callable[[OpenFile], _Answer]
    ) -> tuple[_Answer, str] | None:
        """Look at the file of the current session as it is now; what that gives, and the name of the file. None where there is none."""
        with jsonl.locked(self._folder, shared=True):
            session = self._current(chat_key)
            if session is None:
                return None
            path = self._path(chat_key, session)
            file = self._disk.open(path)
        with closing(file):
            return look(file), path.name

    def _named_path(self, chat_key: ChatKey, session: str) -> Path:
        return self._home(chat_key) / f"{session}.jsonl"

    def _home(self, chat_key: ChatKey) -> Path:
        return self._folder / file_names.encode(chat_key)

    # Writing, on the writer's thread.

    def _work(self, batch: list[_Item]) -> list[str | errors.StorageError]:
        try:
            with jsonl.locked(self._folder):
                results = [self._carry_out(item) for item in batch]
        except OSError as error:
            results = [errors.StorageError(f"the transcript cannot be written: {error}")] * len(batch)
        for item, result in zip(batch, results, strict=True):
            if self._stream is not None and isinstance(item, _Append) and isinstance(result, str):
                tickets = [ticket for ticket in item.tickets if ticket is not None]
                self._stream.written(self._files_of(item.chat_key, item.lines, result), tickets)
        return results

    def _files_of(self, chat_key: ChatKey, lines: Sequence[TranscriptLine], current: str) -> set[Path]:
        return {self._path(chat_key, session) for session in {line.session_id or current for line in lines}}

    def replay(self, name: str, lines: Sequence[bytes]) -> Path:
        """As `line_stream.Replays.replay`."""
        path = self._folder / name
        # A line that was written again is in two rows, where the journal has taken both.
        own = {reading.uuid_of(line): line for line in lines}
        with jsonl.locked(self._folder):
            self._files.tail(path)  # repaired
            if left := missing([*own.values()], [self._disk.open(path)], reading.uuid_of):
                self._files.append(path, left, map(reading.uuid_of, left), sync=self._stream is None)
        return path

    def _carry_out(self, item: _Item) -> str | errors.StorageError:
        try:
            if isinstance(item, _Append):
                return self._append(item)
            known = self._sessions(item.chat_key)
            if isinstance(item, _Resume):
                return self._go_back(item, known)
            if isinstance(item, _Fork):
                return self._copy(item, known)
            return self._begin(item.chat_key, known, item.line)
        except (OSError, TypeError, ValueError, RecursionError) as error:
            return errors.StorageError(f"the transcript cannot be written: {error}")

    def _append(self, item: _Append) -> str:
        current = item.current
        if not current and (known := self._sessions(item.chat_key)):
            current = sessions.current(self._disk, self._home(item.chat_key), known)
        if not current or not self._begun(self._path(item.chat_key, current)):
            known = self._sessions(item.chat_key)
            if current not in known:
                current = current or self._named(item.chat_key, known)
                jsonl.tidy(self._disk, self._home(item.chat_key))
                if all(line.session_id for line in item.lines):
                    self._disk.replace(self._path(item.chat_key, current), b"")
                # Else its first lines make the file.
        self._write(item, current)
        return current

    def _begun(self, path: Path) -> bool:
        return self._files.begun(path) or bool(self._disk.size(path))

    def _go_back(self, item: _Resume, known: list[str]) -> str:
        if item.session not in known:
            raise ValueError("this chat has no such session")
        # What says so stands in the session before it becomes the current one: it is the newest line then.
        self._write(_Append(item.chat_key, (item.line,)), item.session)
        if self._stream is not None:  # the journal does not have it
            self._disk.sync(self._path(item.chat_key, item.session))
        sessions.point_to(self._disk, self._home(item.chat_key), item.session, known)
        return item.session

    def _copy(self, item: _Fork, known: list[str]) -> str:
        source = self._path(item.chat_key, sessions.current(self._disk, self._home(item.chat_key), known))
        session = self._named(item.chat_key, known)
        target = self._path(item.chat_key, session)
        # A name that is tidied away where a kill leaves it, and is no session until all of it is there.
        scratch = target.with_name(f".{session}.tmp")
        self._disk.replace(scratch, b"")
        with closing(self._disk.open(source)) as file:
            for begin in range(0, item.end, _COPIED):
                self._disk.append(scratch, file.read(begin, min(_COPIED, item.end - begin)))
            ended = not item.end or file.read(item.end - 1, 1) == b"\n"
        line = dumped(item.line, session)
        self._disk.append(scratch, line if ended else b"\n" + line, sync=True)
        self._disk.rename(scratch, target)
        return session

    def _begin(self, chat_key: ChatKey, known: list[str], line: TranscriptLine | None = None) -> str:
        session = self._named(chat_key, known)
        self._disk.replace(self._path(chat_key, session), dumped(line, session) if line is not None else b"")
        return session

    def _named(self, chat_key: ChatKey, known: list[str]) -> str:
        """The name of a session that is about to begin."""
        session = self._ids.ulid()
        if known and session <= known[-1]:
            # The clock went back over a restart; the newest session must still be the last by name.
            session = ulids.written((ulids.number_of(known[-1]) or 0) + 1)
        jsonl.tidy(self._disk, self._path(chat_key, session).parent)
        return session

    def _write(self, item: _Append, current: str) -> None:
        by_session: dict[str, dict[str, bytes]] = {}
        known = {uuid: raw for row in item.rows for uuid, raw in row.raws().items()}
        for line in item.lines:
            session = line.session_id or current
            if not ulids.FORM.fullmatch(session):
                raise ValueError("a session is named by a ULID")
            raw = known.get(line.uuid) or dumped(line, session)
            by_session.setdefault(session, {}).setdefault(line.uuid, raw)
        for session, lines in by_session.items():
            path = self._path(item.chat_key, session)
            tail = self._files.tail(path)
            fresh = {uuid: raw for uuid, raw in lines.items() if not self._files.has(path, uuid)}
            if fresh:
                self._files.append(path, list(fresh.values()), fresh, sync=self._stream is None, tail=tail)
