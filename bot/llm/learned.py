"""Stores facts that were learned about models in a small JSON file, so that the facts survive a restart.

The file is a cache: an unreadable file is ignored, and a failed write is repeated later.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from bot.contracts.environment import Disk, Log

MAX_MODELS = 200


class _Document(BaseModel):
    v: Literal[1] = 1
    models: dict[str, dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]]]
    """Learned numbers by provider and model."""


class LearnedFile:
    """Implements `contracts.model.Learned` for one provider. All providers share the file. `save` writes the
    changes.
    """

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
            if raw := self._disk.read(self._path):
                self._known = _Document.model_validate_json(raw).models
        except (OSError, ValueError) as error:
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
        # The model used last moves to the end, because models are dropped from the beginning.
        figures = self._known.pop(key, {})
        if value is None:
            figures.pop(name, None)
        else:
            figures[name] = value
        if figures:
            self._known[key] = figures
        self._changed = True

    async def save(self) -> None:
        """Write the changes made since the last `save`. Raises nothing."""
        if not self._changed:
            return
        self._changed = False
        kept = dict(list(self._known.items())[-MAX_MODELS:])
        data = _Document.model_construct(models=kept).model_dump_json(indent=1) + "\n"
        try:
            await asyncio.to_thread(self._disk.replace, self._path, data.encode("utf-8", "replace"))
        except OSError as error:
            self._changed = True
            self._log.write(
                "storage", "learned facts of models cannot be written", level="warn", cause=str(error)
            )

    def _key(self, model: str) -> str:
        return f"{self._provider} {model}"
