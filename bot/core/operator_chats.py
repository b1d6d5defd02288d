"""The direct chats of operators, and how whoever decided is called."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from bot.contracts.approvals import Verdict
from bot.contracts.channel import Manifest
from bot.contracts.identity import UserRef
from bot.contracts.outbound import Address
from bot.tools.permissions.display import named
from bot.words import say


def who_decided(verdict: Verdict, nameless: str) -> str:
    """The person who decided, by the name that they had then; `nameless` stands for one that is not known."""
    # Their name is their own choice: nothing in it is formatting or a link.
    return f"`{named(verdict.name)}`" if verdict.name.strip() else say(nameless)


class OperatorChats:
    """The direct chats of those who are operators now, on the channels that run."""

    def __init__(
        self, operators: Collection[UserRef], channels: Collection[str], manifests: Mapping[str, Manifest]
    ) -> None:
        self._operators = operators
        self._channels = channels
        self._manifests = manifests

    def people(self, request_id: str) -> Iterator[tuple[UserRef, Address]]:
        """Each with their address, for messages of this request."""
        for operator in sorted(self._operators):
            manifest = self._manifests.get(operator.channel)
            if operator.channel in self._channels and manifest is not None and manifest.direct is not None:
                target = manifest.direct(operator.user_id)
                chat_key = manifest.encode(target)
                yield (
                    operator,
                    Address(operator.channel, chat_key.chat_id, chat_key, "direct", target, request_id),
                )
