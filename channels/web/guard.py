"""Decides who may use the web page, from the request's origin, cookie and token, and from the client's system user.

An IP address proves no identity. If a token is set, requests from this machine need it too. Without a token, only the user
who started Shipmate may use the page. This user is recognised if the kernel names the user as the owner of the client's
process, or if the browser has opened a one-time link. Behind a proxy, the client's process is the proxy, so a token is needed.

    web.json    {"v": 1, "key": "…", "name": "shipmate-….localhost", "address": "http://127.0.0.1:3000"}
    links/      one file for each unused link; the file's name is the hash of the link's key
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import ipaddress
import json
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from aiohttp import web

from bot.contracts.channel import PROXY_HEADERS, ChannelDeps, is_loopback
from bot.contracts.identity import UserRef
from channels.web.manifest import NAME, WebSettings

PIECE, UPLOADS = "application/octet-stream", "/api/files/"  # MIME type and path of a piece of an upload
COOKIE = "shipmate_web"
"""Name of the cookie. The cookie's value is `<secret>.<user>.<seal>`: a random secret, the system user who may use the cookie,
and a signature.
"""
_COOKIE = re.compile(r"([0-9a-f]{32})\.(\d{1,10}o?|-o?)\.([0-9a-f]{64})")
_ANYBODY = "-"  # Replaces the user's id in a cookie if the browser gave the token or the user is unknown
_APPOINTED = "o"
"""Suffix of the user's id if the browser has opened a one-time link. An operator's browser needs a cookie with this suffix."""
_AGE = 400 * 24 * 3600  # Lifetime of the cookie in seconds, the longest that browsers allow
_SHARED = frozenset({"localhost", "127.0.0.1", "[::1]"})  # Host names that every server on this machine has
DELAY = 1.0  # Seconds for which a wrong token occupies one of `_AT_ONCE` slots for comparisons
_AT_ONCE = 8
FILE, LINKS = "web.json", "links"
LINK_SECONDS = 3600.0  # Lifetime of a one-time link in seconds
_KEY = re.compile(r"[A-Za-z0-9_-]{22}")
_HEX = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"shipmate-[a-z2-7]{16}\.localhost")
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


def for_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def name_of(request: web.Request) -> str:
    host = request.headers.get("Host", "").lower()
    return host if host.endswith("]") else re.sub(r":\d*$", "", host)


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser. `fresh`: the browser has no valid cookie yet. `admitted`: the browser may use the page. `appointed`: the
    browser has opened a one-time link. `peer` is the system user of the client's process; None if unknown.
    """

    secret: str
    fresh: bool
    admitted: bool
    peer: int | None = None
    appointed: bool = False

    @property
    def user(self) -> str:
        return _hash(self.secret)[:16]


VISITOR = web.RequestKey("visitor", Visitor)


class Refused(Exception):
    """Raised to answer a request with the HTTP error `status`. `key` names the sentence to show. `retry` is the `Retry-After`
    in seconds.
    """

    def __init__(self, status: int, key: str, retry: int | None = None, **values: object) -> None:
        super().__init__(key)
        self.status, self.key, self.retry, self.values = status, key, retry, values


class Guard:
    def __init__(self, settings: WebSettings, own: WebState, around: ChannelDeps) -> None:
        self._token = settings.token
        self.wants_token = settings.token is not None
        self._state = own
        self._around = around
        self._me = os.getuid()
        self._peers: WeakKeyDictionary[asyncio.BaseTransport, int | None] = WeakKeyDictionary()
        self._trials = asyncio.Semaphore(_AT_ONCE)
        host = for_url(settings.host)
        self._name = own.name if host in _SHARED else None
        self._names = {*_SHARED, own.name, host} if is_loopback(settings.host) else None

    async def admit(self, request: web.Request) -> None:
        """Recognise the browser that sent a request, and store it in the request as a `Visitor`. Raises `Refused` in
        four cases: the host name is unknown (on a loopback address, a sign of DNS rebinding), a page of another site caused the
        request, the body has a content type that forms of other sites can send, or the browser may not open the path.
        """
        host, api = name_of(request), request.path.startswith("/api/")
        if not host or (self._names is not None and host not in self._names):
            raise Refused(403, "web.not_mine")
        visitor = request[VISITOR] = await self._visitor(request)
        if (api or request.method != "GET") and not _same_origin(request):
            raise Refused(403, "web.not_mine")
        kind = PIECE if request.path.startswith(UPLOADS) else "application/json"
        if request.method == "POST" and request.content_type != kind:
            raise Refused(415, "web.unreadable")
        if not visitor.admitted and not request.path.startswith("/open/"):
            if not self.wants_token:
                raise Refused(403, "web.not_yours")
            if api:
                raise Refused(401, "web.log_in_first")

    async def _visitor(self, request: web.Request) -> Visitor:
        peer = await self._peer(request)
        match = _COOKIE.fullmatch(request.cookies.get(COOKIE, ""))
        if match is not None and hmac.compare_digest(match[3], self._seal(match[1], match[2])):
            appointed, user = match[2].endswith(_APPOINTED), match[2].removesuffix(_APPOINTED)
            # A program may know this secret from before the browser opened the link. The cookie from that time must not give an
            # operator's rights.
            if appointed or UserRef(NAME, _hash(match[1])[:16]) not in self._around.operators:
                admitted = user in {_ANYBODY, str(peer)}
                return Visitor(match[1], fresh=False, admitted=admitted, peer=peer, appointed=appointed)
        ours = not self.wants_token and peer == self._me
        return Visitor(secrets.token_hex(16), fresh=True, admitted=ours, peer=peer)

    async def _peer(self, request: web.Request) -> int | None:
        """Return the system user of the client's process; None if it is unknown or a proxy forwards the request."""
        transport = request.transport
        if transport is None or any(name in request.headers for name in PROXY_HEADERS):
            return None
        if transport not in self._peers:
            near, far = (transport.get_extra_info(end) for end in ("sockname", "peername"))
            known = bool(near and far) and ipaddress.ip_address(far[0].partition("%")[0]).is_loopback
            lookup = self._around.user_of
            self._peers[transport] = await asyncio.to_thread(lookup, near[:2], far[:2]) if known else None
        return self._peers[transport]

    async def fits(self, request: web.Request, token: str) -> bool:
        """Return True if `token` is the configured token. The comparison takes the same time for all tokens.

        At most eight wrong tokens are compared per second. Further attempts wait, unless their clients disconnect.
        """
        given, known = (
            hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (token, self._token or "")
        )
        await self._trials.acquire()
        here = request.transport is not None
        fits = here and hmac.compare_digest(given, known) and self.wants_token
        asyncio.get_running_loop().call_later(DELAY if here and not fits else 0.0, self._trials.release)
        return fits

    def give_cookie(self, request: web.Request, response: web.StreamResponse, visitor: Visitor) -> None:
        user = _ANYBODY if self.wants_token or visitor.peer is None else str(visitor.peer)
        user += _APPOINTED if visitor.appointed else ""
        cookie = f"{visitor.secret}.{user}.{self._seal(visitor.secret, user)}"
        secure = request.headers.get("Origin", "").startswith("https://")
        response.set_cookie(COOKIE, cookie, max_age=_AGE, httponly=True, samesite="Strict", secure=secure)

    def _seal(self, secret: str, user: str) -> str:
        """Return the signature of a cookie. A new token in the settings invalidates all signatures."""
        signed = f"{secret}\0{user}\0{self._token or ''}".encode("utf-8", "replace")
        return hmac.new(self._state.key, signed, hashlib.sha256).hexdigest()

    def better(self, request: web.Request, visitor: Visitor) -> str | None:
        """Return the page's address with this server's own host name. The browser is redirected there, so that it does not send
        its cookie to every server on `localhost`. Return None for programs, for a browser that uses this name already, and
        for Safari, which cannot resolve names below `localhost`.
        """
        agent = request.headers.get("User-Agent", "")
        if (
            self._name is None
            or name_of(request) not in _SHARED
            or request.headers.get("Sec-Fetch-Dest") != "document"
            or visitor.peer != self._me
            or ("Safari/" in agent and "Chrom" not in agent)
        ):
            return None
        port = request.headers["Host"].lower().removeprefix(name_of(request))
        return f"http://{self._name}{port}{request.path}"


def _same_origin(request: web.Request) -> bool:
    """Return False if the browser reports that a page of another site caused the request."""
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


# -- state in `.ship` ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WebState:
    """Stored state of the web channel. `key` signs cookies. `name` is a random host name that browsers resolve to this
    machine. Browsers send cookies of 127.0.0.1 to every port, but cookies of `name` only to this server, because no other
    server knows the name.
    """

    key: bytes
    name: str


def load(home: Path) -> WebState:
    """Read the state, or create it. If the file is unreadable, replace it, which invalidates all cookies."""
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
    """Store the page's address for one-time links. Remove older links, because they contain the former address."""
    for link in sorted((home / LINKS).glob("*")):
        link.unlink(missing_ok=True)
    _write(home, {**_read(home), "address": address})


def create_link(home: Path) -> str:
    """Return a new one-time link. Raises LookupError if the page was never served, and OSError."""
    address = _read(home).get("address")
    if address is None:
        raise LookupError(FILE)
    now = time.time()
    for link in sorted((home / LINKS).glob("*")):
        with contextlib.suppress(OSError):
            if link.stat().st_mtime < now - LINK_SECONDS:
                link.unlink()
    key = secrets.token_urlsafe(16)
    (home / LINKS).mkdir(mode=0o700, exist_ok=True)
    put_back(home, key)
    return f"{address}/open/{key}"


def put_back(home: Path, key: str) -> None:
    """Make the link with this key valid for one use, even if it was used before. Raises OSError."""
    os.close(os.open(home / LINKS / _hash(key), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def redeem(home: Path, key: str) -> bool:
    """Mark the link with this key as used. Return False if no unused link has this key."""
    if _KEY.fullmatch(key) is None:
        return False
    link = home / LINKS / _hash(key)
    try:
        fresh = link.stat().st_mtime >= time.time() - LINK_SECONDS
        link.unlink()  # the second of two concurrent attempts raises OSError
    except OSError:
        return False
    return fresh


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


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
