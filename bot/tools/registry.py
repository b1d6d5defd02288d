"""The registry of tools. It also writes the definitions with which a request declares tools to the model."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from bot.contracts.base import Json
from bot.contracts.tools import Tool


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool in the catalog: the definition for the model, and the title and description that the tool's source gave.
    `server` is the tool's MCP server. `instructions` are that server's notes on its tools.
    """

    definition: Json
    title: str
    words: str
    server: str = ""
    instructions: str = ""

    @property
    def name(self) -> str:
        return str(self.definition["name"])


class ToolCatalog:
    """The tools that `tool_search` can find in addition to the tools that every request declares. They may change at any time.
    This base class has no tools. `sources` names each source of tools, such as an MCP server, with its state.
    """

    def get(self, name: str) -> Tool | None:
        del name
        return None

    def offers(self) -> Sequence[ToolOffer]:
        return ()

    def sources(self) -> Mapping[str, str]:
        return {}


NOTHING = ToolCatalog()
_NULL = {"type": "null"}
_NOISE = frozenset({"title", "minLength", "maxLength", "pattern", "format"})
"""Schema keywords that are not sent to the model, to save tokens. Arguments are still validated against them."""
SEARCH = "tool_search"
ALWAYS = frozenset({"chat_send", "chat_load_history", SEARCH})
"""Tools that every request declares, however small the context window is."""


class Registry:
    """The tools of one agent. Each request declares some of these tools, sorted by name so that the cached prefix of requests
    stays the same. All other tools are in the catalog (`more`).
    """

    def __init__(self, tools: Iterable[Tool], more: ToolCatalog = NOTHING) -> None:
        self._more = more
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self.definitions: tuple[Json, ...] = tuple(map(definition, self._tools.values()))

    @functools.cached_property
    def forms(self) -> tuple[tuple[Json, ...], ...]:
        """Return three lists of definitions, largest first: complete definitions, definitions without descriptions of
        arguments, and only the tools in `ALWAYS`. With the last list, the model finds all other tools with `tool_search`.
        """
        brief = tuple(
            {**one, "input_schema": _without(one["input_schema"], "description")} for one in self.definitions
        )
        if SEARCH not in self._tools:
            return self.definitions, brief
        rest = ", ".join(name for name in self._tools if name not in ALWAYS)
        search = {"description": f"Find more tools to call: {rest}, and those of MCP servers."}
        few = (one | search if one["name"] == SEARCH else one for one in brief if one["name"] in ALWAYS)
        return self.definitions, brief, tuple(few)

    def behind(self, declared: Sequence[Json]) -> tuple[Json, ...]:
        """`declared` are the definitions in a request. Return the definitions of all other tools of this registry."""
        names = {one["name"] for one in declared}
        return tuple(one for one in self.definitions if one["name"] not in names)

    def get(self, name: str) -> Tool | None:
        return self._tools.get(name) or self._more.get(name)

    def without(self, barred: Container[str]) -> Registry:
        return Registry((tool for name, tool in self._tools.items() if name not in barred), self._more)

    def names(self) -> list[str]:
        return list(self._tools)


def definition(tool: Tool) -> Json:
    """Return the definition of a tool for the Messages API."""
    declared = {"name": tool.name, "description": tool.description, "input_schema": input_schema(tool.input)}
    return declared | ({"eager_input_streaming": True} if getattr(tool, "eager", False) else {})


@functools.cache
def input_schema(model: type[BaseModel]) -> Json:
    schema: Json = _flat(model.model_json_schema())
    schema.pop("description", None)
    return schema


def _flat(value: Any) -> Any:
    """Return a shortened schema: without the keywords in `_NOISE`, without null for optional arguments, and with
    several plain types as one list. A field that is named like a keyword is kept.
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
    if isinstance(value, dict):
        return {
            key: _without(item, word)
            for key, item in value.items()
            if not (key == word and isinstance(item, str))
        }
    return [_without(item, word) for item in value] if isinstance(value, list) else value
