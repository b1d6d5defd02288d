"""The built-in tools. Each module of this folder lists its tools in `TOOLS`; adding a tool needs no other change."""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import pkgutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, get_type_hints

from pydantic import create_model

from bot.config.ship_file import WebSearch
from bot.contracts.channel import MembershipAnswer
from bot.contracts.environment import Clock
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine, HistoryPage, HistoryQuery
from bot.contracts.model import ModelReply, ModelRequest
from bot.contracts.tools import READS, Effect, FoundTools, Tool, ToolInput
from bot.storage.artifacts import ArtifactStore
from bot.storage.notes import NoteStore
from bot.tools.context import Jobs, Recalls
from bot.tools.dispatch import NOTHING, ToolCatalog
from bot.tools.file_guard import FileGuard
from bot.tools.isolation import Isolation
from bot.tools.project import Project
from bot.tools.skills import SkillFolder
from bot.tools.web import Web


class Search(NamedTuple):
    """The search engine of `web_search`. If the engine's kind is `auto`, the provider of `model` searches."""

    engine: WebSearch
    model: str
    ask: Callable[[ModelRequest], Awaitable[ModelReply]]


@dataclass(frozen=True, slots=True)
class ToolPorts:
    """The interfaces and values (ports) that built-in tools need from outside. Each tool uses only some of them."""

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
    chats_of: Callable[..., Awaitable[MembershipAnswer]] | None = None
    """Function that returns the chats in which a person is a member now (`bot.core.access`). Each search calls it again, so that
    a person who has left a chat can no longer search it.
    """
    catalog: ToolCatalog = NOTHING
    permalink: Callable[[ArchiveLine], str | None] = lambda _: None
    jobs: Jobs | None = None
    search: Search | None = None


@dataclass(frozen=True)
class BuiltinTool:
    """A tool that the decorator `tool` made from a function. Calling it with the ports returns the tool to register."""

    name: str
    description: str
    input: type[ToolInput]
    function: Callable[..., Any]
    effects: frozenset[Effect] = READS
    timeout_seconds: float = 30.0
    ages: bool = True
    eager: bool = False
    """True if the tool's input is streamed while the model writes it."""
    adapt: Callable[[ToolPorts], Mapping[str, Any]] = lambda _: {}
    """Function that returns those fields of the tool whose values depend on the ports."""

    def __call__(self, ports: ToolPorts) -> BuiltinTool:
        return replace(self, function=functools.partial(self.function, ports), **self.adapt(ports))

    async def run(self, args: Any) -> str | FoundTools:
        given = {"args": args} if "args" in inspect.signature(self.function).parameters else vars(args)
        call = functools.partial(self.function, **given)
        result: str | FoundTools
        if inspect.iscoroutinefunction(self.function):
            result = await call()
        else:
            result = await asyncio.to_thread(call)
        return result


def tool(description: str = "", **fields: Any) -> Callable[[Callable[..., Any]], BuiltinTool]:
    """Return a decorator that makes a tool from a function. `fields` sets further fields of `BuiltinTool`; their defaults suit
    a tool that only reads. The function takes the ports, and then either each argument of the tool or `args`, a Pydantic model of
    all arguments. If the function is not async, it runs on another thread.
    """

    def made(function: Callable[..., Any]) -> BuiltinTool:
        name, hints = function.__name__, get_type_hints(function, include_extras=True)
        parameters = [*inspect.signature(function).parameters.values()][1:]
        declared: dict[str, Any] = {
            one.name: (hints[one.name], ... if one.default is one.empty else one.default)
            for one in parameters
        }
        given = hints.get("args") or create_model(name, __base__=ToolInput, **declared)
        return BuiltinTool(name, description, given, function, **fields)

    return made


def builtin_tools(ports: ToolPorts) -> list[Tool]:
    """Return the tools of all modules of this folder."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    tools = [one(ports) for module in modules for one in module.TOOLS]
    return [one for one in tools if one.name != "web_search" or ports.search is not None]
