"""[Try again] below the notice of a failure, and [Answer again] below an answer whose question was edited since: the messages of
the turn become one new message, once.
"""

from __future__ import annotations

from bot.contracts.approvals import QuestionButtons
from bot.contracts.environment import Clock, Ids
from bot.contracts.inbound import Command, Inbound
from bot.contracts.journal import InboxRecord, InboxState, Journal
from bot.contracts.outbound import OutboxRow
from bot.core.access import Access
from bot.core.message_versions import plain
from bot.features.retries.past_turn import as_one
from bot.gateway.background import BackgroundTasks
from bot.gateway.backlog import InFlight
from bot.gateway.conversation import Turn
from bot.gateway.delivery import Delivery
from bot.gateway.effects import EffectRunner, only_reply
from bot.gateway.inbound_archiver import InboundArchiver
from bot.gateway.message_versions import as_changed, newest, on_file
from bot.words import say

MEMBERS = 200
"""Messages of a chat that are looked at for those of one turn."""


class Retries:
    """Each failed turn is tried again once, and each edit answered once, over restarts too: the new message has a key that is
    named after it.
    """

    def __init__(
        self,
        *,
        journal: Journal,
        archive: InboundArchiver,
        access: Access,
        effects: EffectRunner,
        delivery: Delivery,
        in_flight: InFlight,
        tasks: BackgroundTasks,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._journal = journal
        self._archive = archive
        self._access = access
        self._effects = effects
        self._delivery = delivery
        self._in_flight = in_flight
        self._tasks = tasks
        self._clock = clock
        self._ids = ids

    async def run(self, press: Inbound) -> str:
        """Try the turn again whose notice has the button; returns what to tell the person who pressed it. It has the rights of
        whoever asked, so nobody else may press but operators. Raises `errors.StorageError`.
        """
        name = press.args
        record, turn = await self._journal.inbound(name), await self._journal.turn(name)
        if record is None or turn is None or turn.state != "failed" or not _is_here(record, press):
            return say("retry.unknown")
        asked = record.inbound
        may = press.person == asked.person or self._access.is_operator(press.person)
        if not may or not self._access.judge(asked).allowed:
            return say("retry.not_yours")
        whole = await self._whole(asked, "failed")
        if whole is None:
            return say("retry.unknown")
        key = f"{asked.channel}:again:{name}"
        fresh = await self._taken_in(whole.model_copy(update={"keys": (key,)}))
        self._tasks.start(self._without_button(name))
        return say("retry.trying") if fresh else say("retry.begun")

    async def renew(self, press: Inbound) -> str:
        """Answer the turn anew whose question was edited, in the place of its answer; as `run`."""
        name = press.args
        edit = await self._journal.inbound(name)
        records = await on_file(self._journal, edit.inbound) if edit is not None else []
        about = newest(edit.inbound, records) if edit is not None else None
        if about is None or not _is_here(about, press):
            return say("retry.unknown")
        asked, turn, key = about.inbound, about.turn_id or "", f"{press.channel}:renew:{name}"
        may = press.person == asked.person or self._access.is_operator(press.person)
        if not may or not self._access.judge(asked).allowed:
            return say("retry.renew_not_yours")
        if key in asked.keys:
            return say("retry.renewed")
        first, answer = await self._journal.inbound(turn), only_reply(await self._journal.deliveries(turn))
        whole = await self._whole(first.inbound, "answered") if first is not None else None
        if answer is None or whole is None:
            return say("retry.unknown")
        facts = {"keys": (key,), "renews": answer.message_id}
        decided = answer.offer(QuestionButtons(name, ()))
        fresh = await self._taken_in(whole.model_copy(update=facts), decided)
        return say("retry.renewing") if fresh else say("retry.renewed")

    async def anew(self, turn: Turn, press: Inbound) -> None:
        """After a new conversation, what the person of a turn said in words of their own is a message, without quotes and files."""
        words = "\n".join(filter(None, (one.text for one in turn.left)))
        none = {"message_id": None, "answers": None, "renews": None, "quoted": (), "attachments": ()}
        for command, said in ((Command(name="new"), ""), *([(None, words)] if words else [])):
            keys = (f"{press.channel}:{'new' if command else 'anew'}:{press.args}",)
            fresh = {"command": command, "text": said, "keys": keys, "addressed": "command", "ts": press.ts}
            more = none | fresh | {"request_id": self._ids.ulid()}
            await self._taken_in(turn.first.model_copy(update=more))

    async def _whole(self, first: Inbound, state: InboxState) -> Inbound | None:
        """All messages of a turn as one, as their authors have edited them since; None where nothing is left of them."""
        said = await self._journal.said_in(first.chat_key, limit=MEMBERS)
        joined = [
            one.inbound
            for one in reversed(said)
            if one.turn_id == first.request_id and one.state == state and plain(one.inbound)
        ]
        members = [first, *(one for one in joined if one.request_id != first.request_id)]
        current = [as_changed(one, await on_file(self._journal, one)) for one in members]
        parts = [one for one in current if one is not None]
        if not parts:
            return None
        fresh = {"request_id": self._ids.ulid(), "ts": int(self._clock.now() * 1000)}
        return as_one(first, parts).model_copy(update=fresh)

    async def _taken_in(self, inbound: Inbound, amended: OutboxRow | None = None) -> bool:
        """True where it is new. It is written down before it is queued, as what a channel brings; between them a message is
        `amended`, whose place its answer takes.
        """
        self._in_flight.writing.add(inbound.request_id)
        try:
            fresh = await self._journal.receive(inbound)
            if fresh:
                if amended is not None:
                    await self._delivery.amend(amended)
                self._archive.begin(inbound)
                self._effects.queue(inbound)
        finally:
            self._in_flight.writing.discard(inbound.request_id)
        return fresh

    async def _without_button(self, name: str) -> None:
        for row in await self._journal.deliveries(name):
            if row.message_id is not None and row.buttons is not None and row.buttons.choices:
                await self._delivery.amend(row.offer(QuestionButtons(name, ())))


def _is_here(record: InboxRecord, press: Inbound) -> bool:
    return plain(record.inbound) and record.inbound.chat_key == press.chat_key
