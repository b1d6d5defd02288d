"""Reads the messages that a person shares, and the previews of links: text of other authors, with files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bot import text
from bot.contracts.inbound import Attachment, Origin, Quoted
from channels.slack import blocks, files, mentions
from channels.slack.blocks import word

MAX_SHARES = 20
"""Max shared messages and previews of one message."""
_MESSAGES = ("is_share", "is_msg_unfurl", "is_reply_unfurl")
_TS = re.compile(r"[0-9]{1,12}\.[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class SharedMessage:
    """One attachment of a message."""

    quoted: Quoted
    files: tuple[Attachment, ...] = ()


def read(
    found: Any, *, by: str | None, channel: str | None, ours: frozenset[str]
) -> tuple[SharedMessage, ...]:
    """Return the attachments of a message that `by` posted in `channel`. `ours` are the ids of the bot."""
    return tuple(_share(one, by, channel, ours) for one in blocks.objects(found)[:MAX_SHARES])


def _share(found: dict[str, Any], by: str | None, channel: str | None, ours: frozenset[str]) -> SharedMessage:
    message = any(found.get(mark) is True for mark in _MESSAGES)
    ts = stamp if isinstance(stamp := found.get("ts"), str) and _TS.fullmatch(stamp) else None
    author = _line(found.get("author_id"))
    where = _line(found.get("channel_name"))
    origin = Origin(
        how="shared" if message else "preview",
        name=_line(found.get("author_name"))
        or _line(found.get("author_subname"))
        or _line(found.get("service_name")),
        id=author,
        chat=f"#{where}" if where else _line(found.get("channel_id")) or _line(found.get("from_url")),
        message_id=ts,
        ts=int(float(ts) * 1000) if ts is not None else None,
        from_self=bool({author, _line(found.get("bot_id"))} & ours),
    )
    brought = files.attachments(found.get("files"))
    said = _said(found)
    quoted = Quoted(
        user_id=by,
        text=said,
        origin=origin,
        brought=True,
        message_id=ts if message and found.get("channel_id") == channel is not None else None,
        files=tuple(one.name or one.kind for one in brought),
    )
    return SharedMessage(quoted, brought)


def _said(found: dict[str, Any]) -> str:
    said = [word(found.get(key)) for key in ("pretext", "title", "text")]
    said += [
        f"{word(one.get('title'))}: {word(one.get('value'))}" for one in blocks.objects(found.get("fields"))
    ]
    whole = "\n".join(filter(None, said)) or _in_blocks(found)
    return mentions.readable(whole or word(found.get("fallback")), mentions.nobody)


def _in_blocks(found: dict[str, Any]) -> str:
    """Return the text of a shared message that consists of blocks."""
    messages = blocks.objects([one.get("message") for one in blocks.objects(found.get("message_blocks"))])
    parts = [blocks.text_of(one.get("blocks")) for one in messages]
    return "\n".join(filter(None, parts)) or blocks.text_of(found.get("blocks"))


def _line(value: Any) -> str | None:
    return text.head(" ".join(mentions.unescape(word(value)).split()), 200) or None
