"""The built-in tools. Each module of this folder lists its tools in `TOOLS`; adding a tool needs no other change."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic import BaseModel

from bot.config.ship_file import WebSearch
from bot.contracts.archive import ArchiveLine, HistoryPage, HistoryQuery
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply, ModelRequest
from bot.contracts.tools import READS, Effect, FoundTools, Tool, ToolInput
from bot.storage.artifacts import ArtifactStore
from bot.storage.notes import NoteStore
from bot.tools.context import Jobs, Membership, Recalls
from bot.tools.file_guard import FileGuard
from bot.tools.isolation import Isolation
from bot.tools.project import Project
from bot.tools.registry import NOTHING, ToolCatalog
from bot.tools.skills import SkillFolder
from bot.tools.web import Web


class Search(NamedTuple):
    """The search engine of `web_search`. If the engine's kind is `auto`, the provider of `model` searches."""

    engine: WebSearch
    model: str
    ask: Callable[[ModelRequest], Awaitable[ModelReply]]


@dataclass(frozen=True, slots=True)
class ToolPorts:
    """Interfaces and values that tools depend on. Each tool uses only some of them."""

    history: Callable[[ChatKey, HistoryQuery], Awaitable[HistoryPage]]
    """Function that returns a page of a chat's archive."""
    artifacts: ArtifactStore
    skills: SkillFolder
    clock: Clock
    memory: NoteStore
    project: Project
    isolation: Isolation
    guard: FileGuard
    web: Web = field(default_factory=Web)
    recall: Recalls | None = None
    membership: Membership | None = None
    catalog: ToolCatalog = NOTHING
    permalink: Callable[[ArchiveLine], str | None] = lambda _: None
    jobs: Jobs | None = None
    search: Search | None = None


class BuiltinTool(ABC):
    """Base class of the built-in tools. The default attributes suit a tool that reads. If `eager` is True, the tool's
    input is streamed while the model writes it.
    """

    name: str
    description: str
    input: type[BaseModel] = ToolInput
    effects: frozenset[Effect] = READS
    timeout_seconds = 30.0
    ages = True
    eager = False

    def __init__(self, ports: ToolPorts) -> None:
        self.ports = ports

    @abstractmethod
    async def run(self, args: Any) -> str | FoundTools: ...


def builtin_tools(ports: ToolPorts) -> list[Tool]:
    """Return the tools of all modules of this folder."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    tools = [tool(ports) for module in modules for tool in module.TOOLS]
    return [tool for tool in tools if tool.name != "web_search" or ports.search is not None]
