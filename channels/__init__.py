"""Channels: one folder per chat platform, with the adapter of the platform. `bot.contracts.channel` defines the interface."""

from __future__ import annotations

from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any


def lazy(path: str) -> Callable[..., Any]:
    """Return a function that imports `path` (`module:name`) only when it is called, so that a manifest is imported fast."""

    def call(*given: Any) -> Any:
        return resolve_name(path)(*given)

    call.__module__ = path.partition(":")[0]  # `bot.app.preload` imports the package of this module
    return call
