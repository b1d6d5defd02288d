"""Program that reads PDFs, office files and pictures. The program limits its own time and memory, because the parsers have no limits.

The file is read from standard input. With the arguments `picture SIDE`, the program writes the picture as a JPEG with sides of at most
SIDE pixels. With `pdf MOST` or `office MOST`, it writes one line of JSON and then at most MOST characters of text. The JSON has `pages`
for a PDF, and `code` if the file cannot be read. If there is no output, the file is damaged or exceeds the limits.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Iterator
from typing import BinaryIO, TextIO

PICTURES = ("AVIF", "GIF", "HEIF", "JPEG", "PNG", "WEBP")
PAGES = 500  # Max pages of a PDF from which text is read
PART = 16_000_000  # Max bytes of one decompressed part of an office file
GAP = 64  # Max number of successive empty cells that are written for a row of a table
CUT = "\n[the rest is left out: the file holds more text than is read of one]\n"
_CPU_SECONDS = 20
_BYTES = 1_000_000_000


def limit() -> None:
    import resource

    for what, most in (
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_AS, _BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        # Go on without this limit if the system does not support it (macOS) or a lower limit is already set.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))


def read_pdf(data: bytes, most: int, out: TextIO) -> None:
    """Write a PDF's number of pages and its text to `out`. Raises any error of the parser."""
    import pypdf.errors

    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted:
        out.write('{"code": "locked"}\n')
        return
    out.write(json.dumps({"pages": len(reader.pages)}) + "\n")
    out.flush()  # so that the number of pages is written even if the text exceeds the limits
    damaged = (pypdf.errors.PyPdfError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
    for number, page in zip(range(1, PAGES + 1), reader.pages, strict=False):
        try:
            words = page.extract_text().strip()
        except damaged:
            words = "[this page cannot be read]"
        if words:
            words = f"# Page {number}\n{words}\n\n"
            out.write(words[:most])
            most -= len(words)
        if most <= 0:
            break
    out.flush()


def shrink_picture(data: bytes, side: int, out: BinaryIO) -> None:
    """Write the first frame of a picture to `out`, upright and on a white background. Raises any error of the parser."""
    import pillow_heif
    from PIL import Image, ImageOps

    pillow_heif.register_heif_opener()
    picture: Image.Image = Image.open(io.BytesIO(data), formats=PICTURES)
    if picture.mode not in {"L", "RGB"}:
        picture = picture.convert("RGBA")
    picture.thumbnail((side, side))
    shown = ImageOps.exif_transpose(picture).convert("RGBA")
    Image.alpha_composite(Image.new("RGBA", shown.size, "white"), shown).convert("RGB").save(out, "JPEG")


# ------------------------------------------------------------ office files


def read_office(data: bytes, most: int, out: TextIO) -> None:
    """Write an office file's text to `out`. If the file is encrypted or too large, write only an error code. Raises parser errors."""
    package = zipfile.ZipFile(io.BytesIO(data))
    if any(part.flag_bits & 1 for part in package.infolist()):
        out.write('{"code": "locked"}\n')
        return
    if any(part.file_size > PART for part in package.infolist() if part.filename.endswith(".xml")):
        out.write('{"code": "too_much"}\n')
        return
    found: list[str] = []
    for piece in _pieces(package, data):
        found.append(piece[:most])
        most -= len(piece)
        if most < 0:
            found.append(CUT)
            break
    out.write("{}\n" + "".join(found))


def _pieces(package: zipfile.ZipFile, data: bytes) -> Iterator[str]:
    names = package.namelist()
    if "word/document.xml" in names:
        yield _prose(package, "word/document.xml")
        for title in ("Footnotes", "Endnotes", "Comments"):
            if (name := f"word/{title.lower()}.xml") in names:
                yield f"\n# {title}\n{_prose(package, name)}"
    elif "ppt/presentation.xml" in names:
        yield from _slides(package)
    elif "xl/workbook.xml" in names:
        yield from _sheets(data)
    else:
        kind = package.read("mimetype").decode()
        if not kind.startswith("application/vnd.oasis.opendocument."):
            raise ValueError("no office file")
        if "spreadsheet" in kind:
            yield from _sheets(data)
        else:
            yield _prose(package, "content.xml", text=frozenset({"p", "h"}))


def _slides(package: zipfile.ZipFile) -> Iterator[str]:
    names = package.namelist()
    slides = [found for name in names if (found := re.fullmatch(r"ppt/slides/slide(\d+)\.xml", name))]
    for number, slide in enumerate(sorted(slides, key=lambda found: int(found[1])), 1):
        yield f"{'' if number == 1 else chr(10)}# Slide {number}\n{_prose(package, slide[0])}"
        references = f"ppt/slides/_rels/slide{slide[1]}.xml.rels"
        if references in names and (
            notes := re.search(rb"notesSlides/[\w.-]+\.xml", package.read(references))
        ):
            yield f"Notes: {_prose(package, f'ppt/{notes[0].decode()}')}"


def _sheets(data: bytes) -> Iterator[str]:
    import python_calamine

    book = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    for number, name in enumerate(book.sheet_names):
        yield f"{chr(10) if number else ''}# Sheet: {name}\n"
        for row in book.get_sheet_by_name(name).iter_rows():
            line = "\t".join(map(_cell, row)).rstrip("\t")
            if line:
                yield re.sub(f"\t{{{GAP},}}", "\t" * GAP, line) + "\n"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return f"{value:.15g}"
    return " ".join(str(value).split())


_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "line-break": "\n", "s": " "}
_AFTER = {"p": "\n", "h": "\n", "tc": "| ", "table-cell": "| ", "tr": "\n", "table-row": "\n"}
_SKIPPED = frozenset({"Fallback", "tabs", "delText", "tracked-changes"})
"""Names of XML elements that are skipped. The elements contain text repeated for older programs, tab stops, or deleted text."""


def _prose(package: zipfile.ZipFile, name: str, text: frozenset[str] = frozenset({"t"})) -> str:
    root = ET.fromstring(package.read(name))  # noqa: S314 - the limits of this process protect from malicious XML
    return "".join(_words(root, text, inside=False, cell=False))


def _words(node: ET.Element, text: frozenset[str], *, inside: bool, cell: bool) -> Iterator[str]:
    tag = node.tag.rpartition("}")[2]
    if tag in _SKIPPED:
        return
    if tag in _BREAKS:
        yield _BREAKS[tag] * int(next((count for key, count in node.items() if key.endswith("}c")), "1"))
    inside, in_cell = inside or tag in text, cell or tag in {"tc", "table-cell"}
    if inside and node.text:
        yield node.text
    for child in node:
        yield from _words(child, text, inside=inside, cell=in_cell)
        if inside and child.tail:
            yield child.tail
    if tag in _AFTER:
        yield " " if cell and tag in {"p", "h"} else _AFTER[tag]


if __name__ == "__main__":
    limit()
    kind, most, data = sys.argv[1], int(sys.argv[2]), sys.stdin.buffer.read()
    out = io.TextIOWrapper(sys.stdout.buffer, "utf-8", "replace")
    if kind == "picture":
        shrink_picture(data, most, sys.stdout.buffer)
    elif kind == "pdf":
        read_pdf(data, most, out)
    else:
        read_office(data, most, out)
        out.flush()
