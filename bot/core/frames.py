"""The prompt of a chat, frozen: an event, so that requests begin with the same bytes after a restart too. It changes where an epoch begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from bot import errors
from bot.contracts.environment import Clock, Log
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.core import prompt
from bot.core.assembly import Frozen
from bot.core.chat import Chat
from bot.core.fit import COLD_AFTER
from bot.core.models import ModelDeps

Freeze = Callable[[ChatKey, str, ModelDeps], Awaitable[Frozen]]
"""Puts the prompt of a chat in this channel, for the model that answers, together anew."""


class Frames:
    """Gives each turn the prompt of its chat. It is put together anew only where the provider's cache of it is cold or gone anyway."""

    def __init__(self, freeze: Freeze, *, clock: Clock, log: Log) -> None:
        self._freeze = freeze
        self._clock = clock
        self._log = log

    async def of(self, chat: Chat, first: Inbound, models: ModelDeps) -> tuple[Frozen, Mapping[str, str]]:
        """The prompt, and the surroundings that are others than the model knows."""
        if models.chosen is not None:
            # What it takes is part of the frame, and is asked once: another process may have been told.
            with suppress(errors.ModelError):
                await models.windows.ask(models.model, models.chosen)
        context = chat.context
        before = context.frame
        known = before.frozen if before is not None and before.model == models.name else None
        asked_at = context.asked_at
        shows = len(context) > 0 or bool(context.current())
        warm = shows and asked_at is not None and self._clock.now() - asked_at <= COLD_AFTER
        if known is not None and warm:
            return known, {}
        fresh = await self._freeze(chat.key, first.channel, models)
        if before is None or not len(context):
            return fresh, {}
        # Files come and go: what stands before the messages does not change with them alone.
        same = replace(fresh, surroundings=before.frozen.surroundings)
        if known != same:
            self._log.write("prompt", "the instructions or the skills have changed")
            return fresh, {}
        told = prompt.known_surroundings(same.surroundings, context.view())
        return same, {name: words for name, words in fresh.surroundings.items() if told.get(name) != words}
