"""Converts Telegram chats and topics to chatKeys and back."""

from __future__ import annotations

import re
from collections.abc import Mapping

from bot.contracts.identity import ChatKey

_ID = re.compile(r"-?[1-9][0-9]{0,18}")
_TOPIC = re.compile(r"[1-9][0-9]{0,18}")


def encode(parts: Mapping[str, str]) -> ChatKey:
    """Return the chatKey of `chat_id` and, in a topic, `message_thread_id`. Other keys of a target are ignored."""
    chat, topic = parts["chat_id"], parts.get("message_thread_id") or None
    if _ID.fullmatch(chat) is None or (topic is not None and _TOPIC.fullmatch(topic) is None):
        raise ValueError("a chat of Telegram is named by numbers")
    return ChatKey("telegram", chat, topic, "topic")


def decode(chat_key: ChatKey) -> dict[str, str]:
    """Return the target for messages to the chat or topic of this chatKey."""
    parts = {"chat_id": chat_key.chat_id}
    if chat_key.thread is not None:
        parts["message_thread_id"] = chat_key.thread
    if chat_key != encode(parts):
        raise ValueError(f"no chatKey of Telegram: {str(chat_key)!r}")
    return parts


def valid_id(value: str) -> bool:
    """Return True if a string can be the id of a person or a group."""
    return _ID.fullmatch(value) is not None
