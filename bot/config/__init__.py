"""Reads ship.json and returns either a valid configuration or its mistakes."""

from __future__ import annotations

from bot.config.load import (
    HOME,
    Llm,
    Settings,
    allowed,
    leaves,
    load,
    must_be_folder,
    shown_leaves,
    tokens_in_use,
    write_schemas,
)
from bot.config.ship_file import wrong_id, wrong_operator

__all__ = [
    "HOME",
    "Llm",
    "Settings",
    "allowed",
    "leaves",
    "load",
    "must_be_folder",
    "shown_leaves",
    "tokens_in_use",
    "write_schemas",
    "wrong_id",
    "wrong_operator",
]
