"""Who may use the web page: the request's origin, the browser's cookie, the token.

An address is no identity: with a token set, requests from this machine need it as all others do.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
from collections import OrderedDict, deque
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web

from bot.contracts import Clock

COOKIE = "shipmate_web"
_COOKIE = re.compile(r"([0-9a-f]{32})(?:\.([0-9a-f]{64}))?")
_AGE = 400 * 24 * 3600
"""Seconds a browser keeps the cookie; no browser keeps one longer."""
_TRIES, _WINDOW, _WATCHED = 5, 60.0, 1000


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def for_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


@dataclass(frozen=True, slots=True)
class Visitor:
    """One browser. `fresh` where it has no cookie yet; `admitted` where it may talk."""

    secret: str
    fresh: bool
    admitted: bool

    @property
    def user(self) -> str:
        return hashlib.sha256(self.secret.encode("ascii")).hexdigest()[:16]


class Guard:
    def __init__(self, *, host: str, token: str | None) -> None:
        self._token = token
        self._names = {"localhost", "127.0.0.1", "[::1]", for_url(host)} if is_loopback(host) else None

    @property
    def wants_token(self) -> bool:
        return self._token is not None

    def knows_host(self, request: web.Request) -> bool:
        """Whether the request names a host that is ours. Any other one that leads to a loopback address is
        an attacker's name, pointed here to make a browser read this page for it.
        """
        host = request.headers.get("Host", "").lower()
        name = host if host.endswith("]") else re.sub(r":\d*$", "", host)
        return bool(name) and (self._names is None or name in self._names)

    @staticmethod
    def same_origin(request: web.Request) -> bool:
        """Whether no other site's page caused the request, as far as the browser says."""
        if request.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
            return False
        origin = request.headers.get("Origin")
        if origin is None:
            return True
        try:
            parts = urlsplit(origin.lower())
        except ValueError:
            return False
        return parts.scheme in {"http", "https"} and parts.netloc == request.headers.get("Host", "").lower()

    def visitor(self, request: web.Request) -> Visitor:
        match = _COOKIE.fullmatch(request.cookies.get(COOKIE, ""))
        if match is None:
            return Visitor(secrets.token_hex(16), fresh=True, admitted=not self.wants_token)
        secret, proof = match[1], match[2] or ""
        admitted = not self.wants_token or hmac.compare_digest(proof, self._proof(secret))
        return Visitor(secret, fresh=False, admitted=admitted)

    def fits(self, token: str) -> bool:
        """Compare in constant time, the length included."""
        given, known = (
            hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (token, self._token or "")
        )
        return hmac.compare_digest(given, known) and self.wants_token

    def give_cookie(self, request: web.Request, response: web.StreamResponse, visitor: Visitor) -> None:
        value = f"{visitor.secret}.{self._proof(visitor.secret)}" if self.wants_token else visitor.secret
        response.set_cookie(
            COOKIE,
            value,
            max_age=_AGE,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=request.headers.get("Origin", "").startswith("https://"),
        )

    def _proof(self, secret: str) -> str:
        """Shows that this browser gave the token; void once the token changes."""
        key = hashlib.sha256(f"shipmate web session\0{self._token}".encode("utf-8", "replace")).digest()
        return hmac.new(key, secret.encode("ascii"), hashlib.sha256).hexdigest()


class Tries:
    """Failed log-ins by address: five in a minute, then none until the first of them is a minute old."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, address: str) -> float:
        """Seconds until this address may try again; 0 where it may now."""
        failed = self._failed.get(_network(address), deque())
        while failed and failed[0] <= self._clock.monotonic() - _WINDOW:
            failed.popleft()
        return failed[0] + _WINDOW - self._clock.monotonic() if len(failed) >= _TRIES else 0.0

    def failed(self, address: str) -> None:
        network = _network(address)
        self._failed.setdefault(network, deque()).append(self._clock.monotonic())
        self._failed.move_to_end(network)
        while len(self._failed) > _WATCHED:
            self._failed.popitem(last=False)


def _network(address: str) -> str:
    """One household has one IPv4 address, and 2^64 of IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((parsed, 64), strict=False))
    return address
