"""The running turn's way into the transcript: every line written as it happens, in one parent chain."""

from __future__ import annotations

import asyncio

from bot import errors
from bot.contracts import Clock, Ids, Json, Log, Message
from bot.history.transcript import LineType, Transcript, TranscriptLine

BACKLOG_LIMIT = 1_000  # lines kept in memory while the disk refuses them


class Ledger:
    """The transcript of one chat. A disk that refuses lines does not stop the conversation: they are kept in
    memory and written before the next ones, and the operator is told.

    With `wait=False` a line is on its way to the disk and not waited for: those behind it come after it, and
    whoever waits for one of them has waited for it too.
    """

    def __init__(self, chat_key: str, transcript: Transcript, *, ids: Ids, clock: Clock, log: Log) -> None:
        self._chat_key = chat_key
        self._transcript = transcript
        self._ids = ids
        self._clock = clock
        self._log = log
        self._parent: str | None = None
        self._unwritten: list[TranscriptLine] = []
        self._writing: asyncio.Task[None] | None = None

    async def load(self) -> list[TranscriptLine]:
        """The lines of the current session; the chain goes on from the last message of a finished turn."""
        lines = await self._transcript.load(self._chat_key)
        pending: str | None = None
        for line in lines:
            if line.type in {"user", "assistant"}:
                pending = line.uuid
            elif line.type == "turn_start":
                pending = self._parent
            elif line.type == "turn_end":
                self._parent = pending
            elif line.type == "boundary":
                self._parent = None
        return lines

    async def new_session(self) -> None:
        """Begin an empty transcript; the old one stays on disk."""
        await self._written()
        self._unwritten.clear()
        self._parent = None
        await self._transcript.new_session(self._chat_key)

    async def message(
        self, request_id: str, message: Message, sources: tuple[str, ...] = (), *, wait: bool = True
    ) -> str:
        """Append a message; returns its uuid."""
        kind: LineType = "assistant" if message["role"] == "assistant" else "user"
        data: Json | None = {"sources": list(sources)} if sources else None
        line = self._line(kind, request_id, message=message, data=data)
        self._parent = line.uuid
        await self._write(line, wait=wait)
        return line.uuid

    async def mark(
        self, kind: LineType, request_id: str | None, data: Json | None = None, *, wait: bool = True
    ) -> None:
        """Append a line that is no message. A boundary breaks the parent chain; the others are never parents."""
        line = self._line(kind, request_id, data=data)
        if kind == "boundary":
            line = line.model_copy(update={"parent_uuid": None})
            self._parent = None
        await self._write(line, wait=wait)

    def rewind(self, parent: str | None) -> None:
        """Go on from an earlier message: what came after it becomes a dead branch."""
        self._parent = parent

    @property
    def tip(self) -> str | None:
        """The uuid that the next message will have as its parent."""
        return self._parent

    def _line(
        self,
        kind: LineType,
        request_id: str | None,
        *,
        message: Message | None = None,
        data: Json | None = None,
    ) -> TranscriptLine:
        return TranscriptLine(
            uuid=self._ids.ulid(),
            parent_uuid=self._parent,
            type=kind,
            ts=int(self._clock.now() * 1000),
            chat_key=self._chat_key,
            request_id=request_id,
            message=message,
            data=data,
        )

    async def _write(self, line: TranscriptLine, *, wait: bool) -> None:
        self._unwritten.append(line)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._drain())
        if wait:
            await self._written()

    async def _written(self) -> None:
        """Until every line is on disk, or the disk has refused."""
        if self._writing is not None:
            await asyncio.shield(self._writing)

    async def _drain(self) -> None:
        """Write what there is, and what came meanwhile; the first refusal ends it until the next line."""
        while self._unwritten:
            lines = list(self._unwritten)
            try:
                await self._transcript.append(self._chat_key, lines)
            except errors.StorageError as error:
                self._log.write(
                    "error",
                    "the transcript cannot be written",
                    level="error",
                    cause=str(error),
                    waiting=len(self._unwritten),
                )
                del self._unwritten[:-BACKLOG_LIMIT]
                return
            del self._unwritten[: len(lines)]
