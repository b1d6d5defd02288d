"""Access: one function decides for every kind of event, and says no unless something says yes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from bot import errors
from bot.contracts.base import ChatType
from bot.contracts.channel import Manifest
from bot.contracts.inbound import Inbound

EVERYONE = "*"


class Lists(Protocol):
    """The decisions of operators at run time (`bot.access_list.AccessList`)."""

    def allowed(self, channel: str) -> frozenset[str]: ...
    def blocked(self, channel: str) -> frozenset[str]: ...


class ChatIds(Protocol):
    """The ids that a platform has for one chat (`bot.gateway.membership.Memberships`)."""

    def same_chat(self, channel: str, chat_id: str) -> frozenset[str]: ...


@dataclass(frozen=True, slots=True)
class Verdict:
    allowed: bool
    reason: Literal["local", "operator", "listed", "everyone", "stranger", "blocked", "bot", "never"]


STRANGER = Verdict(allowed=False, reason="stranger")


class Access:
    """Stable ids only, never names: block > allow > ship.json, and nobody by default.

    A person is admitted by their own id; the id of a group admits its members in that group, not in direct
    messages. Operators are admitted. Where reaching the channel takes access to this machine, everyone who does
    is. Bots never are.
    """

    def __init__(
        self,
        manifests: Mapping[str, Manifest],
        allow: Mapping[str, frozenset[str]],
        operators: Collection[str],
        lists: Lists,
        ids: ChatIds,
    ) -> None:
        """With all `ids` of a chat, admission and blocking stay where a platform gives another one."""
        self._manifests = manifests
        self._allow = allow
        self._operators = operators
        self._lists = lists
        self._ids = ids

    def judge(self, inbound: Inbound) -> Verdict:
        """The verdict on one inbound, whatever its kind."""
        if inbound.from_bot:
            return Verdict(allowed=False, reason="bot")
        return self.standing(inbound.channel, inbound.user_id, inbound.chat_id, inbound.chat_type)

    def prove(self, channel: str) -> None:
        """See that somebody whom nobody can know is kept out. Raises `errors.ConfigError` where they are not, although no
        list says that everyone may come in.
        """
        listed = self._lists.allowed(channel) | self._allow.get(channel, frozenset())
        if self._manifests[channel].access == "local" or EVERYONE in listed:
            return
        kinds: tuple[ChatType, ...] = ("direct", "group")
        for nobody in ("", "\0nobody"):
            for kind in kinds:
                if self.standing(channel, nobody, "\0nowhere", kind).allowed:
                    raise errors.ConfigError(
                        f"channels.{channel}.allow: found that a stranger would be let in, expected that nobody is who is not "
                        'listed; write "*" if everyone may talk to it'
                    )

    def standing(self, channel: str, user_id: str | None, chat_id: str, chat_type: ChatType) -> Verdict:
        """The standing of a person in a chat."""
        manifest = self._manifests[channel]
        ids = {user_id} if user_id else set()
        if chat_type == "group":
            ids |= self._ids.same_chat(channel, chat_id)
        listed = self._lists.allowed(channel) | self._allow.get(channel, frozenset())
        # In this order: the first that holds decides.
        checks: tuple[tuple[bool, Verdict], ...] = (
            (bool(ids & manifest.never_admit), Verdict(allowed=False, reason="never")),
            (bool(ids & self._lists.blocked(channel)), Verdict(allowed=False, reason="blocked")),
            (manifest.access == "local", Verdict(allowed=True, reason="local")),
            (bool(user_id and self.is_operator(channel, user_id)), Verdict(allowed=True, reason="operator")),
            (bool(ids & listed), Verdict(allowed=True, reason="listed")),
            (EVERYONE in listed and bool(user_id), Verdict(allowed=True, reason="everyone")),
        )
        return next((verdict for holds, verdict in checks if holds), STRANGER)

    def is_operator(self, channel: str, user_id: str) -> bool:
        return f"{channel}:{user_id}" in self._operators
