"""Edits and deletions: before a message's turn they replace or withdraw it, during it they steer or stop, after it they
are recorded. What comes before its message is on file, and is found when that comes.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

from bot.contracts.inbound import Inbound
from bot.contracts.journal import Inbox, InboxRecord
from bot.gateway.arrears import Arrears
from bot.gateway.lanes import Lanes
from bot.gateway.queue_modes import person, same_message
from bot.gateway.running import Running, Turn

Rest = Callable[[], Awaitable[None]]
"""What is left to do."""


def revised(message: Inbound, edit: Inbound) -> Inbound:
    """A message as its author changed it; of an album, one item."""
    changed: dict[str, object] = {
        "text": edit.text,
        "command": edit.command,
        "attachments": edit.attachments,
        # What it answered is not told again with every edit; what it brings is.
        "quoted": edit.quoted or tuple(one for one in message.quoted if not one.brought),
        "links": edit.links,
    }
    if edit.message_id in message.items:
        changed |= _album(message, edit, edit.message_id)
    return message.model_copy(update=changed)


def _album(message: Inbound, edit: Inbound, item: str) -> dict[str, object]:
    """Each item of an album has one attachment, and perhaps words."""
    items = {**message.items, item: edit.items.get(item, edit.text)}
    at = list(items).index(item)
    files, new = list(message.attachments), edit.attachments[at:] if edit.items else edit.attachments
    if new and len(files) == len(items):
        files[at] = new[0]
    return {"items": items, "text": "\n".join(filter(None, items.values())), "attachments": tuple(files)}


def whole(message: Inbound, edit: Inbound) -> Inbound:
    """An edit of one item of an album as the new words of all of it, under its name."""
    if edit.message_id not in message.items or edit.items:
        return edit
    return edit.model_copy(update=_album(message, edit, edit.message_id) | {"message_id": message.message_id})


def completed(edit: Inbound, records: Sequence[InboxRecord]) -> Inbound:
    """An edit of one item of an album as the new words of all of it, from what is on file. Its time is that of the newest
    edit in it: what takes the place of the others, in whatever order they came.
    """
    record = original(edit, records)
    if record is None or edit.message_id not in record.inbound.items or edit.items:
        return edit
    earlier = [one.inbound for one in records if one.inbound.request_id < edit.request_id]
    edits = [one for one in earlier if one.kind == "edit" and same_message(one, record.inbound)]
    folded = _folded(record.inbound, [*edits, edit])
    fields = {name: getattr(folded, name) for name in ("message_id", "items", "text", "attachments")}
    return edit.model_copy(update={**fields, "ts": max(one.ts for one in [*edits, edit])})


def _folded(message: Inbound, edits: Iterable[Inbound]) -> Inbound:
    # Of two edits in one second the one that came later is the newer.
    ordered = sorted(edits, key=lambda edit: edit.ts)
    return functools.reduce(revised, ordered if message.items else ordered[-1:], message)


async def on_file(journal: Inbox, inbound: Inbound) -> list[InboxRecord]:
    """What is on file about a message, of an album about all its items. Raises `errors.StorageError`."""
    if inbound.message_id is None:
        return []
    found = await _about(journal, inbound, inbound.items or (inbound.message_id,))
    message = original(inbound, found.values()) if inbound.kind == "edit" else None
    if message is not None:
        found |= await _about(journal, inbound, set(message.inbound.items) - {inbound.message_id})
    return [found[name] for name in sorted(found)]


async def _about(journal: Inbox, inbound: Inbound, names: Iterable[str]) -> dict[str, InboxRecord]:
    known = await asyncio.gather(*(journal.about(inbound.chat_key, name, inbound.changes) for name in names))
    return {record.inbound.request_id: record for each in known for record in each}


def as_changed(message: Inbound, records: Iterable[InboxRecord]) -> Inbound | None:
    """A message as it reads after every change that is on file; None where it was withdrawn."""
    changes = [record.inbound for record in records if same_message(record.inbound, message)]
    if any(change.kind == "delete" for change in changes):
        return None
    return _folded(message, (change for change in changes if change.kind == "edit"))


def withdrawn(inbound: Inbound, records: Iterable[InboxRecord]) -> bool:
    """Whether its author has deleted the message that an inbound is, or is about."""
    return any(one.inbound.kind == "delete" and same_message(one.inbound, inbound) for one in records)


def original(change: Inbound, records: Iterable[InboxRecord]) -> InboxRecord | None:
    """The message that a change is about, as it is on file."""
    found = (
        record
        for record in records
        if record.inbound.kind == "message" and same_message(record.inbound, change)
    )
    return next(found, None)


def outdated(edit: Inbound, records: Iterable[InboxRecord]) -> bool:
    """Whether a newer edit, or the deletion, of the same message came before this one."""
    others = (record.inbound for record in records if record.inbound.request_id != edit.request_id)
    return any(
        same_message(other, edit)
        and (other.kind == "delete" or (other.kind == "edit" and other.ts > edit.ts))
        for other in others
    )


class Changes:
    """Carries out edits and deletions.

    `added` queues an edit that came while its message's turn runs, `stop` ends a turn of which nothing is left.
    `settling` is held by whoever brings inbound from the journal to the lanes.
    """

    def __init__(
        self,
        *,
        arrears: Arrears,
        lanes: Lanes,
        running: Running,
        added: Callable[[Inbound], None],
        stop: Callable[[Turn], Awaitable[bool]],
        settling: asyncio.Lock,
    ) -> None:
        self._arrears = arrears
        self._lanes = lanes
        self._running = running
        self._added = added
        self._stop = stop
        self._settling = settling

    def carry_out(self, change: Inbound, records: Sequence[InboxRecord]) -> Rest:
        """Where the message waits or its turn runs, at once: what is left to be recorded is returned. Else the journal
        knows what became of it.
        """
        return self._in_memory(change, records) or partial(self._on_file, change, records)

    def _in_memory(self, change: Inbound, records: Sequence[InboxRecord]) -> Rest | None:
        if change.kind == "edit" and outdated(change, records):
            return partial(self._arrears.finish, change.request_id, "outdated")
        return self._edit(change) if change.kind == "edit" else self._delete(change)

    def _edit(self, edit: Inbound) -> Rest | None:
        chat_key = edit.chat_key
        waiting = self._lanes.find(chat_key, person(edit), lambda other: same_message(other, edit))
        if waiting is not None:
            fresh = revised(waiting, edit)
            if waiting.kind == "edit":
                fresh = fresh.model_copy(update={"ts": max(waiting.ts, edit.ts)})
            self._lanes.replace(fresh)
            # On its way before its turn can begin: after a crash its row tells that the turn had these words.
            return partial(self._replaced, asyncio.ensure_future(self._arrears.amend(fresh)), edit)
        turn = self._running.get(chat_key)
        if turn is not None and (message := turn.about(edit)) is not None:
            # Taken up by the turn, or one of its own after it, as any message that comes while a turn runs.
            self._added(whole(message, edit))
            return _nothing
        return None

    def _delete(self, deletion: Inbound) -> Rest | None:
        chat_key = deletion.chat_key
        gone = self._lanes.take(chat_key, lambda other: same_message(other, deletion))
        turn = self._running.get(chat_key)
        if turn is not None and turn.about(deletion) is not None:
            return partial(self._withdrawn, gone, deletion, turn if turn.withdraw(deletion) else None)
        return partial(self._withdrawn, gone, deletion, None) if gone else None

    async def _replaced(self, amending: Awaitable[bool], edit: Inbound) -> None:
        await amending
        await self._arrears.finish(edit.request_id, "replaced")

    async def _withdrawn(self, gone: Sequence[Inbound], deletion: Inbound, stop: Turn | None) -> None:
        for inbound in gone:
            await self._arrears.finish(inbound.request_id, "withdrawn")
        if stop is not None:
            await self._stop(stop)
        await self._arrears.finish(deletion.request_id, "withdrew")

    async def _on_file(self, change: Inbound, records: Sequence[InboxRecord]) -> None:
        """The message is neither waiting nor being answered here."""
        async with self._settling:
            rest = self._in_memory(change, records)
            if rest is not None:
                await rest()
                return
            record = original(change, records)
            if record is None:
                await self._arrears.finish(change.request_id, "recorded before its message")
            elif record.state in {"done", "dead"}:
                await self._arrears.finish(change.request_id, "recorded")
            elif change.kind == "delete":
                await self._withdrawn([record.inbound], change, None)
            else:
                await self._amended(revised(record.inbound, change), change)

    async def _amended(self, fresh: Inbound, edit: Inbound) -> None:
        waited = await self._arrears.amend(fresh)
        await self._arrears.finish(edit.request_id, "replaced" if waited else "recorded")


async def _nothing() -> None:
    """It waits in its lane."""
