"""File names of conversations: any string is a safe name, and two strings never share one."""

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
    """A file name for a conversation, or for any other text. Every byte outside `A-Z a-z 0-9 _ -` as %XX; over 200 bytes the first 120, `~`, 16 hex digits of SHA-256.

    A name holds neither `.` nor `/`, so nothing that is put behind it can be mistaken for a part of it.
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
    """The text of a name, as that of a chatKey; None where it is hashed, or no name of ours."""
    if _PLAIN.fullmatch(name) is None:
        return None
    raw = _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), name.encode("ascii"))
    try:
        text = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return text if encode(text) == name else None


def is_hashed(name: str) -> bool:
    """True if a name is one of those that do not tell their chatKey. No chatKey is of that form, which has no colon."""
    return _HASHED.fullmatch(name) is not None
