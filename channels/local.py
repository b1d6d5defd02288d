"""Web and console share chatKeys of the form `<channel>:chat:<id>`, commands that begin with `/`, and who names their zone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Command

CHAT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,31})(?:\s+(.*))?", re.DOTALL)


LONGEST_ZONE = 100


def zone_of(said: object) -> str | None:
    """The name of a time zone as a page or a terminal gives it; None for what can be none. The gateway knows which there are."""
    return said if isinstance(said, str) and len(said) <= LONGEST_ZONE else None


@dataclass(frozen=True, slots=True)
class LocalKeys:
    """Makes and reads the keys of one channel."""

    name: str

    def encode(self, address: Mapping[str, str]) -> ChatKey:
        """The key of a chat; raises ValueError where its id is none."""
        if CHAT_ID.fullmatch(address["chat"]) is None:
            raise ValueError(f"not the id of a {self.name} chat")
        return ChatKey(self.name, address["chat"])

    def decode(self, chat_key: ChatKey) -> dict[str, str]:
        """The inverse of `encode`; raises ValueError where the key is of another channel."""
        if chat_key != ChatKey(self.name, chat_key.chat_id) or CHAT_ID.fullmatch(chat_key.chat_id) is None:
            raise ValueError(f"not the key of a {self.name} chat")
        return {"chat": chat_key.chat_id}


def command(said: str) -> Command | None:
    """The command that a text is; None for `/usr/bin` and all other text."""
    match = _COMMAND.fullmatch(said.strip())
    if match is None:
        return None
    return Command(name=match[1].lower(), args=(match[2] or "").strip())
