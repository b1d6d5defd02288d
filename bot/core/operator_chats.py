"""Direct chats of operators, and the display names of people who decided."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from bot.contracts.approvals import Verdict
from bot.contracts.channel import Manifest
from bot.contracts.identity import UserRef
from bot.core.outbox_row import Address
from bot.tools.permissions.display import named
from bot.words import say


def who_decided(verdict: Verdict, nameless: str) -> str:
    """Return the name that the deciding person had then; `nameless` if it is unknown."""
    # Names are chosen freely: no formatting and no link in them is rendered.
    return f"`{named(verdict.name)}`" if verdict.name.strip() else say(nameless)


class OperatorChats:
    """The direct chats of the current operators on running channels."""

    def __init__(
        self, operators: Collection[UserRef], channels: Collection[str], manifests: Mapping[str, Manifest]
    ) -> None:
        self._operators = operators
        self._channels = channels
        self._manifests = manifests

    def people(self, request_id: str) -> Iterator[tuple[UserRef, Address]]:
        """Return each operator with an address, for messages of this request."""
        for operator in sorted(self._operators):
            manifest = self._manifests.get(operator.channel)
            if operator.channel in self._channels and manifest is not None and manifest.direct is not None:
                target = manifest.direct(operator.user_id)
                chat_key = manifest.encode(target)
                yield (
                    operator,
                    Address(operator.channel, chat_key.chat_id, chat_key, "direct", target, request_id),
                )
