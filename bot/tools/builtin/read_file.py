"""`read_file`: reads a text file of the project by lines."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

from pydantic import Field

from bot import errors, text
from bot.contracts.provenance import WORKSPACES
from bot.contracts.tools import READS, ToolInput
from bot.documents import encoding
from bot.tools import context, excerpt
from bot.tools.project import ProjectPath
from bot.tools.registry import ToolPorts

LINES = 2_000
ROOM = excerpt.ROOM - 6_000
"""Max token estimate of the returned lines (in units of `excerpt.weight`). The rest of `excerpt.ROOM` is
reserved for the line above them.
"""
SCANNED = 64 * 1024 * 1024
"""Max characters skipped before `offset`."""
COUNTED = 4 * 1024 * 1024
"""Max bytes of a file in which all lines are counted."""
_STEP = 64 * 1024


class ReadFileInput(ToolInput):
    path: str
    offset: int = Field(default=1, ge=1, description="First line.")
    limit: int = Field(default=LINES, ge=1, le=LINES, description="Lines.")
    encoding: str | None = Field(default=None, max_length=40, description="If not UTF-8.")


@dataclass(slots=True)
class _Page:
    """Lines of a file. `last` is the number of the last line shown. `total` is the number of all lines, if
    they were counted.
    """

    lines: list[str]
    last: int
    more: bool
    total: int | None
    doubtful: bool


class ReadFile:
    """Reads one page of a file. The result gives the offset of the next page."""

    name = "read_file"
    description = "Read lines of a text file of the project."
    input = ReadFileInput
    effects = READS
    timeout_seconds = 30.0
    ages = True

    def __init__(self, ports: ToolPorts) -> None:
        self._project = ports.project
        self._origins = ports.origins

    async def run(self, args: ReadFileInput) -> str:
        place, page = await asyncio.to_thread(self._read, args)
        context.touch(self._project.root.joinpath(*place.parts))
        if not page.lines:
            if args.offset == 1:
                return f"{place} is empty."
            raise errors.ToolError(f"{place} has {page.total} lines. Use a smaller offset.")
        whole = f" of {page.total}" if page.total is not None else ""
        rest = f"; go on with offset {page.last + 1}" if page.more else ""
        doubt = (
            "; it is not UTF-8, and what could not be read is shown as �: name its encoding"
            if page.doubtful
            else ""
        )
        return "\n".join([f"[{place}, lines {args.offset} to {page.last}{whole}{rest}{doubt}]", *page.lines])

    def _read(self, args: ReadFileInput) -> tuple[ProjectPath, _Page]:
        place = self._project.place(args.path)
        with os.fdopen(self._project.open(place), "rb") as file:
            size, head = os.fstat(file.fileno()).st_size, file.read(encoding.SNIFF)
            context.report_provenance(WORKSPACES | self._origins.of(str(place), context.channel()))
            file.seek(0)
            if args.encoding is None and (kind := encoding.binary_kind(head)) is not None:
                raise errors.ToolError(f"{place} is a {kind} of {size} bytes. Only text can be read.")
            name = encoding.bom_encoding(head) or "utf-8"
            if args.encoding is not None:
                known = encoding.python_name(args.encoding)
                if known is None:
                    raise errors.ToolError(f"There is no encoding {text.preview(args.encoding, 40)!r}.")
                name = known
            with io.TextIOWrapper(file, name, errors="replace") as words:
                page = _page(words, args, counted=size <= COUNTED)
            page.doubtful = name == "utf-8" and not encoding.is_utf8(head)
            return place, page


def _page(words: TextIO, args: ReadFileInput, *, counted: bool) -> _Page:
    page = _Page([], args.offset - 1, more=False, total=None, doubtful=False)
    room, number, passed = ROOM, 0, 0
    for line, left in _lines(words):
        number += 1
        passed += len(line) + left
        if passed > SCANNED:
            raise errors.ToolError("These lines are too far into a large file. Use search_files.")
        if number < args.offset:
            continue
        load = excerpt.weight(line) + excerpt.weight("\n")
        if not page.more:
            page.more = len(page.lines) == args.limit or (load > room and bool(page.lines))
        if not page.more:
            shown = text.head(line, excerpt.fitting(line, room)) if load > room else line
            if (gone := len(line) - len(shown) + left) > 0:
                shown += f" [… {gone} more characters in this line]"
            page.lines.append(shown)
            page.last, room = number, room - load
        elif not counted:
            return page
    page.total = number
    return page


def _lines(words: TextIO) -> Iterator[tuple[str, int]]:
    """Yield the beginning of each line, and the number of characters left out of the line."""
    while line := words.readline(_STEP):
        left = 0
        ended = line.endswith("\n")
        while not ended and (more := words.readline(_STEP)):
            ended = more.endswith("\n")
            left += len(more) - ended
        yield line.removesuffix("\n"), left


def build(ports: ToolPorts) -> ReadFile:
    return ReadFile(ports)
