"""Questions to people: approvals of tool calls and budgets, admissions of strangers, and questions of tools.

A question is an event of the asking chat. All messages of the question are outbox rows of that chat, even those sent to
other chats. The first verdict counts, and then each message shows the outcome.
"""

from __future__ import annotations

from bot.contracts.approvals import OpenLoop, Viewer
from bot.core.feature import Command, Feature, Hooks, Runtime
from bot.features.questions import wording
from bot.features.questions.admissions import Admissions
from bot.features.questions.approvals import Approvals
from bot.features.questions.tool_questions import ToolQuestions


def _build(runtime: Runtime) -> Hooks:
    admissions = Admissions(runtime)
    approvals = Approvals(runtime, admissions)

    async def waiting(viewer: Viewer) -> list[OpenLoop]:
        return await admissions.waiting(viewer) + await approvals.waiting(viewer)

    return Hooks(
        commands={
            "approve": Command(approvals.approve),
            "deny": Command(approvals.deny),
            "approvals": Command(approvals.listed),
            "afresh": Command(approvals.afresh),
            "allow": Command(admissions.allow),
            "block": Command(admissions.block),
        },
        signals={"admission": Command(admissions.ask)},
        approvals=approvals,
        asks=ToolQuestions(runtime),
        questions=approvals.open_in,
        outcomes={"call": wording.outcome, "budget": wording.outcome, "person": admissions.outcome},
        home={1: approvals.home},
        waiting=waiting,
        serves=(admissions.watch,),
    )


FEATURE = Feature("questions", _build)
