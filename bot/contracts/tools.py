"""Interfaces of tools: what the model may call, the calls, and the results."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from bot.contracts.base import Json
from bot.contracts.messages import ORIGIN, Provenance, unpacked

Effect = Literal["read", "write", "run", "network", "message", "delegate"]
"""Effect of a tool call, on which permissions depend. `delegate`: the call makes further calls with their own permissions."""
READS: frozenset[Effect] = frozenset({"read"})
MCP = "mcp__"  # Prefix of the names of MCP servers' tools (`mcp__<server>__<tool>`). No other tool has this prefix.
WRITES: frozenset[Effect] = frozenset({"write"})


class ToolInput(BaseModel):
    """Arguments of a built-in tool. An unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class FoundTools:
    """Result of a search for tools: definitions of tools that the model may now call, and each MCP server's
    instructions. In the stored result each definition is a `tool_reference` block with `tool_name` and `definition`.
    """

    definitions: tuple[Json, ...]
    instructions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pictured:
    """A tool result that consists of text and pictures (base64)."""

    words: str
    pictures: Sequence[str] = ()


OMISSION = "omission"
"""Key of the `Omission` in a stored result of which the model sees only a part. The key is never sent to a model."""


@dataclass(frozen=True, slots=True)
class Omission:
    """The part of a tool's result that the model does not see. `artifact` has the whole result. `lines` and
    `characters` count the line breaks and characters of the part. `begin` and `end` are the offsets of the note that
    replaces the part.
    """

    artifact: str
    lines: int
    characters: int
    begin: int
    end: int


_OMISSION = TypeAdapter(Omission)


def omission(result: Json) -> Omission | None:
    """Return the omission of a stored result; None if the model sees the whole result."""
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
"""Key of the pictures of a stored result. A message after the result sends them to the model."""
INSTRUCTIONS = "instructions"
"""Key of `FoundTools.instructions` in a stored result. The key is never sent to a model."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Result of a tool call: text, or blocks of `FoundTools`. `origin` is None if the provenance is unknown."""

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
        """Return the stored `tool_result` block, including the keys that are never sent to a model."""
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
    """Return the call id `name` in a form that every provider accepts and that is not in `taken`. A changed id gets a digest."""
    plain = re.sub("[^a-zA-Z0-9_-]+", "_", name)
    fits = name if plain == name else f"{plain}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return fitting_id(f"{fits}_{len(taken)}", taken) if fits in taken else fits


class Tool(Protocol):
    """A tool that the model may call. With the attribute `eager = True`, the tool's input is streamed while the model writes."""

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
        """Return True if results become outdated, as the results of reads do. A note may then replace old results."""

    async def run(self, args: Any) -> str | FoundTools | Pictured:
        """Run the tool with an instance of `input`. Raises `errors.ToolError`, whose text tells the model what to change."""
