"""The message of a person as the model gets it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot import errors
from bot.agent.kit import Kit
from bot.context import prompt
from bot.contracts import Archive, ArchiveLine, HistoryQuery, Inbound, Message, TurnRequest


async def user_message(
    request: TurnRequest, kit: Kit, seen: Iterable[Message], wrong: Sequence[str] = ()
) -> Message:
    """The message of a new user turn. The person's own instructions go with it, unless the model sees them already
    in what it has `seen`; and so does what went `wrong` just before.
    """
    now, inbound = int(kit.clock.now() * 1000), request.inbound
    if inbound is None:
        return prompt.user_message(request, now, wrong=wrong)
    changed = await sent_at(kit.archive, inbound)
    words = await kit.prompts.of_person(inbound)
    own = prompt.for_person(words) if words else None
    if own is not None and any(own in message["content"] for message in seen):
        own = None
    return prompt.user_message(request, now, changed=changed, instructions=own, wrong=wrong)


async def sent_at(archive: Archive, inbound: Inbound) -> int | None:
    """The time (milliseconds) of the message that an edit changes; None for anything else, and where nobody knows."""
    if inbound.kind != "edit" or inbound.message_id is None:
        return None

    def other(line: ArchiveLine) -> bool:
        return line.message_id != inbound.message_id or bool((line.meta or {}).get("edited"))

    query = HistoryQuery(limit=1, role="user", before=inbound.ts, skip=other, everything=True)
    try:
        page = await archive.search(inbound.chat_key, query)
    except errors.StorageError:
        return None
    return page.lines[0].ts if page.lines else None
