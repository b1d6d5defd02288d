"""The operator's log, its redaction, and the context variables that give log lines the ids of their turn."""

from __future__ import annotations

from bot.telemetry.context import Running, current, step_scope, turn_scope
from bot.telemetry.log import PACKED, JsonlLog, bridged, day_files
from bot.telemetry.redaction import LogRedactor, Redactor

__all__ = [
    "PACKED",
    "JsonlLog",
    "LogRedactor",
    "Redactor",
    "Running",
    "bridged",
    "current",
    "day_files",
    "step_scope",
    "turn_scope",
]
