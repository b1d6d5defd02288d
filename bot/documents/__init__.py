"""Recognises the type of a file by its first bytes, decodes text, and runs the parsers of other files (`bot.documents.reader`)
in a separate process. The file's name is ignored.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bot.errors import NoReadableText
from bot.picture_head import MOST_BYTES, SHRUNK, SIDE, is_picture, kind_of, picture_of

FileType = Literal["text", "picture", "pdf", "office", "recording"]

SNIFF = 8_192  # Number of bytes at the start of a file that the tools read to recognise text
SAMPLE = 65_536  # Number of bytes at the start of a file that are read to detect the file's encoding
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MAGIC = {
    b"BM": "BMP image",
    b"II*\0": "TIFF image",
    b"MM\0*": "TIFF image",
    b"%PDF-": "PDF document",
    b"PK\x03\x04": "ZIP archive or office document",
    b"\x1f\x8b": "gzip archive",
    b"\x7fELF": "program",
    b"SQLite format 3\0": "SQLite database",
}
_RECORDINGS = {
    rb"OggS": "audio/ogg",
    rb"ID3|\xff[\xe0-\xff]": "audio/mpeg",
    rb"\x1a\x45\xdf\xa3": "audio/webm",
    rb"fLaC": "audio/flac",
    rb".{4}ftyp": "audio/mp4",
    rb"RIFF.{4}WAVE": "audio/wav",
}
"""Pattern of the first bytes of each type of recording."""
_LEGACY = ("gb18030", "big5", "cp932", "cp949", "cp1252")
"""Older encodings that are tried. Cyrillic encodings are missing, because short French texts would be read as Russian."""
_WESTERN = re.compile(
    r"(?<![^\x00-\x7f])(?:[^\W\x00-\x7f]|[°µ§£€©®±²³¼½¾«»¿¡…–—‘’“”„•·×ªº´¨]){1,2}(?![^\x00-\x7f])"
)
_WESTERN_SHARE = 0.7
"""Min share of non-ASCII characters that `_WESTERN` must match in a text decoded as cp1252. `_WESTERN` matches one or two
accented letters or signs between ASCII characters. Text of other encodings, decoded as cp1252, has longer runs.
"""


def binary_kind(head: bytes) -> str | None:
    """Return the name of the binary format of a file that begins with these bytes; None for text."""
    if (picture := kind_of(head)) is not None:
        return f"{picture.removeprefix('image/').upper()} image"
    has_zero = bom_encoding(head) is None and b"\0" in head
    for magic, kind in _MAGIC.items():
        if head.startswith(magic) and (has_zero or len(magic) > 2):
            return kind
    return "binary file" if has_zero else None


def bom_encoding(head: bytes) -> str | None:
    """Return the encoding that a byte order mark at the beginning of a file shows; None if there is no such mark."""
    return next((name for bom, name in _BOMS if head.startswith(bom)), None)


def is_utf8(head: bytes) -> bool:
    """Return True if the bytes are valid UTF-8. The last character may be incomplete."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def python_name(name: str) -> str | None:
    """Return Python's name for the text encoding `name`; None if Python does not know the encoding."""
    with contextlib.suppress(LookupError, ValueError):
        codec = codecs.lookup(name)
        if codec._is_text_encoding:  # noqa: SLF001 - the built-in `open` uses this attribute too
            return codec.name
    return None


def may_be_text(head: bytes) -> bool:
    """Return False if a file that begins with these bytes cannot be text. Much faster than `decode`."""
    if bom_encoding(head) is not None:
        return True
    if binary_kind(head) not in {None, "binary file"}:
        return False
    if b"\0" in head:
        # In UTF-16, ASCII characters have zero bytes only at even or only at odd positions.
        return 0 in (head[::2].count(0), head[1::2].count(0))
    return is_utf8(head) or _CONTROLS.search(head) is None


def decode(data: bytes) -> str | None:
    """Decode text in UTF-8, UTF-16, UTF-32 or a common older encoding. Return None for other data. Takes up to 0.3 s."""
    head = data[:SAMPLE]
    name = bom_encoding(head)
    if name is None and may_be_text(head):
        name = "utf-8" if is_utf8(head) and b"\0" not in head else _detected(head)
    try:
        words = data.decode(name) if name is not None else "\0"
    except UnicodeDecodeError:
        return None
    return words if "\0" not in words else None


def _detected(head: bytes) -> str | None:
    import chardet  # the import takes 0.2 s, because it loads models

    names = ("utf-16-le", "utf-16-be") if b"\0" in head else _LEGACY
    name = chardet.detect(head, include_encodings=names, compat_names=False)["encoding"]
    try:
        words = codecs.getincrementaldecoder(name or "ascii")().decode(head)
    except UnicodeDecodeError:
        return None
    if name == "cp1252":
        beyond = sum(one > "\x7f" for one in words)
        if sum(map(len, _WESTERN.findall(words))) < _WESTERN_SHARE * beyond:
            return None
    return name if all(one.isprintable() or one in "\t\n\r\f\x1b\u3000\xa0" for one in words) else None


def type_of(head: bytes) -> FileType:
    """Return the type of a file by its first bytes. A file of unknown type counts as "text", and `decode` may later refuse the file."""
    if head.startswith(b"PK\x03\x04"):
        return "office"
    if head.startswith(b"%PDF-"):
        return "pdf"
    return "picture" if is_picture(head) else "text"


def check_text(head: bytes) -> None:
    """Raise `NoReadableText` if a file that begins with these bytes cannot be text."""
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        raise NoReadableText("it is protected, or in an old Office format", "old_office")
    if not may_be_text(head):
        raise NoReadableText


def recording_type(head: bytes) -> str:
    """Return the MIME type of a sound recording by its first bytes. Raises `NoReadableText` for any other file."""
    for magic, kind in _RECORDINGS.items():
        if re.match(magic, head, re.DOTALL):
            return kind
    raise NoReadableText


# ------------------------------------------------------------ parsers

SECONDS = 30.0
READER = Path(__file__).with_name("reader.py")
LARGEST = 16_000_000  # Max bytes of a picture. Larger pictures are refused instead of being shrunk.
PDF_BYTES = 7_000_000
"""Max bytes of a PDF that the model gets as a file. A PDF of this size, encoded in base64, fits into an artifact."""
_WHY: dict[str, str] = {
    "locked": "it is protected by a password",
    "too_much": "it is larger inside than what can be read",
}
_PAGE_TOKENS = 1_600
"""Estimated tokens of a PDF page's picture. The provider shows each page to the model as a picture and as text."""
_CHARACTERS_PER_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Pdf:
    pages: int
    text: str

    @property
    def tokens(self) -> int:
        """Return the estimated tokens that the PDF needs in a request if it is sent as a file."""
        return self.pages * _PAGE_TOKENS + len(self.text) // _CHARACTERS_PER_TOKEN


async def read_pdf(data: bytes, most: int) -> Pdf:
    """Return a PDF's number of pages and at most `most` characters of its text. Raises `NoReadableText`."""
    facts, words = await _read("pdf", data, most)
    return Pdf(facts["pages"], words)


async def read_office(data: bytes, most: int) -> str:
    """Return at most `most` characters of an office file's text. Raises `NoReadableText`."""
    return (await _read("office", data, most))[1]


async def _read(kind: str, data: bytes, most: int) -> tuple[dict[str, int], str]:
    head, _, words = (await run(data, kind, str(most))).decode("utf-8", "replace").partition("\n")
    facts = json.loads(head)
    if (code := facts.get("code")) is not None:
        raise NoReadableText(_WHY[code], code)
    return facts, words


async def fitting(data: bytes, most: int) -> bytes:
    """Return a picture that the provider accepts. Convert the picture to a small JPEG if the provider does not accept its format,
    if its sides are too long, or if it has more than `most` bytes. Raises `NoReadableText`.
    """
    picture = picture_of(data)
    if picture and max(picture.width, picture.height) <= SIDE and len(data) <= min(most, MOST_BYTES):
        return data
    return await run(data, "picture", str(SHRUNK))


async def run(data: bytes, *what: str, reader: Path = READER, seconds: float = SECONDS) -> bytes:
    """Run the program `reader` on a file and return its output. Raises `NoReadableText` after `seconds` seconds, or if the
    program writes nothing.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-B", str(reader), *what, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}
    )
    try:
        async with asyncio.timeout(seconds):
            told, _ = await process.communicate(data)
    except TimeoutError:
        raise NoReadableText from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if not told:
        raise NoReadableText
    return told
