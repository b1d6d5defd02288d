"""Shared code of the web and the console channel: base class, chatKeys, `/` commands and messages. The chatKey of a person's
first conversation is `<channel>:chat:<id>`. Each further conversation adds `:thread:<id>`.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar

from bot import text
from bot.contracts.channel import Channel, ChannelDeps, Health
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Attachment, Command, Inbound, Outbound, Quoted, Sent
from channels import ChatKeys

ServerT = TypeVar("ServerT")
PART = 32_000  # Max characters of one message. Page and terminal have no limit, but people could not read a longer message.

CHAT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
LONGEST_ZONE = 100  # Max characters of a time zone's name
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_-]{0,31})(?:\s+(.*))?", re.DOTALL)


class LocalChannel(Channel, Generic[ServerT]):
    """Base class of the web and the console channel. Clients connect to the channel's server. `find` always returns None."""

    addresses: tuple[str, ...] = ()
    largest_file = 50_000_000

    def __init__(self, around: ChannelDeps) -> None:
        self._around = around
        self._server: ServerT | None = None

    def split(self, text_: str) -> list[str]:
        return text.split(text_, PART)

    async def find(self, message: Outbound) -> Sent | None:  # noqa: ARG002
        return None

    async def context(self, inbound: Inbound) -> tuple[Quoted, ...]:  # noqa: ARG002
        return ()

    def health(self) -> Health:
        if self._server is None:
            return Health(connected=False, detail="not started")
        return Health(connected=True, last_heard=self._around.clock.now())

    async def heal(self) -> None:
        """Do nothing, because the clients open the connections."""


def inbound(
    keys: ChatKeys,
    chat_key: ChatKey,
    key: str,
    said: str,
    *,
    user: str,
    now: float,
    language: str | None,
    zone: object,
    files: tuple[Attachment, ...] = (),
) -> Inbound:
    """Return a person's message as an `Inbound`. `key` is the message's id, unique in its conversation. `zone` is the time zone
    that the client reports.
    """
    target = keys.decode(chat_key)
    return Inbound(
        channel=keys.name,
        chat_id=chat_key.chat_id,
        chat_key=chat_key,
        chat_type="direct",
        user_id=user,
        keys=(":".join((keys.name, *target.values(), key)),),
        ts=int(now * 1000),
        target=target,
        text=said,
        command=command(said),
        message_id=key,
        attachments=files,
        language=language,
        zone=zone if isinstance(zone, str) and len(zone) <= LONGEST_ZONE else None,
    )


def command(said: str) -> Command | None:
    """Return the command in a text that begins with `/`. Return None for any other text, such as the path `/usr/bin`."""
    match = _COMMAND.fullmatch(said.strip())
    return Command(name=match[1].lower(), args=(match[2] or "").strip()) if match is not None else None
