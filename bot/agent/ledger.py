"""The running turn's way into the transcript: every line written as it happens, in one parent chain."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from bot import errors
from bot.contracts.environment import Clock, Ids, Log
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import (
    Boundary,
    Event,
    LastingFacts,
    MessageEvent,
    Meta,
    TranscriptLine,
    TurnEnd,
    TurnStart,
    newer,
)
from bot.history.transcript.reading import LoadedLines
from bot.history.transcript.sessions import Point
from bot.history.transcript.store import Transcript

BACKLOG_LIMIT = 1_000  # lines kept in memory while the disk refuses them


@dataclass(slots=True)
class ParentChain:
    """Tracks the parent of the next transcript line, by the same rules while lines are written and while they are loaded."""

    tip: str | None = None
    """The message that the next one follows."""
    turn: str | None = None
    """The line that began the turn which has not ended."""
    facts: LastingFacts = field(default_factory=LastingFacts)
    """A boundary repeats them, so that no reader looks before it."""
    _before: str | None = None
    _own: set[str] = field(default_factory=set)  # messages of this turn since the last boundary

    def follow(self, line: TranscriptLine) -> None:
        """One line more."""
        event = line.event
        if isinstance(event, Boundary) and event.kept is not None:
            self.facts = newer(LastingFacts(), event.kept)
        if isinstance(event, LastingFacts):
            self.facts = newer(self.facts, event)
        if isinstance(event, MessageEvent):
            self.tip = line.uuid
            self._own.add(line.uuid)
            if event.role == "assistant":
                self.facts = replace(self.facts, answered_at=line.ts)
        elif isinstance(event, TurnStart):
            self.close()
            self.turn, self._before, self._own = line.uuid, self.tip, set()
        elif isinstance(event, TurnEnd):
            if event.status == "withdrawn":
                self.close()
            self.turn = None
        elif isinstance(event, Boundary):
            self.tip = self._before = None
            self._own = set()

    def rewind(self, parent: str) -> None:
        """Go on from an earlier message of this turn; a boundary behind it has broken the chain."""
        self.tip = parent if parent in self._own else None

    def close(self) -> None:
        """The turn that has not ended is a dead branch: what comes next follows what stood before it."""
        if self.turn is not None:
            self.tip = self._before


class Ledger:
    """The transcript of one chat. What is added counts at once and is on its way to the disk, in order; who must know
    that it arrived awaits `durable`, or `flush` where it must be in its file. So a turn that is stopped in the middle of a write leaves
    memory and disk alike.

    A disk that refuses lines does not stop the conversation: they are owed, written before the next ones, and the
    operator is told.
    """

    def __init__(
        self, chat_key: ChatKey, transcript: Transcript, *, ids: Ids, clock: Clock, log: Log
    ) -> None:
        self._chat_key = chat_key
        self._transcript = transcript
        self._ids = ids
        self._clock = clock
        self._log = log
        self.chain = ParentChain()
        self.begins_at: str | None = None
        self._owed: list[TranscriptLine] = []
        self._writing: asyncio.Task[None] | None = None
        self._flushing = 0
        """How many wait for the file."""
        self._confirmed: set[str] = set()
        """Uuids of lines that are owed to the file and on disk in the journal: something rests on them, so they are never given up."""
        self._refused = False
        """True where the disk has refused the last lines for their file. What has to wait there too long is given up, by the
        journal too, so that nothing may rest on it.
        """

    @property
    def has_unwritten_lines(self) -> bool:
        """True if lines are not on disk yet."""
        return bool(self._owed)

    @property
    def facts(self) -> LastingFacts:
        """Facts of the chat as a whole, from the newest lines."""
        return self.chain.facts

    @property
    def running(self) -> str | None:
        """The uuid of the line that began the turn which has not ended."""
        return self.chain.turn

    async def load(self, *, whole: bool = False) -> LoadedLines:
        """Load the effective part of the current session (`Transcript.read`), or all of it; the chain goes on from the last
        message of a finished turn.
        """
        before = list(self._owed)  # they may reach the disk once it has been read, and before this goes on
        loaded = await self._transcript.read(self._chat_key, whole=whole)
        on_disk = {line.uuid for line in loaded.lines}
        owed = list({line.uuid: line for line in (*before, *self._owed)}.values())
        if loaded.base is not None:
            # What is owed from before a boundary that did arrive has arrived too.
            owed = owed[next((at for at, one in enumerate(owed) if one.uuid == loaded.base.uuid), 0) :]
        loaded.lines += [line for line in owed if line.uuid not in on_disk]
        self.begins_at = loaded.base.uuid if loaded.base is not None else None
        self.chain = ParentChain()
        for line in loaded.lines:
            self.chain.follow(line)
        self.chain.close()
        return loaded

    async def ended(self, request_id: str) -> TurnEnd | None:
        """Return the end of a turn that is older than the loaded lines; None if it did not end, or if no older line was left out."""
        if self.begins_at is None or request_id > self.begins_at:
            return None
        return await self._transcript.ended(self._chat_key, request_id)

    async def new_session(self) -> None:
        """Begin an empty transcript; the old one stays on disk. Raises `errors.StorageError`; nothing has changed
        then.
        """
        await self.settled()
        model, effort = self.facts.chosen_model, self.facts.chosen_effort
        chosen = LastingFacts(chosen_model=model, chosen_effort=effort)
        first = None
        if chosen != LastingFacts():
            first = self._line(Meta(reason="new", chosen_model=model, chosen_effort=effort), None)
        await self._transcript.new_session(self._chat_key, first)
        self.chain, self.begins_at = ParentChain(facts=chosen), None

    async def choose(self, choice: Meta) -> None:
        """Write down which model or effort was chosen for the chat. Raises `errors.StorageError`; nothing was chosen then."""
        await self.settled()
        line = self._line(choice, None)
        await self._transcript.write(self._chat_key, line)
        self.chain.follow(line)

    async def resume(self, session: str, event: Meta) -> None:
        """Let an earlier session be the current one and say so in it; what this holds is to be loaded anew. Raises
        `errors.StorageError`; nothing has changed then.
        """
        await self.settled()
        await self._transcript.resume(self._chat_key, session, self._line(event, None))

    async def fork(self, point: Point, event: Meta) -> str:
        """The same for a new session, a copy of the current one up to a point; returns its id."""
        await self.settled()
        return await self._transcript.fork(self._chat_key, point, self._line(event, None))

    async def settled(self) -> None:
        """Wait until every line is in its file. Raises `errors.StorageError` if the disk refuses."""
        if not await self.flush():
            raise errors.StorageError("the transcript cannot be written")

    def add(self, event: Event, request_id: str | None = None) -> TranscriptLine:
        """Add an event; returns its line. Messages alone are parents; a boundary breaks the chain of them, and a
        turn that was withdrawn is a dead branch.
        """
        line = self._line(event, request_id)
        self.chain.follow(line)
        self._owed.append(line)
        self._begin_writing()
        return line

    def rewind(self, parent: str) -> None:
        """Go on from an earlier message: what came after it becomes a dead branch."""
        self.chain.rewind(parent)

    async def durable(self) -> bool:
        """Wait until every line is on disk, which may be in the journal alone: the next start would bring it to its file. False
        where the disk refuses.
        """
        self._begin_writing()
        owed = list(self._owed)
        # A file that has fallen far behind is waited for: what is owed to it must not grow without end.
        ahead = not self._refused and len(owed) <= BACKLOG_LIMIT
        if ahead and self._transcript.ahead(self._chat_key, owed):
            # Before the journal answers: what is given up while it writes would be missing behind its yes.
            fresh = {line.uuid for line in owed} - self._confirmed
            self._confirmed |= fresh
            if await self._transcript.kept(owed):
                return True
            self._confirmed -= fresh
        return await self.flush()

    async def flush(self) -> bool:
        """Wait until every line is in its file; False where the disk refuses."""
        self._begin_writing()
        writing = self._writing
        self._flushing += 1
        try:
            if writing is not None:
                await self._transcript.flush()
                await asyncio.shield(writing)
        finally:
            self._flushing -= 1
        return not self._owed

    async def queued(self) -> None:
        """Return once every line is on its way to the disk before whatever the journal is told from now on. Where their file
        refuses them they may be given up once `BACKLOG_LIMIT` others have come, which are more than a turn has of its own.
        """
        if not self._transcript.ahead(self._chat_key, self._owed):
            await self.flush()

    def _begin_writing(self) -> None:
        if self._owed and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._drain())
            self._writing.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        # Its context has all of the turn that began it, which would stay in memory as long as the chat.
        if self._writing is task:
            self._writing = None

    async def _drain(self) -> None:
        """Write what there is, and what came meanwhile; the first refusal ends it until the next line."""
        while self._owed:
            lines = list(self._owed)
            try:
                await self._transcript.append(self._chat_key, lines, hurry=self._flushing > 0)
            except errors.StorageError as error:
                self._log.write(
                    "error",
                    "the transcript cannot be written",
                    level="error",
                    cause=str(error),
                    waiting=len(self._owed),
                )
                self._refused = True
                self._give_up()
                return
            self._refused = False
            del self._owed[: len(lines)]
            self._confirmed.difference_update(line.uuid for line in lines)

    def _give_up(self) -> None:
        """Let the oldest lines go where too many are owed."""
        old, new = self._owed[:-BACKLOG_LIMIT], self._owed[-BACKLOG_LIMIT:]
        self._transcript.give_up([line for line in old if line.uuid not in self._confirmed])
        self._owed = [*(line for line in old if line.uuid in self._confirmed), *new]

    def _line(self, event: Event, request_id: str | None) -> TranscriptLine:
        return TranscriptLine(
            uuid=self._ids.ulid(),
            parent_uuid=None if isinstance(event, Boundary | Meta) else self.chain.tip,
            ts=int(self._clock.now() * 1000),
            chat_key=self._chat_key,
            request_id=request_id,
            event=event,
        )
