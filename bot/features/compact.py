"""`/compact`: replaces the older part of a conversation by a summary."""

from __future__ import annotations

from bot.contracts.inbound import Inbound
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.words import paragraph, say


def _build(runtime: Runtime) -> Hooks:
    async def compact(inbound: Inbound) -> Done:
        done = await runtime.compact(inbound)
        if done.outcome in {"nothing", "failed"}:
            return Done(say(f"commands.compact_{done.outcome}"))
        words = say("commands.compacted")
        if not runtime.access.is_operator(inbound.person):
            return Done(words)
        before, after = done.tokens_before, done.tokens_after
        figures = say("commands.compacted_figures", count=done.messages, before=before, after=after)
        return Done(paragraph(words, figures))

    return Hooks(commands={"compact": Command(compact, queued=True)})


FEATURE = Feature("compact", _build)
