"""The running turn's way into the transcript: every line written as it happens, in one parent chain."""

from __future__ import annotations

import asyncio

from bot import errors
from bot.contracts import Clock, Ids, Json, Log, Message
from bot.history.transcript import LineType, Transcript, TranscriptLine

BACKLOG_LIMIT = 1_000  # lines kept in memory while the disk refuses them


class Ledger:
    """The transcript of one chat. What is added counts at once and is on its way to the disk, in order; who must know
    that it arrived awaits `flush`. So a turn that is stopped in the middle of a write leaves memory and disk alike.

    A disk that refuses lines does not stop the conversation: they are owed, written before the next ones, and the
    operator is told.
    """

    def __init__(self, chat_key: str, transcript: Transcript, *, ids: Ids, clock: Clock, log: Log) -> None:
        self._chat_key = chat_key
        self._transcript = transcript
        self._ids = ids
        self._clock = clock
        self._log = log
        self._parent: str | None = None
        self._owed: list[TranscriptLine] = []
        self._writing: asyncio.Task[None] | None = None

    @property
    def owes(self) -> bool:
        """Whether lines are not on disk yet."""
        return bool(self._owed)

    async def load(self) -> list[TranscriptLine]:
        """The lines of the current session; the chain goes on from the last message of a finished turn."""
        lines = await self._transcript.load(self._chat_key)
        on_disk = {line.uuid for line in lines}
        lines += [line for line in self._owed if line.uuid not in on_disk]
        self._parent = pending = None
        for line in lines:
            if line.type in {"user", "assistant"}:
                pending = line.uuid
            elif line.type == "turn_start":
                pending = self._parent
            elif line.type == "turn_end":
                self._parent = pending
            elif line.type == "boundary":
                self._parent = pending = None
        return lines

    async def new_session(self) -> None:
        """Begin an empty transcript; the old one stays on disk. Raises `errors.StorageError`; nothing has changed
        then.
        """
        if not await self.flush():
            raise errors.StorageError("the transcript cannot be written")
        await self._transcript.new_session(self._chat_key)
        self._parent = None

    def message(self, request_id: str, message: Message, data: Json | None = None) -> str:
        """Add a message, with facts about it; returns its uuid."""
        kind: LineType = "assistant" if message["role"] == "assistant" else "user"
        self._parent = self._add(kind, request_id, message=message, data=data)
        return self._parent

    def mark(self, kind: LineType, request_id: str | None, data: Json | None = None) -> None:
        """Add a line that is no message. A boundary breaks the parent chain; the others are never parents."""
        if kind == "boundary":
            self._parent = None
        self._add(kind, request_id, data=data)

    def rewind(self, parent: str | None) -> None:
        """Go on from an earlier message: what came after it becomes a dead branch."""
        self._parent = parent

    @property
    def tip(self) -> str | None:
        """The uuid that the next message will have as its parent."""
        return self._parent

    async def flush(self) -> bool:
        """Wait until every line is on disk; False where the disk refuses."""
        self._begin_writing()
        if self._writing is not None:
            await asyncio.shield(self._writing)
        return not self._owed

    def _begin_writing(self) -> None:
        if self._owed and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        """Write what there is, and what came meanwhile; the first refusal ends it until the next line."""
        while self._owed:
            lines = list(self._owed)
            try:
                await self._transcript.append(self._chat_key, lines)
            except errors.StorageError as error:
                self._log.write(
                    "error",
                    "the transcript cannot be written",
                    level="error",
                    cause=str(error),
                    waiting=len(self._owed),
                )
                del self._owed[:-BACKLOG_LIMIT]
                return
            del self._owed[: len(lines)]

    def _add(
        self,
        kind: LineType,
        request_id: str | None,
        *,
        message: Message | None = None,
        data: Json | None = None,
    ) -> str:
        line = TranscriptLine(
            uuid=self._ids.ulid(),
            parent_uuid=self._parent,
            type=kind,
            ts=int(self._clock.now() * 1000),
            chat_key=self._chat_key,
            request_id=request_id,
            message=message,
            data=data,
        )
        self._owed.append(line)
        self._begin_writing()
        return line.uuid
