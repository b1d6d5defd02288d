"""Client for Anthropic's Messages API and compatible endpoints. No other module imports the provider's library,
since the import takes more than a second and must happen before the event loop runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
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
from bot.contracts.model import ModelFacts, ModelReply, ModelRequest, ModelStream
from bot.llm import classify
from bot.llm.costs import PriceTable
from bot.llm.messages_api import FALLBACKS, Accumulator, EventStream, encoded
from bot.llm.models import TAKES
from bot.llm.wrapper import usage_object

DEFAULT_BASE_URL = "https://api.anthropic.com"
MESSAGES = "/v1/messages"
DRAIN_SECONDS = 0.25
"""Timeout in seconds for reading the rest of a response body after the model's answer is complete."""
NO_SUCH_PAGE = frozenset({404, 405, 501})
CONNECTIONS = httpx2.Limits(max_connections=1_000, max_keepalive_connections=20, keepalive_expiry=30.0)
"""Limits of the connection pool. By default, idle connections close after 5 s, often before a conversation's next request."""

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
_NOT_SENT = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.ProxyError,
    httpx2.UnsupportedProtocol,
    httpx2.InvalidURL,
)
"""Errors after which the request was certainly not sent."""


class AnthropicModel:
    """Implements `contracts.model.Model` with the Messages API, or a compatible endpoint at `base_url`. The environment
    variables of the provider's library are ignored. If `quotes` is False, errors contain none of the provider's
    sentences, since these may repeat the conversation. The timeouts are in seconds: `total` for an answer,
    `connect` for connecting, and `idle` for the gap between two pieces of data.
    """

    def __init__(
        self,
        *,
        api_key: str,
        clock: Clock,
        base_url: str | None = None,
        prices: PriceTable | None = None,
        pace: float = 1.0,
        quotes: bool = True,
        total: float = 600.0,
        connect: float = 5.0,
        idle: float = 60.0,
    ) -> None:
        self._total = total
        self._idle = idle * pace
        self._clock = clock
        self._key = api_key
        self._quotes = quotes
        self._prices = prices or PriceTable()
        url = base_url or DEFAULT_BASE_URL
        connect *= pace
        # `pool` also limits the DNS look-up, which has no timeout of its own.
        timeout = httpx2.Timeout(total * pace, connect=connect, read=self._idle, pool=2 * connect)
        parts = urlsplit(url)
        own = parts.hostname == urlsplit(DEFAULT_BASE_URL).hostname
        auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
        local = is_loopback(parts.hostname or "")
        known = {parts.scheme, "all"} & getproxies().keys()
        proxied = bool(known) and not local and not proxy_bypass(parts.hostname or "")
        http_client = anthropic.DefaultAsyncHttpxClient if proxied else anthropic.DefaultAioHttpClient
        # Reading the CA certificates is slow, so it is skipped for an unencrypted local endpoint.
        plain = local and parts.scheme == "http"
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key,
            # Remove name and password. aiohttp refuses them if the request also has an Authorization header.
            base_url=parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(),
            max_retries=0,
            timeout=timeout,
            # Compatible gateways often read the key only from this header.
            default_headers={} if own else {"X-Api-Key": api_key},
            http_client=http_client(
                timeout=timeout,
                limits=CONNECTIONS,
                follow_redirects=False,  # otherwise a redirect could send the key to any address
                trust_env=proxied,
                verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True,
                auth=auth,
            ),
            open_telemetry=False,
        )

    async def stream(self, request: ModelRequest) -> ModelStream:  # noqa: C901 - one step of an answer after another
        started = self._clock.monotonic()

        def since() -> int:
            return round((self._clock.monotonic() - started) * 1000)

        messages = request.messages
        known = {
            block.get("id", "") for one in messages for block in one["content"] if isinstance(block, dict)
        }
        answer = Accumulator(known)
        first: int | None = None
        response: httpx2.Response | None = None
        try:
            response = await self._open(request)
            events, chunks, done = EventStream(), response.aiter_bytes(), False
            while not done:
                # aiohttp's own timeout stops working once a byte breaks the HTTP protocol, so a second timeout is needed.
                async with asyncio.timeout(self._idle):
                    chunk = await anext(chunks, None)
                if chunk is None:
                    raise errors.StreamBroken("The answer ended early.")
                if self._clock.monotonic() - started > self._total:
                    late = errors.StreamBroken(f"The answer took longer than {self._total:.0f} s: given up.")
                    late.retryable = False  # a retry would cost as much again
                    raise late
                for event in events.feed(chunk):
                    if event.get("type") == "error":
                        raise self._classified(response.status_code, event, response.headers)
                    delta = answer.feed(event)
                    first = since() if first is None and answer.begun else first
                    if delta is not None:
                        yield delta
                    if done := answer.done:
                        break
            # The body is read to its end, so that the connection can be reused.
            with contextlib.suppress(TimeoutError, *_TRANSPORT):
                async with asyncio.timeout(DRAIN_SECONDS):
                    await anext(chunks, None)
            model, usage = answer.model or request.model, answer.usage
            yield ModelReply(
                content=answer.content,
                stop_reason=answer.stop_reason,
                usage=usage,
                model=model,
                cut=answer.cut,
                cost_usd=self._prices.cost_usd(model, usage),
                latency_ms=since(),
                first_token_ms=first,
                provider_request_id=_request_id(response.headers),
                detail=answer.stop_details,
            )
        except (errors.ModelError, TimeoutError, *_TRANSPORT) as error:
            failure = self._failure(error)
            if response is not None:
                failure.request_id = failure.request_id or _request_id(response.headers)
            if answer.started:
                # The provider bills the tokens that it read and wrote before the failure, so add their cost to the error.
                cost = self._prices.cost_usd(answer.model or request.model, answer.usage)
                failure.stop_reason, failure.cost_usd = answer.stop_reason, cost
                failure.usage = usage_object(answer.usage)
            raise failure from None
        finally:
            if response is not None:
                await response.aclose()

    async def _open(self, request: ModelRequest) -> httpx2.Response:
        try:
            stream = await self._client.post(
                MESSAGES,
                cast_to=object,
                content=await encoded(request),
                # An empty idempotency key prevents the library from creating a key.
                options={
                    "headers": {
                        "content-type": "application/json",
                        **({"anthropic-beta": FALLBACKS} if request.provider_fallbacks else {}),
                    },
                    "idempotency_key": "",
                },
                stream=True,
                stream_cls=anthropic.AsyncStream[object],
            )
        except _FAILURES as error:
            raise self._failure(error) from None
        response = stream.response
        kind = response.headers.get("content-type", "text/event-stream")
        if "event-stream" not in kind:
            await response.aclose()
            failed = errors.ModelMisconfigured if "json" in kind else errors.StreamBroken
            raise failed(
                f"The provider answered with {kind[:60]!r} instead of an event stream. Is llm.baseUrl right?",
                request_id=_request_id(response.headers),
            )
        return response

    def _classified(self, status: int, body: object, headers: Mapping[str, str]) -> errors.ModelError:
        now, secret = self._clock.now(), self._key
        return classify.classify(status, body, headers, now=now, secret=secret, quotes=self._quotes)

    def _failure(self, error: Exception) -> errors.ModelError:
        if isinstance(error, errors.ModelError):
            return error
        if isinstance(error, anthropic.APIStatusError):
            return self._classified(error.status_code, error.body, error.response.headers)
        cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
        below = cause.__cause__ if cause is not None else None
        # The library raises `ConnectError` also if an open connection breaks. Then the request may have been sent.
        broke = isinstance(below, aiohttp.ClientConnectionError) and not isinstance(
            below, aiohttp.ClientConnectorError
        )
        if isinstance(cause, _NOT_SENT) and not (broke and isinstance(cause, httpx2.ConnectError)):
            reason = "the proxy refuses" if isinstance(cause, httpx2.ProxyError) else "no connection in time"
            if isinstance(cause, httpx2.ConnectError):
                reason = errors.connection_reason(below or cause)
            return errors.ModelUnreachable(f"The provider cannot be reached: {reason}.")
        if isinstance(cause, UnicodeEncodeError | TypeError):
            return errors.RequestInvalid("The request cannot be written as JSON.")
        if isinstance(cause, httpx2.TimeoutException | TimeoutError):
            return errors.StreamBroken("The provider fell silent.")
        return errors.StreamBroken("The connection to the provider broke.")

    async def check(self) -> None:
        if await self._get("/v1/models", {"limit": 1}):
            return
        # The endpoint has no list of models, so send an empty request. A Messages API endpoint refuses that at no cost.
        try:
            await self._client.post(MESSAGES, cast_to=object, body={})
        except _FAILURES as error:
            failure = self._failure(error)
            if isinstance(failure, errors.ModelMisconfigured | errors.ModelRefused):
                raise failure from None

    async def facts(self, model: str) -> ModelFacts:
        found = await self._get(f"/v1/models/{quote(model, safe='')}")
        places = {one: one.replace("thinking.", "thinking.types.").split(".") for one in TAKES}
        able = found.get("capabilities")
        return ModelFacts(
            window=_count(found.get("max_input_tokens")),
            max_output=_count(found.get("max_tokens")),
            takes=frozenset(one for one, path in places.items() if _supported(able, *path)),
        )

    async def _get(self, path: str, params: Json | None = None) -> Json:
        """Return the JSON object at `path`; {} if the endpoint has no such page. Compatible endpoints often lack pages."""
        options: Any = {"params": params or {}, "timeout": 20.0}
        try:
            page = await self._client.get(path, cast_to=object, options=options)
        except _FAILURES as error:
            failure = self._failure(error)
            no_page = isinstance(error, anthropic.APIStatusError) and error.status_code in NO_SUCH_PAGE
            if no_page and not isinstance(failure, errors.ModelUnknown):
                return {}
            if isinstance(failure, errors.StreamBroken):
                failure = errors.ModelUnreachable(str(failure))
            raise failure from None
        if not isinstance(page, dict):
            raise errors.ModelUnreachable("A web page answers where the provider should: see baseUrl.")
        return page

    async def close(self) -> None:
        await self._client.close()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _supported(capabilities: object, *path: str) -> bool:
    found = capabilities
    for name in (*path, "supported"):
        found = found.get(name) if isinstance(found, dict) else None
    return found is True


def _request_id(headers: Mapping[str, Any]) -> str | None:
    found = headers.get("request-id") or headers.get("x-request-id")
    return str(found) if found else None
