"""Strips dead letters of all words: their author is not known, so no person could have them deleted."""

from __future__ import annotations

from typing import Any

_KEPT = frozenset(
    {
        "api_app_id",
        "bot_id",
        "channel",
        "channel_id",
        "channel_type",
        "client_msg_id",
        "deleted_ts",
        "event_id",
        "event_ts",
        "subtype",
        "team",
        "team_id",
        "thread_ts",
        "trigger_id",
        "ts",
        "type",
        "user",
        "user_id",
    }
)
_DEEP = 6
_WIDE = 40


def skeleton(value: Any, key: str = "", depth: int = 0) -> Any:
    """The shape of a payload: ids, types and numbers as they are, every other text by its length."""
    if isinstance(value, str):
        return value[:80] if key in _KEPT else f"<{len(value)} characters>"
    if isinstance(value, dict):
        if depth >= _DEEP:
            return f"<{len(value)} fields>"
        pairs = list(value.items())[:_WIDE]
        return {str(name)[:80]: skeleton(part, str(name), depth + 1) for name, part in pairs}
    if isinstance(value, list):
        if depth >= _DEEP:
            return f"<{len(value)} items>"
        return [skeleton(part, "", depth + 1) for part in value[:_WIDE]]
    return value
