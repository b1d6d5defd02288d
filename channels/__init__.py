"""Channels: one folder per chat platform, with the adapter of the platform. `bot.contracts.channel` defines the interface."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from bot.contracts.identity import THREAD, ChatKey


def lazy(path: str) -> Callable[..., Any]:
    """Return a function that imports `path` (`module:name`) only when it is called, so that a manifest is imported fast."""

    def call(*given: Any) -> Any:
        return resolve_name(path)(*given)

    call.__module__ = path.partition(":")[0]  # `bot.app.preload` imports the package of this module
    return call


@dataclass(frozen=True, slots=True)
class ChatKeys:
    """Converts the parts of a channel's addresses to a `ChatKey` and back. `chat` and `thread` are the names of the parts.
    The values of the parts must match `valid`.
    """

    name: str
    chat: str = "chat"
    thread: str = "thread"
    kind: str = THREAD
    valid: re.Pattern[str] = re.compile(r"\S+")

    def encode(self, parts: Mapping[str, str]) -> ChatKey:
        """Return the chatKey of a chat, or of a thread in it. Other parts are ignored. Raises ValueError for invalid values."""
        chat, thread = parts.get(self.chat, ""), parts.get(self.thread) or None
        if not all(self.valid.fullmatch(part) for part in (chat, thread) if part is not None):
            raise ValueError(f"not the address of a {self.name} chat")
        return ChatKey(self.name, chat, thread, self.kind)

    def decode(self, chat_key: ChatKey) -> dict[str, str]:
        """Return the parts of a chatKey. Raises ValueError for a chatKey of another channel."""
        thread = {} if chat_key.thread is None else {self.thread: chat_key.thread}
        parts = {self.chat: chat_key.chat_id, **thread}
        if chat_key != self.encode(parts):
            raise ValueError(f"not the key of a {self.name} chat")
        return parts
