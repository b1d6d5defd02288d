"""The text of a file's bytes, told by what they are: encoded text, or an office file. Its name is not looked at."""

from __future__ import annotations

from bot.documents import encoding, office
from bot.documents.pictures import is_picture
from bot.errors import NoReadableText

_MARK = 16
"""Bytes by which a picture or a recording is known."""
LOOKED_AT = 65_536
"""Bytes by which a file is told: its first piece."""
_PDF = b"%PDF-"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
OLD_OFFICE = "it is protected, or in an old Office format"


class Decoder:
    """The bytes of one file, as they come in pieces. Raises `NoReadableText` as soon as they show to hold none; of text there are at most
    `most` bytes, of what text is packed in as many as come. Of what is `spoken` nothing but a recording is taken.
    """

    def __init__(self, most: int, *, spoken: bool = False) -> None:
        self._most = most
        self._spoken = spoken
        self._bytes = bytearray()
        self._looked = False

    @property
    def packed(self) -> bool:
        """True if the text is a small part of the bytes, as in an office file."""
        return self._bytes.startswith(office.MAGIC)

    @property
    def pictured(self) -> bool:
        """True if it is a picture, which has no text."""
        return is_picture(bytes(self._bytes[:_MARK]))

    @property
    def documented(self) -> bool:
        """True if it is a PDF, which is read elsewhere (`bot.documents.pdf`)."""
        return self._bytes.startswith(_PDF)

    @property
    def sound(self) -> str | None:
        """The MIME type of the recording that it is; None where it is none, or is not to be heard."""
        return sound_type(bytes(self._bytes[:_MARK])) if self._spoken else None

    @property
    def data(self) -> bytes:
        return bytes(self._bytes)

    @property
    def size(self) -> int:
        """The bytes so far."""
        return len(self._bytes)

    def take(self, piece: bytes) -> None:
        self._bytes += piece
        if not self._looked and len(self._bytes) >= LOOKED_AT:
            self._look()

    def end(self) -> str:
        """The whole text. Takes long: not for the event loop's thread."""
        self._look()
        data = bytes(self._bytes)
        if self._spoken or self.pictured or self.documented:
            raise NoReadableText
        return office.text_of(data, self._most) if self.packed else _decoded(data)

    def _look(self) -> None:
        self._looked = True
        if self._spoken:
            if self.sound is None:
                raise NoReadableText
            return
        head = bytes(self._bytes[:LOOKED_AT])
        if head.startswith(_OLE):
            raise NoReadableText(OLD_OFFICE, "old_office")
        if self.packed or self.pictured or self.documented:
            return
        if encoding.no_text(head[: encoding.SNIFF]) not in {
            None,
            "binary file",
        }:
            raise NoReadableText
        plain = encoding.is_utf8(head) and b"\0" not in head
        if not plain and _encoding(head) is None:
            raise NoReadableText


def _decoded(data: bytes) -> str:
    head = data[:LOOKED_AT]
    plain = encoding.is_utf8(data, whole=True) and b"\0" not in data and encoding.marked(head) is None
    try:
        words = data.decode("utf-8" if plain else _encoding(head) or "utf-8")
    except UnicodeError:
        raise NoReadableText from None
    if "\0" in words:
        raise NoReadableText
    return words


def _encoding(head: bytes) -> str | None:
    """The encoding of text that begins with these bytes, which are not plain UTF-8."""
    return encoding.marked(head) or encoding.utf16(head) or encoding.legacy(head)


def sound_type(head: bytes) -> str | None:
    """The MIME type of the recording that begins with these bytes; None where it is none."""
    if head.startswith(b"OggS"):
        return "audio/ogg"
    if head[4:8] == b"ftyp":
        return "audio/mp4"
    if head.startswith(b"ID3") or (head[:1] == b"\xff" and head[1:2] >= b"\xe0"):
        return "audio/mpeg"
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE":
        return "audio/wav"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "audio/webm"
    return "audio/flac" if head.startswith(b"fLaC") else None
