"""Builds archive lines from events: a person's message, a delivered answer, a removed message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json
from bot.contracts.inbound import Inbound
from bot.core import quotes
from bot.core.events import Edited, Event, Queued, Received, Removed
from bot.storage import jsonl

BOT_USER = "bot"


SEQ = "seq"
"""Key of the event number in the `meta` object of an archive line."""


def has_line(inbound: Inbound) -> bool:
    """Return True for messages addressed to the model. Commands and signals get no archive line."""
    return inbound.kind in {"message", "edit"} and inbound.command is None


def dumped(line: ArchiveLine, seq: int) -> bytes:
    """Serialise an archive line together with its event number."""
    fields = line.model_copy(update={"meta": (line.meta or {}) | {SEQ: seq}}).model_dump(by_alias=True)
    return jsonl.dumps({key: value for key, value in fields.items() if value is not None})


def of_message(event: Event) -> ArchiveLine | None:
    """Return the archive line of a message or an edit; None for other events."""
    data = event.data
    if isinstance(data, Received | Edited) and has_line(data.inbound):
        return said(data.inbound)
    return None


def said(inbound: Inbound) -> ArchiveLine:
    """Build the archive line of a person's message or of its edit."""
    words, quoted = quotes.archived(inbound.readable, inbound.brought, quotes.iso)
    meta: dict[str, Any] = {
        **quoted,
        "links": [link.model_dump() for link in inbound.links] or None,
        "requestId": inbound.request_id,
        "chatType": inbound.chat_type,
        "username": inbound.user_name,
        "edited": True if inbound.kind == "edit" else None,
        "job": inbound.due.job if inbound.due is not None else None,
        "attachments": [a.model_dump(by_alias=True, exclude_none=True) for a in inbound.attachments] or None,
    }
    return ArchiveLine.of(inbound, text=words, meta={k: v for k, v in meta.items() if v is not None})


def answered(end: Event, sent: Mapping[str, tuple[Queued, str | None]]) -> ArchiveLine:
    """Build the archive line of a bot message from its delivered parts. `sent` maps an outbox row to the
    part and its platform message id.
    """
    first, message_id = next(iter(sent.values()))
    return ArchiveLine(
        ts=int(end.at * 1000),
        channel=first.channel or end.chat.channel,
        chat_id=first.chat_id or end.chat.chat_id,
        chat_key=end.chat,
        user_id=BOT_USER,
        message_id=message_id,
        role="assistant",
        text="\n".join(_shown(part) for part, _ in sent.values()),
        meta={
            "requestId": end.turn,
            "messageIds": [name for _, name in sent.values()],
            "outboxIds": list(sent),
        },
    )


def _shown(part: Queued) -> str:
    """Return the text of a message part; for a file, the file name and the passage that the file replaces."""
    if part.file is None:
        return part.text
    return "\n".join(filter(None, (f"[file: {part.file.name}]", part.text)))


def removed(event: Event, deletion: Inbound, of: Sequence[Inbound], turns: Sequence[str]) -> ArchiveLine:
    """Build the archive line that hides a message deleted by its author. `of` holds the versions of that
    message, `turns` the turns that answered it.
    """
    meta: Json = {
        "deleted": True,
        "requestId": deletion.request_id,
        "of": [one.request_id for one in of],
        "ofRole": "user",
        "turns": list(turns),
    }
    return ArchiveLine.of(deletion, ts=int(event.at * 1000), role="system", text="", meta=meta)


def forgotten(event: Event, gone: Removed, by: Inbound) -> ArchiveLine:
    """Build the archive line that hides a message that somebody asked the bot to forget."""
    of = gone.turns if gone.role == "assistant" else gone.requests
    meta: Json = {
        "deleted": True,
        "requestId": by.request_id,
        "of": list(of),
        "ofRole": gone.role,
        "turns": list(gone.related),
    } | ({"messageIds": list(gone.messages)} if len(gone.messages) > 1 else {})
    return ArchiveLine.of(
        by, ts=int(event.at * 1000), message_id=gone.message, role="system", text="", meta=meta
    )
