"""HTTP server for webhooks (`channels.<name>.webhook`), to which a platform posts its events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from bot.contracts.channel import ChannelDeps, HttpServer, Webhook

LARGEST = 1_000_000  # Max bytes of a request
DRAIN_SECONDS = (
    0.8  # Timeout in seconds for running requests when the server stops. Unanswered events are posted again.
)
RETRY = {"Retry-After": "1"}  # Headers of a 503 response, which make the platform post the event again

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class WebhookServer:
    """Passes a POST to `take` if `admits` accepts its headers. Answers any other POST with 401, without reading the body.
    Answers a GET of the same path with 200, for health checks.

    Each response closes its connection. Otherwise a load balancer could lose a post on an idle connection that the server is
    closing.
    """

    def __init__(
        self,
        channel: str,
        webhook: Webhook,
        around: ChannelDeps,
        *,
        admits: Callable[[Mapping[str, str]], bool],
        take: Handler,
    ) -> None:
        self._channel = channel
        self._webhook = webhook
        self._around = around
        self._admits = admits
        self._take = take
        self._server: HttpServer | None = None

    @property
    def up(self) -> bool:
        return self._server is not None

    async def start(self) -> None:
        """Begin to listen. Raises `errors.Unavailable` if the port is in use, and `errors.ConfigError` for other failures."""
        app = web.Application(middlewares=[self._guarded], client_max_size=LARGEST)
        app.router.add_post(self._webhook.path, self._take)
        app.router.add_get(self._webhook.path, _reached)
        server, host, port = self._around.serve(), self._webhook.host, self._webhook.port
        key = f"channels.{self._channel}.webhook"
        port = await server.start(app, host, port, key=key, grace=DRAIN_SECONDS)
        self._server = server
        words = f"{self._channel} waits for events over HTTP"
        self._around.log.write("channel", words, channel=self._channel, host=host, port=port)

    async def stop(self) -> None:
        """Stop listening and finish running requests. Does nothing if the server is not running."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        # Check the headers first, so that the body of a refused request is not read.
        admitted = request.method == "GET" or self._admits(request.headers)
        response = await handler(request) if admitted else web.Response(status=401)
        response.force_close()
        return response


async def _reached(_: web.Request) -> web.Response:
    return web.Response()
