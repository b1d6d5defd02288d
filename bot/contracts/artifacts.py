"""The artifact port: large tool results, kept whole beside the conversation."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from bot.contracts.identity import ChatKey
from bot.contracts.provenance import ANYBODYS, Provenance


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
    """Tool results that are too large for the view, kept whole (`bot.core.artifacts.ArtifactStore`)."""

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
        """The artifacts of these turns of a chat: ids with the names of the tools, the oldest first, by requestId.
        Raises `errors.StorageError`.
        """
        ...

    async def forget(self, chat_key: ChatKey, requests: Collection[str]) -> int:
        """Remove what these turns of a chat have made; how many that were. Raises `errors.StorageError`."""
        ...
