"""Receipts say what happened in a turn. Ratings of answers are stored by this feature too."""

from bot.core.feature import Command, Feature, Hooks, Runtime
from bot.features.receipts.account import Receipts


def _build(runtime: Runtime) -> Hooks:
    receipts = Receipts(runtime)
    return Hooks(
        commands={"receipt": Command.saying(receipts.receipt)},
        signals={"rating": Command(receipts.rate)},
    )


FEATURE = Feature("receipts", _build)
