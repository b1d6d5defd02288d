"""Sends long code blocks and wide tables of an answer as files, because they are unreadable in a chat."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from markdown_it.token import Token

from bot import text
from bot.contracts.channel import ReadingLimits
from bot.contracts.messages import OutgoingFile
from bot.core.outgoing_files import shown_name
from bot.markdown import parser
from bot.words import say

_BEFORE = re.compile(r"[ \t]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*")
"""Pattern for list markers and spaces on a line before a block."""
_LINE_END = re.compile(r"\r\n?|\n")
_NAME = r"[\w.-]*\w\.[A-Za-z]\w{0,7}"
_NAMED = re.compile(rf"(?:^|[\s\"'=:/])({_NAME})(?=[\"'\s]|$)")
"""Pattern for a file name after the language in a code block's first line."""
_TITLED = re.compile(
    rf"\s*(?:#|//|--|;|/\*|<!--)\s*(?:[Ff]ile(?:name)?:\s*)?(?:[\w.-]+/)*({_NAME})\s*(?:\*/|-->)?\s*"
)
"""Pattern for a first line of code that is a comment with the file's name."""
_FORMULA = re.compile(r"[=@\t＝＠]|[-+－＋](?!$|[\d.,]+ ?[%\w]{0,3}$)")
"""Pattern for the beginning of a cell that a spreadsheet program would run as a formula."""
_ENDINGS = dict(
    re.findall(
        r"(\w+)=(\w+)",
        "bash=sh console=txt csharp=cs elixir=ex golang=go haskell=hs javascript=js julia=jl kotlin=kt latex=tex "
        "makefile=mk markdown=md ocaml=ml perl=pl plaintext=txt powershell=ps1 python=py python3=py ruby=rb rust=rs "
        "shell=sh terraform=tf text=txt typescript=ts zsh=sh",
    )
)
"""File name extensions by language, where the language's name is not the extension."""
_OWN_ENDING = re.compile(r"[a-z][a-z0-9]{0,5}")
_BLOCKS, _CELLS = parser(), parser()
_BLOCKS.core.ruler.enableOnly(["normalize", "block"])
_MARK = re.compile(r"[*_~`\[\\<&]")
_BREAK = re.compile(r"<br ?/?>")
LONGEST_NAMED = 200
"""Max characters of a line in which a file name is searched."""
FIRST = 3
"""Max rows of a table, besides its head, that the message itself shows."""
NARROWEST = 4
"""Min width of a table column that is shown in the message, in terminal cells."""
LONGEST_CELL = 500
"""Max characters of a table cell from which Markdown is removed. Longer cells are copied unchanged."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """A text in which a line with the file's name replaces each passage that became a file. `at` converts an offset in the
    original text into one in `words`. For an offset in a replaced passage, `at` returns the end of the line that replaces
    the passage.
    """

    words: str
    files: tuple[OutgoingFile, ...] = ()
    _moves: tuple[tuple[int, int, int], ...] = ()
    """For each passage: its start and end in the original text, and the end of its replacement in `words`."""

    @property
    def ends_in_one(self) -> bool:
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


@dataclass(frozen=True, slots=True)
class _Block:
    """A passage that may become a file. `markdown` is its Markdown, `body` the content of the file."""

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


def shortened(words: str, limits: ReadingLimits | None, *, goes_on: bool = False) -> Shortened:
    """Return a Markdown text in which the blocks that exceed these limits have become files. If `goes_on` is True, the text
    is unfinished, and a code block that is still open at its end may become a file too.
    """
    if limits is None or (2 * len(words) <= limits.columns and words.count("\n") <= limits.lines):
        return Shortened(words)
    pieces, files, moves = list[str](), list[OutgoingFile](), list[tuple[int, int, int]]()
    done = length = 0
    for block in _blocks(words):
        long = block.lines > limits.lines or len(block.markdown) > limits.characters
        if not (long or block.columns > limits.columns) or (block.open and not goes_on):
            continue
        name, used = shown_name(block.name), {file.name for file in files}
        stem, dot, ending = name.rpartition(".")
        numbered = (f"{stem}-{number}{dot}{ending}" for number in itertools.count(2))
        name = next(one for one in itertools.chain([name], numbered) if one not in used)
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


def _blocks(words: str) -> Iterator[_Block]:
    """Yield the code blocks and tables of a text, except those inside quotes."""
    ends = [*(found.start() for found in _LINE_END.finditer(words)), len(words)]
    starts = [0, *(found.end() for found in _LINE_END.finditer(words))]
    quotes = 0
    tokens = iter(_BLOCKS.parse(words))
    for token in tokens:
        quotes += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type not in {"fence", "table_open"} or token.map is None or quotes:
            continue
        first, end = token.map
        begun = _BEFORE.match(words, starts[first])
        start = begun.end() if begun is not None else starts[first]
        if token.type == "fence":
            yield _code(token, start, ends[end - 1], words)
            continue
        rows = list[list[str]]()
        for cell in itertools.takewhile(lambda one: one.type != "table_close", tokens):
            if cell.type == "tr_open":
                rows.append([])
            elif cell.type == "inline":
                rows[-1].append(_plain(cell.content))
        yield _table(rows, start, ends[end - 1], words)


# ------------------------------------------------------------ code


def _code(fence: Token, start: int, end: int, words: str) -> _Block:
    body = fence.content.removesuffix("\n") + "\n"
    last = words[:end].rpartition("\n")[2].strip()
    closed = last.startswith(fence.markup) and not last.strip(fence.markup[0])
    is_open = not (closed and words.find("\n", start, end) >= 0) and not words[end:].strip()
    return _Block(
        start,
        len(words) if is_open else end,
        f"{fence.markup}{fence.info}\n{body}{fence.markup}",
        body,
        _code_name(fence.info.strip()[:LONGEST_NAMED], fence.content.partition("\n")[0]),
        "text/plain",
        body.count("\n"),
        open=is_open,
    )


def _code_name(info: str, first: str) -> str:
    """Return the file name in the fence's information or in a comment on the first line; else a name made from the language."""
    titled = _TITLED.fullmatch(first) if len(first) <= LONGEST_NAMED else None
    if named := _NAMED.search(info) or titled:
        return named[1]
    language = (info.split() or [""])[0].lower().strip("{}.:")
    own = language if _OWN_ENDING.fullmatch(language) else "txt"
    return f"code.{_ENDINGS.get(language, own)}"


# ------------------------------------------------------------ tables


def _table(rows: list[list[str]], start: int, end: int, words: str) -> _Block:
    lines = [
        [text.width(line) for cell in column for line in cell.split("\n")]
        for column in zip(*rows, strict=True)
    ]
    written = io.StringIO()
    safe = ([f"'{cell}" if _FORMULA.match(cell) else cell for cell in row] for row in rows)
    csv.writer(written).writerows(safe)
    # Without a byte order mark, spreadsheet programs do not read the file as UTF-8.
    mark = "" if written.getvalue().isascii() else "\ufeff"
    return _Block(
        start,
        end,
        "\n".join(line.strip() for line in words[start:end].splitlines()),
        mark + written.getvalue(),
        "table.csv",
        "text/csv",
        len(rows),
        columns=sum(map(max, lines)) + 3 * (len(lines) - 1),
        rows=rows,
    )


def _first_rows(rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Return a table's head and first rows in Markdown, with long cells cut; [] if there are too many columns."""
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


def _plain(cell: str) -> str:
    """Return a cell without Markdown. A link's address follows its text."""
    if len(cell) > LONGEST_CELL or not _MARK.search(cell):
        return cell
    shown, url = list[str](), ""
    for token in _CELLS.parseInline(cell)[0].children or ():
        match token.type:
            case "link_open":
                url = str(token.attrs.get("href", ""))
                shown.append("")
            case "link_close" if url:
                shown.append(f" ({url})" if shown[-1] != url else "")
            case "code_inline":
                shown.append(token.content)
            case _:
                shown.append(_BREAK.sub("\n", token.content))
    return "".join(shown)
