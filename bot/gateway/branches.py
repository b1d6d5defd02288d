"""`/resume` and `/fork`: back to an earlier conversation of this chat, or on from a point in the past of this one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from bot import text
from bot.contracts.agent import Agent
from bot.contracts.base import Json
from bot.contracts.channel import Manifest
from bot.contracts.inbound import Inbound
from bot.gateway.receipt import Receipts

NONE_YET = "There is no conversation in this chat yet that I could go back to."
_MOST_BACK = 6
"""Digits of the number of turns; what is longer is an id."""


class Branches:
    """Goes back to sessions and forks them; receipts tell which turn a person means by an id or a reply."""

    def __init__(self, agent: Agent, receipts: Receipts, manifests: Mapping[str, Manifest]) -> None:
        self._agent = agent
        self._receipts = receipts
        self._manifests = manifests

    async def resume(self, inbound: Inbound) -> str:
        """Go on with an earlier session, or show which there are; for a person. Raises `errors.StorageError`."""
        asked = _argument(inbound)
        if not asked:
            return await self._listed(inbound)
        facts = await self._agent.resume(inbound.chat_key, asked)
        prefix, shown = self._manifests[inbound.channel].command_prefix, text.preview(asked, 40)
        if facts["how"] == "done":
            return (
                f"We are back in conversation {facts['id']}.{_way_back(facts, prefix)} "
                f"{prefix}history shows what I have in mind."
            )
        if facts["how"] == "here":
            return f"We are in conversation {shown} already."
        if facts["how"] == "ambiguous":
            return f"More than one conversation of this chat ends in {shown}. Give me more of its id."
        return f"This chat has no conversation {shown}. {prefix}resume alone shows which there are."

    async def fork(self, inbound: Inbound) -> str:
        """Go on from a turn of the past in a new session, for a person. Raises `errors.StorageError`."""
        asked, prefix = _argument(inbound), self._manifests[inbound.channel].command_prefix
        back, request_id = 0, None
        if asked.isdecimal() and len(asked) <= _MOST_BACK:
            back = int(asked)
        elif (wanted := asked or inbound.answers) is not None:
            request_id = await self._receipts.found(inbound, wanted)
            if request_id is None:
                return f"I know no message or answer {text.preview(wanted, 40)} in this chat."
        facts = await self._agent.fork(inbound.chat_key, request_id=request_id, back=back)
        if facts["how"] == "done":
            left = facts["left"]
            where = f"I have left out the last {_turns(left)}" if left else "It has everything we said"
            return f"A new conversation that begins as a copy of this one. {where}.{_way_back(facts, prefix)}"
        if request_id is not None:
            return f"That message is not in the conversation we are in. {prefix}resume shows the others of this chat."
        if not facts["turns"]:
            return "There is nothing yet in this conversation that I could fork."
        return f"This conversation has {_turns(facts['turns'])}; I cannot go back {back:,} and keep one."

    async def _listed(self, inbound: Inbound) -> str:
        found = await self._agent.sessions(inbound.chat_key)
        if not found:
            return NONE_YET
        lines = [_line(one) for one in found]
        return "\n".join(
            [
                "Conversations of this chat, the last one first:",
                *lines,
                f"{self._manifests[inbound.channel].command_prefix}resume and the id of one returns to it.",
            ]
        )


def _argument(inbound: Inbound) -> str:
    words = inbound.command.args.split() if inbound.command is not None else []
    return words[0] if words else ""


def _way_back(facts: Json, prefix: str) -> str:
    left = facts.get("leftId")
    return f" {prefix}resume {left} returns to the one before." if left else ""


def _line(one: Json) -> str:
    moment = datetime.fromtimestamp(one["lastTs"] / 1000, UTC)
    count = one["messages"]
    words = f": “{one['words']}”" if one["words"] else ""
    here = ", where we are" if one["current"] else ""
    return f"{one['id']} – {moment:%Y-%m-%d %H:%M} UTC, {count:,} message{'' if count == 1 else 's'}{here}{words}"


def _turns(count: int) -> str:
    return f"{count:,} turn{'' if count == 1 else 's'}"
