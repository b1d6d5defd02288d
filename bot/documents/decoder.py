"""Recognises the type of a sent file by its bytes. The file's name is ignored."""

from __future__ import annotations

from typing import Literal

from bot.documents import encoding
from bot.documents.pictures import is_picture
from bot.errors import NoReadableText

Kind = Literal["text", "picture", "pdf", "office", "recording"]
OLD_OFFICE = "it is protected, or in an old Office format"


class Decoder:
    """Collects the bytes of one file. If `spoken` is True, the file must be a recording. If `spoken` is
    False, a recording is refused.
    """

    def __init__(self, *, spoken: bool = False) -> None:
        self._spoken = spoken
        self._bytes = bytearray()
        self._checked = False

    @property
    def data(self) -> bytes:
        return bytes(self._bytes)

    @property
    def size(self) -> int:
        return len(self._bytes)

    @property
    def kind(self) -> Kind:
        """Return the file's type, judged by its first bytes. `text` is a guess until the method `text` has
        decoded the file.
        """
        head = bytes(self._bytes[:16])
        if self._spoken:
            return "recording"
        if head.startswith(b"PK\x03\x04"):
            return "office"
        if head.startswith(b"%PDF-"):
            return "pdf"
        return "picture" if is_picture(head) else "text"

    def take(self, piece: bytes) -> None:
        """Add the next bytes. Raises `NoReadableText` as soon as the bytes cannot be a readable file."""
        self._bytes += piece
        if not self._checked and len(self._bytes) >= encoding.SAMPLE:
            self._check()

    def text(self) -> str:
        """Return the decoded text. Blocks for up to a second. Raises `NoReadableText`."""
        self._check()
        words = encoding.decode(self.data)
        if words is None:
            raise NoReadableText
        return words

    def recording_type(self) -> str:
        """Return the MIME type of a recording. Raises `NoReadableText` if the file is not a recording."""
        self._check()
        return _recording_type(self._bytes) or ""

    def _check(self) -> None:
        self._checked = True
        if self.kind == "recording" and _recording_type(self._bytes) is None:
            raise NoReadableText
        if self.kind == "text" and self._bytes.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
            raise NoReadableText(OLD_OFFICE, "old_office")
        if self.kind == "text" and not encoding.may_be_text(bytes(self._bytes[: encoding.SAMPLE])):
            raise NoReadableText


def _recording_type(head: bytearray) -> str | None:
    if head.startswith(b"OggS"):
        return "audio/ogg"
    if head[4:8] == b"ftyp":
        return "audio/mp4"
    if head.startswith(b"ID3") or (head[:1] == b"\xff" and head[1:2] >= b"\xe0"):
        return "audio/mpeg"
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        return "audio/wav"
    if head.startswith(b"\x1a\x45\xdf\xa3"):
        return "audio/webm"
    return "audio/flac" if head.startswith(b"fLaC") else None
