"""State of the web channel in `.ship`: the key that signs cookies, the page's own host name, and one-time links.

    web.json    {"v": 1, "key": "…", "name": "shipmate-….localhost", "address": "http://127.0.0.1:3000"}
    links/      one file for each unused link; the file's name is the hash of the link's key

Only the user who started Shipmate can write these files. All functions block.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

FILE = "web.json"
LINKS = "links"
SECONDS = 3600.0
"""Lifetime of a one-time link in seconds."""
_KEY = re.compile(r"[A-Za-z0-9_-]{22}")
_HEX = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"shipmate-[a-z2-7]{16}\.localhost")
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


@dataclass(frozen=True, slots=True)
class WebState:
    """State of the web channel. `key` signs cookies. Browsers resolve the host `name` to this machine.
    Nobody can guess the name, so no other server receives its cookies; browsers send cookies of 127.0.0.1
    to every port of this machine.
    """

    key: bytes
    name: str


def load(home: Path) -> WebState:
    """Read the state, or create it. An unreadable file is replaced, which invalidates all cookies."""
    kept = _read(home)
    key, name = kept.get("key"), kept.get("name")
    if isinstance(key, str) and isinstance(name, str) and _HEX.fullmatch(key) and _NAME.fullmatch(name):
        return WebState(bytes.fromhex(key), name)
    own = WebState(
        secrets.token_bytes(32), f"shipmate-{''.join(secrets.choice(_LETTERS) for _ in range(16))}.localhost"
    )
    _write(home, {"v": 1, "key": own.key.hex(), "name": own.name})
    return own


def save_address(home: Path, address: str) -> None:
    """Save the page's address for new links. Earlier links are removed, since they contain another address."""
    for link in _links(home):
        link.unlink(missing_ok=True)
    _write(home, {**_read(home), "address": address})


def create_link(home: Path) -> str:
    """Return a new one-time link. Raises OSError, and LookupError if the page has never been served."""
    address = _read(home).get("address")
    if address is None:
        raise LookupError(FILE)
    now = time.time()
    for link in _links(home):
        with contextlib.suppress(OSError):
            if link.stat().st_mtime < now - SECONDS:
                link.unlink()
    key = secrets.token_urlsafe(16)
    (home / LINKS).mkdir(mode=0o700, exist_ok=True)
    put_back(home, key)
    return f"{address}/open/{key}"


def put_back(home: Path, key: str) -> None:
    """Make a link with this key valid for one use: a new link, or a used link after a failure. Raises OSError."""
    os.close(os.open(home / LINKS / _hash(key), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def redeem(home: Path, key: str) -> bool:
    """Return True if this is the key of an unused link, and mark the link as used."""
    if _KEY.fullmatch(key) is None:
        return False
    link = home / LINKS / _hash(key)
    try:
        fresh = link.stat().st_mtime >= time.time() - SECONDS
        link.unlink()  # only one of two concurrent attempts succeeds
    except OSError:
        return False
    return fresh


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode("ascii")).hexdigest()


def _links(home: Path) -> list[Path]:
    return sorted((home / LINKS).glob("*"))


def _read(home: Path) -> dict[str, object]:
    try:
        kept = json.loads((home / FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _write(home: Path, kept: dict[str, object]) -> None:
    new = home / f"{FILE}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(json.dumps(kept).encode() + b"\n")
    new.replace(home / FILE)
