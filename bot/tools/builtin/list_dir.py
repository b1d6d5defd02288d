"""`list_dir`: lists a folder of the project."""

from __future__ import annotations

import asyncio

from pydantic import Field

from bot.contracts.provenance import WORKSPACES
from bot.contracts.tools import READS, ToolInput
from bot.tools import context, excerpt
from bot.tools.project import Entry, FolderEntries, ProjectPath
from bot.tools.registry import ToolPorts

MOST = 500
ROOM = excerpt.ROOM - 3_000
"""Max token estimate of the listed entries (in units of `excerpt.weight`). The rest of `excerpt.ROOM` is
reserved for the line above the entries.
"""
_MARKS = {"folder": "/", "link": " (a link)", "other": " (no file)"}


class ListDirInput(ToolInput):
    path: str = "."
    depth: int = Field(default=1, ge=1, le=5, description="Levels.")


class ListDir:
    """Lists the entries of a folder, except hidden and ignored ones."""

    name = "list_dir"
    description = "List files and folders of the project."
    input = ListDirInput
    effects = READS
    timeout_seconds = 30.0
    ages = True

    def __init__(self, ports: ToolPorts) -> None:
        self._project = ports.project
        self._origins = ports.origins

    async def run(self, args: ListDirInput) -> str:
        place, walk = await asyncio.to_thread(self._walk, args)
        context.touch(self._project.root.joinpath(*place.parts))
        rows: list[str] = []
        room = ROOM
        for entry in walk.entries:
            row = _row(entry)
            room -= excerpt.weight(row) + excerpt.weight("\n")
            if len(rows) == MOST or room < 0:
                break
            rows.append(row)
        if not rows:
            return f"{place}/ is empty, or all that is in it is ignored."
        left = len(walk.entries) - len(rows)
        more = f"; {left} more are not shown" if left else ""
        uncounted = "; there are others still, too many to look at" if walk.cut else ""
        return "\n".join([f"[{place}/: {len(rows)} entries{more}{uncounted}]", *rows])

    def _walk(self, args: ListDirInput) -> tuple[ProjectPath, FolderEntries]:
        place = self._project.place(args.path)
        context.report_provenance(WORKSPACES | self._origins.under(str(place), context.channel()))
        return place, self._project.walk(place, depth=args.depth)


def _row(entry: Entry) -> str:
    name = entry.path.replace("\n", "\\n")
    return f"{name}  {entry.size} B" if entry.kind == "file" else f"{name}{_MARKS[entry.kind]}"


def build(ports: ToolPorts) -> ListDir:
    return ListDir(ports)
