"""The tool port: what the model may call, skills, and the observer of tool calls."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from bot.contracts.base import Json
from bot.contracts.provenance import ORIGIN, Provenance, unpacked


class ToolWatch(Protocol):
    """Is told of every tool call of a turn that runs, but of those that say something or give out tasks."""

    def began(self, request_id: str, call: ToolCall) -> None:
        """Takes note; never blocks and never raises."""
        ...

    def noted(self, request_id: str, call_id: str, words: str | None) -> None:
        """As `began`: how far it has come; None while it waits for a person."""
        ...

    def ended(self, request_id: str, call_id: str, *, failed: bool) -> None:
        """As `began`."""
        ...


Effect = Literal["read", "write", "run", "network", "message", "delegate"]
"""Effects of a call. `delegate`: they are those of further calls, each judged by itself."""
READS: frozenset[Effect] = frozenset({"read"})
MCP = "mcp__"
"""The names of tools of MCP servers begin with this, and no others: `mcp__<server>__<tool>`. What is kept of a call is its
name, and the server may be gone when a result is judged: the name is the record of where it came from.
"""
WRITES: frozenset[Effect] = frozenset({"write"})


class ToolInput(BaseModel):
    """Arguments of a tool of ours: a field that it does not have is an error."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class FoundTools:
    """The result of a search for tools: definitions that the model may call from then on, and the notes of their MCP
    servers on using them, by server. In the kept result each definition is a block `tool_reference` with `tool_name`
    and `definition`, and the notes stand beside it as `instructions`.
    """

    definitions: tuple[Json, ...]
    instructions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pictured:
    """A result of words and pictures, each in base64."""

    words: str
    pictures: Sequence[str] = ()


OMISSION = "omission"
"""The key beside the text of a result that is shown in part (`Omission`). It is never sent to a model."""


@dataclass(frozen=True, slots=True)
class Omission:
    """The part of a result that is not shown: its line ends and characters, the artifact with the whole result, and the
    place of the note that stands for it in the text.
    """

    artifact: str
    lines: int
    characters: int
    begin: int
    end: int

    def packed(self) -> Json:
        """As JSON."""
        return asdict(self)


_OMISSION = TypeAdapter(Omission)


def omission(result: Json) -> Omission | None:
    """Return the part of a result that is not shown; None if it is shown whole, or does not say."""
    try:
        return _OMISSION.validate_python(result[OMISSION])
    except (KeyError, ValidationError):
        return None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by the model. `input` is as the model wrote it: it is checked when the call is run."""

    id: str
    name: str
    input: Json = field(default_factory=dict)

    @classmethod
    def of(cls, block: Json) -> ToolCall:
        """Return the call of a `tool_use` block."""
        return cls(str(block.get("id", "")), str(block.get("name", "")), block.get("input", {}))


PICTURES = "pictures"
"""The key beside the text of a result: its pictures, which are shown in a message behind it. It is never sent to a model."""
INSTRUCTIONS = "instructions"
"""The key beside the blocks of a result that gives the model tools: `FoundTools.instructions`. It is never sent to a model."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: its text, or blocks where it gives the model tools (`FoundTools`). `origin` is None where nobody
    knows whose words it holds.
    """

    call_id: str
    content: str | Sequence[Json]
    failed: bool = False
    origin: Provenance | None = None
    omission: Omission | None = None
    instructions: Mapping[str, str] = field(default_factory=dict)
    pictures: Sequence[Json] = ()

    @classmethod
    def of(cls, block: Json) -> ToolResult:
        """Return the result of a `tool_result` block."""
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
        """The `tool_result` block, with what is kept beside it and never sent to a model."""
        block: Json = {"type": "tool_result", "tool_use_id": self.call_id, "content": self.content}
        if self.omission is not None:
            block[OMISSION] = self.omission.packed()
        if self.instructions:
            block[INSTRUCTIONS] = dict(self.instructions)
        if self.pictures:
            block[PICTURES] = list(self.pictures)
        if self.origin is not None:
            block[ORIGIN] = self.origin.packed()
        return block | {"is_error": True} if self.failed else block


def fitting_id(name: str, taken: Collection[str] = ()) -> str:
    """The id of a call as any provider takes it, and as none that is `taken`. A digest tells apart those that had other signs."""
    plain = re.sub("[^a-zA-Z0-9_-]+", "_", name)
    fits = name if plain == name else f"{plain}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return fitting_id(f"{fits}_{len(taken)}", taken) if fits in taken else fits


class Tool(Protocol):
    """Something the model may call: one file in `bot/tools/builtin`, or a tool of an MCP server. With `eager = True` the provider
    streams its input as it is written; else each argument arrives once it is whole.
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
        """True if its results lose their worth quickly, as reads and searches do; old ones may be masked then."""
        ...

    async def run(self, args: Any) -> str | FoundTools | Pictured:
        """Do it. `args` is an instance of `input`; what is returned is for the model.

        Raises `errors.ToolError` with a text the model can act on.
        """
        ...


@dataclass(frozen=True, slots=True)
class Skill:
    """One `SKILL.md` folder: what the overview shows of it. `allowed_tools` only narrows."""

    name: str
    description: str
    allowed_tools: tuple[str, ...] = ()


class Skills(Protocol):
    """The skills found in `.claude/skills` and the configured paths."""

    async def overview(self) -> list[Skill]: ...
    async def load(self, name: str) -> str:
        """The body of one skill. Raises `errors.ToolError` naming the nearest ones where there is none."""
        ...
