"""Copies the details of a log line, so that later changes do not reach the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.normalize import Bounds, plain_details

LOGGED = Bounds(depth=21, items=5_000, properties=5_000, values=5_000, null=None)
"""Strings stay whole: what is secret in them has to be replaced before they may be cut."""


def snapshot(details: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that the caller's later changes do not reach: containers copied, strings shared."""
    return plain_details(details, LOGGED)
