"""Client of Telegram's Bot API: python-telegram-bot with another HTTP transport. This transport distinguishes a request that
was not executed from a request with an unknown outcome.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import ssl
from collections.abc import AsyncGenerator
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote, urlsplit

import aiohttp
import httpx
import telegram
from telegram.error import ChatMigrated, Forbidden, InvalidToken, NetworkError, TelegramError
from telegram.request import BaseRequest, RequestData

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.channel import LOOPBACK
from bot.contracts.messages import Attachment, OutgoingFile
from channels.http_api import CONNECTION_ERRORS, HEADERS, download

NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
GARBLED = (TypeError, ValueError, LookupError, AttributeError, OverflowError, OSError, RecursionError)
"""Exceptions for an update or a response with the wrong structure."""

GONE = ("chat not found", "chat was deactivated", "peer_id_invalid")
"""Texts in a 400 response that mean that a chat cannot be reached."""
NO_TOPIC = ("message thread not found", "topic_deleted", "topic_closed")
"""Texts in a 400 response that mean that a topic is deleted or closed, while its chat still accepts messages."""
NO_RIGHT = ("not enough rights", "have no rights", "chat_write_forbidden", "need administrator rights")
"""Texts in a 400 response that mean that the bot lacks a right in the chat."""

CONNECTIONS = 64
"""Max concurrent requests. Telegram accepts about 30 messages per second, but sending a file may take longer than a second."""
IDLE = 4.0
"""Max seconds that an unused connection is kept. A NAT router or a sleeping laptop may drop an older connection silently,
and a message sent on it would have an unknown outcome.
"""
FILE_SECONDS = 180.0  # Timeout in seconds of a file's upload, including the response
_LONGEST_WAIT = 24 * 3600.0  # Max seconds to wait; a longer `retry_after` is shortened


class RequestNotSent(NetworkError):
    """Error of a request that was not sent, or that Telegram refused without executing it."""


class OutcomeUnknown(NetworkError):
    """Error of a request that was sent, with an unknown outcome."""


class TooManyRequests(TelegramError):
    """Error for HTTP status 429. Telegram asks for a pause of `wait` seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"asked to wait {wait:g} s")
        self.wait = wait


UNANSWERED = (RequestNotSent, OutcomeUnknown, TooManyRequests)  # Errors after which a later call may succeed


class HttpTransport(BaseRequest):
    """HTTP transport for the library. The transport uses aiohttp, which is several times faster than the library's default.
    Failures raise `RequestNotSent` or `OutcomeUnknown`. `patience` is the timeout in seconds of a request; every timeout is
    multiplied by `pace`.
    """

    def __init__(self, *, connections: int, patience: float, pace: float = 1.0, direct: bool) -> None:
        self._connections = connections
        self._patience = patience * pace
        self._pace = pace
        self._direct = direct
        self._session: aiohttp.ClientSession | None = None

    @property
    def read_timeout(self) -> float:
        return self._patience

    async def initialize(self) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=self._connections, keepalive_timeout=IDLE * self._pace, ssl=tls()
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": self.USER_AGENT},
                trust_env=not self._direct,  # no proxy for a server on this machine
            )

    async def shutdown(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def do_request(
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = BaseRequest.DEFAULT_NONE,
        *_: Any,
        **__: Any,
    ) -> tuple[int, Any]:
        """Make a request. Return the status and the response as a JSON object, which `parse_json_payload` passes on."""
        within = self._patience
        if isinstance(read_timeout, int | float):
            within = float(read_timeout) * self._pace
        body = _body(request_data)
        try:
            async with self._connected().request(
                method,
                url,
                data=body,
                headers={"Content-Type": "application/json"} if isinstance(body, bytes) else None,
                timeout=self._timeout(within, total=within + 2 * self._patience),
                allow_redirects=False,
            ) as answer:
                status, payload = answer.status, await answer.read()
        except NOT_SENT as exc:
            raise RequestNotSent(errors.connection_reason(exc)) from exc
        except CONNECTION_ERRORS as exc:
            raise OutcomeUnknown(errors.connection_reason(exc)) from exc
        try:
            found = json.loads(payload)
        except (ValueError, RecursionError):
            found = {}
        found = found if isinstance(found, dict) else {}
        if status >= 500 or (status < 300 and (found.get("ok") is not True or "result" not in found)):
            raise OutcomeUnknown(f"status {status} without an answer")
        if status < 300:
            return status, found
        parameters = found["parameters"] if isinstance(found.get("parameters"), dict) else {}
        if status == 429:
            wait = parameters.get("retry_after")
            if not isinstance(wait, (int, float)) or not wait > 0:
                wait = 1.0
            raise TooManyRequests(min(float(wait), _LONGEST_WAIT))
        # The library reads these two fields, and would fail if their types were wrong.
        moved, reason = parameters.get("migrate_to_chat_id"), found.get("description")
        reason = text.clean(reason[:1_000]) if isinstance(reason, str) else ""
        refusal = {
            "description": text.head(" ".join(reason.split()), 200),
            "parameters": {"migrate_to_chat_id": moved} if type(moved) is int else None,
        }
        return status, refusal

    @staticmethod
    def parse_json_payload(payload: Any) -> Any:
        return payload

    def get(self, url: str) -> contextlib.AbstractAsyncContextManager[aiohttp.ClientResponse]:
        timeout = self._timeout(self._patience, total=None)
        return self._connected().get(
            url, headers=HEADERS, timeout=timeout, allow_redirects=False, auto_decompress=False
        )

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RequestNotSent("not connected")
        return self._session

    def _timeout(self, read: float, *, total: float | None) -> aiohttp.ClientTimeout:
        """Return the timeouts of a request. Opening a connection may take half of `patience`. Waiting for a free
        connection and opening it may together take 1.5 times `patience`.
        """
        half = self._patience / 2
        return aiohttp.ClientTimeout(total, connect=self._patience + half, sock_connect=half, sock_read=read)


def _body(sent: RequestData | None) -> aiohttp.FormData | bytes | None:
    if sent is None:
        return None
    if not sent.contains_files:
        return sent.json_payload
    # Telegram shows the file name exactly as it was sent, so it must not be percent-encoded.
    form = aiohttp.FormData(sent.json_parameters, quote_fields=False)
    for name, (file_name, content, mime) in sent.multipart_data.items():
        # Pass a stream, which aiohttp sends in pieces. Sending all bytes at once would block the event loop.
        data = io.BytesIO(content) if isinstance(content, bytes) else content
        form.add_field(name, data, filename=file_name, content_type=mime)
    return form


class Bot(telegram.Bot):
    """The library's bot with the method `call`, which returns plain JSON. If the library parsed the updates, it would
    drop all updates of a poll because of one invalid update.
    """

    async def shutdown(self) -> None:
        """Close both HTTP clients. If the library's `initialize` was cancelled, its own `shutdown` would leave them open."""
        await super().shutdown()
        for request in self._request:
            await request.shutdown()

    async def call(self, method: str, fields: Json, *, seconds: float | None = None) -> Any:
        """Call a method of the Bot API and return its result. Leaves out fields that are None. `seconds` is the timeout for
        the response. Raises `TelegramError`.
        """
        return await self._post(method, fields, read_timeout=seconds)

    async def call_object(self, method: str, fields: Json, *, seconds: float | None = None) -> Json:
        found = await self.call(method, fields, seconds=seconds)
        if not isinstance(found, dict):
            raise OutcomeUnknown(f"{method} answered without an object")
        return found

    async def send(self, message: Json, file: OutgoingFile | None) -> int:
        """Send the fields `message`, with `file` if there is one, as a message. Return the message's number."""
        method, seconds = "sendMessage", None
        if file is not None:
            document = telegram.InputFile(file.data, filename=file.name)
            document.mimetype = file.mime_type
            method, seconds, message = "sendDocument", FILE_SECONDS, message | {"document": document}
        found = await self.call_object(method, message, seconds=seconds)
        if not (type(found.get("message_id")) is int and "chat" in found):
            raise OutcomeUnknown(f"{method} answered without a message")
        return int(found["message_id"])

    async def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """Yield the bytes of a file, as `contracts.channel.Channel.fetch` specifies."""
        if not attachment.ref:
            raise errors.FileGone("the message names no file")
        try:
            found = await self.call_object("getFile", {"file_id": attachment.ref})
        except UNANSWERED as error:
            raise errors.FileUnreachable(f"Telegram's getFile failed: {type(error).__name__}") from None
        except TelegramError as error:
            too_large = "too big" in error.message.lower()
            kind = errors.FileTooLarge if too_large else errors.FileGone
            raise kind(f"Telegram: {error}") from None
        path = found.get("file_path")
        if not isinstance(path, str):
            raise errors.FileUnreachable("Telegram's getFile names no path")
        # A segment `..` or an empty segment (as in an absolute path) could lead out of the folder of files.
        if not {"", ".", ".."}.isdisjoint(path.split("/")):
            raise errors.FileGone("Telegram gives a path outside of its files")
        transport = cast("HttpTransport", self._request[1])
        try:
            opening = transport.get(f"{self._base_file_url}/{quote(path)}")
        except RequestNotSent as error:
            raise errors.FileUnreachable(f"Telegram: {error}") from None
        pieces = download(opening, "Telegram", most, found.get("file_size"))
        async with contextlib.aclosing(pieces):
            async for piece in pieces:
                yield piece


def connect(
    token: str, base_url: str, patience: float, pace: float = 1.0, connections: int = CONNECTIONS
) -> Bot:
    """Return a bot without a connection. The first call blocks while it reads the TLS certificates."""
    # At level INFO, these loggers write URLs that contain the token. At DEBUG, the library's logger also writes messages.
    for name in ("httpx", "httpcore", "telegram"):
        logging.getLogger(name).setLevel(logging.WARNING)
    tls()
    local = urlsplit(base_url).hostname in LOOPBACK
    requests = [
        HttpTransport(connections=most, patience=patience, pace=pace, direct=local)
        for most in (connections, 2)
    ]
    return Bot(
        token,
        base_url=f"{base_url}/bot",
        base_file_url=f"{base_url}/file/bot",
        request=requests[0],
        get_updates_request=requests[1],
    )


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """Return the TLS context, which all clients share because reading the certificates takes tens of milliseconds."""
    return httpx.create_ssl_context()


def refused_for(exc: TelegramError, *descriptions: str) -> bool:
    return any(part in exc.message.lower() for part in descriptions)


def said(exc: BaseException) -> str:
    """Return a description of an error, without texts of the library, because these may contain the token."""
    if isinstance(exc, InvalidToken):
        return "the bot token is refused"
    return str(exc) if isinstance(exc, TelegramError) else "something else than Telegram answers"


def delivery_error(exc: TelegramError) -> errors.DeliveryFailed:
    """Return the gateway's error for a failed send. The error's class says if Telegram may have executed the request."""
    match exc:
        case TooManyRequests():
            return errors.DeliveryThrottled(f"Telegram: {exc}", retry_after=exc.wait)
        case RequestNotSent():
            return errors.DeliveryThrottled(f"Telegram cannot be reached: {exc}", retry_after=1.0)
        case OutcomeUnknown():
            return errors.DeliveryUncertain(f"Telegram did not confirm: {exc}")
        case ChatMigrated():
            return errors.TargetGone(f"the group became the supergroup {exc.new_chat_id}")
    gone = isinstance(exc, Forbidden) or refused_for(exc, *NO_RIGHT, *GONE)
    return (errors.TargetGone if gone else errors.DeliveryFailed)(f"Telegram: {exc}")
