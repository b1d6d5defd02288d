"""HTTP for the Slack and Telegram channels: calls an API method without the platform's library, downloads files, and runs the
server to which a platform posts its events (setting `channels.<name>.webhook`).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from bot import errors, text
from bot.contracts.channel import FILE_PIECE, LOOPBACK, ChannelDeps, Examination, Finding, HttpServer, Webhook

CALL_SECONDS = 10.0  # Timeout in seconds of one call
HEADERS = {"Accept-Encoding": "identity"}
"""Request headers that forbid compression, because a small compressed file may unpack to any size."""
CONNECTION_ERRORS = (aiohttp.ClientError, OSError)  # Exceptions of a failed connection or a timeout
PAGE = "text/html"
LONGEST_NAME = 200  # Max characters of a file name
_MARKS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A JSON object that the platform's API returned. `time` is the time of the platform's clock in epoch seconds."""

    status: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]
    time: float | None


async def ask(address: str, *, token: str | None = None, form: Mapping[str, str] | None = None) -> ApiAnswer:
    """Call an API method with POST. Raises `errors.ChannelUnreachable` if the response is missing, is a 5xx, or is no JSON object."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    direct = urlsplit(address).hostname in LOOPBACK
    try:
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=CALL_SECONDS), trust_env=not direct
            ) as session,
            session.post(address, data=form, headers=headers, allow_redirects=False) as answer,
        ):
            body = json.loads(await answer.read())
            if answer.status >= 500 or not isinstance(body, dict):
                raise errors.ChannelUnreachable(f"HTTP {answer.status}")
            try:
                time = parsedate_to_datetime(answer.headers.get("Date", "")).timestamp()
            except ValueError:
                time = None
            return ApiAnswer(answer.status, body, answer.headers, time)
    except ValueError:
        raise errors.ChannelUnreachable("something else answers there") from None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise errors.ChannelUnreachable(errors.connection_reason(error)) from None


def unreachable(channel: str, address: str, error: errors.ChannelUnreachable) -> Examination:
    """Return an examination whose only finding says that the platform at `address` does not answer."""
    remedy = "see whether this machine reaches it, then try again"
    return Examination((Finding(channel, "later", f"{address} does not answer: {error}", remedy),))


def file_name(name: str) -> str:
    """Return a file name without control characters, direction marks and line breaks, which could disguise the name."""
    return text.head(_MARKS.sub("", text.clean(name)).strip(), LONGEST_NAME)


async def download(
    opening: AbstractAsyncContextManager[aiohttp.ClientResponse],
    platform: str,
    most: int,
    size: object,
    mime: object = PAGE,
) -> AsyncGenerator[bytes]:
    """Yield the bytes of a file from a response, as `contracts.channel.Channel.fetch` specifies. `size` is the expected
    number of bytes, if it is known, and `mime` the expected type. A redirect raises `errors.FileGone`, because following it
    could leak the token.
    """
    try:
        async with opening as answer:
            if answer.status != 200:
                passing = answer.status == 429 or answer.status >= 500
                kind = errors.FileUnreachable if passing else errors.FileGone
                raise kind(f"{platform} answers {answer.status}")
            if answer.content_type == PAGE != mime:
                raise errors.FileGone(f"{platform} shows a page, perhaps for signing in, instead of the file")
            if answer.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise errors.FileUnreachable("the file is compressed")
            received = 0
            while piece := await answer.content.read(FILE_PIECE):
                if fits := piece[: max(0, most - received)]:
                    yield fits
                received += len(piece)
                if received > most:
                    raise errors.FileTooLarge(f"the file has more than {most} bytes")
            if type(size) is int and received != size:
                raise errors.FileUnreachable(f"received {received} of {size} bytes")
    except CONNECTION_ERRORS as error:
        # The texts of these exceptions may contain the address, and thus the token.
        reason = type(error).__name__
        raise errors.FileUnreachable(f"the download from {platform} failed: {reason}") from None


# -- webhooks ------------------------------------------------------------------------------------------------------

LARGEST = 1_000_000  # Max bytes of a request
DRAIN_SECONDS = 0.8
"""Timeout in seconds for running requests when the server stops. The platform posts unanswered events again."""
RETRY = {"Retry-After": "1"}  # Headers of a 503 response, which make the platform post the event again

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(eq=False, slots=True)
class WebhookServer:
    """Passes a POST request to `take` if `admits` accepts its headers. Any other POST gets status 401, and its body is not
    read. A GET of the same path gets status 200, for health checks.

    Each response closes its connection. Otherwise a load balancer could lose a post on an idle connection that the server is
    closing.
    """

    channel: str
    webhook: Webhook
    around: ChannelDeps
    admits: Callable[[Mapping[str, str]], bool]
    take: Handler
    _server: HttpServer | None = field(default=None, init=False)

    @property
    def up(self) -> bool:
        return self._server is not None

    async def start(self) -> None:
        """Begin to listen. Raises `errors.Unavailable` if the port is in use, and `errors.ConfigError` for other failures."""
        app = web.Application(middlewares=[self._guarded], client_max_size=LARGEST)
        app.router.add_post(self.webhook.path, self.take)
        app.router.add_get(self.webhook.path, _reached)
        server, host, key = self.around.serve(), self.webhook.host, f"channels.{self.channel}.webhook"
        port = await server.start(app, host, self.webhook.port, key=key, grace=DRAIN_SECONDS)
        self._server = server
        words = f"{self.channel} waits for events over HTTP"
        self.around.log.write("channel", words, channel=self.channel, host=host, port=port)

    async def stop(self) -> None:
        """Stop listening and finish running requests. Does nothing if the server is not running."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # Check the headers first, so that the body of a refused request is not read.
        admitted = request.method == "GET" or self.admits(request.headers)
        response = await handler(request) if admitted else web.Response(status=401)
        response.force_close()
        return response


async def _reached(_: web.Request) -> web.Response:
    return web.Response()
