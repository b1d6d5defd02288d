"""Stops: who may end what runs in a place, and what goes with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bot import text
from bot.contracts.channel import Manifest
from bot.contracts.environment import Log, storage_errors_logged
from bot.contracts.inbound import Command, Inbound
from bot.contracts.journal import STOPPED as STOPPED_END
from bot.contracts.journal import Journal
from bot.core.access import Access
from bot.core.message_versions import is_thread_of, plain, stops
from bot.core.stop_words import asks_to_stop
from bot.gateway.backlog import Backlog
from bot.gateway.conversation import Close, Stop, Turn
from bot.gateway.effects import AppliedEffects, EffectRunner
from bot.gateway.turn_queue import TurnQueue
from bot.tools.permissions.display import named
from bot.words import paragraph, say

MOST_HEARD = 100
"""Stops that were carried out and are remembered for when they come again: those that could not be written down at first."""
PAGE = 500
"""Rows of the journal that are looked at together."""


@dataclass(slots=True)
class _SeenStop:
    """A stop that has come: when it did first (ms), and whether it has ended anything."""

    since: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class _Ended:
    """The outcome of a stop: whether it has ended anything, and the names of commands that have not run for it."""

    anything: bool = False
    commands: tuple[str, ...] = ()


class Stops:
    """Ends turns, and what their person has waiting."""

    def __init__(
        self,
        *,
        journal: Journal,
        turn_queue: TurnQueue,
        access: Access,
        manifests: Mapping[str, Manifest],
        effects: EffectRunner,
        backlog: Backlog,
        log: Log,
    ) -> None:
        self._journal = journal
        self._turn_queue = turn_queue
        self._access = access
        self._manifests = manifests
        self._effects = effects
        self._backlog = backlog
        self._log = log
        self.seen: dict[tuple[str, ...], _SeenStop] = {}

    def meant(self, inbound: Inbound) -> Inbound:
        """A message as what it means: “stop” alone is the command in a thread, elsewhere while a turn runs there, and when it
        comes again after that. To a question of a tool it is an answer like any other.
        """
        if not plain(inbound) or inbound.attachments or inbound.brought or not asks_to_stop(inbound.text):
            return inbound
        if inbound.opens:
            # In a direct chat the word would begin a conversation of its own: it is about those that were there before.
            ended = inbound.keys in self.seen or self._runs_beside(inbound)
            place = {"command": Command(name="stop"), "chat_key": inbound.chat_key.chat}
            return inbound.model_copy(update=place) if ended else inbound
        turn = self._turn(inbound, None)
        if turn is not None and not turn.over:
            if turn.waits_for == "question" and inbound.person == turn.first.person:
                return inbound
        elif inbound.chat_key.thread is None and inbound.keys not in self.seen:
            return inbound
        return inbound.model_copy(update={"command": Command(name="stop")})

    def _runs_beside(self, inbound: Inbound) -> bool:
        """True where a turn of its person runs in a conversation of the same direct chat."""
        turns = [chat.turn for key, chat in self._turn_queue.chats() if inbound.chat_key.chat.contains(key)]
        return any(
            turn is not None and not turn.over and turn.first.person == inbound.person for turn in turns
        )

    async def stop_blocked(self) -> None:
        """Stop what runs for people who are kept out by now, as if they had said so."""
        turns = [chat.turn for _, chat in self._turn_queue.chats()]
        for first in [one.first for one in turns if one is not None and not (one.stopped or one.over)]:
            if self._access.standing(first.person, first.chat_id, first.chat_type).reason == "blocked":
                # Its id comes after every other.
                stop = {"request_id": "Z" * 26, "keys": (f"blocked:{first.request_id}",)}
                await self.stop(first.model_copy(update=stop))

    async def at_once(self, inbound: Inbound) -> None:
        """Carry out a stop although it cannot be written down. Its platform brings it again, maybe often and late: then it
        is answered, and reaches nothing that was said after it.
        """
        if not inbound.is_stop:
            return
        before, heard = self._hear(inbound)
        turn = self._turn(inbound, before)
        ended = await self._here(inbound, turn, before)
        if not ended.anything and turn is None and not heard.ended:
            ended = await self._below(inbound, before)
        heard.ended = heard.ended or ended.anything

    async def stop(self, inbound: Inbound) -> str:
        """Stop the turn of this chat or place, and what the same person has waiting there; what to say of it.

        In a group a turn is its person's, and the operators', to stop. A command that finds nothing in its own place
        ends what its person has in the threads of that.
        """
        before, heard = self._hear(inbound)
        turn = self._turn(inbound, before)
        count = self._backlog.stop(inbound)
        ended = await self._here(inbound, turn, before)
        if count:
            await self._in_the_journal(inbound)
        found = ended.anything or bool(count) or heard.ended
        if turn is None and not found:
            ended = await self._below(inbound, before)
        heard.ended = found or ended.anything
        goes_on = self.goes_on(inbound, before)
        if heard.ended:
            return self._told(inbound, ended, goes_on if turn is not None else "")
        return goes_on or say("stop.nothing")

    def goes_on(self, inbound: Inbound, heard: _SeenStop | None = None) -> str:
        """The sentence about a turn of somebody else that a stop does not end, here or in a thread of this place; "" where none runs."""
        turn, chats = self._turn(inbound, heard), self._turn_queue.chats()
        turns = (
            [turn] if turn is not None else [chat.turn for key, chat in chats if is_thread_of(inbound, key)]
        )
        for one in turns:
            if one is not None and not (one.over or one.stopped or one.first.person == inbound.person):
                return say("stop.not_yours", who=f"`{named(one.first.user_name or one.first.user_id)}`")
        return ""

    def _told(self, inbound: Inbound, ended: _Ended, goes_on: str) -> str:
        prefix = self._manifests[inbound.channel].command_prefix
        dropped = ", ".join(f"{prefix}{name}" for name in dict.fromkeys(ended.commands))
        told = [say("stop.dropped", commands=dropped)] if dropped else []
        return paragraph(
            say("stop.waiting" if goes_on else "stop.stopped"), *told, *([goes_on] if goes_on else [])
        )

    def _hear(self, inbound: Inbound) -> tuple[_SeenStop | None, _SeenStop]:
        """The record of a stop that has come before, None where it has not; and the record from now on."""
        before = self.seen.get(inbound.keys)
        heard = self.seen[inbound.keys] = before or _SeenStop(inbound.ts)
        if len(self.seen) > MOST_HEARD:
            del self.seen[next(iter(self.seen))]
        return before, heard

    async def _here(self, inbound: Inbound, turn: Turn | None, heard: _SeenStop | None) -> _Ended:
        """End a turn, and what its person has waiting in this place."""
        # What waits for this place may be in the chat above it, as the turn may.
        chat_keys = [key for key, _ in self._turn_queue.chats() if key.contains(inbound.chat_key)]
        if turn is not None and turn.first.chat_key not in chat_keys:
            chat_keys.append(turn.first.chat_key)
        ends = turn.first.chat_key if turn is not None and self._may(inbound, turn) else None
        since = heard.since if heard is not None else None
        # Out of all queues first, so that none of it begins.
        begun = self._effects.begin(
            effect
            for key in chat_keys
            for effect in self._turn_queue.apply(key, Stop(inbound, turn=key == ends, since=since))
        )
        return await self._finished(begun)

    async def _finished(self, begun: AppliedEffects) -> _Ended:
        commands = [one.inbound.command for one in begun.closes]
        names = tuple(text.preview(one.name, 40) for one in commands if one is not None)
        return _Ended(await self._effects.finish(begun), names)

    async def _in_the_journal(self, stop: Inbound) -> None:
        """End what the journal alone has of a person: after a crash nobody knows of the stop any more."""
        after = ""
        # This process knows of the stop all the same.
        with storage_errors_logged(self._log, "a change could not be recorded"):
            while rows := await self._journal.unfinished(PAGE, after):
                after = rows[-1].inbound.request_id
                known = set(self._turn_queue.request_ids())
                reached = [
                    row
                    for row in (one.inbound for one in rows)
                    if row.kind != "delete" and not row.is_stop and row.request_id < stop.request_id
                    if stops(stop, row) and row.request_id not in known
                ]
                await self._effects.finish(
                    AppliedEffects(closes=[Close(row, STOPPED_END) for row in reached])
                )

    async def _below(self, inbound: Inbound, heard: _SeenStop | None) -> _Ended:
        """Stop what a person has in the threads of a place: some platforms take commands outside of threads only."""
        if inbound.command is None:
            return _Ended()
        since = heard.since if heard is not None else None
        begun = self._effects.begin(
            effect
            for key, _ in self._turn_queue.chats()
            if is_thread_of(inbound, key)
            for effect in self._turn_queue.apply(key, Stop(inbound, "threads", since=since))
        )
        return await self._finished(begun)

    def _turn(self, inbound: Inbound, heard: _SeenStop | None) -> Turn | None:
        """The turn that a stop is about; one of somebody else once at most, however often it is brought."""
        turn = self._turn_queue.turn(inbound.chat_key)
        if turn is None:
            turn = next((chat.turn for _, chat in self._turn_queue.chats() if chat.reached_by(inbound)), None)
        if turn is None or turn.first.request_id > inbound.request_id:
            return None
        if heard is not None and turn.first.ts > heard.since:
            return None
        return None if heard is not None and heard.ended and not stops(inbound, turn.first) else turn

    def _may(self, inbound: Inbound, turn: Turn) -> bool:
        return (
            inbound.chat_type == "direct"
            or inbound.person == turn.first.person
            or self._access.is_operator(inbound.person)
        )
