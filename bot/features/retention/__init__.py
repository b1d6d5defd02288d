"""Retention: what is older than the days of its chat goes from the log, and from all that was made of it."""

from bot.core.feature import Feature, Hooks, Runtime
from bot.features.retention.service import Retention


def _build(runtime: Runtime) -> Hooks:
    return Hooks(serves=(Retention(runtime).watch,) if runtime.configuration.history.keep_days else ())


FEATURE = Feature("retention", _build)
