"""The message of a person as the model gets it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bot import errors
from bot.agent.kit import Kit
from bot.context import blocks, prompt
from bot.context.removed import REMOVED, ids_of
from bot.contracts import Archive, ArchiveLine, HistoryQuery, Inbound, Message, Quoted, TurnRequest


async def user_message(
    request: TurnRequest, kit: Kit, seen: Iterable[Message], wrong: Sequence[str] = ()
) -> Message:
    """The message of a new user turn, without our secrets. The person's own instructions go with it, unless the model sees them already
    in what it has `seen`; and so does what went `wrong` just before.
    """
    now, inbound = int(kit.clock.now() * 1000), request.inbound
    if inbound is None:
        return _without_secrets(prompt.user_message(request, now, wrong=wrong), kit)
    request = await _without_removed(request, inbound, kit.archive)
    changed = await sent_at(kit.archive, inbound)
    words = await kit.prompts.of_person(inbound)
    own = prompt.for_person(kit.redact(words)) if words else None
    if own is not None and any(own in message["content"] for message in seen):
        own = None
    files = await request.files(inbound) if request.files is not None and inbound.attachments else ()
    return _without_secrets(
        prompt.user_message(request, now, changed=changed, instructions=own, wrong=wrong, files=files), kit
    )


def _without_secrets(message: Message, kit: Kit) -> Message:
    """What comes from a channel has none any more; instructions and what was scheduled may."""
    return {**message, "content": blocks.redacted(message["content"], kit.redact)}


async def _without_removed(request: TurnRequest, inbound: Inbound, archive: Archive) -> TurnRequest:
    """Platforms go on quoting what was removed here alone. Where nobody can say what was, nothing is quoted."""
    if not request.context and not inbound.quoted:
        return request
    try:
        gone = {one for line in await archive.removals(inbound.chat_key) for one in ids_of(line)}
    except errors.StorageError:
        gone = None

    def shown(quoted: Iterable[Quoted]) -> tuple[Quoted, ...]:
        return tuple(
            one.model_copy(update={"text": REMOVED}) if gone is None or one.message_id in gone else one
            for one in quoted
        )

    quoting = inbound.model_copy(update={"quoted": shown(inbound.quoted)})
    return replace(request, context=shown(request.context), inbound=quoting)


async def sent_at(archive: Archive, inbound: Inbound) -> int | None:
    """The time (milliseconds) of the message that an edit changes; None for anything else, and where nobody knows."""
    if inbound.kind != "edit" or inbound.message_id is None:
        return None

    def other(line: ArchiveLine) -> bool:
        return line.message_id != inbound.message_id or bool((line.meta or {}).get("edited"))

    query = HistoryQuery(limit=1, role="user", before=inbound.ts, skip=other, everything=True, counted=False)
    try:
        page = await archive.search(inbound.chat_key, query)
    except errors.StorageError:
        return None
    return page.lines[0].ts if page.lines else None
