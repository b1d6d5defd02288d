"""Removal: deletes a message's text from the log and from everything derived from it. The removal runs when
the author deletes the message, or when somebody uses `/forget`.
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
