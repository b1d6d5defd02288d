"""Client for Anthropic's Messages API and compatible endpoints. No other module imports the provider's
library.

Importing the library takes more than a second, so the import must happen before the event loop runs
(`bot.llm.factory`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import anthropic
import httpx2

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import is_loopback
from bot.contracts.environment import Clock
from bot.contracts.model import ModelFacts, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.llm import classify
from bot.llm.body import COMPACTION, headers_of, pieces
from bot.llm.log import usage_object
from bot.llm.prices import PriceTable
from bot.llm.stream import Accumulator, EventStream, endless, joined
from bot.llm.windows import TAKES

DEFAULT_BASE_URL = "https://api.anthropic.com"
MESSAGES = "/v1/messages"
DRAIN_SECONDS = 0.25
"""Timeout in seconds for reading the end of a body after the answer is complete."""
SLICE_SECONDS = 0.01
"""Max seconds that encoding a request may take before other tasks run."""
NO_SUCH_PAGE = frozenset({404, 405, 501})
CONNECTIONS = httpx2.Limits(max_connections=1_000, max_keepalive_connections=20, keepalive_expiry=30.0)
"""Limits of the connection pool. Idle connections are kept for 30 s instead of the library's 5 s, so that a
conversation reuses its connection.
"""

_NO_REQUEST = ModelRequest(model="", max_tokens=0, system=(), messages=())
_TRANSPORT = (httpx2.HTTPError, httpx2.StreamError, aiohttp.ClientError)
_FAILURES = (
    *_TRANSPORT,
    httpx2.InvalidURL,
    anthropic.AnthropicError,
    # Errors that the library raises while it encodes or decodes JSON.
    AssertionError,
    ValueError,
    TypeError,
)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts in seconds: for a whole answer, for connecting, and for the gap between two pieces of data (a
    ping ends the gap).
    """

    total: float = 600.0
    connect: float = 5.0
    idle: float = 60.0


class AnthropicModel:
    """Implements `contracts.model.Model` with the Messages API. Each call sends one request, and every
    failure is an `errors.ModelError`.

    `base_url` is the root of a compatible endpoint. The environment variables of the provider's library are
    ignored. `pace` has the meaning given in `contracts.channel.ChannelDeps`.
    """

    def __init__(
        self,
        *,
        api_key: str,
        clock: Clock,
        base_url: str | None = None,
        timeouts: Timeouts | None = None,
        prices: PriceTable | None = None,
        pace: float = 1.0,
    ) -> None:
        timeouts = timeouts or Timeouts()
        self._total = timeouts.total
        self._idle = timeouts.idle * pace
        self._clock = clock
        self._key = api_key
        self._prices = prices or PriceTable()
        url = base_url or DEFAULT_BASE_URL
        connect = timeouts.connect * pace
        # `pool` also limits the name look-up, which has no separate timeout.
        timeout = httpx2.Timeout(timeouts.total * pace, connect=connect, read=self._idle, pool=2 * connect)
        parts = urlsplit(url)
        own = parts.hostname == urlsplit(DEFAULT_BASE_URL).hostname
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key,
            # aiohttp refuses an address with name and password if the request also has an Authorization header.
            base_url=parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),
            max_retries=0,
            timeout=timeout,
            # Gateways in front of other models often read only this header.
            default_headers={} if own else {"X-Api-Key": api_key},
            http_client=_http_client(url, timeout),
            open_telemetry=False,
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        started = self._clock.monotonic()
        blocks = (block for one in request.messages for block in one["content"] if isinstance(block, dict))
        answer = Accumulator({block.get("id", "") for block in blocks})
        first: int | None = None
        response: httpx2.Response | None = None
        failure: errors.ModelError | None = None
        try:
            response = await self._open(request)
            batches = self._events(response, started)
            async for batch in batches:
                deltas = self._deltas(batch, response, answer)
                first = self._since(started) if first is None and answer.begun else first
                for delta in joined(deltas):
                    yield delta
                if answer.done:
                    break
            if not answer.done:
                raise errors.StreamBroken("The answer ended early.")
            await _drain(batches)
            model = answer.model or request.model
            yield ModelReply(
                content=answer.content,
                stop_reason=answer.stop_reason,
                usage=answer.usage,
                model=model,
                cut=answer.cut,
                cost_usd=self._prices.cost_usd(model, answer.usage),
                latency_ms=self._since(started),
                first_token_ms=first,
                provider_request_id=_request_id(response.headers),
                detail=answer.stop_details,
            )
        except errors.ModelError as error:
            failure = error
        except (TimeoutError, *_TRANSPORT) as error:
            failure = self._failure(error)
        finally:
            if response is not None:
                await response.aclose()
        if failure is None:
            return
        if answer.started:
            # The provider bills the tokens that it had read and written before the failure.
            cost = self._prices.cost_usd(answer.model or request.model, answer.usage)
            failure.add_bill(answer.stop_reason, usage_object(answer.usage), cost)
        # Raised outside of `except`, because the texts of the chained errors would contain the request.
        raise self._discreet(failure, request, response)

    async def _open(self, request: ModelRequest) -> httpx2.Response:
        try:
            stream = await self._client.post(
                MESSAGES,
                cast_to=object,
                content=await self._body(request),
                # An empty idempotency key prevents the library from creating a key.
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
        """Return the bytes of a request. Other tasks run while a large request is encoded."""
        if not request.wire:
            encoded: list[bytes] = []
            pause = self._clock.monotonic() + SLICE_SECONDS
            for piece in pieces(request):
                encoded.append(piece)
                if self._clock.monotonic() > pause:
                    await asyncio.sleep(0)
                    pause = self._clock.monotonic() + SLICE_SECONDS
            request.wire.append(b"".join(encoded))
        return request.wire[0]

    async def _events(self, response: httpx2.Response, started: float) -> AsyncIterator[list[Json]]:
        """Yield lists of events of an answer; each list has the events that were read together. A JSON body
        without a stream gives one event.
        """
        events, is_json = EventStream(), _is_json(response)
        events.feed(b"data:" if is_json else b"")
        chunks = response.aiter_bytes()
        while True:
            # aiohttp's own timeout stops working after the first byte that breaks the protocol.
            async with asyncio.timeout(self._idle):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            if self._clock.monotonic() - started > self._total:
                raise endless(f"The answer took longer than {self._total:.0f} s: given up.")
            yield events.feed(chunk.translate(None, b"\r\n") if is_json else chunk)
        yield events.feed(b"\n\n" if is_json else b"")

    def _deltas(
        self, batch: Sequence[Json], response: httpx2.Response, answer: Accumulator
    ) -> list[TextDelta | ToolInputDelta]:
        """Pass a batch of events to the answer until the answer is complete, and yield the deltas. Raises
        the error that an event reports.
        """
        deltas = list[TextDelta | ToolInputDelta]()
        for event in batch:
            untyped = "type" not in event and _is_json(response)
            if untyped and "error" not in event:
                raise errors.ModelMisconfigured("The provider's JSON is not a message. Is llm.baseUrl right?")
            if untyped or event.get("type") == "error":
                raise self._classified(response.status_code, event, response.headers)
            if (delta := answer.feed(event)) is not None:
                deltas.append(delta)
            if answer.done:
                break
        return deltas

    def _classified(self, status: int, body: object, headers: Mapping[str, str]) -> errors.ModelError:
        return classify.classify(status, body, headers, now=self._clock.now())

    def _since(self, started: float) -> int:
        return round((self._clock.monotonic() - started) * 1000)

    def _failure(self, error: Exception) -> errors.ModelError:
        if isinstance(error, anthropic.APIStatusError):
            return self._classified(error.status_code, error.body, error.response.headers)
        cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
        if _not_connected(cause):
            reason = "the proxy refuses" if isinstance(cause, httpx2.ProxyError) else "no connection in time"
            if isinstance(cause, httpx2.ConnectError):
                reason = errors.connection_reason(cause.__cause__ or cause)
            return errors.ModelUnreachable(f"The provider cannot be reached: {reason}.")
        if isinstance(cause, UnicodeEncodeError | TypeError):
            return errors.RequestInvalid("The request cannot be written as JSON.")
        if isinstance(cause, httpx2.TimeoutException | TimeoutError):
            return errors.StreamBroken("The provider fell silent.")
        return errors.StreamBroken("The connection to the provider broke.")

    def _discreet(
        self, failure: errors.ModelError, request: ModelRequest, response: httpx2.Response | None
    ) -> errors.ModelError:
        """Return the failure without the API key, without text of the conversation and without earlier errors."""
        failure.__context__ = None
        words = classify.withhold_quotes(str(failure), request, (self._key,))
        failure.reword(words, None if response is None else _request_id(response.headers))
        return failure

    async def check(self) -> None:
        if await self._get("/v1/models", {"limit": 1}):
            return
        # The endpoint has no list of models. An empty request is refused by a Messages API endpoint and costs nothing.
        try:
            await self._client.post(MESSAGES, cast_to=object, body={})
        except _FAILURES as error:
            failure = self._failure(error)
            if isinstance(failure, errors.ModelMisconfigured | errors.ModelRefused):
                raise self._discreet(failure, _NO_REQUEST, None) from None

    async def facts(self, model: str) -> ModelFacts:
        page = f"/v1/models/{quote(model, safe='')}"
        try:
            found = await self._get(page, headers={"anthropic-beta": COMPACTION})
        except errors.RequestInvalid:
            # The endpoint does not support the beta.
            found = await self._get(page)
        places = {one: one.replace("thinking.", "thinking.types.").split(".") for one in TAKES}
        able = found.get("capabilities")
        return ModelFacts(
            window=_count(found.get("max_input_tokens")),
            max_output=_count(found.get("max_tokens")),
            compacts=_supported(able, "compaction", "summarize"),
            takes=frozenset(one for one, path in places.items() if _supported(able, *path)),
        )

    async def _get(
        self, path: str, params: Json | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Json:
        """Return a JSON object from the provider. Return {} if the provider does not have that page, which
        is normal for compatible endpoints.
        """
        failure: errors.ModelError = errors.ModelUnreachable(
            "A web page answers where the provider should: see baseUrl."
        )
        try:
            page = await self._client.get(
                path,
                cast_to=object,
                options={"params": params or {}, "timeout": 20.0, "headers": headers or {}},
            )
            if isinstance(page, dict):
                return page
        except _FAILURES as error:
            failure = self._failure(error)
            no_page = isinstance(error, anthropic.APIStatusError) and error.status_code in NO_SUCH_PAGE
            if no_page and not isinstance(failure, errors.ModelUnknown):
                return {}
            if isinstance(failure, errors.StreamBroken):
                failure = errors.ModelUnreachable(str(failure))
        raise self._discreet(failure, _NO_REQUEST, None)

    async def close(self) -> None:
        await self._client.close()


def _is_json(response: httpx2.Response) -> bool:
    return "json" in response.headers.get("content-type", "")


async def _drain(batches: AsyncIterator[list[Json]]) -> None:
    """Read a body to its end, so that the connection can be reused."""
    with contextlib.suppress(TimeoutError, errors.ModelError, *_TRANSPORT):
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in batches:
                pass


def _count(value: object) -> int | None:
    """Return a number of tokens; None if the value is not a number."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _supported(capabilities: object, *path: str) -> bool:
    """Return True if the provider lists this capability of the model as supported."""
    found = capabilities
    for name in (*path, "supported"):
        found = found.get(name) if isinstance(found, dict) else None
    return found is True


def _not_connected(error: BaseException | None) -> bool:
    """Return True if the request was certainly not sent."""
    below = error.__cause__ if error is not None else None
    if isinstance(error, httpx2.ConnectError) and isinstance(below, aiohttp.ClientConnectionError):
        # The library reports every broken aiohttp connection as a connection that was never made.
        return isinstance(below, aiohttp.ClientConnectorError)
    return isinstance(
        error,
        httpx2.ConnectError
        | httpx2.ConnectTimeout
        | httpx2.PoolTimeout
        | httpx2.ProxyError
        | httpx2.UnsupportedProtocol
        | httpx2.InvalidURL,
    )


def _http_client(url: str, timeout: httpx2.Timeout) -> httpx2.AsyncClient:
    # Redirects are not followed: they would send the key to any address.
    parts = urlsplit(url)
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    local = is_loopback(parts.hostname or "")
    proxied = {parts.scheme, "all"} & getproxies().keys() and not proxy_bypass(parts.hostname or "")
    if proxied and not local:
        return anthropic.DefaultAsyncHttpxClient(
            timeout=timeout, limits=CONNECTIONS, follow_redirects=False, auth=auth
        )
    # Reading the certificates takes longer than the rest of a start, so it is skipped if nothing is encrypted.
    plain = local and parts.scheme == "http"
    return anthropic.DefaultAioHttpClient(
        timeout=timeout,
        limits=CONNECTIONS,
        follow_redirects=False,
        trust_env=False,
        verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True,
        auth=auth,
    )


def _request_id(headers: Mapping[str, Any]) -> str | None:
    found = headers.get("request-id") or headers.get("x-request-id")
    return str(found) if found else None
