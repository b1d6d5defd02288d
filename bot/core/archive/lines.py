"""Lines of the archive: what a person said, an answer as it was delivered, a message that is gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json
from bot.contracts.inbound import Inbound
from bot.core import jsonl, quotes
from bot.core.events import Event, Queued, Removed

BOT_USER = "bot"


SEQ = "seq"
"""The number of the event of a line, in its `meta`."""


def has_line(inbound: Inbound) -> bool:
    """True for words of a person to the model: commands and signals have no line."""
    return inbound.kind in {"message", "edit"} and inbound.command is None


def dumped(line: ArchiveLine, seq: int) -> bytes:
    """A line as it is written, with the number of its event."""
    fields = line.model_copy(update={"meta": (line.meta or {}) | {SEQ: seq}}).model_dump(by_alias=True)
    return jsonl.dumps({key: value for key, value in fields.items() if value is not None})


def said(inbound: Inbound) -> ArchiveLine:
    """The line of a message, or of its new words."""
    words, quoted = quotes.archived(inbound.readable, inbound.brought, quotes.iso)
    meta: dict[str, Any] = {
        **quoted,
        "links": [link.model_dump() for link in inbound.links] or None,
        "requestId": inbound.request_id,
        "chatType": inbound.chat_type,
        "username": inbound.user_name,
        "edited": True if inbound.kind == "edit" else None,
        "job": inbound.due.job if inbound.due is not None else None,
        "messageIds": list(inbound.items) or None,
        "attachments": [a.model_dump(by_alias=True, exclude_none=True) for a in inbound.attachments] or None,
    }
    return ArchiveLine.of(inbound, text=words, meta={k: v for k, v in meta.items() if v is not None})


def answered(end: Event, sent: Mapping[str, tuple[Queued, str | None]]) -> ArchiveLine:
    """The line of a message of the bot: its parts that arrived, by row, with their ids on the platform."""
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
    """The words of a part; of a file its name, and the passage in whose place it comes."""
    if part.file is None:
        return part.text
    return "\n".join(filter(None, (f"[file: {part.file.name}]", part.text)))


def removed(event: Event, deletion: Inbound, of: Sequence[Inbound], turns: Sequence[str]) -> ArchiveLine:
    """The line that hides the lines of a message that its author has deleted. `of` are its words as they came in, `turns` the turns
    that answered it.
    """
    ids = list(dict.fromkeys(name for one in of for name in one.items))
    message_id = next(iter(ids), deletion.message_id)
    meta: Json = {
        "deleted": True,
        "requestId": deletion.request_id,
        "of": [one.request_id for one in of],
        "ofRole": "user",
        "turns": list(turns),
    } | ({"messageIds": ids} if set(ids) > {message_id} else {})
    return ArchiveLine.of(
        deletion, ts=int(event.at * 1000), message_id=message_id, role="system", text="", meta=meta
    )


def forgotten(event: Event, gone: Removed, by: Inbound) -> ArchiveLine:
    """The line that hides the lines of a message that somebody wants forgotten."""
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
