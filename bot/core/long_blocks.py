"""Replaces long code blocks and wide tables in answers, which are unreadable in a chat, by a file and a sentence."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bot import text
from bot.contracts.channel import Channel, HasReadingLimits, ReadingLimits
from bot.contracts.outbound import OutgoingFile
from bot.core.outgoing_files import shown_name
from bot.words import say

_FENCE = re.compile(r"([ \t]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)?)(`{3,}(?=[^`]*$)|~{3,})(.*)")
_NOT_A_ROW = re.compile(r"[ \t]*(?:$|[>#]|(?:[-+*]|\d{1,9}[.)])[ \t]|(?:[-*_][ \t]*){3,}$)")
_DELIMITER = re.compile(r":?-+:?")
_CELL_END = re.compile(r"(?<!\\)\|")
_NAME = r"[\w.-]*\w\.[A-Za-z]\w{0,7}"
_NAMED = re.compile(rf"(?:^|[\s\"'=:/])({_NAME})(?=[\"'\s]|$)")
"""Pattern for a file name after the language of a code block."""
_TITLED = re.compile(
    rf"\s*(?:#|//|--|;|/\*|<!--)\s*(?:[Ff]ile(?:name)?:\s*)?(?:[\w.-]+/)*({_NAME})\s*(?:\*/|-->)?\s*"
)
"""Pattern for a first line that is a comment with the file's name."""
_MARKS = re.compile(
    r"(`+)(?P<code>.+?)(?<!`)\1(?!`)|(?<![0-9A-Za-z])(?:\*\*(?P<strong>\S|\S.*?\S)\*\*|~~(?P<gone>\S|\S.*?\S)~~)(?![0-9A-Za-z])"
    r"|!?\[(?P<label>[^\[\]]*)\]\((?P<url>[^()\s]*)\)|\\(?P<sign>[!-/:-@\[-`{-~])|(?P<line><br ?/?>)"
)
_FORMULA = re.compile(r"[=@\t＝＠]|[-+－＋](?!$|[\d.,]+ ?[%\w]{0,3}$)")
"""Pattern for the beginning of a cell that a spreadsheet program would evaluate as a formula."""
_ENDINGS: Mapping[str, str] = dict(
    pair.split("=")
    for pair in [
        "bash=sh",
        "console=txt",
        "csharp=cs",
        "elixir=ex",
        "golang=go",
        "haskell=hs",
        "javascript=js",
        "julia=jl",
        "kotlin=kt",
        "latex=tex",
        "makefile=mk",
        "markdown=md",
        "ocaml=ml",
        "perl=pl",
        "plaintext=txt",
        "powershell=ps1",
        "python=py",
        "python3=py",
        "ruby=rb",
        "rust=rs",
        "shell=sh",
        "terraform=tf",
        "text=txt",
        "typescript=ts",
        "zsh=sh",
    ]
)
"""File name extensions by language, for languages whose name is not their extension."""
_OWN_ENDING = re.compile(r"[a-z][a-z0-9]{0,5}")
LONGEST_NAMED = 200
"""Max characters of a line that may contain a file name."""
MOST_CELLS = 100_000
"""Max cells of a table that becomes a file, including empty cells that fill short rows."""
FIRST = 3
"""Max rows of a table that the message shows in addition to the file."""
NARROWEST = 4
"""Min width of a table column in terminal cells."""
LONGEST_CELL = 500
"""Max characters of a cell that is parsed as Markdown; longer cells are copied unchanged."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """A text in which `files` replace some passages. `at` maps an offset in the original text to an offset
    in `words`; an offset inside a passage is mapped to the end of the passage's replacement.
    """

    words: str
    files: tuple[OutgoingFile, ...] = ()
    _moves: tuple[tuple[int, int, int], ...] = ()
    """Offsets for each passage: its start, its end, and the end of its replacement."""

    @property
    def ends_in_one(self) -> bool:
        """Return True if the text ends with a replaced passage."""
        return bool(self._moves) and self._moves[-1][2] == len(self.words)

    def at(self, place: int) -> int:
        moved = 0
        for begin, end, now in self._moves:
            if place <= begin:
                break
            if place < end:
                return now
            moved = now - end
        return place + moved


class LongBlocks:
    """Replaces blocks in answers that are too long for their channel. `on` is the operator's setting."""

    def __init__(self, channels: Mapping[str, Channel], *, on: bool) -> None:
        self._channels = channels
        self._on = on

    def taken_out(self, channel: str, words: str, *, goes_on: bool = False) -> Shortened:
        """Return an answer in the form that is sent. `goes_on`: the answer is unfinished, so a code block at
        its end may not be closed yet.
        """
        shows: object = self._channels.get(channel)
        if not self._on or not isinstance(shows, HasReadingLimits):
            return Shortened(words)
        return shortened(words, shows.reading_limits, goes_on=goes_on)


@dataclass(frozen=True, slots=True)
class _Block:
    """A passage that may become a file: `markdown` is the passage, `body` the file's content."""

    start: int
    end: int
    markdown: str
    body: str
    name: str
    mime_type: str
    lines: int
    columns: int = 0
    rows: Sequence[Sequence[str]] = ()
    open: bool = False


def shortened(words: str, limits: ReadingLimits, *, goes_on: bool = False) -> Shortened:
    """Replace the blocks of a Markdown text that exceed these limits."""
    if 2 * len(words) <= limits.columns and words.count("\n") <= limits.lines:
        return Shortened(words)
    pieces, files, moves = list[str](), list[OutgoingFile](), list[tuple[int, int, int]]()
    done = length = 0
    for block in _blocks(words):
        if not _is_long(block, limits) or (block.open and not goes_on):
            continue
        name = _unused(shown_name(block.name), {file.name for file in files})
        label = say("delivery.table_as_file" if block.columns else "delivery.code_as_file", name=name)
        if first := _first_rows(block.rows, limits.columns):
            indent = block.start - words.rfind("\n", 0, block.start) - 1
            label = f"\n{' ' * indent}".join([*first, "", label])
        pieces += [words[done : block.start], label]
        length += block.start - done + len(label)
        done = block.end
        moves.append((block.start, block.end, length))
        files.append(OutgoingFile(name, block.mime_type, block.body.encode(), markdown=block.markdown))
    return Shortened("".join([*pieces, words[done:]]), tuple(files), tuple(moves))


def _is_long(block: _Block, limits: ReadingLimits) -> bool:
    return (
        block.lines > limits.lines
        or len(block.markdown) > limits.characters
        or block.columns > limits.columns
    )


def _first_rows(rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Return the lines of a table's head and first rows in Markdown, with shortened cells; [] if the table
    has too many columns.
    """
    room = columns // len(rows[0]) - 3 if rows else 0
    if room < NARROWEST:
        return []
    cut = [
        [_cut(" ".join(cell.split()), room).replace("|", "\\|") for cell in row] for row in rows[: FIRST + 1]
    ]
    lines = [f"| {' | '.join(row)} |" for row in cut]
    return [lines[0], "|---" * len(rows[0]) + "|", *lines[1:]]


def _cut(cell: str, room: int) -> str:
    if text.width(cell) <= room:
        return cell
    shown = text.head(cell, room - 1)
    while text.width(shown) >= room:
        shown = text.head(shown, len(shown) - 1)
    return f"{shown}…"


def _unused(name: str, used: set[str]) -> str:
    stem, dot, ending = name.rpartition(".")
    number, found = 1, name
    while found in used:
        number += 1
        found = f"{stem}-{number}{dot}{ending}"
    return found


def _blocks(words: str) -> Iterator[_Block]:
    """Yield the code blocks and tables of a text, in order."""
    lines = words.split("\n")
    starts, at = list[int](), 0
    for line in lines:
        starts.append(at)
        at += len(line) + 1
    here = 0
    while here < len(lines):
        fence = _FENCE.fullmatch(lines[here])
        if fence is not None:
            last = _fence_end(lines, here, fence[2])
            yield _code(words, lines, (here, last), fence, starts)
            here = last + 1
        elif _is_head(lines, here):
            last = here + 1
            while (
                last + 1 < len(lines)
                and not _NOT_A_ROW.match(lines[last + 1])
                and not _FENCE.fullmatch(lines[last + 1])
            ):
                last += 1
            if len(_cells(lines[here])) * (last - here) <= MOST_CELLS:
                yield _table(words, lines, (here, last), starts)
            here = last + 1
        else:
            here += 1


def _fence_end(lines: list[str], first: int, mark: str) -> int:
    """Return the index of the line that closes a code block; one past the last line if no line does."""
    for at in range(first + 1, len(lines)):
        closing = lines[at].strip()
        if closing.startswith(mark) and not closing.strip(mark[0]):
            return at
    return len(lines)


def _code(
    words: str, lines: list[str], around: tuple[int, int], fence: re.Match[str], starts: list[int]
) -> _Block:
    first, last = around
    inside = [_without_indent(line, len(fence[1])).rstrip("\r") for line in lines[first + 1 : last]]
    begin = starts[first] + len(fence[1])
    is_open = last == len(lines)
    end = len(words) if is_open else starts[last] + len(lines[last])
    markdown = "\n".join([lines[first][len(fence[1]) :], *inside, fence[2]])
    body = "\n".join(inside) + "\n"
    name = _code_name(fence[3].strip()[:LONGEST_NAMED], inside[0] if inside else "")
    return _Block(begin, end, markdown, body, name, "text/plain", len(inside), open=is_open)


def _without_indent(line: str, most: int) -> str:
    indent = len(line) - len(line.lstrip(" \t"))
    return line[min(indent, most) :]


def _code_name(info: str, first: str) -> str:
    if (named := _NAMED.search(info)) is not None:
        return named[1]
    if len(first) <= LONGEST_NAMED and (titled := _TITLED.fullmatch(first)) is not None:
        return titled[1]
    language = (info.split() or [""])[0].lower().strip("{}.:")
    own = language if _OWN_ENDING.fullmatch(language) else "txt"
    return f"code.{_ENDINGS.get(language, own)}"


def delimits(row: str) -> bool:
    """Return True for the delimiter row below a table's head."""
    cells = row.lstrip(" \t>").rstrip(" \t").removeprefix("|").removesuffix("|").split("|")
    return all(_DELIMITER.fullmatch(cell.strip(" \t")) for cell in cells)


def _is_head(lines: list[str], at: int) -> bool:
    """Return True if a table begins at this line."""
    head = lines[at]
    if "|" not in head or at + 1 == len(lines) or "-" not in lines[at + 1] or _NOT_A_ROW.match(head):
        return False
    return delimits(lines[at + 1]) and len(_cells(head)) == len(_cells(lines[at + 1]))


def _cells(row: str) -> list[str]:
    row = row.strip(" \t").removeprefix("|")
    row = row[:-1] if row.endswith("|") and not row.endswith("\\|") else row
    return [cell.strip(" \t") for cell in _CELL_END.split(row)]


def _table(words: str, lines: list[str], around: tuple[int, int], starts: list[int]) -> _Block:
    first, last = around
    rows = [[_plain(cell) for cell in _cells(line)] for line in (lines[first], *lines[first + 2 : last + 1])]
    columns = len(rows[0])
    rows = [(row + [""] * columns)[:columns] for row in rows]
    widths = [max(text.width(line) for row in rows for line in row[at].split("\n")) for at in range(columns)]
    written = io.StringIO()
    csv.writer(written).writerows([[_inert(cell) for cell in row] for row in rows])
    # Without a BOM, spreadsheet programs assume a legacy encoding.
    mark = "" if written.getvalue().isascii() else "\ufeff"
    indent = len(lines[first]) - len(lines[first].lstrip(" \t"))
    markdown = "\n".join(line.strip(" \t") for line in lines[first : last + 1])
    return _Block(
        starts[first] + indent,
        min(len(words), starts[last] + len(lines[last])),
        markdown,
        mark + written.getvalue(),
        "table.csv",
        "text/csv",
        len(rows),
        columns=sum(widths) + 3 * (columns - 1),
        rows=rows,
    )


def _plain(cell: str) -> str:
    """Return the text of a cell as displayed."""
    if len(cell) > LONGEST_CELL:
        return cell

    def shown(found: re.Match[str]) -> str:
        if found["line"]:
            return "\n"
        if found["url"] is not None:
            label = _plain(found["label"])
            return f"{label} ({found['url']})" if found["url"] and label != found["url"] else label
        if found["code"] is not None:
            return found["code"].strip().replace("\\|", "|")
        return found["sign"] or _plain(found["strong"] or found["gone"])

    return _MARKS.sub(shown, cell)


def _inert(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) else cell
