"""Registry of tools, and their definitions as requests declare them."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from bot.config.ship_file import WebSearch
from bot.contracts.archive import ArchiveLine, HistoryPage, HistoryQuery
from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply, ModelRequest
from bot.contracts.tools import Tool
from bot.storage.artifacts import ArtifactStore
from bot.storage.notes import NoteStore
from bot.tools import builtin
from bot.tools.catalog import NOTHING, ToolCatalog
from bot.tools.file_provenance import FileProvenance
from bot.tools.isolation import Isolation
from bot.tools.ports import Jobs, Membership, Recalls
from bot.tools.project import Project
from bot.tools.skills import SkillFolder
from bot.tools.web import Web
from bot.vetting import Vetting


class Search(NamedTuple):
    """The engine that `web_search` asks; `auto` is the provider's own, through a request to this model. Without it there is none."""

    engine: WebSearch
    model: str
    ask: Callable[[ModelRequest], Awaitable[ModelReply]]


@dataclass(frozen=True, slots=True)
class ToolPorts:
    """Ports to the other rooms; each tool takes what it needs."""

    history: Callable[[ChatKey, HistoryQuery], Awaitable[HistoryPage]]
    """A window into the archive of a chat."""
    artifacts: ArtifactStore
    skills: SkillFolder
    clock: Clock
    memory: NoteStore
    project: Project
    isolation: Isolation
    origins: FileProvenance
    vetting: Vetting
    web: Web = field(default_factory=Web)
    recall: Recalls | None = None
    membership: Membership | None = None
    catalog: ToolCatalog = NOTHING
    permalink: Callable[[ArchiveLine], str | None] = lambda _: None
    jobs: Jobs | None = None
    search: Search | None = None


_NULL = {"type": "null"}
_NOISE = frozenset({"title", "minLength", "maxLength", "pattern", "format"})
"""Keywords of a schema that only cost tokens; what they say is checked all the same."""
SEARCH = "tool_search"
ALWAYS = frozenset({"chat_send", "chat_load_history", SEARCH})
"""Tools that a request declares however small the window is."""


class Registry:
    """The tools of one agent: those that every request declares, in order of name so that the cached prefix never depends
    on chance, and those that are found (`more`).
    """

    def __init__(self, tools: Iterable[Tool], more: ToolCatalog = NOTHING) -> None:
        self._more = more
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self.definitions: tuple[Json, ...] = tuple(map(definition, self._tools.values()))

    @functools.cached_property
    def forms(self) -> tuple[tuple[Json, ...], ...]:
        """Tool definitions that a request may declare, the largest first: all of it; without descriptions of arguments; only what every
        conversation needs, the others behind `tool_search`.
        """
        brief = tuple(
            {**one, "input_schema": _without(one["input_schema"], "description")} for one in self.definitions
        )
        if SEARCH not in self._tools:
            return self.definitions, brief
        rest = ", ".join(name for name in self._tools if name not in ALWAYS)
        search = f"Find more tools to call: {rest}, and those of MCP servers."
        few = (one for one in brief if one["name"] in ALWAYS)
        return (
            self.definitions,
            brief,
            tuple({**one, "description": search} if one["name"] == SEARCH else one for one in few),
        )

    def behind(self, declared: Sequence[Json]) -> tuple[Json, ...]:
        """The whole definitions of the tools that a request does not declare."""
        names = {one["name"] for one in declared}
        return tuple(one for one in self.definitions if one["name"] not in names)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._more.get(name)

    def without(self, barred: Container[str]) -> Registry:
        """The same without the tools whose names are barred."""
        return Registry((tool for name, tool in self._tools.items() if name not in barred), self._more)

    def names(self) -> list[str]:
        """Of those that every request declares."""
        return list(self._tools)


def definition(tool: Tool) -> Json:
    """A tool as the Messages API wants it: the schema of its input without titles, which only cost tokens."""
    declared = {"name": tool.name, "description": tool.description, "input_schema": input_schema(tool.input)}
    return declared | ({"eager_input_streaming": True} if getattr(tool, "eager", False) else {})


@functools.cache
def input_schema(model: type[BaseModel]) -> Json:
    schema: Json = _flat(model.model_json_schema())
    schema.pop("description", None)
    return schema


def _flat(value: Any) -> Any:
    """A schema as short as a model reads it best: an argument that may be left out is one that is not required, never
    one that may be null; of several bare types it names all in one place, and limits of length are told by the error. A
    field that has such a name stays.
    """
    if isinstance(value, list):
        return [_flat(item) for item in value]
    if not isinstance(value, dict):
        return value
    flat = {key: _flat(item) for key, item in value.items() if key not in _NOISE or isinstance(item, dict)}
    options = flat.get("anyOf")
    if isinstance(options, list) and _NULL in options:
        left = [one for one in options if one != _NULL]
        types = [one["type"] for one in left if one.keys() == {"type"}]
        several = {"type": types} if len(types) == len(left) else {"anyOf": left}
        option = left[0] if len(left) == 1 else several
        flat = option | {key: item for key, item in flat.items() if key != "anyOf"}
    if flat.get("default", "") is None:
        del flat["default"]
    return flat


def _without(value: Any, word: str) -> Any:
    """A schema without these words on its fields. A field that has such a name stays."""
    if isinstance(value, dict):
        return {
            key: _without(item, word)
            for key, item in value.items()
            if not (key == word and isinstance(item, str))
        }
    return [_without(item, word) for item in value] if isinstance(value, list) else value


def builtin_tools(ports: ToolPorts) -> list[Tool]:
    """Every tool in `bot/tools/builtin`: one module each, with a `build(ports)`, which gives None where it is off."""
    names = sorted(module.name for module in pkgutil.iter_modules(builtin.__path__))
    built = (importlib.import_module(f"{builtin.__name__}.{name}").build(ports) for name in names)
    return [tool for tool in built if tool is not None]
