"""Memory files: what the model writes down for later, of a chat or of a person."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bot.contracts.identity import ChatKey
from bot.contracts.provenance import Taint


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """Whose files they are: `key` is a chatKey, or `<channel>:<user id>` of a person."""

    kind: Literal["chat", "person"]
    key: str


@dataclass(frozen=True, slots=True)
class Written:
    """When a line was written, and by the turn of whom. `ts` in milliseconds. `taint` is the level of untrusted text that
    this turn had in view. `chat_key` is None of what an operator wrote, who is in no chat.
    """

    ts: int
    request_id: str
    chat_key: ChatKey | None
    user_id: str | None
    taint: Taint = Taint.NONE


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file as it is. `written` tells of each line of `text` (one more than it has breaks) whose words are in it, oldest
    first; () where nobody knows, as after somebody has changed the file by hand.
    """

    path: str
    text: str
    written: tuple[tuple[Written, ...], ...]


class MemoryFiles(Protocol):
    """The files of every owner (`bot.history.memory_files.NoteStore`). A path is relative to its owner's folder.

    Whatever a model can write as a path stays in that folder, or raises `errors.ToolError`. Everything raises
    `errors.StorageError` where the disk refuses.
    """

    async def sizes(self, owner: MemoryOwner) -> dict[str, int]:
        """The paths of all files in order, each with its bytes."""
        ...

    async def read(self, owner: MemoryOwner, path: str) -> MemoryFile | None:
        """One file; None where there is none."""
        ...

    async def change(
        self,
        owner: MemoryOwner,
        path: str,
        change: Callable[[str | None], str],
        by: Written,
        also: Callable[[str], Sequence[Written]] = ...,
    ) -> MemoryFile:
        """Put what `change` makes of a file (None: there is none) in its place, without known secrets. It runs on
        another thread, and what it raises is raised here. Lines that are new are written `by` somebody, and may have
        words of others in them, which `also` tells of a line. Raises `errors.ToolError` where there is no room.
        """
        ...

    async def remove(self, owner: MemoryOwner, path: str) -> int:
        """Remove a file, or a folder with all that is in it; how many files went."""
        ...

    async def forget(self, owner: MemoryOwner, requests: Collection[str]) -> int:
        """Remove every line that has something of these turns in it; how many lines went."""
        ...

    async def move(self, owner: MemoryOwner, old: str, new: str, by: Written) -> int:
        """Give a file or a folder another path, which is `by` somebody too; how many files that were. Raises `errors.ToolError` where there is
        something at the new one.
        """
        ...
