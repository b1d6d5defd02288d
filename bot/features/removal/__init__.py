"""Removal: deletes a message's words from the log and everything derived, when its author deletes it or
somebody asks to forget it.
"""

from bot.core.feature import Command, Feature, Hooks, Runtime
from bot.features.removal.service import Removal


def _build(runtime: Runtime) -> Hooks:
    removal = Removal(runtime)
    return Hooks(
        commands={"forget": Command(removal.forget, queued=True)},
        signals={"delete": Command(removal.deleted)},
    )


FEATURE = Feature("removal", _build)
