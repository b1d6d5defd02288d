"""`search_files`: finds lines in the project's files by text or regular expression, or finds files by name."""

from __future__ import annotations

import asyncio
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import regex
from pydantic import Field

from bot import errors, text
from bot.contracts.environment import Clock
from bot.contracts.provenance import WORKSPACES
from bot.contracts.tools import READS, ToolInput
from bot.documents import encoding
from bot.tools import context, excerpt, ignore_patterns
from bot.tools.project import Entry, ProjectPath
from bot.tools.registry import ToolPorts

SECONDS = 15.0
FILE = 4 * 1024 * 1024
"""Max bytes of a searched file."""
LINE = 10_000
"""Max characters searched per line."""
SHOWN = 200
MOST = 200
LEVELS = 50
ROOM = excerpt.ROOM - 6_000
"""Max token estimate of the matches (in units of `excerpt.weight`). The rest of `excerpt.ROOM` is reserved
for the line above the matches.
"""
LARGEST = 1_000_000
"""Max length of a regular expression multiplied by its repeat counts."""
_REPEAT = re.compile(r"\{([^},]*)")
_ODD = re.compile(r"\(\?(?:#|[A-Za-z0-9-]*x)")
"""Pattern of comments and verbose mode in a regular expression, either of which could hide repeat counts."""

Find = Callable[[str], int | None]
"""Function that returns the position of a match in a line, or None. Raises TimeoutError."""


class SearchFilesInput(ToolInput):
    pattern: str | None = Field(default=None, min_length=1, max_length=500, description="Text, any case.")
    regex: bool = Field(default=False, description="Pattern is a regular expression.")
    path: str = "."
    glob: str | None = Field(default=None, max_length=500, description="Only such files: *.py, docs/**/*.md")


@dataclass(slots=True)
class _Matches:
    rows: list[str] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    skipped: int = 0
    more: bool = False
    late: bool = False
    room: int = ROOM

    def add(self, row: str, path: str) -> bool:
        """Add one line of the result; return False if the line does not fit any more."""
        self.paths.add(path)
        self.room -= excerpt.weight(row) + excerpt.weight("\n")
        if len(self.rows) == MOST or self.room < 0:
            self.more = True
            return False
        self.rows.append(row)
        return True


class SearchFiles:
    """Searches all files except hidden and ignored ones, within limits of time and size."""

    name = "search_files"
    description = "Search lines in the project's files; without a pattern, find files by glob."
    input = SearchFilesInput
    effects = READS
    timeout_seconds = 30.0
    ages = True

    def __init__(self, ports: ToolPorts) -> None:
        self._project = ports.project
        self._clock = ports.clock
        self._origins = ports.origins

    async def run(self, args: SearchFilesInput) -> str:
        if args.pattern is None and args.glob is None:
            raise errors.ToolError("Give a pattern, a glob or both.")
        place, found = await asyncio.to_thread(self._search, args)
        context.touch(self._project.root.joinpath(*place.parts))
        what = "files" if args.pattern is None else "lines"
        notes = [f"{len(found.rows)} {what} found"]
        notes += ["there are more: search for less"] if found.more else []
        notes += ["the time was over before all was searched: name a path or a glob"] if found.late else []
        notes += [f"{found.skipped} files are no text or too large"] if found.skipped else []
        return "\n".join([f"[{'; '.join(notes)}]", *found.rows])

    def _search(self, args: SearchFilesInput) -> tuple[ProjectPath, _Matches]:
        place, until = self._project.place(args.path), self._clock.monotonic() + SECONDS
        find = _finder(args, self._clock, until) if args.pattern is not None else None
        found = _Matches()
        for entry in self._files(place, args.glob, found):
            if self._clock.monotonic() > until:
                found.late = True
                break
            try:
                whole = found.add(entry.path, entry.path) if find is None else self._look(entry, find, found)
            except TimeoutError:
                raise errors.ToolError(
                    f"This expression takes too long (in {entry.path}). Make it simpler, or search for a text."
                ) from None
            if not whole:
                break
        for path in found.paths:
            context.report_provenance(WORKSPACES | self._origins.of(path, context.channel()))
        return place, found

    def _files(self, place: ProjectPath, glob: str | None, found: _Matches) -> Iterator[Entry]:
        wanted = ignore_patterns.matcher([glob.removeprefix("!").lstrip("#")]) if glob is not None else None
        walk = self._project.walk(place, depth=LEVELS) if self._is_folder(place) else None
        entries = [Entry(str(place), "file")] if walk is None else walk.entries
        found.late = walk is not None and walk.cut
        below = len(place.parts) if walk is not None else 0
        for entry in entries:
            parts = entry.path.split("/")[below:]
            # A glob without `/` is compared with the file's own name, not with the names of its folders.
            name = "/".join(parts) if "/" in (glob or "") else parts[-1]
            if entry.kind == "file" and (wanted is None or wanted(name)):
                yield entry

    def _is_folder(self, place: ProjectPath) -> bool:
        try:
            with self._project.folder(place):
                return True
        except NotADirectoryError:
            return False

    def _look(self, entry: Entry, find: Find, found: _Matches) -> bool:
        """Search one file; return False once further matches would not fit."""
        try:
            with os.fdopen(self._project.open(ProjectPath(tuple(entry.path.split("/")))), "rb") as file:
                raw = file.read(FILE + 1)
        except (OSError, errors.ToolError):
            found.skipped += 1  # removed meanwhile, or unreadable
            return True
        if len(raw) > FILE or encoding.binary_kind(raw[: encoding.SNIFF]) is not None:
            found.skipped += 1
            return True
        words = raw.decode(encoding.bom_encoding(raw) or "utf-8", "replace")
        lines = words.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for number, line in enumerate(lines, 1):
            at = find(line[:LINE])
            if at is not None and not found.add(f"{entry.path}:{number}: {_around(line, at)}", entry.path):
                return False
        return True


def _finder(args: SearchFilesInput, clock: Clock, until: float) -> Find:
    pattern = args.pattern or ""
    if not args.regex:
        wanted = pattern.casefold()

        def literal(line: str) -> int | None:
            at = line.casefold().find(wanted)
            return min(at, len(line)) if at >= 0 else None

        return literal
    if _is_too_large(pattern):
        raise errors.ToolError("This expression is too large. Repeat less, and leave out comments.")
    try:
        compiled = regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError, MemoryError) as error:
        raise errors.ToolError(f"This is no regular expression: {text.preview(str(error))}.") from None

    def matching(line: str) -> int | None:
        # `concurrent` makes the search release the interpreter lock.
        match = compiled.search(line, timeout=max(0.01, until - clock.monotonic()), concurrent=True)
        return match.start() if match is not None else None

    return matching


def _is_too_large(pattern: str) -> bool:
    """Return True if compiling a regular expression may take long. The compiler copies each repeated group
    as often as the group must occur.
    """
    counts = (re.sub(r"[^0-9]", "", least)[:9] for least in _REPEAT.findall(pattern))
    size = math.prod((max(1, int(count or 1)) for count in counts), start=len(pattern))
    return size > LARGEST or _ODD.search(pattern) is not None


def _around(line: str, at: int) -> str:
    begin = text.border(line, max(0, at - SHOWN // 3)) if len(line) > SHOWN else 0
    shown = text.head(line[begin:], SHOWN)
    before, behind = "…" if begin else "", "…" if begin + len(shown) < len(line) else ""
    return f"{before}{shown.strip()}{behind}"


def build(ports: ToolPorts) -> SearchFiles:
    return SearchFiles(ports)
