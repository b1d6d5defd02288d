"""[Try again] below the notice of a failure: the messages of the failed turn become one new message, once."""

from __future__ import annotations

from dataclasses import replace

from bot.contracts.approvals import QuestionButtons
from bot.contracts.environment import Clock, Ids
from bot.contracts.inbound import Inbound
from bot.contracts.journal import InboxRecord, Journal
from bot.gateway.access import Access
from bot.gateway.background import BackgroundTasks
from bot.gateway.delivery import Delivery
from bot.gateway.effects import EffectRunner
from bot.gateway.inbound_archive import InboundArchive
from bot.gateway.message_versions import plain
from bot.gateway.scheduler import InFlight

MEMBERS = 200
"""Messages of a chat that are looked at for those of one turn."""
RETRYING = "I try it again."
BEGUN = "I have begun to try that again already."
NOT_YOURS = "Only the person who asked can have me try that again."
UNKNOWN = "There is nothing here that I could try again. Please write it once more."


class Retries:
    """Each failed turn is tried again once, over restarts too: the new message has a key that is named after the turn."""

    def __init__(
        self,
        *,
        journal: Journal,
        archive: InboundArchive,
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
        name = press.command.args.strip() if press.command is not None else ""
        record, turn = await self._journal.inbound(name), await self._journal.turn(name)
        if record is None or turn is None or turn.state != "failed" or not _is_here(record, press):
            return UNKNOWN
        asked = record.inbound
        may = press.person == asked.person or self._access.is_operator(press.channel, press.user_id)
        if not may or not self._access.judge(asked).allowed:
            return NOT_YOURS
        fresh = await self._taken_in(await self._whole(asked))
        self._tasks.start(self._without_button(name))
        return RETRYING if fresh else BEGUN

    async def _whole(self, first: Inbound) -> Inbound:
        """All messages of a turn as one."""
        said = await self._journal.said_in(first.chat_key, limit=MEMBERS)
        joined = [
            one.inbound
            for one in reversed(said)
            if one.turn_id == first.request_id and one.state == "failed" and plain(one.inbound)
        ]
        parts = [first, *(one for one in joined if one.request_id != first.request_id)]
        return first.model_copy(
            update={
                "keys": (f"{first.channel}:again:{first.request_id}",),
                "request_id": self._ids.ulid(),
                "ts": int(self._clock.now() * 1000),
                "text": "\n".join(one.text for one in parts if one.text),
                "attachments": tuple(file for one in parts for file in one.attachments),
                "quoted": tuple(quoted for one in parts for quoted in one.quoted),
                "links": tuple(link for one in parts for link in one.links),
            }
        )

    async def _taken_in(self, inbound: Inbound) -> bool:
        """True where it is new. It is written down before it is queued, as what a channel brings."""
        self._in_flight.writing.add(inbound.request_id)
        try:
            fresh = await self._journal.receive(inbound)
            if fresh:
                self._archive.begin(inbound)
                self._effects.queue(inbound)
        finally:
            self._in_flight.writing.discard(inbound.request_id)
        return fresh

    async def _without_button(self, name: str) -> None:
        for row in await self._journal.deliveries(name):
            if row.buttons is not None and row.buttons.choices:
                await self._delivery.amend(replace(row, buttons=QuestionButtons(name, ())))


def _is_here(record: InboxRecord, press: Inbound) -> bool:
    return plain(record.inbound) and record.inbound.chat_key == press.chat_key
