"""Applies a changed configuration to new turns, or reports why the configuration was rejected."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterator

from pydantic.alias_generators import to_camel

from bot import config, errors
from bot.contracts.environment import Log
from bot.core.agent_deps import AgentDeps

OF_TURNS = (
    "llm.model",
    "llm.fastModel",
    "llm.maxTokens",
    "llm.contextWindow",
    "llm.effort",
    "llm.thinking",
    "llm.purposes",
    "context",
    "subagents",
    "permissions",
)
"""Keys whose changed values apply to new turns. All other keys need a restart."""
ASK_SECONDS = 20.0
"""Timeout in seconds for asking the provider whether it has a model."""


class ConfigurationReload:
    """Keeps the configuration of new turns. `deps_of` builds the agent's dependencies for a configuration,
    and `use` applies them.
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
        """Reload the configuration whenever `asked` is set, and print the outcome. An unexpected error only
        makes this reload fail.
        """
        while True:
            await asked.wait()
            asked.clear()
            before = self.settings
            reload = asyncio.create_task(self.reload(load))
            try:
                await asyncio.wait([reload])
            finally:
                reload.cancel()
            if reload.cancelled():
                continue
            if (error := reload.exception()) is None:
                say(reload.result())
            else:
                say(self._refused(f"{type(error).__name__}: {error}", held=self.settings is before))

    async def reload(self, load: Callable[[], config.Settings]) -> str:
        """Load, check and apply the configuration. Return the outcome, which is also logged."""
        try:
            found = await asyncio.to_thread(load)
            settings = _with_turns_of(self.settings, found)
            deps = self._deps_of(settings)
            if settings.llm.model != self.settings.llm.model:
                await _must_be_there(deps)
        except errors.ConfigError as error:
            return self._refused(*error.findings)
        changed = sorted(_differing(self.settings, settings))
        restart = sorted(_differing(settings, found))
        warnings = [one for one in found.warnings if one not in self.settings.warnings]
        self.settings = dataclasses.replace(settings, warnings=found.warnings)
        if changed:
            self._use(deps)
        words = "SIGHUP: " + (
            "turns that begin from now on have the changed configuration" if changed else "nothing changes"
        )
        if restart:
            words += f"; a restart is needed for {', '.join(restart)}"
        words = "; ".join((words, *(f"warning: {one}" for one in warnings)))
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

    def _refused(self, *findings: str, held: bool = True) -> str:
        what = "cannot be used, and the one before holds" if held else "is not used by every chat yet"
        words = f"SIGHUP: the configuration {what}: {findings[0]}"
        self._log.write("reload", words, level="error", findings=list(findings))
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


def _with_turns_of(settings: config.Settings, found: config.Settings) -> config.Settings:
    """Return `settings` with the values that `found` has for the keys in `OF_TURNS`."""
    llm = {name: getattr(found.llm, name) for name in _names("llm")}
    rest = {name: getattr(found, name) for name in _names("")}
    return dataclasses.replace(settings, llm=settings.llm.model_copy(update=llm), **rest)


def _names(section: str) -> Iterator[str]:
    """Yield the fields in `OF_TURNS` of a settings section, or of the settings as a whole."""
    fields = {to_camel(field.name): field.name for field in dataclasses.fields(config.Settings)}
    if section == "llm":
        fields = {f"llm.{to_camel(name)}": name for name in config.Llm.model_fields}
    return (fields[key] for key in OF_TURNS if key in fields)


def _differing(one: config.Settings, other: config.Settings) -> set[str]:
    """Return the full keys of ship.json whose values differ."""
    before, after = config.leaves(one), config.leaves(other)
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
