"""The commands `/allow` and `/block`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from bot import text
from bot.access_list import AccessList, PendingUser
from bot.contracts.approvals import Verdict
from bot.contracts.channel import Manifest
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.core.access import Access, id_form
from bot.core.chats import Fact
from bot.core.feature import Done
from bot.tools.permissions.display import named
from bot.words import paragraph, say

MOST_WAITING = 20
"""Max undecided people listed by `/allow` without an argument."""


class AccessCommands:
    """Runs `/allow` and `/block`. `decide` carries out an operator's decision about a person, or about a
    group by its id.
    """

    def __init__(
        self,
        *,
        lists: AccessList,
        access: Access,
        manifests: Mapping[str, Manifest],
        decide: Callable[[UserRef, Verdict], Awaitable[Sequence[Fact]]],
    ) -> None:
        self._lists = lists
        self._access = access
        self._manifests = manifests
        self._decide = decide

    async def allow(self, inbound: Inbound) -> Done:
        """Run `/allow [id]`: admit a person or group, or list the undecided people."""
        if inbound.args or not self._access.is_operator(inbound.person):
            return await self._admit(inbound, "approved")
        if inbound.chat_type != "direct":
            return Done(say("commands.allow_privately"))
        waiting = await asyncio.to_thread(self._lists.pending)
        if not waiting:
            return Done(say("commands.allow_nobody"))
        allow = f"{self._manifests[inbound.channel].command_prefix}allow"
        lines = [f"{_name(one)}: {allow} {one.channel}:{one.user_id}" for one in waiting[:MOST_WAITING]]
        more = len(waiting) - len(lines)
        return Done(
            "\n".join(
                [
                    say("commands.allow_waiting"),
                    *lines,
                    *([say("commands.allow_more", count=more)] if more else []),
                ]
            )
        )

    async def block(self, inbound: Inbound) -> Done:
        """Run `/block id`: deny a person or group."""
        return await self._admit(inbound, "denied")

    async def _admit(self, inbound: Inbound, decision: Literal["approved", "denied"]) -> Done:
        """Admit or deny an id. The id belongs to this channel unless it is written as `channel:id`."""
        if not self._access.is_operator(inbound.person):
            return Done(say("commands.operators_admit"))
        asked = inbound.args
        channel, _, user_id = asked.rpartition(":")
        channel = channel or inbound.channel
        manifest = self._manifests.get(channel)
        if not user_id or manifest is None or not manifest.valid_id(user_id):
            return Done(self._no_id(inbound, asked, channel if manifest is not None else inbound.channel))
        who = UserRef(channel, user_id)
        if decision == "denied" and self._access.is_operator(who):
            # If the last operator were blocked, nobody could admit people by a message any more.
            return Done(say("commands.operator_stays", who=who))
        verdict = Verdict(decision, inbound.person, "always", inbound.user_name or "", inbound.request_id)
        facts = await self._decide(who, verdict)
        key = "commands.admitted" if decision == "approved" else "commands.kept_out"
        return Done(say(key, who=who), facts)

    def _no_id(self, inbound: Inbound, asked: str, channel: str) -> str:
        """Return an explanation of what an id on a channel looks like."""
        assert inbound.command is not None  # noqa: S101 - this answers a command
        prefix, name = self._manifests[inbound.channel].command_prefix, inbound.command.name
        said = (
            say("commands.no_id", asked=text.preview(asked, 60))
            if asked
            else say("commands.needs_id", name=name, prefix=prefix)
        )
        return paragraph(said, id_form(self._manifests[channel]), say("commands.who_waits", prefix=prefix))


def _name(waiting: PendingUser) -> str:
    # People choose their names freely, so no formatting, link or command in a name is rendered.
    return f"`{named(waiting.name)}`" if waiting.name else say("commands.nameless")
