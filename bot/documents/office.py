"""The text of office files: docx, xlsx, pptx and their OpenDocument fellows. Pure, and bounded whatever the file says of itself.

A packed file is read in memory: a directory of 1 MB, 16 MB of one part and 32 MB of all, no document type (so no entities),
500,000 elements, a tag or a text of 256 kB.
"""

from __future__ import annotations

import io
import posixpath
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from xml.parsers import expat

from bot.errors import NoReadableText

MAGIC = b"PK\x03\x04"
_END = b"PK\x05\x06"
_END_64 = b"PK\x06\x07"
_END_SIZE = 22
DIRECTORY = 1_000_000
PART = 16_000_000
PARTS = 32_000_000
ELEMENTS = 500_000
EMPTY = 100
"""Elements that a part counts for, however short it is: to begin with one takes as long."""
LONGEST = 262_144
GAP = 64
"""Empty cells of a table that are shown in a row, at the most."""
CUT = "\n[the rest is left out: the file holds more text than is read of one]\n"
TOO_MUCH = "it is larger inside than what can be read"
REFERENCE = "r:id"
_LOCKED = 0x1
_Attributes = Mapping[str, str]
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    expat.ExpatError,
    EOFError,
    LookupError,
    RuntimeError,  # packed for a newer version than `zipfile` knows
    ValueError,
)


class _Enough(Exception):
    """There is more text than is wanted."""


def text_of(data: bytes, most: int) -> str:
    """The text of a packed file, at most `most` characters. Raises `NoReadableText` where it is no office file, or not a sound one."""
    words = _Words(most)
    try:
        package = _Package(data)
        _reader_of(package)(package, words)
    except _Enough:
        words.parts.append(CUT)
    except _BROKEN:
        raise NoReadableText from None
    return "".join(words.parts)


class _Words:
    """The text so far."""

    def __init__(self, most: int) -> None:
        self.parts: list[str] = []
        self._left = most

    @property
    def left(self) -> int:
        """Characters that are still wanted."""
        return self._left

    def add(self, words: str) -> None:
        self.parts.append(words[: self._left])
        self._left -= len(words)
        if self._left < 0:
            raise _Enough


class _Package:
    """A packed file whose parts are read by name, within bounds."""

    def __init__(self, data: bytes) -> None:
        # As `zipfile` finds it: an end without a comment is the last of all bytes, whatever stands within it.
        end = len(data) - _END_SIZE
        if not (data.startswith(_END, max(0, end)) and data.endswith(b"\0\0")):
            end = data.rfind(_END, -65_536 - _END_SIZE)
        directory = int.from_bytes(data[end + 12 : end + 16], "little") if end >= 0 else 0
        if not 0 < directory <= DIRECTORY or data[max(0, end - 20) : end].startswith(_END_64):
            raise NoReadableText
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        self.names = frozenset(self._zip.namelist())
        self._left = PARTS
        self._elements = ELEMENTS

    def read(self, name: str, most: int = PART) -> bytes:
        about = self._zip.getinfo(name)
        if about.flag_bits & _LOCKED:
            raise NoReadableText("it is protected by a password", "locked")
        if about.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise NoReadableText
        with self._zip.open(about) as part:
            data = part.read(min(most, self._left) + 1)
        self._left -= len(data)
        if self._left < 0 or len(data) > most:
            raise NoReadableText(TOO_MUCH, "too_much")
        return data

    def parse(
        self,
        name: str,
        start: Callable[[str, _Attributes], None],
        end: Callable[[str], None] = lambda _: None,
        words: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Tell of each element of a part by its name without its name space, and of the text between."""

        def begun(tag: str, attributes: dict[str, str]) -> None:
            self._elements -= 1
            if self._elements < 0:
                raise NoReadableText(TOO_MUCH, "too_much")
            start(_local(tag), {_attribute(key): value for key, value in attributes.items()})

        def refused(*_: object) -> None:
            raise NoReadableText  # no office program writes a document type: without one there are no entities

        self._elements -= EMPTY
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler = begun
        parser.EndElementHandler = lambda tag: end(_local(tag))
        parser.CharacterDataHandler = words
        parser.StartDoctypeDeclHandler = refused
        parser.EntityDeclHandler = refused
        data = self.read(name)
        seen = 0
        while len(data) - seen > LONGEST:
            # The parser holds everything else up while it looks through one long tag.
            if (seen := data.rfind(b">", seen, seen + LONGEST) + 1) == 0:
                raise NoReadableText(TOO_MUCH, "too_much")
        for at in range(0, len(data), LONGEST):
            parser.Parse(data[at : at + LONGEST], False)
        parser.Parse(b"", True)

    def targets(self, name: str) -> dict[str, tuple[str, str]]:
        """The parts that a part refers to: kind and name of the other part, by the id of the reference."""
        folder, file = posixpath.split(name)
        found: dict[str, tuple[str, str]] = {}

        def start(tag: str, told: _Attributes) -> None:
            if tag == "Relationship" and "Id" in told and "Target" in told:
                target = posixpath.normpath(posixpath.join("/", folder, told["Target"])).lstrip("/")
                found[told["Id"]] = told.get("Type", "").rpartition("/")[2], target

        about = f"{folder}/_rels/{file}.rels"
        if about in self.names:
            self.parse(about, start)
        return found


def _local(name: str) -> str:
    return name.rpartition(" ")[2]


def _attribute(name: str) -> str:
    """The name of an attribute; that of a reference stands beside an `id` of its own."""
    space, _, local = name.rpartition(" ")
    return REFERENCE if local == "id" and space.endswith("/relationships") else local


_DOCUMENT, _SLIDES, _BOOK = "word/document.xml", "ppt/presentation.xml", "xl/workbook.xml"
_OPEN = "content.xml"


def _reader_of(package: _Package) -> Callable[[_Package, _Words], None]:
    for name, reader in ((_DOCUMENT, _document), (_SLIDES, _slides), (_BOOK, _book)):
        if name in package.names:
            return reader
    if _OPEN in package.names and package.read("mimetype", 200).startswith(
        b"application/vnd.oasis.opendocument."
    ):
        return _open_document
    raise NoReadableText


# ------------------------------------------------------------ running text


class _Prose:
    """Text of paragraphs and tables, in the words of one format: `text` elements hold it (all, where there are none), `blocks` end a line,
    `skipped` are left out with all they hold.
    """

    def __init__(
        self,
        words: _Words,
        *,
        text: frozenset[str],
        blocks: frozenset[str],
        breaks: Mapping[str, str],
        cells: frozenset[str],
        rows: frozenset[str],
        skipped: frozenset[str],
    ) -> None:
        self._words = words
        self._text, self._blocks, self._breaks = text, blocks, breaks
        self._cells, self._rows, self._skipped = cells, rows, skipped
        self._in_text = self._in_cell = self._in_skipped = 0

    def start(self, tag: str, told: _Attributes) -> None:
        self._in_skipped += tag in self._skipped
        self._in_text += tag in self._text
        self._in_cell += tag in self._cells
        if tag in self._breaks and not self._in_skipped:
            count = told.get("c", "1")
            self._words.add(self._breaks[tag] * (int(count) if count.isdecimal() and len(count) < 4 else 1))

    def end(self, tag: str) -> None:
        if not self._in_skipped:
            if tag in self._blocks:
                self._words.add(" " if self._in_cell else "\n")
            elif tag in self._cells:
                self._words.add("| ")
            elif tag in self._rows:
                self._words.add("\n")
        self._in_skipped -= tag in self._skipped
        self._in_text -= tag in self._text
        self._in_cell -= tag in self._cells

    def words(self, words: str) -> None:
        if self._in_text and not self._in_skipped:
            self._words.add(words)


def _office_prose(words: _Words) -> _Prose:
    return _Prose(
        words,
        text=frozenset({"t"}),
        blocks=frozenset({"p"}),
        breaks={"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"},
        cells=frozenset({"tc"}),
        rows=frozenset({"tr"}),
        skipped=frozenset({"Fallback", "tabs", "delText"}),
    )


def _document(package: _Package, words: _Words) -> None:
    for name, title in (
        (_DOCUMENT, ""),
        ("word/footnotes.xml", "Footnotes"),
        ("word/endnotes.xml", "Endnotes"),
        ("word/comments.xml", "Comments"),
    ):
        if name in package.names:
            words.add(f"\n# {title}\n" if title else "")
            prose = _office_prose(words)
            package.parse(name, prose.start, prose.end, prose.words)


def _slides(package: _Package, words: _Words) -> None:
    for number, name in enumerate(_listed(package, _SLIDES, "sldId"), 1):
        words.add(f"{'' if number == 1 else chr(10)}# Slide {number}\n")
        notes = [target for kind, target in package.targets(name[1]).values() if kind == "notesSlide"]
        for part in [name[1], *notes]:
            words.add("" if part == name[1] else "Notes: ")
            prose = _office_prose(words)
            package.parse(part, prose.start, prose.end, prose.words)


def _listed(package: _Package, name: str, element: str) -> Iterator[tuple[str, str]]:
    """Title and part of each that a part lists, in its order."""
    targets = package.targets(name)
    listed: list[tuple[str, str]] = []

    def start(tag: str, told: _Attributes) -> None:
        target = targets.get(told.get(REFERENCE, ""))
        if tag == element and target is not None and target[1] in package.names:
            listed.append((told.get("name", ""), target[1]))

    package.parse(name, start)
    yield from listed


def _open_document(package: _Package, words: _Words) -> None:
    prose = _Prose(
        words,
        text=frozenset({"p", "h"}),
        blocks=frozenset({"p", "h"}),
        breaks={"tab": "\t", "line-break": "\n", "s": " "},
        cells=frozenset({"table-cell"}),
        rows=frozenset({"table-row"}),
        skipped=frozenset({"tracked-changes"}),
    )
    package.parse(_OPEN, prose.start, prose.end, prose.words)


# ------------------------------------------------------------ tables of numbers

_BUILT_IN_DATES = frozenset((*range(14, 23), *range(45, 48)))
_LITERAL = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]?')
"""The words of a format beside its signs. A bracket that nothing closes goes to the end: each sign is looked at once, however many open."""
_CELL = re.compile(r"([A-Z]{1,3})([0-9]+)")
_LAST_DAY = 2_958_465
"""31 December 9999."""


def _book(package: _Package, words: _Words) -> None:
    kinds = dict(package.targets(_BOOK).values())
    shared = kinds.get("sharedStrings", "")
    strings = _strings(package, shared, words.left) if shared in package.names else []
    dates = _date_styles(package, kinds["styles"]) if kinds.get("styles") in package.names else frozenset()
    since = [datetime(1899, 12, 30, tzinfo=UTC)]

    def about(tag: str, told: _Attributes) -> None:
        if tag == "workbookPr" and told.get("date1904") in {"1", "true"}:
            since[0] = datetime(1904, 1, 1, tzinfo=UTC)

    package.parse(_BOOK, about)
    for number, (title, part) in enumerate(_listed(package, _BOOK, "sheet")):
        words.add(f"{chr(10) if number else ''}# Sheet: {title}\n")
        sheet = _Sheet(words, strings, dates, since[0])
        package.parse(part, sheet.start, sheet.end, sheet.words)


class _Sheet:
    """One sheet, told row by row with tabs between the cells."""

    def __init__(self, words: _Words, strings: list[str], dates: frozenset[int], since: datetime) -> None:
        self._words, self._strings, self._dates, self._since = words, strings, dates, since
        self._row: list[str] = []
        self._size = self._column = 0
        self._kind = self._style = ""
        self._value: list[str] = []
        self._in_value = 0

    def start(self, tag: str, told: _Attributes) -> None:
        if tag == "c":
            place = _CELL.fullmatch(told.get("r", ""))
            column = _column(place[1]) if place is not None else self._column + 1
            self._row += [""] * min(max(0, column - self._column - 1), GAP)
            self._column, self._kind, self._style = column, told.get("t", "n"), told.get("s", "")
            self._value = []
        self._in_value += tag in {"v", "t"}

    def words(self, words: str) -> None:
        if self._in_value:
            self._value.append(words)

    def end(self, tag: str) -> None:
        self._in_value -= tag in {"v", "t"}
        if tag == "c":
            shown = self._shown("".join(self._value))
            self._row.append(shown)
            self._size += len(shown)
            if self._size > self._words.left:
                self._tell()  # which has enough: a thousand cells may name one long text
        elif tag == "row":
            self._tell()

    def _tell(self) -> None:
        if any(self._row):
            self._words.add("\t".join(self._row).rstrip("\t") + "\n")
        self._row, self._size, self._column = [], 0, 0

    def _shown(self, value: str) -> str:
        if self._kind == "s":
            at = int(value) if value.isdecimal() and len(value) < 9 else -1
            return self._strings[at] if 0 <= at < len(self._strings) else ""
        if self._kind == "b":
            value = {"1": "TRUE", "0": "FALSE"}.get(value, value)
        elif self._kind == "n" and self._style.isdecimal() and int(self._style[:9]) in self._dates:
            value = self._date(value)
        return " ".join(value.split())

    def _date(self, value: str) -> str:
        """The moment that a number stands for where it is shown as one."""
        try:
            days = float(value)
        except ValueError:
            return value
        if not 0 <= days <= _LAST_DAY:
            return value
        moment = self._since + timedelta(seconds=round(days * 86_400))
        if days < 1:
            return f"{moment:%H:%M:%S}"
        return f"{moment:%Y-%m-%d}" if days.is_integer() else f"{moment:%Y-%m-%d %H:%M:%S}"


def _column(letters: str) -> int:
    number = 0
    for one in letters:
        number = number * 26 + ord(one) - 64
    return number


def _strings(package: _Package, name: str, most: int) -> list[str]:
    """The texts that cells name by their number, each in one line of `most` characters, without how they are pronounced."""
    found: list[str] = []
    state = {"t": 0, "rPh": 0}
    parts: list[str] = []

    def start(tag: str, _: _Attributes) -> None:
        if tag in state:
            state[tag] += 1

    def end(tag: str) -> None:
        if tag in state:
            state[tag] -= 1
        elif tag == "si":
            found.append(" ".join("".join(parts)[:most].split()))
            parts.clear()

    def words(said: str) -> None:
        if state["t"] and not state["rPh"]:
            parts.append(said)

    package.parse(name, start, end, words)
    return found


def _date_styles(package: _Package, name: str) -> frozenset[int]:
    """The styles of cells that show a number as a date or a time."""
    own: dict[str, bool] = {}
    used: list[str] = []
    inside = [0]

    def start(tag: str, told: _Attributes) -> None:
        if tag == "numFmt":
            own[told.get("numFmtId", "")] = _tells_dates(told.get("formatCode", ""))
        inside[0] += tag == "cellXfs"
        if tag == "xf" and inside[0]:
            used.append(told.get("numFmtId", ""))

    def end(tag: str) -> None:
        inside[0] -= tag == "cellXfs"

    package.parse(name, start, end)
    return frozenset(_dated(used, own))


def _dated(used: Iterable[str], own: Mapping[str, bool]) -> Iterator[int]:
    for at, one in enumerate(used):
        built_in = one.isdecimal() and int(one[:9]) in _BUILT_IN_DATES
        if built_in or own.get(one, False):
            yield at


def _tells_dates(form: str) -> bool:
    """True of the format of a date or a time."""
    return re.search("[ydhms]", _LITERAL.sub("", form), re.IGNORECASE) is not None
