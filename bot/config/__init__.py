"""Reads ship.json and returns either a valid configuration or the list of all its mistakes."""

from __future__ import annotations

from bot.config.checks import allowed, identity, operator, tokens_in_use
from bot.config.load import HOME, Llm, Settings, leaves, load, must_be_folder, shown_leaves
from bot.config.schema import write_schema
from bot.config.ship_file import Subagents, Transcription

__all__ = [
    "HOME",
    "Llm",
    "Settings",
    "Subagents",
    "Transcription",
    "allowed",
    "identity",
    "leaves",
    "load",
    "must_be_folder",
    "operator",
    "shown_leaves",
    "tokens_in_use",
    "write_schema",
]
