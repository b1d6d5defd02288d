"""Versions of a message as the journal has them: its edits and its deletion."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from bot.contracts.inbound import Inbound
from bot.contracts.journal import Inbox, InboxRecord
from bot.core.message_versions import revised, same_message


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
    fields = {name: getattr(folded, name) for name in ("items", "text", "attachments")}
    return edit.model_copy(update={**fields, "ts": max(one.ts for one in [*edits, edit])})


def _folded(message: Inbound, edits: Iterable[Inbound]) -> Inbound:
    # Of two edits in one second the one that came later is the newer.
    ordered = sorted(edits, key=lambda edit: edit.ts)
    return functools.reduce(revised, ordered if message.items else ordered[-1:], message)


async def on_file(journal: Inbox, inbound: Inbound) -> list[InboxRecord]:
    """All rows about a message, of an album about all its items. Raises `errors.StorageError`."""
    if inbound.message_id is None:
        return []
    return await journal.about(inbound.chat_key, inbound.message_id, inbound.changes)


def as_changed(message: Inbound, records: Sequence[InboxRecord]) -> Inbound | None:
    """A message as it reads after every change that is on file; None where it was withdrawn."""
    return None if withdrawn(message, records) else _folded(message, edits_of(message, records))


def edits_of(message: Inbound, records: Iterable[InboxRecord]) -> list[Inbound]:
    """The edits of a message that are on file."""
    changes = (record.inbound for record in records)
    return [one for one in changes if one.kind == "edit" and same_message(one, message)]


def withdrawn(inbound: Inbound, records: Iterable[InboxRecord]) -> bool:
    """True where its author has deleted the message that an inbound is, or is about."""
    return any(one.inbound.kind == "delete" and same_message(one.inbound, inbound) for one in records)


def original(change: Inbound, records: Iterable[InboxRecord]) -> InboxRecord | None:
    """The message that a change is about, as it is on file."""
    found = (
        record
        for record in records
        if record.inbound.kind == "message" and same_message(record.inbound, change)
    )
    return next(found, None)


def newest(change: Inbound, records: Iterable[InboxRecord]) -> InboxRecord | None:
    """The message that a change is about, as it was asked last."""
    found = [one for one in records if one.inbound.kind == "message" and same_message(one.inbound, change)]
    return max(found, key=lambda one: one.inbound.request_id, default=None)


def merged(waiting: Inbound, edit: Inbound) -> Inbound:
    """A waiting message or edit with the words of a later edit. It is as new as the newest words of its own item."""
    fresh = revised(waiting, edit)
    return fresh.model_copy(update={"ts": max(waiting.ts, edit.ts)}) if _same_item(waiting, edit) else fresh


def has(said: Inbound, edit: Inbound) -> bool:
    """True where a message, or an edit that waited, says what a later edit makes of it."""
    newer = said.ts >= edit.ts or not _same_item(said, edit)
    return edit.kind == "edit" and newer and same_message(said, edit) and revised(said, edit) == said


def _same_item(one: Inbound, edit: Inbound) -> bool:
    """True where two edits are about one message, which an item of an album is too."""
    return one.kind == "edit" and one.message_id == edit.message_id


def outdated(edit: Inbound, records: Iterable[InboxRecord]) -> bool:
    """True where a newer edit, or the deletion, of the same message came before this one; of an album, of the same item."""
    others = (record.inbound for record in records if record.inbound.request_id != edit.request_id)
    return any(
        same_message(other, edit)
        and (other.kind == "delete" or (_same_item(other, edit) and other.ts > edit.ts))
        for other in others
    )
