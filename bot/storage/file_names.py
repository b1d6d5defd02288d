"""Maps chatKeys and other texts to safe file names. Different texts have different names."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from bot.contracts.identity import ChatKey

LONGEST = 200
_KNOWN = 4_096  # max cached names
_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_PLAIN = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})*")
_HASHED = re.compile(r"[A-Za-z0-9_%-]{120}~[0-9a-f]{16}")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")


def encode(text: ChatKey | str) -> str:
    """Return a file name for any text. Bytes other than `A-Z a-z 0-9 _ -` become %XX. A name of more than 200 bytes is hashed:
    it becomes its first 120 bytes, `~` and 16 hex digits of the text's SHA-256. A name never contains `.` or `/`.
    """
    return _encoded(str(text))


@lru_cache(_KNOWN)
def _encoded(text: str) -> str:
    raw = text.encode("utf-8", "surrogatepass")
    name = _UNSAFE.sub(lambda found: b"%%%02X" % found[0][0], raw).decode("ascii")
    if len(name) <= LONGEST:
        return name
    return f"{name[:120]}~{hashlib.sha256(raw).hexdigest()[:16]}"


def decode(name: str) -> str | None:
    """Return the text from which `encode` made a file name; None if the name is hashed, or not from `encode`."""
    if _PLAIN.fullmatch(name) is None:
        return None
    raw = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), name.encode("ascii"))
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if encode(text) == name else None


def is_hashed(name: str) -> bool:
    """Return True if a file name is hashed. A chatKey is never taken for a hashed name, because it contains a colon."""
    return _HASHED.fullmatch(name) is not None
