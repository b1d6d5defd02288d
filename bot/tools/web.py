"""The HTTP client of the tools. In `bot.tools`, only this module and the MCP client open connections.

The host of each request is resolved once. All addresses of the host must be public, and the connection uses one of them. DNS
rebinding therefore has no effect. Proxies from the environment are not used. Cookies are not stored.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from bot import documents, errors, text
from bot.tools.permissions.patterns import PORTS, Url, read_url

_CLOSED_NETWORKS = """
    0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24
    192.52.193.0/24 192.88.99.0/24 192.168.0.0/16 192.175.48.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4
    240.0.0.0/4 168.63.129.16/32
    ::/8 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8
"""
"""Networks that tools must not reach: private, loopback, link-local, reserved and multicast networks, networks that embed IPv4
addresses (mapped, 6to4, Teredo), and a public address of Azure's internal services (168.63.129.16). The networks are listed
here because `ipaddress` differs between versions of Python.
"""
_CLOSED = tuple(map(ipaddress.ip_network, _CLOSED_NETWORKS.split()))
_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""The NAT64 network, whose IPv6 addresses embed IPv4 addresses."""
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})


def public(words: str) -> bool:
    """Return True for a public IP address. `words` is the address as a resolver returns it."""
    try:
        address = ipaddress.ip_address(words)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None or int(address) >> 32 & 0xFFFFFFFF in _ISATAP:
            return False
        if address in _TRANSLATED:
            return public(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
    return address.is_global and not any(
        address.version == network.version and address in network for network in _CLOSED
    )


SECONDS = 20.0  # Timeout in seconds of a whole fetch, including name resolution, redirects and the response
HOPS = 5
BYTES = 2_000_000
"""Max bytes of a response, both before and after decompression. The rest of a larger response is dropped."""
HEAD_BYTES = 16_384  # Max bytes of a header line
_AGENT = "Shipmate (a chat agent, fetching one page for a person)"
_HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|[0-9a-f.]*:[0-9a-f:.]*")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHARSET = re.compile(rb"""(?i)<meta[^>]{0,300}?charset\s{0,9}=\s{0,9}["']?\s{0,9}([a-z0-9_:.-]{1,40})""")
_TEXTUAL = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|javascript|x-ndjson|yaml|x-yaml|toml|xhtml)|"
)

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""Function that resolves host and port to IP addresses. Raises OSError."""
Headers = Iterable[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Page:
    """A response: final address, HTTP status, MIME type and text. `cut` means that the text is not complete."""

    address: str
    status: int
    kind: str
    words: str
    cut: bool = False


async def system_resolve(host: str, port: int) -> list[str]:
    """Return the IP addresses of a host, found by the system's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Web:
    """Fetches web pages. The function `public` decides which IP addresses are allowed. Only tests, and requests to addresses
    that operators set, use another function.
    """

    def __init__(
        self, sent: Headers = (), *, resolve: Resolve = system_resolve, public: Callable[[str], bool] = public
    ) -> None:
        self._resolve = resolve
        self._public = public
        self._headers = dict(sent) | {"Accept-Encoding": "gzip"}

    async def fetch(self, address: str) -> Page:
        """Fetch an address with GET. Follow redirects within the same host. Raises `errors.ToolError`."""
        try:
            async with asyncio.timeout(SECONDS):
                return await self._follow(address)
        except TimeoutError:
            raise errors.ToolError(f"The page did not come within {SECONDS:g} s.") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # Details of the error would let the model explore the local network.
            told = f"The page cannot be fetched: the connection failed ({type(error).__name__})."
            raise errors.ToolError(told) from None

    async def _follow(self, address: str) -> Page:
        began = _read(address)
        for _ in range(HOPS + 1):
            here = _read(address)
            if _site(here) != _site(began) or (began.scheme, here.scheme) == ("https", "http"):
                raise errors.ToolError(
                    f"It leads on to another host: {text.preview(address, 2_000)}. Fetch that, if it is what you want."
                )
            found = await self._hop(address, here)
            if isinstance(found, Page):
                return found
            address = urljoin(address, found).partition("#")[0]
        raise errors.ToolError(f"The address leads on more than {HOPS} times; nothing was fetched.")

    async def _hop(self, address: str, here: Url) -> Page | str:
        """Return the response, or the target of a redirect."""
        name = text.preview(here.host, 120)
        try:
            found = await self._resolve(here.host, here.port)
        except (OSError, UnicodeError):
            raise errors.ToolError(f"There is no host named {name}.") from None
        if not found or not all(map(self._public, found)):
            raise errors.ToolError(
                f"{name} is not at a public address. Only pages of the public web can be fetched."
            )
        # The URL is built from the checked parts. Otherwise another parser might find another host in the URL.
        host = f"[{here.host}]" if ":" in here.host else here.host
        target = f"{here.scheme}://{host}:{here.port}{here.path}"
        connector = aiohttp.TCPConnector(
            resolver=_Pinned(found), use_dns_cache=False, force_close=True, limit=1
        )
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=False,
                max_line_size=HEAD_BYTES,
                max_field_size=HEAD_BYTES,
                headers={"User-Agent": _AGENT, "Accept": "text/*, application/json;q=0.9, */*;q=0.1"},
                skip_auto_headers=("Accept-Encoding",),
            ) as session,
            session.get(target, allow_redirects=False, headers=self._headers) as answer,
        ):
            location = answer.headers.get("Location")
            if answer.status in _REDIRECTS and location is not None:
                return location
            kind = answer.content_type.lower() if "Content-Type" in answer.headers else ""
            raw, cut = await _body(answer) if _TEXTUAL.fullmatch(kind) else (b"", False)
            other = kind or documents.binary_kind(raw[: documents.SNIFF])
            if other and not _TEXTUAL.fullmatch(other):
                raise errors.ToolError(
                    f"This is {text.preview(other, 80)}, not text. Only text can be fetched."
                )
            # The encoding comes from the byte order mark, else from the header, else from the page's own declaration.
            own = _CHARSET.search(raw[:4_096])
            declared = own[1].decode("ascii") if own is not None else None
            names = (documents.bom_encoding(raw), answer.charset, declared)
            known = (codec for one in names if one is not None and (codec := documents.python_name(one)))
            return Page(address, answer.status, kind, raw.decode(next(known, "utf-8"), "replace"), cut)


@dataclass(eq=False)
class _Pinned(AbstractResolver):
    """Resolves every host name to the addresses that were checked."""

    found: Sequence[str]

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family
        numeric = socket.AI_NUMERICHOST
        return [
            ResolveResult(hostname=host, host=one, port=port, family=kind, proto=6, flags=numeric)
            for one in self.found
            for kind in [socket.AF_INET6 if ":" in one else socket.AF_INET]
        ]

    async def close(self) -> None:
        pass


def _read(address: str) -> Url:
    read = read_url(address)
    if read is None or not _HOST.fullmatch(read.host):
        raise errors.ToolError(
            "This is no address that can be fetched. Give one such as https://example.org/page, in full."
        )
    if "@" in urlsplit(address).netloc:
        raise errors.ToolError("An address with a user's name in it is not fetched.")
    return read


def _site(here: Url) -> tuple[str, int | None]:
    """Return the host without `www.`, and the port. A redirect is followed only if host and port stay the same."""
    return here.host.removeprefix("www."), None if here.port == PORTS[here.scheme] else here.port


async def _body(answer: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    packing = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if packing not in {"identity", "", "gzip", "x-gzip"}:
        raise errors.ToolError("The answer is packed in a way that was not asked for; it is not read.")
    unpack = zlib.decompressobj(16 + zlib.MAX_WBITS) if "gzip" in packing else None
    whole, came = bytearray(), 0
    async for piece in answer.content.iter_chunked(64 * 1024):
        came += len(piece)
        try:
            whole += piece if unpack is None else unpack.decompress(piece, BYTES + 1 - len(whole))
        except zlib.error:
            raise errors.ToolError("The answer is damaged; it cannot be unpacked.") from None
        if len(whole) > BYTES or came > BYTES:
            return bytes(whole[:BYTES]), True
    return bytes(whole), False
