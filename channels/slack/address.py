"""Where a Slack conversation is, as a chatKey and back."""

from __future__ import annotations

import re
from collections.abc import Mapping

_KEY = re.compile(r"slack:chat:(?P<channel>[^:\s]+)(?::thread:(?P<thread_ts>[^:\s]+))?")
_ID = re.compile(r"[UWCDG][A-Z0-9]{2,}")


def encode(parts: Mapping[str, str]) -> str:
    """`channel` and perhaps `thread_ts` as a chatKey. Raises `ValueError` for what no chatKey can carry."""
    thread_ts = parts.get("thread_ts")
    key = f"slack:chat:{parts['channel']}" + (f":thread:{thread_ts}" if thread_ts is not None else "")
    if _KEY.fullmatch(key) is None:
        raise ValueError("not an address in Slack")
    return key


def decode(chat_key: str) -> dict[str, str]:
    """A chatKey as `channel` and perhaps `thread_ts`: the target of a message that nobody asked for."""
    match = _KEY.fullmatch(chat_key)
    if match is None:
        raise ValueError("not a chatKey of Slack")
    return {name: part for name, part in match.groupdict().items() if part is not None}


def valid_id(value: str) -> bool:
    """Whether this can be a stable id of a user or a conversation."""
    return _ID.fullmatch(value) is not None


def is_direct(channel: str) -> bool:
    """Whether only one person and the bot are there."""
    return channel.startswith("D")
