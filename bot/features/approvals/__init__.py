"""Approvals: a tool call waits until an authorised person decides."""

from bot.core.feature import Command, Feature, Hooks, Runtime
from bot.features.approvals.service import ApprovalService


def _build(runtime: Runtime) -> Hooks:
    service = ApprovalService(runtime)
    return Hooks(
        commands={
            "approve": Command(service.approve),
            "deny": Command(service.deny),
            "approvals": Command(service.listed),
            "afresh": Command(service.afresh),
        },
        approvals=service,
        questions=service.open_in,
        home={1: service.home},
        waiting=service.waiting,
        outcomes=dict.fromkeys(("call", "task", "budget"), service.ended),
    )


FEATURE = Feature("approvals", _build)
