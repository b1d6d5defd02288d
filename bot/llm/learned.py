"""Stores learned facts of models in a small JSON file, so that they survive a restart.

The file is a cache: one that cannot be read is ignored, one that cannot be written is written later.
"""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path

from bot.contracts.environment import Disk, Log

FORMAT = 1
MAX_MODELS = 200
MAX_BYTES = 1024 * 1024


class LearnedFile:
    """`contracts.model.Learned` of one provider, in a file shared by all providers. `save` writes changes."""

    def __init__(self, path: Path, provider: str, *, disk: Disk, log: Log) -> None:
        self._path = path
        self._provider = provider
        self._disk = disk
        self._log = log
        self._known: dict[str, dict[str, float]] = {}
        self._changed = False

    def load(self) -> None:
        """Read the file. Blocking; raises nothing."""
        try:
            raw = self._disk.read(self._path)
            self._known = _read(raw)
        except (OSError, ValueError, RecursionError) as error:
            self._log.write(
                "storage",
                "learned facts of models cannot be read",
                level="warn",
                cause=type(error).__name__,
            )

    def get(self, model: str, name: str) -> float | None:
        return self._known.get(self._key(model), {}).get(name)

    def set(self, model: str, name: str, value: float | None) -> None:
        if self.get(model, name) == value:
            return
        key = self._key(model)
        # The model used last moves to the end: the first ones are dropped.
        figures = self._known.pop(key, {})
        if value is None:
            figures.pop(name, None)
        else:
            figures[name] = value
        if figures:
            self._known[key] = figures
        self._changed = True

    async def save(self) -> None:
        """Write the changes since the last time. Raises nothing."""
        if not self._changed:
            return
        self._changed = False
        kept = dict(list(self._known.items())[-MAX_MODELS:])
        data = json.dumps({"v": FORMAT, "models": kept}, ensure_ascii=False, indent=1) + "\n"
        try:
            await asyncio.to_thread(self._disk.replace, self._path, data.encode("utf-8", "replace"))
        except OSError as error:
            self._changed = True
            self._log.write(
                "storage", "learned facts of models cannot be written", level="warn", cause=str(error)
            )

    def _key(self, model: str) -> str:
        return f"{self._provider} {model}"


def _read(raw: bytes) -> dict[str, dict[str, float]]:
    """The figures of a file; invalid ones are ignored. Raises ValueError for any other file."""
    if not raw:
        return {}
    if len(raw) > MAX_BYTES:
        raise ValueError("too large")
    document = json.loads(raw)
    models = document.get("models") if isinstance(document, dict) and document.get("v") == FORMAT else None
    if not isinstance(models, dict):
        raise ValueError("no figures of models")  # noqa: TRY004 - a bad file, not a bad call
    return {
        str(model): {str(name): float(value) for name, value in figures.items() if _is_figure(value)}
        for model, figures in models.items()
        if isinstance(figures, dict)
    }


def _is_figure(value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
    )
