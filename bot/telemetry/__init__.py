"""The operator's log, its redaction, and the context variables that give log lines the ids of their turn."""

from __future__ import annotations

from bot.telemetry.log import (
    PACKED,
    JsonlLog,
    Running,
    bridged,
    current,
    day_files,
    on_waiting_for_model,
    person,
    step_scope,
    task_scope,
    turn_scope,
    waiting_for_model,
)
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
    "on_waiting_for_model",
    "person",
    "step_scope",
    "task_scope",
    "turn_scope",
    "waiting_for_model",
]
