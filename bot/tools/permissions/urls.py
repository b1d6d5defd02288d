"""URL patterns of rules, such as `example.org`, `*.example.org` and `https://example.org:8443/docs/*`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from bot.tools.permissions.globs import glob

LONGEST = 8_192
_HOST = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*")
_PORTS = {"http": 80, "https": 443}
_ODD = re.compile(r"[\x00-\x20\x7f\\]")
_STEPS = re.compile(r"(?i)%(?:2e|2f|5c|25)|/\.{1,2}(?:/|$)")


@dataclass(frozen=True, slots=True)
class Url:
    """A URL that all URL parsers read in the same way. `plain` means that there is no user name and no path
    segment such as `..`. `literal` means that the path has only one spelling, so that a deny rule for it
    cannot be evaded.
    """

    scheme: str
    host: str
    port: int
    path: str
    plain: bool
    literal: bool


def read(address: str) -> Url | None:
    """Return the parts of a URL; None if URL parsers may disagree on it."""
    if len(address) > LONGEST or _ODD.search(address):
        return None
    try:
        parts = urlsplit(address)
        port = parts.port
        host = (parts.hostname or "").rstrip(".").encode("idna").decode().lower()
    except (ValueError, UnicodeError):
        return None
    if not host or parts.scheme not in _PORTS:
        return None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    plain = "@" not in parts.netloc and not _STEPS.search(parts.path)
    literal = plain and "%" not in path and "//" not in path and ";" not in path
    return Url(parts.scheme, host, port or _PORTS[parts.scheme], path, plain, literal)


@dataclass(frozen=True, slots=True)
class UrlGlob:
    """A compiled URL pattern. `place` matches scheme, host and port; `path` matches the rest."""

    place: Callable[[Url], bool]
    path: Callable[[str], bool]


def url_glob(pattern: str) -> UrlGlob:
    """Return a compiled URL pattern. Raises `ValueError` for an invalid pattern."""
    scheme, mark, rest = pattern.partition("://")
    scheme = scheme.lower() if mark else ""
    if scheme and scheme not in _PORTS:
        raise ValueError("an address begins with https:// or http://, or with the name of a host")
    netloc, slash, path = (rest if mark else pattern).partition("/")
    name, colon, number = netloc.partition(":")
    host = name.lower().rstrip(".")
    if not host.isascii():
        host = host.encode("idna").decode()
    if not _HOST.fullmatch(host) or (colon and not number.isdecimal()):
        raise ValueError("the host of an address is a name such as example.org or *.example.org")
    port = int(number) if colon else _PORTS.get(scheme)
    of_host = _host_glob(host)

    def place(url: Url) -> bool:
        return (
            (not scheme or url.scheme == scheme) and (port is None or url.port == port) and of_host(url.host)
        )

    return UrlGlob(place, glob("/" + path) if slash and path else lambda _: True)


def _host_glob(host: str) -> Callable[[str], bool]:
    if host.startswith("*."):
        return lambda name: name.endswith(host[1:])
    return host.__eq__
