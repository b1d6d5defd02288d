"""chatKeys of Telegram and the targets they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping

_KEY = re.compile(
    r"telegram:chat:(?P<chat_id>-?[1-9][0-9]{0,18})(?::topic:(?P<message_thread_id>[1-9][0-9]{0,18}))?"
)
_ID = re.compile(r"-?[1-9][0-9]{0,18}")


def encode(parts: Mapping[str, str]) -> str:
    """`chat_id` and, in a topic, `message_thread_id` as a chatKey; other parts of a target do not count."""
    key = f"telegram:chat:{parts['chat_id']}"
    if topic := parts.get("message_thread_id"):
        key += f":topic:{topic}"
    if _KEY.fullmatch(key) is None:
        raise ValueError("a chat of Telegram is named by numbers")
    return key


def decode(chat_key: str) -> dict[str, str]:
    """The parts of a chatKey, which are a target to send to."""
    match = _KEY.fullmatch(chat_key)
    if match is None:
        raise ValueError(f"no chatKey of Telegram: {chat_key!r}")
    return {name: value for name, value in match.groupdict().items() if value is not None}


def valid_id(value: str) -> bool:
    """Whether a string can be the id of a person or a group."""
    return _ID.fullmatch(value) is not None
