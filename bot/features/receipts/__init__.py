"""Receipts say what happened in a turn. This feature also stores ratings of answers."""

from bot.core.feature import Command, Feature, Hooks, Runtime
from bot.features.receipts.account import Receipts


def _build(runtime: Runtime) -> Hooks:
    receipts = Receipts(runtime)
    return Hooks(
        commands={"receipt": Command.saying(receipts.receipt)},
        signals={"rating": Command(receipts.rate)},
    )


FEATURE = Feature("receipts", _build)
