"""Approvals: a tool call that waits until somebody who may has said yes or no."""

from bot.core.feature import Command, Feature, Hooks, Runtime
from bot.features.approvals.service import ApprovalService


def _build(runtime: Runtime) -> Hooks:
    service = ApprovalService(runtime)
    return Hooks(
        commands={
            "approve": Command(service.approve),
            "deny": Command(service.deny),
            "approvals": Command(service.listed),
        },
        approvals=service,
        questions=service.open_in,
        outcomes=dict.fromkeys(("call", "task", "budget"), service.ended),
    )


FEATURE = Feature("approvals", _build)
