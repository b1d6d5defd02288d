"""When the message was sent that a person has changed."""

from __future__ import annotations

from bot import errors
from bot.contracts import Archive, ArchiveLine, HistoryQuery, Inbound


async def sent_at(archive: Archive, inbound: Inbound) -> int | None:
    """The time (milliseconds) of the message that an edit changes; None for anything else, and where nobody knows."""
    if inbound.kind != "edit" or inbound.message_id is None:
        return None

    def other(line: ArchiveLine) -> bool:
        return line.message_id != inbound.message_id or bool((line.meta or {}).get("edited"))

    query = HistoryQuery(limit=1, role="user", before=inbound.ts, skip=other)
    try:
        page = await archive.search(inbound.chat_key, query)
    except errors.StorageError:
        return None
    return page.lines[0].ts if page.lines else None
