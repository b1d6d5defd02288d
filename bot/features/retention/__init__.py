"""Retention: deletes what is older than its chat's retention time, from the log and everything derived."""

from bot.core.feature import Feature, Hooks, Runtime
from bot.features.retention.service import Retention


def _build(runtime: Runtime) -> Hooks:
    return Hooks(serves=(Retention(runtime).watch,) if runtime.configuration.history.keep_days else ())


FEATURE = Feature("retention", _build)
