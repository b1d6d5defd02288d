"""Retries: the button [Try again] below a failure notice, and [Answer again] below an answer whose question
was edited.
"""

from bot.core.feature import Command, Feature, Hooks, Runtime
from bot.features.retries.service import Retries


def _build(runtime: Runtime) -> Hooks:
    retries = Retries(runtime)
    return Hooks(
        commands={"retry": Command(retries.run), "renew": Command(retries.renew)},
        signals={"edit": Command(retries.offer)},
        turn_ends=retries.turn_ends,
    )


FEATURE = Feature("retries", _build)
