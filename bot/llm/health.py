"""Records whether the last request to the model succeeded."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bot import errors
from bot.contracts.environment import Clock
from bot.contracts.model import Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.llm.wrapper import ModelWrapper, aclosing

AWAY = (
    errors.ModelUnreachable,
    errors.ModelRefused,
    errors.Overloaded,
    errors.SpendLimit,
    errors.StreamBroken,
)
"""Failures after which no turn can be answered. The others belong to one request, or pass by themselves."""


class WatchedModel(ModelWrapper):
    """A model that remembers how its last call ended. `trouble` is "" while it answers or was not asked yet."""

    def __init__(self, model: Model, *, clock: Clock) -> None:
        super().__init__(model)
        self._clock = clock
        self.asked: float | None = None
        """End of the last call in epoch seconds; None if there was none."""
        self.trouble = ""

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        async with aclosing(self._model.stream(request)) as pieces:
            try:
                async for piece in pieces:
                    if isinstance(piece, ModelReply):
                        self._note(None)
                    yield piece
            except errors.ModelError as error:
                self._note(error)
                raise

    async def check(self) -> None:
        try:
            await super().check()
        except errors.ModelError as error:
            self._note(error)
            raise
        self._note(None)

    async def look(self) -> None:
        """If the model was away when last asked, check whether it is back. Raises nothing."""
        if not self.trouble:
            return
        try:
            await self.check()
        except errors.ModelError:
            return

    def _note(self, error: errors.ModelError | None) -> None:
        self.asked = self._clock.now()
        self.trouble = f"{type(error).__name__}: {error}" if isinstance(error, AWAY) else ""
