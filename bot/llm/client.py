"""Anthropic's Messages API, and every endpoint that speaks it. The only module that imports the provider's library.

Importing it takes more than a second: do it before the event loop runs (`bot.llm.factory`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import getproxies, proxy_bypass

import anthropic
import httpx2

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.contracts.model import ModelFacts, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.llm import classify
from bot.llm.body import COMPACTION, body_of, headers_of, pieces
from bot.llm.classify import withhold_quotes
from bot.llm.log import usage_object
from bot.llm.prices import PriceTable
from bot.llm.stream import Accumulator, EventStream, endless, together
from bot.llm.transport import AiohttpTransport
from bot.llm.windows import TAKES

__all__ = ["AnthropicModel", "Timeouts", "body_of"]

DEFAULT_BASE_URL = "https://api.anthropic.com"
DRAIN_SECONDS = 0.25
AT_ONCE = 0.01
"""Seconds of work on one request between which others have their turn."""
MESSAGES = "/v1/messages"
NO_SUCH_PAGE = frozenset({404, 405, 501})

_NOTHING = ModelRequest(model="", max_tokens=0, system=(), messages=())
_NO_CONNECTION = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.InvalidURL,
)
_TRANSPORT = (httpx2.HTTPError, httpx2.StreamError)
_FAILURES = (
    *_TRANSPORT,
    httpx2.InvalidURL,
    anthropic.AnthropicError,
    # From the library's own reading and writing of JSON.
    AssertionError,
    ValueError,
    TypeError,
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: for one whole answer, until connected, and between two signs of life (pings are one)."""

    total: float = 600.0
    connect: float = 5.0
    idle: float = 60.0


CONNECTIONS = httpx2.Limits(max_connections=1_000, max_keepalive_connections=20, keepalive_expiry=30.0)
"""Few that are idle, since each request looks at every one of them; for longer than the library's 5 s."""


class AnthropicModel:
    """`contracts.model.Model` over the Messages API: one call, one request; every failure an `errors.ModelError`.

    `base_url` is the root of a compatible endpoint. The environment's settings for the library are not looked at:
    what is configured is what holds. `pace` is as in `contracts.channel.ChannelDeps`.
    """

    def __init__(
        self,
        *,
        api_key: str,
        clock: Clock,
        base_url: str | None = None,
        timeouts: Timeouts | None = None,
        max_bytes: int | None = None,
        prices: PriceTable | None = None,
        pace: float = 1.0,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._clock = clock
        self._key = api_key
        self._prices = prices or PriceTable()
        self._limit = {} if max_bytes is None else {"max_bytes": max_bytes}
        url = base_url or DEFAULT_BASE_URL
        timeout = httpx2.Timeout(
            self._timeouts.total * pace,
            connect=self._timeouts.connect * pace,
            read=self._timeouts.idle * pace,
        )
        own = urlsplit(url).hostname == urlsplit(DEFAULT_BASE_URL).hostname
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key,
            base_url=url,
            max_retries=0,
            timeout=timeout,
            # Gateways in front of other models often read this header alone.
            default_headers={} if own else {"X-Api-Key": api_key},
            http_client=_http_client(url, timeout),
            open_telemetry=False,
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        started = self._clock.monotonic()
        said = (block for one in request.messages for block in one["content"] if isinstance(block, dict))
        answer = Accumulator({block.get("id", "") for block in said})
        first: int | None = None
        failure: errors.ModelError | None = None
        response: httpx2.Response | None = None
        deltas: list[TextDelta | ToolInputDelta] = []
        try:
            response = await self._open(request)
            chunks = self._chunks(response, started)
            async for events in chunks:
                self._take(events, response, answer, deltas)
                first = self._since(started) if first is None and answer.begun else first
                for piece in together(deltas):
                    yield piece
                deltas.clear()
                if answer.done:
                    break
            if not answer.done:
                raise errors.StreamBroken("The answer ended early.")
            await _drain(chunks)
            yield self._reply(request, answer, response.headers, started, first)
        except errors.ModelError as error:
            failure = error
        except _TRANSPORT as error:
            failure = self._failure(error)
        finally:
            if response is not None:
                await response.aclose()
        if failure is not None:
            for piece in together(deltas):
                yield piece
            # Raised out here, so that it drags no chain of errors along whose texts hold the request.
            raise self._discreet(self._with_what_came(failure, request, answer), request, response)

    def _take(
        self,
        events: Sequence[Json],
        response: httpx2.Response,
        answer: Accumulator,
        deltas: list[TextDelta | ToolInputDelta],
    ) -> None:
        """Feed an answer with events that came together, up to its end; adds what is to be shown of them."""
        for event in events:
            untyped = "type" not in event and _is_json(response)
            if untyped and "error" not in event:
                raise errors.ModelMisconfigured("The provider's JSON is no message. Is llm.baseUrl right?")
            if untyped or event.get("type") == "error":
                raise classify.classify(
                    classify.read(response.status_code, event, response.headers, now=self._clock.now())
                )
            if (delta := answer.feed(event)) is not None:
                deltas.append(delta)
            if answer.done:
                return

    async def _open(self, request: ModelRequest) -> httpx2.Response:
        try:
            stream = await self._client.post(
                MESSAGES,
                cast_to=object,
                content=await self._body(request),
                # Without a key of ours the library makes one, and never sends it.
                options={
                    "headers": {"content-type": "application/json", **headers_of(request)},
                    "idempotency_key": "",
                },
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
        except _FAILURES as error:
            raise self._failure(error) from None
        response = stream.response
        kind = response.headers.get("content-type", "text/event-stream")
        if "event-stream" not in kind and not _is_json(response):
            await response.aclose()
            raise errors.StreamBroken(
                f"The provider answered with {kind[:60]!r} instead of an event stream.",
                request_id=_request_id(response.headers),
            )
        return response

    async def _body(self, request: ModelRequest) -> bytes:
        """The bytes of a request. Whatever its size, others have their turn meanwhile."""
        if request.wire:
            return request.wire[0]
        made: list[bytes] = []
        latest = self._clock.monotonic() + AT_ONCE
        for piece in pieces(request):
            made.append(piece)
            if self._clock.monotonic() > latest:
                await asyncio.sleep(0)
                latest = self._clock.monotonic() + AT_ONCE
        request.wire.append(b"".join(made))
        return request.wire[0]

    async def _chunks(self, response: httpx2.Response, started: float) -> AsyncIterator[list[Json]]:
        """The events of an answer, those together that came together; one object, where it is no stream."""
        events, whole = EventStream(**self._limit), _is_json(response)
        events.feed(b"data:" if whole else b"")
        async for chunk in response.aiter_bytes():
            if self._clock.monotonic() - started > self._timeouts.total:
                raise endless(f"The answer took longer than {self._timeouts.total:.0f} s: given up.")
            yield events.feed(chunk.translate(None, b"\r\n") if whole else chunk)
        yield events.feed(b"\n\n" if whole else b"")

    def _reply(
        self,
        request: ModelRequest,
        answer: Accumulator,
        headers: Mapping[str, str],
        started: float,
        first: int | None,
    ) -> ModelReply:
        model = answer.model or request.model
        cost = self._prices.cost_usd(model, answer.usage)
        return ModelReply(
            content=answer.content,
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            model=model,
            cut=answer.cut,
            cost_usd=cost,
            latency_ms=self._since(started),
            first_token_ms=first,
            provider_request_id=_request_id(headers),
            detail=answer.stop_details,
        )

    def _since(self, started: float) -> int:
        return round((self._clock.monotonic() - started) * 1000)

    def _failure(self, error: Exception) -> errors.ModelError:
        if isinstance(error, anthropic.APIStatusError):
            headers = error.response.headers
            return classify.classify(
                classify.read(error.status_code, error.body, headers, now=self._clock.now())
            )
        cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
        if isinstance(cause, _NO_CONNECTION):
            return errors.ModelUnreachable(f"The provider cannot be reached: {_reason(cause)}.")
        if isinstance(cause, UnicodeEncodeError | TypeError):
            return errors.RequestInvalid("The request cannot be written as JSON.")
        if isinstance(cause, httpx2.TimeoutException):
            return errors.StreamBroken("The provider fell silent.")
        return errors.StreamBroken("The connection to the provider broke.")

    def _with_what_came(
        self, failure: errors.ModelError, request: ModelRequest, answer: Accumulator
    ) -> errors.ModelError:
        """The failure with what the provider had said of the answer by then: it bills what it has read and written."""
        if answer.started:
            cost = self._prices.cost_usd(answer.model or request.model, answer.usage)
            failure.add_bill(answer.stop_reason, usage_object(answer.usage), cost)
        return failure

    def _discreet(
        self,
        failure: errors.ModelError,
        request: ModelRequest,
        response: httpx2.Response | None,
    ) -> errors.ModelError:
        failure.__context__ = None
        id_ = None if response is None else _request_id(response.headers)
        failure.reword(withhold_quotes(str(failure), request, (self._key,)), id_)
        return failure

    async def check(self) -> None:
        if await self._get("/v1/models", {"limit": 1}):
            return
        # It tells of no models. A request without anything is refused by what takes messages, and costs nothing.
        try:
            await self._client.post(MESSAGES, cast_to=object, body={})
        except _FAILURES as error:
            failure = self._failure(error)
            if isinstance(failure, errors.ModelMisconfigured | errors.ModelRefused):
                raise self._discreet(failure, _NOTHING, None) from None

    async def facts(self, model: str) -> ModelFacts:
        page = f"/v1/models/{quote(model, safe='')}"
        try:
            found = await self._get(page, headers={"anthropic-beta": COMPACTION})
        except errors.RequestInvalid:
            # An endpoint that refuses what it does not know.
            found = await self._get(page)
        window, most = _count(found.get("max_input_tokens")), _count(found.get("max_tokens"))
        able = found.get("capabilities")
        return ModelFacts(window, most, _supported(able, "compaction", "summarize"), _takes(able))

    async def _get(
        self, path: str, params: Json | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Json:
        """An object of the provider; {} where it has no such page, as compatible endpoints need not."""
        failure: errors.ModelError | None = None
        page: object = None
        try:
            page = await self._client.get(
                path,
                cast_to=object,
                options={"params": params or {}, "timeout": 20.0, "headers": headers or {}},
            )
        except _FAILURES as error:
            failure = self._failure(error)
            no_page = isinstance(error, anthropic.APIStatusError) and error.status_code in NO_SUCH_PAGE
            if no_page and not isinstance(failure, errors.ModelUnknown):
                return {}
        if isinstance(page, dict):
            return page
        if failure is None:
            failure = errors.ModelUnreachable("A web page answers where the provider should: see baseUrl.")
        if isinstance(failure, errors.StreamBroken):
            failure = errors.ModelUnreachable(str(failure))
        raise self._discreet(failure, _NOTHING, None)

    async def close(self) -> None:
        await self._client.close()


def _is_json(response: httpx2.Response) -> bool:
    return "json" in response.headers.get("content-type", "")


def _count(value: object) -> int | None:
    """A number of tokens; None for what cannot be one."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _supported(capabilities: object, *path: str) -> bool:
    """True if the provider says that the model is able to do this."""
    found = capabilities
    for name in (*path, "supported"):
        found = found.get(name) if isinstance(found, dict) else None
    return found is True


def _takes(capabilities: object) -> frozenset[str]:
    """Return what the model takes of `TAKES`."""
    places = {one: one.replace("thinking.", "thinking.types.").split(".") for one in TAKES}
    return frozenset(one for one, path in places.items() if _supported(capabilities, *path))


async def _drain(events: AsyncIterator[list[Json]]) -> None:
    """Read a whole answer's body to its end, so that its connection serves the next call; a late end is let go."""
    with contextlib.suppress(TimeoutError, errors.ModelError, *_TRANSPORT):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in events:
                pass


def _http_client(url: str, timeout: httpx2.Timeout) -> httpx2.AsyncClient:
    # No redirects: they would carry the key to wherever the answer points.
    local = is_loopback(url)
    if not local and _behind_proxy(url):
        return anthropic.DefaultAsyncHttpxClient(timeout=timeout, follow_redirects=False, limits=CONNECTIONS)
    # A proxy of the environment cannot know this machine's loopback. Where nothing is encrypted no certificates need be
    # read, which takes longer than all else of a start: without any, none would be believed.
    plain = local and urlsplit(url).scheme == "http"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else httpx2.create_ssl_context()
    return httpx2.AsyncClient(
        transport=AiohttpTransport(tls), timeout=timeout, trust_env=False, follow_redirects=False
    )


def _behind_proxy(url: str) -> bool:
    """True where the environment names a proxy for an address: that needs the provider's own transport, which knows all kinds."""
    found = getproxies()
    return bool({urlsplit(url).scheme, "all"} & found.keys()) and not proxy_bypass(
        urlsplit(url).hostname or ""
    )


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _reason(error: httpx2.TransportError | httpx2.InvalidURL) -> str:
    """Why there is no connection, for operators."""
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.InvalidURL):
        return "llm.baseUrl is no address that can be asked"
    if isinstance(error, httpx2.ConnectError):
        return str(error) or "no connection"
    return "the proxy refuses" if isinstance(error, httpx2.ProxyError) else "no connection in time"


def _request_id(headers: Mapping[str, Any]) -> str | None:
    found = headers.get("request-id") or headers.get("x-request-id")
    return str(found) if found else None
