"""The port of tools: what the model may call, its calls and their results."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from bot.contracts.base import Json
from bot.contracts.provenance import ORIGIN, Provenance, unpacked

Effect = Literal["read", "write", "run", "network", "message", "delegate"]
"""Effects of a call, by which permissions judge it. `delegate`: it only makes further calls, each judged separately."""
READS: frozenset[Effect] = frozenset({"read"})
MCP = "mcp__"
"""Prefix of the names of MCP servers' tools, and of no others: `mcp__<server>__<tool>`. A stored result's name thus tells where it came
from, even if the server is gone.
"""
WRITES: frozenset[Effect] = frozenset({"write"})


class ToolInput(BaseModel):
    """Arguments of a built-in tool; an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class FoundTools:
    """The result of a search for tools: definitions that the model may call from then on, and their MCP servers' instructions by
    server. In the stored result each definition is a `tool_reference` block with `tool_name` and `definition`.
    """

    definitions: tuple[Json, ...]
    instructions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pictured:
    """A result of text and pictures (base64)."""

    words: str
    pictures: Sequence[str] = ()


OMISSION = "omission"
"""Key of a stored result that is shown in part (`Omission`). Never sent to a model."""


@dataclass(frozen=True, slots=True)
class Omission:
    """The part of a result that is not shown: its number of line breaks and characters, the artifact with the whole result, and the
    span of the note that replaces it in the text.
    """

    artifact: str
    lines: int
    characters: int
    begin: int
    end: int


_OMISSION = TypeAdapter(Omission)


def omission(result: Json) -> Omission | None:
    """The part of a result that is not shown, if any."""
    try:
        return _OMISSION.validate_python(result[OMISSION])
    except (KeyError, ValidationError):
        return None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model. `input` is not validated yet."""

    id: str
    name: str
    input: Json = field(default_factory=dict)

    @classmethod
    def of(cls, block: Json) -> ToolCall:

        return cls(str(block.get("id", "")), str(block.get("name", "")), block.get("input", {}))


PICTURES = "pictures"
"""Key of a stored result: its pictures, which are sent in a message after it."""
INSTRUCTIONS = "instructions"
"""Key of a stored result: `FoundTools.instructions`. Never sent to a model."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: text, or blocks of `FoundTools`. `origin` is None if unknown."""

    call_id: str
    content: str | Sequence[Json]
    failed: bool = False
    origin: Provenance | None = None
    omission: Omission | None = None
    instructions: Mapping[str, str] = field(default_factory=dict)
    pictures: Sequence[Json] = ()

    @classmethod
    def of(cls, block: Json) -> ToolResult:

        return cls(
            block["tool_use_id"],
            block.get("content", ""),
            bool(block.get("is_error")),
            unpacked(block[ORIGIN]) if ORIGIN in block else None,
            omission(block),
            said if isinstance(said := block.get(INSTRUCTIONS), dict) else {},
            block.get(PICTURES, ()),
        )

    @property
    def block(self) -> Json:
        """The stored `tool_result` block, with keys that are never sent to a model."""
        block: Json = {"type": "tool_result", "tool_use_id": self.call_id, "content": self.content}
        if self.omission is not None:
            block[OMISSION] = asdict(self.omission)
        if self.instructions:
            block[INSTRUCTIONS] = dict(self.instructions)
        if self.pictures:
            block[PICTURES] = list(self.pictures)
        if self.origin is not None:
            block[ORIGIN] = self.origin.packed()
        return block | {"is_error": True} if self.failed else block


def fitting_id(name: str, taken: Collection[str] = ()) -> str:
    """An id of a call that every provider accepts and that is not `taken`; a digest keeps ids apart whose characters were replaced."""
    plain = re.sub("[^a-zA-Z0-9_-]+", "_", name)
    fits = name if plain == name else f"{plain}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return fitting_id(f"{fits}_{len(taken)}", taken) if fits in taken else fits


class Tool(Protocol):
    """Something the model may call: a file in `bot/tools/builtin`, or a tool of an MCP server. With an attribute `eager = True` its
    input is streamed while the model writes it.
    """

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input(self) -> type[BaseModel]: ...
    @property
    def effects(self) -> frozenset[Effect]: ...
    @property
    def timeout_seconds(self) -> float: ...
    @property
    def ages(self) -> bool:
        """True if results become outdated, as those of reads and searches do; old ones may be masked."""
        ...

    async def run(self, args: Any) -> str | FoundTools | Pictured:
        """Run it with an instance of `input`; the result is for the model. Raises `errors.ToolError` with a text that the model can act
        on.
        """
        ...
