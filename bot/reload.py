"""Applies a changed configuration to new turns. If the configuration is rejected, the reason is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from bot import config, errors
from bot.contracts.environment import Log
from bot.core.agent import AgentDeps

OF_TURNS = {
    "llm": ("model", "fast_model", "max_tokens", "context_window", "effort", "thinking", "purposes"),
    "": ("context", "subagents", "permissions"),
}
"""Settings, by section, whose changes apply to new turns. All other settings need a restart."""
ASK_SECONDS = 20.0
"""Timeout in seconds for asking the provider if it has a model."""


class ConfigurationReload:
    """The configuration that new turns use. `deps_of` builds the agent's dependencies from a configuration, and `use`
    applies them.
    """

    def __init__(
        self,
        settings: config.Settings,
        use: Callable[[AgentDeps], None],
        deps_of: Callable[[config.Settings], AgentDeps],
        log: Log,
    ) -> None:
        self.settings = settings
        """Settings of new turns."""
        self._use = use
        self._deps_of = deps_of
        self._log = log

    async def serve(
        self, asked: asyncio.Event, load: Callable[[], config.Settings], say: Callable[[str], None]
    ) -> None:
        """Reload the configuration each time that `asked` is set, and print the outcome."""
        while True:
            await asked.wait()
            asked.clear()
            say(await self.reload(load))

    async def reload(self, load: Callable[[], config.Settings]) -> str:
        """Load, check and apply the configuration. Return the outcome, which is logged too. After an unexpected error,
        the old configuration stays.
        """
        try:
            found = await asyncio.to_thread(load)
            llm = {name: getattr(found.llm, name) for name in OF_TURNS["llm"]}
            update = {name: getattr(found, name) for name in OF_TURNS[""]}
            settings = self.settings.model_copy(
                update=update | {"llm": self.settings.llm.model_copy(update=llm)}
            )
            changed, restart = _differing(self.settings, settings), _differing(settings, found)
            if changed:
                deps = self._deps_of(settings)
                if settings.llm.model != self.settings.llm.model:
                    await _must_be_there(deps)
                self._use(deps)
        except (errors.ShipmateError, OSError, ValueError, RuntimeError) as error:
            findings = getattr(error, "findings", (f"{type(error).__name__}: {error}",))
            words = f"SIGHUP: the configuration cannot be used, and the one before holds: {findings[0]}"
            self._log.write("reload", words, level="error", findings=list(findings))
            return words
        warnings = [one for one in found.warnings if one not in self.settings.warnings]
        self.settings = settings.model_copy(update={"warnings": found.warnings})
        words = (
            "turns that begin from now on have the changed configuration" if changed else "nothing changes"
        )
        if restart:
            words += f"; a restart is needed for {', '.join(restart)}"
        words = "; ".join((f"SIGHUP: {words}", *(f"warning: {one}" for one in warnings)))
        self._log.write(
            "reload",
            words,
            level="warn" if restart or warnings else "info",
            changed=changed,
            restart=restart,
            findings=warnings,
            configuration=found.fingerprint,
        )
        return words


async def _must_be_there(deps: AgentDeps) -> None:
    """Raise `errors.ConfigError` if the provider says that it does not have the model."""
    name = deps.models.default_model
    try:
        async with asyncio.timeout(ASK_SECONDS):
            await deps.models.windows.ask(deps.models.model, name)
    except errors.ModelUnknown as error:
        raise errors.ConfigError(
            f"llm.model: found {name}, which the provider does not have ({error}); expected one that it has; name another"
        ) from None
    except (errors.ModelError, TimeoutError):
        return


def _differing(one: config.Settings, other: config.Settings) -> list[str]:
    """Return the full keys in ship.json of the values that differ."""
    before, after = config.leaves(one), config.leaves(other)
    return sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
