"""Matches wildcards, paths and URLs in linear time. Only symlinks are read."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

Match = Callable[[str], bool]
Parts = tuple[str, ...]
ReadLink = Callable[[str], str | None]
"""Function that returns the target of a symbolic link; None if there is no link at this path."""

ANY_DEPTH = "**"
LONGEST_PATH = 4_096
MOST_LINKS = 40
LONGEST_URL = 8_192
PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_ODD = re.compile(r"[\x00-\x20\x7f\\]")
_STEPS = re.compile(r"(?i)%(?:2e|2f|5c|25)|/\.{1,2}(?:/|$)")


def glob(pattern: str) -> Match:
    """Return a function that tests if a whole text matches. `*` stands for any characters, `?` for one character."""
    if "*" not in pattern and "?" not in pattern:
        return pattern.__eq__
    first, *rest = [re.escape(piece).replace(r"\?", ".") for piece in pattern.split("*")]
    # The leftmost match of each piece is sufficient, so atomic groups are used and nothing is tried twice.
    whole = first + "".join(f"(?>.*?{piece})" for piece in rest[:-1]) + (".*" + rest[-1] if rest else "")
    matches = re.compile(whole, re.DOTALL).fullmatch
    return lambda words: matches(words) is not None


def path_glob(parts: Sequence[str]) -> Callable[[Sequence[str]], bool]:
    """Return a function that tests if a path's parts match these parts. `**` stands for any number of parts."""
    pattern = [None if part == ANY_DEPTH else glob(part) for part in parts]

    def matches(path: Sequence[str]) -> bool:
        # Numbers of path parts that the pattern parts up to here can match.
        taken = {0}
        for part in pattern:
            if part is None:
                taken = set(range(min(taken), len(path) + 1))
            else:
                taken = {at + 1 for at in taken if at < len(path) and part(path[at])}
            if not taken:
                return False
        return len(path) in taken

    return matches


@dataclass(frozen=True, slots=True)
class ResolvedPath:
    """A resolved path. `real` are its parts with all links resolved; None if it cannot be resolved. `forms` are all
    spellings of the path: as written, and with each link replaced in turn.
    """

    real: Parts | None
    forms: tuple[Parts, ...]


class Paths:
    """Resolves paths relative to a root folder. `readlink` reads symbolic links; nothing else is read."""

    def __init__(self, root: str, readlink: ReadLink) -> None:
        self._readlink = readlink
        self.root: Parts = ()
        real = self.place(root).real
        if real is None:
            raise ValueError("the root leads nowhere")
        self.root = real

    def place(self, path: str) -> ResolvedPath:
        """Return the resolved path. A relative path is resolved against the root."""
        if not path or "\0" in path or len(path) > LONGEST_PATH:
            return ResolvedPath(None, ())
        left = _split(path)
        done: list[str] = [] if path.startswith("/") else list(self.root)
        forms = [_lexical(done, left)]
        links = 0
        while left:
            part = left.pop(0)
            if part == "..":
                done = done[:-1]
                continue
            target = self._readlink("/" + "/".join([*done, part]))
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > MOST_LINKS:
                return ResolvedPath(None, tuple(forms))
            forms.append(_lexical([*done, part], left))
            if target.startswith("/"):
                done = []
            left = _split(target) + left
        return ResolvedPath(tuple(done), tuple(dict.fromkeys([tuple(done), *forms])))


def _split(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _lexical(done: list[str], left: list[str]) -> Parts:
    return tuple(_split(posixpath.normpath("/" + "/".join([*done, *left]))))


@dataclass(frozen=True, slots=True)
class Url:
    """A URL that all URL parsers read in the same way. `plain` means that it has no user name and no path segment such
    as `..`. `literal` means that its path has only one spelling. Then no other spelling can evade a deny rule.
    """

    scheme: str
    host: str
    port: int
    path: str
    plain: bool
    literal: bool


def read_url(address: str) -> Url | None:
    """Return the parts of a URL; None if URL parsers may disagree on it."""
    if len(address) > LONGEST_URL or _ODD.search(address):
        return None
    try:
        parts = urlsplit(address)
        port = parts.port
        host = (parts.hostname or "").rstrip(".").encode("idna").decode().lower()
    except (ValueError, UnicodeError):
        return None
    if not host or parts.scheme not in PORTS:
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    plain = "@" not in parts.netloc and not _STEPS.search(parts.path)
    literal = plain and "%" not in path and "//" not in path and ";" not in path
    return Url(parts.scheme, host, port or PORTS[parts.scheme], path, plain, literal)


def url_glob(pattern: str) -> tuple[Callable[[Url], bool], Match]:
    """Compile a URL pattern such as `*.example.org` or `https://example.org:8443/docs/*` to two functions. The first
    matches scheme, host and port, the second the path. Raises `ValueError` for an invalid pattern.
    """
    scheme, mark, rest = pattern.partition("://")
    scheme = scheme.lower() if mark else ""
    netloc, slash, path = (rest if mark else pattern).partition("/")
    name, colon, number = netloc.partition(":")
    host = name.lower().rstrip(".")
    host = host if host.isascii() else host.encode("idna").decode()
    if (scheme and scheme not in PORTS) or not _HOST.fullmatch(host) or (colon and not number.isdecimal()):
        raise ValueError("no address and no host")
    port = int(number) if colon else PORTS.get(scheme)

    def place(url: Url) -> bool:
        of_host = url.host.endswith(host[1:]) if host.startswith("*.") else url.host == host
        return of_host and scheme in {"", url.scheme} and port in {None, url.port}

    return place, glob("/" + path) if slash and path else lambda _: True
