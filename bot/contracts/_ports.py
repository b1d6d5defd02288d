"""Where rooms of one floor meet: tools, archive, journal, agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from bot.contracts._provenance import ANYBODYS, Provenance
from bot.contracts._values import (
    ArchiveLine,
    HistoryPage,
    HistoryQuery,
    Inbound,
    Json,
    Quoted,
    SeenFile,
    Sent,
)
from bot.contracts.identity import ChatKey

Effect = Literal["read", "write", "run", "network", "message", "delegate"]
"""What a call may do. `delegate`: what it does is done by calls of its own, each judged by itself."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search for tools gives: the definitions that the model may call by from then on, and what the MCP servers that
    offer them say of how to use them, by server. In the result that is kept, each definition is a block `tool_reference` with
    `tool_name` and `definition`, and what servers say stands beside it as `instructions`.
    """

    definitions: tuple[Json, ...]
    instructions: Mapping[str, str] = field(default_factory=dict)


class Tool(Protocol):
    """Something the model may call: one file in `bot/tools/builtin`, or a tool of an MCP server."""

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
        """Whether its results lose their worth quickly, as reads and searches do; old ones may be masked then."""
        ...

    async def run(self, args: Any) -> str | Found:
        """Do it. `args` is an instance of `input`; what is returned is for the model.

        Raises `errors.ToolError` with a text the model can act on.
        """
        ...


class Archive(Protocol):
    """What was said, on disk (`bot.history.archive.ChatStore`)."""

    async def append(self, line: ArchiveLine, *, hurry: bool = True) -> None:
        """Write one line; returns once it is on disk. Raises `errors.StorageError`; the line is then kept
        in memory and written before the next one. Without `hurry` it keeps its place, and what is more urgent
        elsewhere goes first.
        """
        ...

    async def search(self, chat_key: ChatKey, query: HistoryQuery) -> HistoryPage: ...
    async def removals(self, chat_key: ChatKey) -> list[ArchiveLine]:
        """The lines that say of messages of a chat that they were removed (`bot.history.revisions`). `meta.of` has the
        requestIds that are meant, `meta.ofRole` whose words they were. Raises `errors.StorageError`.
        """
        ...


@dataclass(frozen=True, slots=True)
class ArtifactPage:
    """A part of an artifact. `offset` and `end` count characters, and `end` is where the next page begins; `line` and
    `last` are the lines (from 1) that it begins and ends in. `characters` and `lines` are those of the whole,
    whose words it holds says `origin`.
    """

    text: str
    offset: int
    end: int
    line: int
    last: int
    characters: int
    lines: int
    origin: Provenance = ANYBODYS


@dataclass(frozen=True, slots=True)
class ArtifactMatch:
    """A line that holds what was looked for: its number, the character it begins at, and what fits of it."""

    line: int
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class ArtifactMatches:
    """`total` counts every match from where the search began; `next` is the offset of the first that is not among
    `found`, None where all are. `origin` as of a page.
    """

    found: tuple[ArtifactMatch, ...]
    total: int
    next: int | None
    origin: Provenance = ANYBODYS


class Artifacts(Protocol):
    """Tool results that are too large for the view, kept whole (`bot.history.artifacts.ArtifactStore`)."""

    async def put(
        self,
        text: str,
        *,
        chat_key: ChatKey,
        request_id: str,
        tool: str,
        tool_use_id: str,
        artifact_id: str | None = None,
        origin: Provenance = ANYBODYS,
    ) -> str:
        """Keep a redacted text, which holds words of this `origin`; its id, once it is on disk. With an `artifact_id` (a ULID) it takes the place of what is
        kept under that. Raises `errors.StorageError`.
        """
        ...

    async def note(self, artifact_id: str, chat_key: ChatKey, lines: Sequence[Json]) -> None:
        """Add lines beside what is kept under an id. They are never shown to the model, and go with it: where it is gone,
        nothing is written. Raises `errors.StorageError`.
        """
        ...

    async def read(self, artifact_id: str, chat_key: ChatKey, *, offset: int, limit: int) -> ArtifactPage:
        """At most `limit` characters from `offset` on, cut between graphemes; pages that follow one another give the
        whole. Raises `errors.ToolError` where this chat has no such artifact, and `errors.StorageError`.
        """
        ...

    async def grep(
        self, artifact_id: str, chat_key: ChatKey, words: str, *, offset: int, limit: int
    ) -> ArtifactMatches:
        """The lines from `offset` on that hold `words` literally, in any case; at most `limit` characters of them.

        Raises as `read` does.
        """
        ...

    async def made(self, chat_key: ChatKey, requests: Collection[str]) -> dict[str, list[tuple[str, str]]]:
        """What is kept of these turns of a chat: ids with the names of the tools, the oldest first, by requestId. Raises
        `errors.StorageError`.
        """
        ...

    async def forget(self, chat_key: ChatKey, requests: Collection[str]) -> int:
        """Remove what these turns of a chat have made; how many that were. Raises `errors.StorageError`."""
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


class Reply(Protocol):
    """The way back to the chat that asked. The destination is fixed; the model cannot name one."""

    async def send(self, text: str) -> list[Sent]:
        """Deliver one message (in parts where it is long). Cancelled, what is left of it goes out by itself.

        Raises `errors.DeliveryFailed`.
        """
        ...


@dataclass(frozen=True, slots=True)
class PriorReply:
    """A message of a turn that its outbox has, by its id there. `ids` are those by which people see its parts, or an own
    one while it waits for its platform; without any it may be in the chat, unless it has `failed`.
    """

    id: str
    ids: tuple[str, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """What the gateway asks the agent to do. `inbound` and `reply` are None where no chat caused the turn."""

    request_id: str
    chat_key: ChatKey
    inbound: Inbound | None = None
    context: tuple[Quoted, ...] = ()
    reply: Reply | None = None
    also: tuple[Inbound, ...] = ()
    """What else belongs to this turn from its beginning: the rest of a burst, in order."""
    prompt: str = ""
    """The text of a turn that no chat caused."""
    begun: tuple[PriorReply, ...] = ()
    """What this turn has said already where a crash cut it off, in order."""
    written: Callable[[], Sequence[str]] = tuple
    """The ids in the outbox of what `reply` was given since then, in order, whatever became of it."""
    preview: Callable[[Callable[[], str]], None] | None = None
    """Shows what is being said while it comes, until the next `reply.send`: called with what gives the words so far.
    Each of these words may be the last that is shown for good where the answer breaks off; called again, the new ones
    take the place of those before.
    """
    files: Callable[[Inbound], Awaitable[Sequence[SeenFile]]] | None = None
    """What became of the files of a message of this turn, in their order; asked again, it says the same."""
    take_more: Callable[[], list[Inbound]] | None = None
    """Takes what the same person has sent since the turn began; what is taken belongs to this turn."""

    @property
    def delivered(self) -> tuple[str, ...]:
        """Ids of what people saw of it before a crash, or will see."""
        return tuple(one for message in self.begun for one in message.ids)


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """`delivered` counts the replies people saw; `notice` is a plain sentence for the person, or None."""

    status: Literal["done", "failed", "stopped"]
    delivered: int = 0
    notice: str | None = None
    detail: str = ""


class Agent(Protocol):
    """The runtimes of all chats. The caller runs one turn of a chat at a time."""

    async def run(self, request: TurnRequest) -> TurnOutcome:
        """One turn. Does not raise for what went wrong inside; cancelled, it leaves the turn unfinished, so that
        running the same request again goes on from its last recorded step. A turn that has ended is not run again.
        """
        ...

    async def cut_off(self, chat_key: ChatKey) -> tuple[str, ...]:
        """The requestIds of the inbound that a turn which a crash cut off was answering, its own first; () where
        none was. `run` with its own request goes on from its last recorded step.
        """
        ...

    async def stop(self, chat_key: ChatKey) -> bool:
        """Stop the running turn of a chat, which then ends with status `stopped`; False where none runs.

        What the model had said so far is kept, marked as stopped, and delivered where nothing was delivered yet.
        """
        ...

    async def reset(self, chat_key: ChatKey) -> int:
        """Begin anew: an empty store and a new transcript; returns how many messages were set aside."""
        ...

    async def compact(self, chat_key: ChatKey, focus: str = "") -> Json:
        """Put a summary in place of the older part of the history, one that keeps `focus` above all. Facts for
        `/compact`: `how` (`memory` or `summary` stands for it now, there was `nothing` to gain, or it `failed`), and
        where it was done `messages` (how many went), `tokensBefore` and `tokensAfter`.
        """
        ...

    async def stats(self, chat_key: ChatKey) -> Json:
        """What a chat has come to since its beginning, over restarts and `reset`, for `/stats`: `turns`, `epochs`
        (changes of the view), `calls` of the model, `inputTokens` (neither read from a cache nor written to it),
        `cacheReadTokens`, `cacheWriteTokens`, `outputTokens`, `costUsd` without the `unpriced` calls. And what is
        kept now: `messages`, `tokens` (estimated), of these `maskedTokens` that are not shown to the model.
        """
        ...

    async def history(self, chat_key: ChatKey) -> str:
        """The beginning of what is kept of a chat, not of what the model is shown, for a person: without secrets,
        2,000 characters at the most; "" where nothing is kept.
        """
        ...

    async def undo(self, chat_key: ChatKey) -> str | None:
        """Take the last turn out of the history; returns the beginning of the message that caused it, None where
        there is none. The archive keeps it, and what it has done is done.
        """
        ...

    async def forget(self, chat_key: ChatKey) -> None:
        """Take what the archive says was removed (`Archive.removals`) out of what is kept of a chat, and what was
        derived of it; what is running ends first. Raises `errors.StorageError`.
        """
        ...

    async def sessions(self, chat_key: ChatKey) -> list[Json]:
        """The newest conversations of a chat, the one last written to first: `id` (short, of this chat alone),
        `current`, `messages`, `lastTs` (ms), `words` (the beginning of what was said first). Raises
        `errors.StorageError`.
        """
        ...

    async def resume(self, chat_key: ChatKey, session: str) -> Json:
        """Go on with an earlier conversation of this chat, by the end of its id. `how` is "done" (with `id`, and
        `leftId` of the one that was left), "here", "unknown" or "ambiguous". Raises `errors.StorageError`; nothing has
        changed then but the memory.
        """
        ...

    async def fork(self, chat_key: ChatKey, *, request_id: str | None = None, back: int = 0) -> Json:
        """Go on in a new conversation that is a copy of this one up to the end of the turn that answered a message, or
        of the turn so many before the last. `how` is "done" (with `id`, `leftId` and `left`, how many turns were left
        out) or "unknown" (with `turns`, how many there are). Raises as `resume` does.
        """
        ...

    async def describe(self, chat_key: ChatKey) -> Json:
        """Facts for `/status` and `/model`: `model` (which answers), `chosen` (for this chat, or ship.json's), `default`
        (ship.json's), `window` (tokens of a request) and `price` (US dollars for a million tokens read and written),
        both None where nobody knows; `messages`, `maxMessages`.
        """
        ...

    async def choose_model(self, chat_key: ChatKey, model: str | None, request_id: str) -> Json:
        """Let this model answer in a chat from the next turn on, over restarts; None is ship.json's. Facts as `describe`,
        and `asked`: whether the provider said that it has it. `request_id` is that of the message that says so.

        Raises `errors.ModelUnknown` where the provider does not have it, and `errors.StorageError`; nothing has changed
        then.
        """
        ...
