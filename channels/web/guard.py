"""Decides who may use the web page: by the request's origin, the user of the asking program, the browser's cookie, the
token.

An address is no identity: with a token set, requests from this machine need it as all others do. Without one the page
is for the user who started Shipmate: the kernel says whose program is at the other end of a connection, or the browser
has opened a link that works once. Behind a proxy the other end is the proxy, so there a token is needed.
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
from dataclasses import dataclass, replace
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, WeakValueDictionary

from aiohttp import web

from bot.contracts.channel import PROXY_HEADERS, is_loopback
from bot.contracts.environment import Clock
from bot.contracts.identity import UserRef
from channels.web.settings import NAME
from channels.web.state import WebState

COOKIE = "shipmate_web"
_COOKIE = re.compile(r"([0-9a-f]{32})(?:\.(?:(\d{1,10}o?|-o?)\.)?([0-9a-f]{64}))?")
_ANYBODY = "-"
"""In a cookie that counts for any user: it was given for the token, or where users cannot be told apart."""
_APPOINTED = "o"
"""Behind that in the cookie of a browser that has opened a link: only such a cookie is an operator's."""
_AGE = 400 * 24 * 3600
"""Seconds a browser keeps the cookie; no browser keeps one longer."""
_SHARED = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names under which every program of this machine can be asked."""
_MOVES, _MOVE_SECONDS = 100, 60.0
_FREE, _WINDOW, _WATCHED = 5, 60.0, 1000
_SLOW, _AT_ONCE = 1.0, 8


def for_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host.lower()


def name_of(request: web.Request) -> str:
    """The host that a request asks for, without its port."""
    host = request.headers.get("Host", "").lower()
    return host if host.endswith("]") else re.sub(r":\d*$", "", host)


@dataclass(frozen=True, slots=True)
class Visitor:
    """One browser. `fresh` where its cookie is to be given (again); `admitted` where it may talk. `peer` is the user whose
    program asks, None where that is not known. `appointed` where a link that works once was opened with it.
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
    """`user_of` and `operators` as `contracts.channel.ChannelDeps` has them."""

    def __init__(
        self,
        *,
        host: str,
        token: str | None,
        own: WebState,
        clock: Clock,
        operators: Collection[UserRef],
        user_of: Callable[[tuple[str, int], tuple[str, int]], int | None],
    ) -> None:
        self._token = token
        self._state = own
        self._clock = clock
        self._operators = operators
        self._user_of = user_of
        self._me = os.getuid()
        self._peers: WeakKeyDictionary[asyncio.BaseTransport, int | None] = WeakKeyDictionary()
        self._moves: OrderedDict[str, tuple[str, bool, float]] = OrderedDict()
        shared = for_url(host) in _SHARED
        self._name = own.name if shared else None
        self._names = {*_SHARED, own.name, for_url(host)} if is_loopback(host) else None

    @property
    def wants_token(self) -> bool:
        return self._token is not None

    def knows_host(self, request: web.Request) -> bool:
        """True if the request names a host that is ours. Any other name that leads to a loopback address is an
        attacker's, pointed here to make a browser read this page for it.
        """
        name = name_of(request)
        return bool(name) and (self._names is None or name in self._names)

    @staticmethod
    def same_origin(request: web.Request) -> bool:
        """True if no other site's page caused the request, as far as the browser says."""
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
        ours = not self.wants_token and peer == self._me
        if match is not None:
            secret, who, proof = match[1], match[2], match[3]
            sealed = proof is not None and hmac.compare_digest(proof, self._proof(secret, who))
            if sealed and who is not None:
                appointed, whose = who.endswith(_APPOINTED), who.removesuffix(_APPOINTED)
                # A program of the same user that knew the secret before the link was opened is no operator by it.
                if appointed or not self._operates(secret):
                    admitted = whose in {_ANYBODY, str(peer)}
                    return Visitor(secret, fresh=False, admitted=admitted, peer=peer, appointed=appointed)
                return Visitor(secrets.token_hex(16), fresh=True, admitted=ours, peer=peer)
            # Cookies of before had no seal, or one of the token alone. What is not sealed names a chat, and no operator.
            if (sealed and self.wants_token) or (ours and not self._operates(secret)):
                return Visitor(secret, fresh=True, admitted=True, peer=peer)
        return Visitor(secrets.token_hex(16), fresh=True, admitted=ours, peer=peer)

    def _operates(self, secret: str) -> bool:
        return UserRef(NAME, _user(secret)) in self._operators

    async def _peer(self, request: web.Request) -> int | None:
        """The user whose program is at the other end, asked once of each connection."""
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
        """Compare in constant time, the length included."""
        given, known = (
            hashlib.sha256(text.encode("utf-8", "replace")).digest() for text in (token, self._token or "")
        )
        return hmac.compare_digest(given, known) and self.wants_token

    def give_cookie(self, request: web.Request, response: web.StreamResponse, visitor: Visitor) -> None:
        who = _ANYBODY if self.wants_token or visitor.peer is None else str(visitor.peer)
        who += _APPOINTED if visitor.appointed else ""
        response.set_cookie(
            COOKIE,
            f"{visitor.secret}.{who}.{self._proof(visitor.secret, who)}",
            max_age=_AGE,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=request.headers.get("Origin", "").startswith("https://"),
        )

    def _proof(self, secret: str, who: str | None) -> str:
        """Shows that this browser was let in; void once the token changes."""
        if who is None:
            key = hashlib.sha256(f"shipmate web session\0{self._token}".encode("utf-8", "replace")).digest()
            return hmac.new(key, secret.encode("ascii"), hashlib.sha256).hexdigest()
        said = f"{secret}\0{who}\0{self._token or ''}".encode("utf-8", "replace")
        return hmac.new(self._state.key, said, hashlib.sha256).hexdigest()

    # -- the own name ----------------------------------------------------------------------------------------

    def better(self, request: web.Request, visitor: Visitor) -> str | None:
        """The address to which a person's browser is redirected from a shared host name; None where it may stay.
        Programs are left where they are, and so is Safari, which knows no names below `localhost`.
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
        path = request.path
        known = request.cookies.get(COOKIE, "").startswith(visitor.secret)
        if path == "/" and visitor.admitted and known:
            path = f"/move/{self._move(visitor)}"
        return f"http://{self._name}{port}{path}"

    def _move(self, visitor: Visitor) -> str:
        """A key by which a chat goes from a shared name to the own one."""
        key = secrets.token_urlsafe(16)
        self._moves[key] = (visitor.secret, visitor.appointed, self._clock.monotonic() + _MOVE_SECONDS)
        while len(self._moves) > _MOVES:
            self._moves.popitem(last=False)
        return key

    def moved(self, key: str, visitor: Visitor) -> Visitor:
        """The browser that such a key was made for, once; the visitor where there is none."""
        secret, appointed, until = self._moves.pop(key, ("", False, 0.0))
        if until <= self._clock.monotonic():
            return visitor
        return replace(visitor, secret=secret, appointed=appointed)


class LoginThrottle:
    """Slows the tries of a network after wrong tokens: eight a second, in the order in which they came. Nobody is refused, since
    others may be behind the same address; the cap of connections bounds how many wait.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()
        self._places: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def turn(self, address: str, waits: Callable[[], bool]) -> None:
        """Return once a token from this address may be looked at: at once for five wrong ones a minute, then a second after it
        got one of eight places. A place is not kept for one who no longer `waits`.
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
                await self._clock.sleep(_SLOW)

    def failed(self, address: str) -> None:
        network = _network(address)
        self._failed.setdefault(network, deque(maxlen=_FREE)).append(self._clock.monotonic())
        self._failed.move_to_end(network)
        while len(self._failed) > _WATCHED:
            self._failed.popitem(last=False)


def _user(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()[:16]


def _network(address: str) -> str:
    """One household has one IPv4 address, and 2^64 of IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.IPv6Network((parsed, 64), strict=False))
    return address
