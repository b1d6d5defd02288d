"""Converts Slack channels and threads to chatKeys and back."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bot.contracts.identity import ChatKey

_PART = re.compile(r"[^:\s]+")
_ID = re.compile(r"[UWCDG][A-Z0-9]{2,}")


def encode(parts: Mapping[str, str]) -> ChatKey:
    """`channel` and perhaps `thread_ts` as a chatKey. Raises `ValueError` for what no chatKey can carry."""
    channel, thread_ts = parts["channel"], parts.get("thread_ts")
    if not all(_PART.fullmatch(part) for part in (channel, thread_ts) if part is not None):
        raise ValueError("not an address in Slack")
    return ChatKey("slack", channel, thread_ts)


def decode(chat_key: ChatKey) -> dict[str, str]:
    """The target of an unprompted message: `channel`, and `thread_ts` for a thread. Raises `ValueError` for a chatKey
    that is none of Slack's.
    """
    parts = {"channel": chat_key.chat_id}
    if chat_key.thread is not None:
        parts["thread_ts"] = chat_key.thread
    if chat_key != encode(parts):
        raise ValueError("not a chatKey of Slack")
    return parts


def valid_id(value: str) -> bool:
    """True if this can be a stable id of a user or a conversation."""
    return _ID.fullmatch(value) is not None


def is_direct(channel: str) -> bool:
    """True for a conversation of one person with the bot."""
    return channel.startswith("D")
