"""Claim check: compares the actions that a reply claims with the tool calls of its turn.

`detection` finds claims in a text, using one file of phrases per language. `performed_actions` records the
tool calls. `checked` wraps the reply.
"""

from __future__ import annotations

from bot.core.chat import Chat
from bot.core.feature import Feature, Hooks, Runtime
from bot.features.claims.checked import CheckedReply
from bot.features.claims.performed_actions import (
    ActionRecorder,
    PerformedAction,
    performed_in,
    record_here,
)
from bot.tools.ports import Reply
from bot.tools.registry import Registry


def _build(runtime: Runtime) -> Hooks:
    def wrap(chat: Chat, reply: Reply, registry: Registry) -> Reply:
        def person() -> str:
            return "\n".join(one.text for one in chat.turn.members) if chat.turn is not None else ""

        async def recorded() -> list[PerformedAction]:
            return performed_in(chat.context.current(), registry)

        return CheckedReply(
            reply, record_here(), person=person, recorded=recorded, registry=registry, log=runtime.log
        )

    return Hooks(wrap_reply=wrap, wrap_call=ActionRecorder)


FEATURE = Feature("claims", _build)
