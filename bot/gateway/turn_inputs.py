"""Reads what a turn begins with beside its message: what was said before, and the text of files."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping
from functools import partial
from typing import Any, TypeVar

from bot import errors, text
from bot.contracts.agent import Agent, LastTurn
from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.archive import GatewayArchive as Archive
from bot.contracts.channel import Channel
from bot.contracts.environment import Clock, Log, OperatorNotices
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, Quoted, SeenFile
from bot.contracts.journal import InboxRecord, Journal
from bot.core import quotes
from bot.core.access import InboundCleaner
from bot.core.attachments import FileReader
from bot.core.file_words import unread
from bot.features.conversations.earlier import RECENT_SECONDS
from bot.features.listening.before import CONTEXT_SECONDS, PlatformHistory, around
from bot.features.listening.participation import UnaddressedMessages
from bot.gateway.conversation import Turn
from bot.gateway.message_versions import original, outdated
from bot.words import say, sentence

MOST_UNEDITED = 4_096
DAY = 24 * 3_600.0
_AS_A_RULE = 2
"""Inbounds among which the one before a message is found, where no more has come."""
_LOOKED_AT = 20
"""Inbounds, and lines of one turn, that are looked at for it."""
_LONGEST = 4_000
"""Characters of one message of it."""
_ANEW = frozenset({"fork", "new", "resume"})
"""Commands after which another conversation goes on in a chat."""
_R = TypeVar("_R")


class TurnInputs:
    """Reads for turns, without what strangers said before."""

    def __init__(
        self,
        agent: Agent,
        channels: Mapping[str, Channel],
        files: FileReader,
        cleaner: InboundCleaner,
        *,
        heard: UnaddressedMessages,
        alerts: OperatorNotices,
        journal: Journal,
        archive: Archive,
        clock: Clock,
        log: Log,
    ) -> None:
        self._agent = agent
        self._journal = journal
        self._archive = archive
        self._clock = clock
        self._files = files
        self._cleaner = cleaner
        self._heard = heard
        self._alerts = alerts
        self._log = log
        self._tasks: dict[str, asyncio.Future[Any]] = {}
        self._platforms = PlatformHistory(channels, clock)
        self._unedited: OrderedDict[ChatKey, bool] = OrderedDict()
        """Conversations whose edits were asked for, in which none came since; True where there were none, so that the next turn
        need not wait for the disk to say so again.
        """

    def cancel(self, turn: Turn) -> None:
        """A turn is stopped: read nothing more for it."""
        if (reading := self._tasks.get(turn.first.request_id)) is not None:
            reading.cancel()

    def edited(self, chat_key: ChatKey) -> None:
        """An edit is on file: the next turn of its conversation asks for edits."""
        self._unedited.pop(chat_key, None)

    async def thread(self, turn: Turn) -> tuple[Quoted, ...]:
        """The earlier messages that a turn begins with; none where it was stopped meanwhile."""
        first = turn.first
        context = await self._unless_stopped(turn, partial(self._context, turn)) or ()
        if context and first.chat_type == "group":
            # Whose words they are is on file with it: they are found where their author is to be erased.
            self._journal.post.amend(first.model_copy(update={"quoted": (*first.quoted, *context)}))
        return context

    async def files(self, turn: Turn) -> bool:
        """Read the files of all its messages; whether these say anything then, or did before a crash."""
        for inbound in (one for one in turn.all if one.attachments):
            await self._unless_stopped(turn, partial(self.seen, turn, inbound))
        read = [one.read for inbound in turn.left for one in turn.seen.get(inbound.request_id, ())]
        if any(read) or any(inbound.says for inbound in turn.left):
            return True
        return turn.first.request_id in await self._agent.cut_off(turn.first.chat_key)

    async def seen(self, turn: Turn, inbound: Inbound) -> tuple[SeenFile, ...]:
        """The outcome of the files of a message of this turn; what was not read goes below its next answer. Of a message
        that is gone, nothing.
        """
        name = inbound.request_id
        if name in turn.withdrawn or name in turn.seen:
            return turn.seen[name] if name not in turn.withdrawn else ()
        try:
            seen = await self._files.read(inbound)
        finally:
            if name in turn.withdrawn:
                await self._files.forget(inbound)  # it came in after all else of it had been removed
        if name in turn.withdrawn:
            return ()
        turn.seen[name] = seen
        if words := unread(inbound.attachments, seen):
            turn.below.append(words)
        return seen

    def unshown(self, turn: Turn, artifacts: Collection[str], outcome: SeenFile) -> None:
        """As `contracts.agent.Arrivals.unshown`."""
        for inbound in turn.all:
            for file, seen in zip(inbound.attachments, turn.seen.get(inbound.request_id, ()), strict=False):
                if seen.shown is not None and seen.shown.artifact in {*artifacts} - turn.unshown:
                    turn.unshown.add(seen.shown.artifact)
                    turn.below.append(unread((file,), (outcome,)))

    async def _unless_stopped(self, turn: Turn, work: Callable[[], Coroutine[Any, Any, _R]]) -> _R | None:
        """Do something that a stop ends; None where there was one."""
        if turn.stopped:
            return None
        name = turn.first.request_id
        reading = self._tasks[name] = asyncio.ensure_future(work())
        try:
            await asyncio.wait([reading])
        finally:
            reading.cancel()
            del self._tasks[name]
        return None if reading.cancelled() else reading.result()

    async def _context(self, turn: Turn) -> tuple[Quoted, ...]:
        """The messages that a turn begins with, without those of strangers: what was said before, where the bot is new to a
        conversation or is mentioned in a group, or the last exchange of a direct chat; messages that were edited since their
        answer.
        """
        inbound = turn.first
        known = bool((await self._agent.describe(inbound.chat_key)).messages)
        mentioned = inbound.chat_type == "group" and inbound.addressed == "mention"
        earlier: tuple[Quoted, ...] = ()
        try:
            async with asyncio.timeout(CONTEXT_SECONDS):
                if known:
                    earlier = await self._edited(inbound)
                elif inbound.opens:
                    earlier = await self._last_exchange(inbound)
                if mentioned or not (known or inbound.opens):
                    earlier += await self._around(inbound, known=known)
        except (TimeoutError, errors.ShipmateError) as error:
            why = f"{type(error).__name__}: {error}"
            self._log.write("inbound", f"the earlier messages cannot be read: {why}", level="warn")
            if isinstance(error, errors.RightMissing):
                await self._tell(turn)  # operators have it from the channel
            elif isinstance(error, errors.ChannelRefused):
                self._alerts.tell(
                    f"history of {inbound.channel}",
                    sentence("operators.unseen", channel=inbound.channel, cause=error),
                )
        return self._cleaner.admitted(inbound, earlier)

    async def _tell(self, turn: Turn) -> None:
        """Tell the people of a chat once a day, below the answer, that its messages may not be read."""
        key = f"unread:{turn.first.chat_key.chat}"
        if await self._journal.once(key, self._clock.now(), DAY):
            turn.below.append(say("turn.unseen"))

    async def _around(self, inbound: Inbound, *, known: bool) -> tuple[Quoted, ...]:
        """Collect messages from before an inbound; in a `known` conversation since its last turn."""
        told = await self._platforms.before(inbound)
        since = await self._newest(inbound) if known else None
        return around(inbound, told, self._heard.before(inbound), since)

    async def _newest(self, inbound: Inbound) -> int:
        """The time of the last message of a person in a conversation before an inbound (ms)."""

        def later(line: ArchiveLine) -> bool:
            return line.request_id >= inbound.request_id

        query = HistoryQuery(limit=1, role="user", skip=later, everything=True, counted=False)
        lines = (await self._archive.search(inbound.chat_key, query)).lines
        return lines[-1].ts if lines else 0

    async def _edited(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """Messages as they read by now that were edited too late for their turn, since the turn before this one began."""
        chat_key = inbound.chat_key
        if self._unedited.get(chat_key):
            return ()
        self._unedited[chat_key] = False  # before the question: what comes behind it is not in the answer
        if len(self._unedited) > MOST_UNEDITED:
            self._unedited.popitem(last=False)
        edits = await self._edits_since_turn(inbound, _AS_A_RULE)
        if edits is None:
            edits = await self._edits_since_turn(inbound, _LOOKED_AT) or []
        newest = [edit for edit in edits if await self._counts(edit)]
        return tuple(map(quotes.edited, newest))

    async def _edits_since_turn(self, inbound: Inbound, limit: int) -> list[Inbound] | None:
        """The edits among the newest inbounds since the turn before this one began that covers them; None where that is not
        among them.
        """
        edits: list[Inbound] = []
        records = await self._journal.said_in(inbound.chat_key, limit=limit)
        if any(one.inbound.kind == "edit" for one in records):
            # Also where it has not ended yet, or is behind this message: it may be for the next turn.
            self._unedited.pop(inbound.chat_key, None)
        for one in records:
            said = one.inbound
            if said.request_id >= inbound.request_id or said.chat_key != inbound.chat_key:
                continue
            if one.turn_id == said.request_id and _covers_edits(one):
                break
            if said.kind == "edit" and one.state == "handled" and said.text.strip():
                edits.insert(0, said)
        else:
            if len(records) == limit < _LOOKED_AT:
                return None
        if inbound.chat_key in self._unedited:
            self._unedited[inbound.chat_key] = True
        return edits

    async def _counts(self, edit: Inbound) -> bool:
        """True where an edit is the newest of a message that was taken in."""
        records = await self._journal.about(edit.chat_key, edit.message_id or "")
        return original(edit, records) is not None and not outdated(edit, records)

    async def _last_exchange(self, inbound: Inbound) -> tuple[Quoted, ...]:
        """The newest turn of the last hour in the same direct chat that is still in mind; () where the newest conversation
        was begun anew since.
        """
        since = self._clock.now() - RECENT_SECONDS
        said = await self._journal.said_in(inbound.chat_key.chat, since=since, limit=_LOOKED_AT)
        earlier = {
            one.inbound.chat_key: one
            for one in reversed(said)
            if one.inbound.request_id < inbound.request_id and one.inbound.kind == "message"
        }
        earlier.pop(inbound.chat_key, None)
        for place, newest in sorted(earlier.items(), key=lambda one: one[1].inbound.request_id, reverse=True):
            last = await self._agent.last_turn(place)
            if last is not None:
                return await self._turn(place, last)
            if not newest.open:
                return ()
        return ()

    async def _turn(self, place: ChatKey, last: LastTurn) -> tuple[Quoted, ...]:
        """The messages of a turn, as quotes."""

        def other(line: ArchiveLine) -> bool:
            return line.request_id not in last.sources

        found = await self._archive.search(place, HistoryQuery(limit=_LOOKED_AT, skip=other, counted=False))
        return tuple(
            Quoted(
                user_id=line.user_id,
                text=text.shorten_middle(line.text, _LONGEST),
                user_name=(line.meta or {}).get("username"),
                ts=line.ts,
                from_self=line.role == "assistant",
                message_id=line.message_id,
                words_of=tuple(sorted(last.origin.people)),
                taint=last.origin.taint,
            )
            for line in found.lines
            if line.role in {"user", "assistant"}
        )


def _covers_edits(turn: InboxRecord) -> bool:
    """True of the first message of a turn, or of a command, before which no edit has to be told any more: the model was told then, or
    another conversation goes on since. What a turn was told that failed, was stopped or withdrawn may be in no view, and what says
    nothing asks no model.
    """
    command = turn.inbound.command
    if command is not None:
        return command.name in _ANEW
    return turn.state == "answered" and turn.inbound.says
