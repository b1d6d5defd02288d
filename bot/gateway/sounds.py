"""Recordings, told by their first bytes."""

from __future__ import annotations

MARK = 16
"""Bytes by which one is known."""


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
