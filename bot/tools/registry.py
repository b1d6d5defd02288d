"""Which tools there are, and how the model is told."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from bot.contracts import (
    Archive,
    ArchiveLine,
    Artifacts,
    Clock,
    Jobs,
    Json,
    Membership,
    MemoryFiles,
    Recalls,
    Skills,
    Tool,
)
from bot.tools import builtin
from bot.tools.catalog import NOTHING, Catalog
from bot.tools.isolation import Isolation
from bot.tools.project import Project
from bot.tools.web import Web


@dataclass(frozen=True, slots=True)
class ToolPorts:
    """What tools reach of the other rooms; each takes what it needs."""

    archive: Archive
    artifacts: Artifacts
    skills: Skills
    clock: Clock
    memory: MemoryFiles
    project: Project
    isolation: Isolation | None = None
    web: Web = field(default_factory=Web)
    recall: Recalls | None = None
    membership: Membership | None = None
    catalog: Catalog = NOTHING
    permalink: Callable[[ArchiveLine], str | None] = lambda _: None
    jobs: Jobs | None = None


class Registry:
    """The tools of one agent: those that every request declares, in order of name so that the cached prefix never depends
    on chance, and those that are found (`more`).
    """

    def __init__(self, tools: Iterable[Tool], more: Catalog = NOTHING) -> None:
        self._more = more
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self.definitions: tuple[Json, ...] = tuple(map(definition, self._tools.values()))

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._more.get(name)

    def without(self, barred: Callable[[str], bool]) -> Registry:
        """The same without the tools whose names are barred."""
        return Registry((tool for name, tool in self._tools.items() if not barred(name)), self._more)

    def names(self) -> list[str]:
        """Of those that every request declares."""
        return list(self._tools)


def definition(tool: Tool) -> Json:
    """A tool as the Messages API wants it: the schema of its input without titles, which only cost tokens."""
    return {"name": tool.name, "description": tool.description, "input_schema": _schema(tool.input)}


@functools.cache
def _schema(model: type[BaseModel]) -> Json:
    schema: Json = _untitled(model.model_json_schema())
    schema.pop("description", None)
    return schema


def _untitled(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _untitled(item)
            for key, item in value.items()
            if not (key == "title" and isinstance(item, str))
        }
    if isinstance(value, list):
        return [_untitled(item) for item in value]
    return value


def builtin_tools(ports: ToolPorts) -> list[Tool]:
    """Every tool in `bot/tools/builtin`: one module each, with a `build(ports)`."""
    names = sorted(module.name for module in pkgutil.iter_modules(builtin.__path__))
    return [importlib.import_module(f"{builtin.__name__}.{name}").build(ports) for name in names]
