"""Retention: deletes data that is older than the retention time of its chat, from the log and from
everything derived from it.
"""

from bot.core.feature import Feature, Hooks, Runtime
from bot.features.retention.service import Retention


def _build(runtime: Runtime) -> Hooks:
    return Hooks(serves=(Retention(runtime).watch,) if runtime.configuration.history.keep_days else ())


FEATURE = Feature("retention", _build)
