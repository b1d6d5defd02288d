"""A model around another one, as `LoggedModel`, `RetryingModel` and `WatchedModel` are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from bot.contracts.model import Model, ModelFacts

T = TypeVar("T")


class ModelWrapper:
    """Passes on what a wrapper does not do in a way of its own."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def check(self) -> None:
        await self._model.check()

    async def facts(self, model: str) -> ModelFacts:
        return await self._model.facts(model)

    async def close(self) -> None:
        await self._model.close()


@asynccontextmanager
async def aclosing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """A stream of the model, closed on every way out where it can be, so that its connection does not outlive its reader."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
