"""Decides who may use the web page, by the request's origin, the cookie, the token, and the system user of
the client's process.

An IP address proves no identity, so with a token set, requests from this machine need the token too. Without
a token, only the user who started Shipmate may use the page: either the kernel names the system user of the
client's process, or the browser has opened a one-time link. Behind a proxy the client's process is the proxy,
so a token is needed there.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, WeakValueDictionary

from aiohttp import web

from bot.contracts.channel import PROXY_HEADERS, is_loopback
from bot.contracts.environment import Clock
from bot.contracts.identity import UserRef
from channels.web.settings import NAME
from channels.web.state import WebState

COOKIE = "shipmate_web"
"""Name of the cookie. Its value is `<secret>.<user>.<seal>`: a secret of the browser, the id of the system
user who may use the cookie, and a signature.
"""
_COOKIE = re.compile(r"([0-9a-f]{32})\.(\d{1,10}o?|-o?)\.([0-9a-f]{64})")
_ANYBODY = "-"
"""Value in place of the user's id, if the browser gave the token or the user was unknown."""
_APPOINTED = "o"
"""Suffix of the user's id, if the browser has opened a one-time link. Only such a cookie makes the browser
an operator.
"""
_AGE = 400 * 24 * 3600
"""Lifetime of the cookie in seconds: the longest that browsers allow."""
_SHARED = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Host names that all servers on this machine have."""
_WINDOW = 60.0
"""Seconds for which a wrong token counts."""
_FREE = 5
"""Max wrong tokens of a network within `_WINDOW` seconds, before further attempts are delayed."""
_DELAY = 1.0
"""Seconds by which an attempt is delayed."""
_AT_ONCE = 8
"""Max attempts of a network that are delayed at the same time. Further attempts queue."""
_WATCHED = 1000
"""Max networks whose wrong tokens are remembered."""


def for_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def name_of(request: web.Request) -> str:
    """Return the host of a request, without the port."""
    host = request.headers.get("Host", "").lower()
    return host if host.endswith("]") else re.sub(r":\d*$", "", host)


@dataclass(frozen=True, slots=True)
class Visitor:
    """One browser. `fresh`: it has no valid cookie yet. `admitted`: it may use the page. `peer`: the system
    user of the client's process, if known. `appointed`: it has opened a one-time link.
    """

    secret: str
    fresh: bool
    admitted: bool
    peer: int | None = None
    appointed: bool = False

    @property
    def user(self) -> str:
        return _user(self.secret)


class Guard:
    """Checks requests. `user_of` and `operators` are described in `contracts.channel.ChannelDeps`."""

    def __init__(
        self,
        *,
        host: str,
        token: str | None,
        own: WebState,
        operators: Collection[UserRef],
        user_of: Callable[[tuple[str, int], tuple[str, int]], int | None],
    ) -> None:
        self._token = token
        self._state = own
        self._operators = operators
        self._user_of = user_of
        self._me = os.getuid()
        self._peers: WeakKeyDictionary[asyncio.BaseTransport, int | None] = WeakKeyDictionary()
        shared = for_url(host) in _SHARED
        self._name = own.name if shared else None
        self._names = {*_SHARED, own.name, for_url(host)} if is_loopback(host) else None

    @property
    def wants_token(self) -> bool:
        return self._token is not None

    def knows_host(self, request: web.Request) -> bool:
        """Return True if the request names a host of this server. Any other name for a loopback address
        means a DNS rebinding attack.
        """
        name = name_of(request)
        return bool(name) and (self._names is None or name in self._names)

    @staticmethod
    def same_origin(request: web.Request) -> bool:
        """Return True unless the browser reports that a page of another site caused the request."""
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

    async def visitor(self, request: web.Request) -> Visitor:
        peer = await self._peer(request)
        match = _COOKIE.fullmatch(request.cookies.get(COOKIE, ""))
        if match is not None and hmac.compare_digest(match[3], self._seal(match[1], match[2])):
            appointed, user = match[2].endswith(_APPOINTED), match[2].removesuffix(_APPOINTED)
            # A program that knew the secret before the browser opened the link must not become an operator.
            if appointed or not self._operates(match[1]):
                admitted = user in {_ANYBODY, str(peer)}
                return Visitor(match[1], fresh=False, admitted=admitted, peer=peer, appointed=appointed)
        ours = not self.wants_token and peer == self._me
        return Visitor(secrets.token_hex(16), fresh=True, admitted=ours, peer=peer)

    def _operates(self, secret: str) -> bool:
        return UserRef(NAME, _user(secret)) in self._operators

    async def _peer(self, request: web.Request) -> int | None:
        """Return the system user of the client's process, which is looked up once for each connection."""
        transport = request.transport
        if transport is None or any(name in request.headers for name in PROXY_HEADERS):
            return None
        if transport not in self._peers:
            near, far = (transport.get_extra_info(end) for end in ("sockname", "peername"))
            known = bool(near and far) and ipaddress.ip_address(far[0].partition("%")[0]).is_loopback
            self._peers[transport] = (
                await asyncio.to_thread(self._user_of, near[:2], far[:2]) if known else None
            )
        return self._peers[transport]

    def fits(self, token: str) -> bool:
        """Return True if this is the token. The comparison takes the same time for every input of any length."""
        given, known = (
            hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (token, self._token or "")
        )
        return hmac.compare_digest(given, known) and self.wants_token

    def give_cookie(self, request: web.Request, response: web.StreamResponse, visitor: Visitor) -> None:
        user = _ANYBODY if self.wants_token or visitor.peer is None else str(visitor.peer)
        user += _APPOINTED if visitor.appointed else ""
        response.set_cookie(
            COOKIE,
            f"{visitor.secret}.{user}.{self._seal(visitor.secret, user)}",
            max_age=_AGE,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=request.headers.get("Origin", "").startswith("https://"),
        )

    def _seal(self, secret: str, user: str) -> str:
        """Return the signature of a cookie. A change of the token makes the signature invalid."""
        signed = f"{secret}\0{user}\0{self._token or ''}".encode("utf-8", "replace")
        return hmac.new(self._state.key, signed, hashlib.sha256).hexdigest()

    def better(self, request: web.Request, visitor: Visitor) -> str | None:
        """Return the address with this server's own host name, to which the browser is redirected from a
        shared name: browsers send cookies of `localhost` to every server on this machine. Return None for
        programs and for Safari, which does not resolve names below `localhost`.
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


class LoginThrottle:
    """Slows down a network after wrong tokens: to eight attempts a second, in order. No attempt is refused,
    since other people may use the same address. The limit of connections bounds how many attempts wait.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def turn(self, address: str, waits: Callable[[], bool]) -> None:
        """Wait until a token from this address may be compared. If `waits` returns False, the client has
        gone and its place is freed at once.
        """
        network = _network(address)
        failed = self._failed.get(network, deque())
        while failed and failed[0] <= self._clock.monotonic() - _WINDOW:
            failed.popleft()
        if len(failed) < _FREE:
            return
        places = self._places.setdefault(network, asyncio.Semaphore(_AT_ONCE))
        async with places:
            if waits():
                await self._clock.sleep(_DELAY)

    def failed(self, address: str) -> None:
        network = _network(address)
        self._failed.setdefault(network, deque(maxlen=_FREE)).append(self._clock.monotonic())
        self._failed.move_to_end(network)
        while len(self._failed) > _WATCHED:
            self._failed.popitem(last=False)


def _user(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()[:16]


def _network(address: str) -> str:
    """Return the network of an address. For IPv6 this is the /64 network, since one household has all of its
    addresses.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((parsed, 64), strict=False))
    return address
