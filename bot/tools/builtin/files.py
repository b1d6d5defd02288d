"""The tools for the project's text files: `list_dir`, `read_file`, `search_files`, `write_file` and `edit_file`. The tools do
not see hidden and ignored files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Annotated

from pydantic import Field

from bot import documents, errors, text
from bot.contracts.messages import WORKSPACES
from bot.contracts.tools import WRITES
from bot.tools import context, result_limits
from bot.tools.builtin import ToolPorts, tool
from bot.tools.permissions import taint
from bot.tools.project import Entry, path_matcher, stamp
from bot.tools.result_limits import fitting_rows

ENTRIES = 500
"""Max entries in one listing."""
LINES = 2_000
"""Max lines on one page of a file."""
LARGEST = 16 * 1024 * 1024
"""Max bytes of a file that can be read. Of a larger file, only the beginning can be read."""
EDITED = 4 * 1024 * 1024
"""Max bytes of a file that can be searched or edited."""
SECONDS = 15.0
"""Timeout in seconds of a search."""
LINE = 10_000
"""Max characters that are searched in one line. The rest of a longer line is ignored."""
MATCHES, SHOWN = 200, 200
"""Max matches (lines or files) in a result, and max characters shown of a matching line."""
LEVELS = 50
WRITTEN = 1_000_000
"""Max characters of the text in a `write_file` call."""
ROOM = result_limits.ROOM - 6_000
"""Max token estimate of the rows of a result. The rest of `result_limits.ROOM` is for the line above the rows."""
_MARKS = {"folder": "/", "link": " (a link)", "other": " (no file)"}

Find = Callable[[str], int]
"""Function that returns the position of a match in a line; -1 if nothing matches."""


def _touch(ports: ToolPorts, place: str) -> None:
    context.current().touched(ports.project.root / place)


def _report(ports: ToolPorts, *paths: str) -> None:
    """Report the provenance of the tool's result, which contains text of these files or names below these folders."""
    for path in paths:
        context.report_provenance(WORKSPACES | ports.guard.of(path, context.current().channel))


def _raw(ports: ToolPorts, place: str, most: int) -> tuple[bytes, os.stat_result]:
    with ports.project.opened(place) as file:
        found = os.fstat(file.fileno())
        return file.read(most), found


def _replace(ports: ToolPorts, place: str, data: bytes, known: tuple[int, int, int] | None = None) -> bool:
    """Write a file and record the provenance of its text; return True if the file existed before."""
    turn = context.current()
    origin = taint.seen(turn.view())
    with ports.guard.writing(place, origin, turn.channel, whole=known is None):
        existed = ports.project.write(place, data, known=known)
    _touch(ports, place)
    return existed


@tool("List files and folders of the project.")
def list_dir(
    ports: ToolPorts, *, path: str = ".", depth: Annotated[int, Field(ge=1, le=5, description="Levels.")] = 1
) -> str:
    place = ports.project.place(path)
    _report(ports, place)
    entries, cut = ports.project.walk(place, depth=depth)
    _touch(ports, place)
    rows, _ = fitting_rows(map(_row, entries), ROOM, ENTRIES)
    if not rows:
        return f"{place}/ is empty, or all that is in it is ignored."
    left = len(entries) - len(rows)
    more = f"; {left} more are not shown" if left else ""
    uncounted = "; there are others still, too many to look at" if cut else ""
    return "\n".join([f"[{place}/: {len(rows)} entries{more}{uncounted}]", *rows])


def _row(entry: Entry) -> str:
    name = entry.path.replace("\n", "\\n")
    return f"{name}  {entry.size} B" if entry.kind == "file" else f"{name}{_MARKS[entry.kind]}"


@tool("Read lines of a text file of the project.")
def read_file(
    ports: ToolPorts,
    *,
    path: str,
    offset: Annotated[int, Field(ge=1, description="First line.")] = 1,
    limit: Annotated[int, Field(ge=1, le=LINES, description="Lines.")] = LINES,
) -> str:
    """Read one page of a file. The result names the offset of the next page."""
    place = ports.project.place(path)
    raw, found = _raw(ports, place, LARGEST)
    _report(ports, place)
    _touch(ports, place)
    if (kind := documents.binary_kind(raw[: documents.SNIFF])) is not None:
        raise errors.ToolError(f"{place} is a {kind} of {found.st_size} bytes. Only text can be read.")
    if found.st_size > LARGEST:  # the last line may end in the middle of a character
        raw = raw[: raw.rfind(b"\n") + 1] or raw
    words = documents.decode(raw)
    lines = _lines(raw.decode("utf-8", "replace") if words is None else words)
    if not lines and offset == 1:
        return f"{place} is empty."
    if offset > len(lines):
        raise errors.ToolError(f"{place} has {len(lines)} lines. Use a smaller offset.")
    page = lines[offset - 1 : offset - 1 + limit]
    shown, _ = fitting_rows(page, ROOM, LINES)
    if not shown:  # the first line alone is too long
        kept = text.head(page[0], result_limits.fitting(page[0], ROOM))
        shown = [f"{kept} [… {len(page[0]) - len(kept)} more characters in this line]"]
    last = offset + len(shown) - 1
    notes = [f"{place}, lines {offset} to {last} of {len(lines)}"]
    notes += [f"go on with offset {last + 1}"] if last < len(lines) else []
    notes += [f"only its first {LARGEST:,} bytes can be read"] if found.st_size > LARGEST else []
    notes += ["it is in no known encoding: what could not be read is shown as �"] if words is None else []
    return "\n".join([f"[{'; '.join(notes)}]", *shown])


def _lines(words: str) -> list[str]:
    lines = words.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


@tool("Search lines in the project's files; without a pattern, find files by glob.")
def search_files(
    ports: ToolPorts,
    *,
    pattern: Annotated[str | None, Field(min_length=1, max_length=500, description="Text, any case.")] = None,
    regex: Annotated[bool, Field(description="Pattern is a regular expression (RE2).")] = False,
    path: str = ".",
    glob: Annotated[
        str | None, Field(max_length=500, description="Only such files: *.py, docs/**/*.md")
    ] = None,
) -> str:
    """Search text files for matching lines, with limits of time and size. Without a pattern, find files by name."""
    if pattern is None and glob is None:
        raise errors.ToolError("Give a pattern, a glob or both.")
    place, project = ports.project.place(path), ports.project
    entries, late, depth = [Entry(place, "file")], False, 0
    if project.is_folder(place):
        (entries, late), depth = (
            project.walk(place, depth=LEVELS),
            0 if place == "." else place.count("/") + 1,
        )
    find = _finder(pattern, regex=regex) if pattern is not None else None
    wanted = path_matcher([glob.removeprefix("!").lstrip("#")]) if glob is not None else None
    until, skipped, seen = ports.clock.monotonic() + SECONDS, 0, dict[str, None]()

    def rows() -> Iterator[str]:
        nonlocal late, skipped
        for entry in entries:
            one, parts = entry.path, entry.path.split("/")[depth:]
            # A glob without `/` is compared with the file's name, not with the names of its folders.
            name = "/".join(parts) if "/" in (glob or "") else parts[-1]
            if entry.kind != "file" or not (wanted is None or wanted(name)):
                continue
            if ports.clock.monotonic() > until:
                late = True
                return
            found = [one] if find is None else _matches(ports, one, find)
            skipped += found is None
            for row in found or ():
                seen[one] = None
                yield row

    shown, more = fitting_rows(rows(), ROOM, MATCHES)
    _report(ports, *seen)
    _touch(ports, place)
    notes = [f"{len(shown)} {'files' if find is None else 'lines'} found"]
    notes += ["there are more: search for less"] if more else []
    notes += ["the time was over before all was searched: name a path or a glob"] if late else []
    notes += [f"{skipped} files are no text or too large"] if skipped else []
    return "\n".join([f"[{'; '.join(notes)}]", *shown])


def _matches(ports: ToolPorts, path: str, find: Find) -> Iterator[str] | None:
    try:
        raw, _ = _raw(ports, path, EDITED + 1)
    except (OSError, errors.ToolError):
        return None  # the file was removed or is unreadable
    if len(raw) > EDITED or documents.binary_kind(raw[: documents.SNIFF]) is not None:
        return None
    words = raw.decode(documents.bom_encoding(raw) or "utf-8", "replace")
    return (
        f"{path}:{number}: {_around(line, at)}"
        for number, line in enumerate(_lines(words), 1)
        if (at := find(line[:LINE])) >= 0
    )


def _finder(pattern: str, *, regex: bool) -> Find:
    if not regex:
        wanted = pattern.casefold()
        return lambda line: min(line.casefold().find(wanted), len(line))
    import re2  # takes 0.1 s to import

    options = re2.Options()
    options.log_errors = False
    try:
        # RE2 takes linear time for every expression, so a search cannot hang.
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise errors.ToolError(f"This is no regular expression of RE2: {text.preview(str(error))}.") from None
    return lambda line: found.start() if (found := compiled.search(line)) is not None else -1


def _around(line: str, at: int) -> str:
    begin = text.border(line, max(0, at - SHOWN // 3)) if len(line) > SHOWN else 0
    shown = text.head(line[begin:], SHOWN)
    before, behind = "…" if begin else "", "…" if begin + len(shown) < len(line) else ""
    return f"{before}{shown.strip()}{behind}"


@tool("Write a text file of the project, whole; what was in it is gone.", effects=WRITES, eager=True)
def write_file(ports: ToolPorts, *, path: str, content: Annotated[str, Field(max_length=WRITTEN)]) -> str:
    """Write a file atomically and create missing folders."""
    place, data = ports.project.place(path), content.encode()
    ended = "replaced" if _replace(ports, place, data) else "written"
    return f"{place} is {ended}: {len(data)} bytes."


@tool("Replace a passage of a text file of the project.", effects=WRITES, eager=True)
def edit_file(
    ports: ToolPorts,
    *,
    path: str,
    old_str: Annotated[str, Field(min_length=1, description="Occurs once.")],
    new_str: str,
) -> str:
    """Replace a text that occurs exactly once in a file. The file's encoding, line ends and mode stay the same."""
    place = ports.project.place(path)
    raw, found = _raw(ports, place, EDITED + 1)
    if len(raw) > EDITED:
        raise errors.ToolError(f"{place} has more than {EDITED} bytes and cannot be edited.")
    if (kind := documents.binary_kind(raw[: documents.SNIFF])) is not None:
        raise errors.ToolError(f"{place} is a {kind}. Only text can be edited.")
    name = documents.bom_encoding(raw) or "utf-8"
    try:
        words = raw.decode(name)
    except UnicodeDecodeError:
        raise errors.ToolError(f"{place} is not UTF-8 and cannot be edited without harm.") from None
    changed, line = replaced(words, old_str, new_str)
    _replace(ports, place, changed.encode(name), stamp(found))
    return f"{place} is changed, at line {line}."


def replaced(words: str, old: str, new: str) -> tuple[str, int]:
    """Return the text with one passage replaced, and the line number of that passage. The line ends stay the same.
    Raises `errors.ToolError`.
    """
    windows = "\r\n" in words and words.count("\n") == words.count("\r\n")
    if windows:
        words, old, new = (one.replace("\r\n", "\n") for one in (words, old, new))
    if old == new:
        raise errors.ToolError("old_str and new_str are the same. Nothing was changed.")
    count = words.count(old)
    if count != 1:
        first = old.strip("\n").split("\n")[0].strip()
        lines = [f"{at}" for at, line in enumerate(words.split("\n"), 1) if first and first in line][:10]
        where = f" Its first line is in the lines {', '.join(lines)}." if lines else ""
        raise errors.ToolError(
            f"old_str has to occur exactly once; it occurs {count} times.{where} Nothing was changed."
        )
    at = words.index(old)
    changed = words[:at] + new + words[at + len(old) :]
    return changed.replace("\n", "\r\n") if windows else changed, words.count("\n", 0, at) + 1


TOOLS = (list_dir, read_file, search_files, write_file, edit_file)
