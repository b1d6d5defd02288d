"""Frames: a chat's prompt as an event, so that requests have the same prefix after a restart. A frame
changes only at the beginning of an epoch.
"""

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
"""Assembles the prompt of a chat for a channel and the answering model."""


class Frames:
    """Gives each turn its chat's prompt. A new one is assembled only if the provider's cache is cold or
    invalid anyway.
    """

    def __init__(self, freeze: Freeze, *, clock: Clock, log: Log) -> None:
        self._freeze = freeze
        self._clock = clock
        self._log = log

    async def of(self, chat: Chat, first: Inbound, models: ModelDeps) -> tuple[Frozen, Mapping[str, str]]:
        """Return the prompt, and the surroundings that have changed since the model was told."""
        if models.chosen is not None:
            # It is read once, because another process may have been told of later changes.
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
        # Files change often; the cached prefix does not change because of them alone.
        same = replace(fresh, surroundings=before.frozen.surroundings)
        if known != same:
            self._log.write("prompt", "the instructions or the skills have changed")
            return fresh, {}
        told = prompt.known_surroundings(same.surroundings, context.view())
        return same, {name: words for name, words in fresh.surroundings.items() if told.get(name) != words}
