"""File names of conversations: any text maps to a safe name, and no two texts share one."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

from bot.contracts.identity import ChatKey

LONGEST = 200
_KNOWN = 4_096  # names that are remembered
_UNSAFE = re.compile(rb"[^A-Za-z0-9_-]")
_PLAIN = re.compile(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})*")
_HASHED = re.compile(r"[A-Za-z0-9_%-]{120}~[0-9a-f]{16}")
_ESCAPE = re.compile(rb"%([0-9A-F]{2})")


def encode(text: ChatKey | str) -> str:
    """Return a file name for any text: bytes outside `A-Z a-z 0-9 _ -` become %XX; over 200 bytes, the first
    120, `~` and 16 hex digits of the SHA-256.

    A name contains neither `.` nor `/`, so a suffix cannot be confused with it.
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
    """Return the text of a name; None if it is hashed or not ours."""
    if _PLAIN.fullmatch(name) is None:
        return None
    raw = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), name.encode("ascii"))
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if encode(text) == name else None


def is_hashed(name: str) -> bool:
    """Return True if a name is hashed. No chatKey looks like that, since each has a colon."""
    return _HASHED.fullmatch(name) is not None
