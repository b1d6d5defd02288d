"""The port of memory files: the model's notes of a chat or of a person."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bot.contracts.identity import ChatKey
from bot.contracts.provenance import Taint


@dataclass(frozen=True, slots=True)
class MemoryOwner:
    """The chat or person whose files they are: `key` is a chatKey, or `<channel>:<user id>`."""

    kind: Literal["chat", "person"]
    key: str


Span = Literal["turn", "up_to", "any"]


@dataclass(frozen=True, slots=True)
class Written:
    """The source of a line: time (`ts` in milliseconds) and turn. `taint` is the level of untrusted text that this turn
    had in view. `chat_key` is None for an operator's line, which comes from no chat. `span` says which turns it stands
    for: this one, all up to this one, or any at all (then `request_id` is "").
    """

    ts: int
    request_id: str
    chat_key: ChatKey | None
    user_id: str | None
    taint: Taint = Taint.NONE
    span: Span = "turn"


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A file as it is. `written` has the sources of each line of `text` (one entry more than it has breaks), oldest
    first; () where they are unknown, as after a change by hand.
    """

    path: str
    text: str
    written: tuple[tuple[Written, ...], ...]


class MemoryFiles(Protocol):
    """The files of every owner (`bot.core.notes.files.NoteStore`). A path is relative to its owner's folder.

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
        """Replace a file by what `change` makes of its text (None: there is no file yet), without known secrets. It
        runs on another thread, and what it raises is raised here. New lines are written `by` this source; `also`
        gives further sources of a line's words. Raises `errors.ToolError` where there is no room.
        """
        ...

    async def remove(self, owner: MemoryOwner, path: str) -> int:
        """Remove a file, or a folder with all that is in it; how many files went."""
        ...

    async def forget(self, owner: MemoryOwner, requests: Collection[str]) -> int:
        """Remove every line that has something of these turns in it; how many lines went."""
        ...

    async def move(self, owner: MemoryOwner, old: str, new: str, by: Written) -> int:
        """Give a file or a folder another path, with `by` as a further source; the number of files moved. Raises
        `errors.ToolError` where the new path is taken.
        """
        ...
