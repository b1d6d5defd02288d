"""Converts Slack channels and threads to chatKeys and back."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bot.contracts.identity import ChatKey

_PART = re.compile(r"[^:\s]+")
_ID = re.compile(r"[UWCDG][A-Z0-9]{2,}")


def encode(parts: Mapping[str, str]) -> ChatKey:
    """Return the chatKey of a `channel` and an optional `thread_ts`. Raises `ValueError` for invalid parts."""
    channel, thread_ts = parts["channel"], parts.get("thread_ts")
    if not all(_PART.fullmatch(part) for part in (channel, thread_ts) if part is not None):
        raise ValueError("not an address in Slack")
    return ChatKey("slack", channel, thread_ts)


def decode(chat_key: ChatKey) -> dict[str, str]:
    """Return the address that `encode` made into this chatKey. Raises `ValueError` for a chatKey of another channel."""
    parts = {"channel": chat_key.chat_id}
    if chat_key.thread is not None:
        parts["thread_ts"] = chat_key.thread
    if chat_key != encode(parts):
        raise ValueError("not a chatKey of Slack")
    return parts


def valid_id(value: str) -> bool:
    """Return True for the id of a user or of a conversation."""
    return _ID.fullmatch(value) is not None


def is_direct(channel: str) -> bool:
    """Return True for a direct chat with the bot."""
    return channel.startswith("D")
