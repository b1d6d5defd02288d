"""Client of the Bot API: python-telegram-bot over an HTTP layer that separates requests which surely failed from those with
an unknown outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
import httpx
import telegram
from telegram.error import ChatMigrated, Forbidden, InvalidToken, NetworkError, TelegramError
from telegram.request import BaseRequest, RequestData

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.channel import LOOPBACK
from bot.contracts.outbound import OutgoingFile
from channels import file_download

NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
OUTCOME_UNKNOWN = (aiohttp.ClientError, TimeoutError, OSError)
GARBLED = (
    TypeError,
    ValueError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    OSError,
    RecursionError,
)
"""Exceptions of the library when it parses an object of the wrong shape."""

GONE = ("chat not found", "chat was deactivated", "peer_id_invalid")
"""Parts of a 400's description of a chat that cannot be reached."""
NO_TOPIC = ("message thread not found", "topic_deleted", "topic_closed")
"""Parts of a 400's description where a topic is gone or closed. Its chat is open."""
NO_RIGHT = ("not enough rights", "have no rights", "chat_write_forbidden", "need administrator rights")
"""Parts of a 400's description where the bot lacks a right in a chat."""

CONNECTIONS = 64
"""Max concurrent requests. The service takes some 30 messages a second of one bot; a file may take longer."""
IDLE = 4.0
"""Max seconds that a connection is kept unused: a NAT, or a laptop that slept, may have dropped it in silence, and what is sent
on it then has an unknown outcome.
"""
FILE_SECONDS = 180.0
"""Timeout in seconds for the upload of a file and its answer."""
PROOFS = 8
"""Max concurrent new connections for repeats."""
PROOF_SECONDS = 10.0
"""Timeout in seconds for a new connection to answer `getMe`."""
_LONGEST_WAIT = 24 * 3600.0
"""Max seconds of a `retry_after` that is honoured."""


class RequestNotSent(NetworkError):
    """The request did not leave, or was refused without being executed."""


class OutcomeUnknown(NetworkError):
    """The request left, and what became of it is unknown."""


class TooManyRequests(TelegramError):
    """Status 429: the service asks to wait `wait` seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"asked to wait {wait:g} s")
        self.wait = wait


class HttpTransport(BaseRequest):
    """HTTP client for the library, over aiohttp: several times faster than the library's own. Raises failures as `RequestNotSent` or
    `OutcomeUnknown`. `patience` is the timeout of one request in seconds; `pace` scales every timeout.
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
                trust_env=not self._direct,  # a loopback server is asked without a proxy
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
    ) -> tuple[int, bytes]:
        answer_within = self._patience
        if isinstance(read_timeout, int | float):
            answer_within = float(read_timeout) * self._pace
        body = _body(request_data)
        try:
            async with self._connected().request(
                method,
                url,
                data=body,
                headers={"Content-Type": "application/json"} if isinstance(body, bytes) else None,
                timeout=self._timeout(answer_within, total=answer_within + 2 * self._patience),
                allow_redirects=False,
            ) as answer:
                status, payload = answer.status, await answer.read()
        except NOT_SENT as exc:
            raise RequestNotSent(errors.connection_reason(exc)) from exc
        except OUTCOME_UNKNOWN as exc:
            raise OutcomeUnknown(errors.connection_reason(exc)) from exc
        found = _json_object(payload)
        if status >= 500 or (status < 300 and (found.get("ok") is not True or "result" not in found)):
            raise OutcomeUnknown(f"status {status} without an answer")
        if status == 429:
            raise TooManyRequests(_retry_after(found))
        return status, payload if status < 300 else json.dumps(_refusal(found)).encode()

    def get(self, url: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The response for a file, to be read in pieces: `patience` bounds each read, not the whole."""
        return self._connected().get(
            url,
            headers=file_download.HEADERS,
            timeout=self._timeout(self._patience, total=None),
            allow_redirects=False,
            auto_decompress=False,
        )

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            raise RequestNotSent("not connected")
        return self._session

    def _timeout(self, read: float, *, total: float | None) -> aiohttp.ClientTimeout:
        """Half of `patience` for a connection, 1.5 times `patience` with the wait for a free one."""
        half = self._patience / 2
        return aiohttp.ClientTimeout(total, connect=self._patience + half, sock_connect=half, sock_read=read)


def _body(sent: RequestData | None) -> aiohttp.FormData | bytes | None:
    if sent is None:
        return None
    if not sent.contains_files:
        return sent.json_payload
    # Telegram shows a file's name as it is sent: percent-encoding would be visible.
    form = aiohttp.FormData(sent.json_parameters, quote_fields=False)
    for name, (file_name, content, mime) in sent.multipart_data.items():
        # A stream is sent in pieces; bytes would block the event loop.
        data = io.BytesIO(content) if isinstance(content, bytes) else content
        form.add_field(name, data, filename=file_name, content_type=mime)
    return form


def _json_object(payload: bytes) -> Json:
    """The object of an answer; {} where it is none."""
    try:
        body = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def _refusal(body: Json) -> Json:
    """The fields of an error answer that the library reads, each of the type that it expects."""
    parameters, description = body.get("parameters"), body.get("description")
    moved = parameters.get("migrate_to_chat_id") if isinstance(parameters, dict) else None
    reason = text.clean(description[:1_000]) if isinstance(description, str) else ""
    return {
        "description": text.head(" ".join(reason.split()), 200),
        "parameters": {"migrate_to_chat_id": moved} if type(moved) is int else None,
    }


def _retry_after(body: Json) -> float:
    parameters = body.get("parameters")
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait > 0:
        return 1.0
    return min(float(wait), _LONGEST_WAIT)


class Bot(telegram.Bot):
    """The library's bot, plus calls with plain objects: one update that cannot be parsed must not hide the others, and of a sent
    message only the number is needed. Every call raises a `TelegramError`.
    """

    async def shutdown(self) -> None:
        """Close both clients. The library's own leaves them open where its `initialize` was cancelled."""
        await super().shutdown()
        for request in self._request:
            await request.shutdown()

    async def call(self, method: str, fields: Json, *, seconds: float | None = None) -> Any:
        """Call a method of the Bot API; its result as JSON. `seconds` bounds the wait for the answer."""
        return await self._post(method, fields, read_timeout=seconds)

    async def send(self, method: str, message: Json, *, seconds: float | None = None) -> int:
        """Call a method that creates a message; the number of that message."""
        found = await self.call(method, message, seconds=seconds)
        if not (isinstance(found, dict) and type(found.get("message_id")) is int and "chat" in found):
            raise OutcomeUnknown(f"{method} answered without a message")
        return int(found["message_id"])

    async def send_file(self, message: Json, file: OutgoingFile) -> int:
        """Send a file with the fields of `sendDocument`; the number of its message."""
        document = telegram.InputFile(file.data, filename=file.name)
        document.mimetype = file.mime_type
        return await self.send("sendDocument", {**message, "document": document}, seconds=FILE_SECONDS)

    async def file_path(self, file_id: str) -> tuple[str, int | None]:
        """The path of a file below the service's address for files, valid for an hour, and its size."""
        found = await self.call("getFile", {"file_id": file_id})
        path = found.get("file_path") if isinstance(found, dict) else None
        if not isinstance(path, str):
            raise OutcomeUnknown("getFile answered without a path")
        size = found.get("file_size")
        return path, size if type(size) is int else None

    def download(self, path: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The response for the file at a `file_path`."""
        return cast("HttpTransport", self._request[1]).get(f"{self._base_file_url}/{path}")


def connect(
    token: str, base_url: str, patience: float, pace: float = 1.0, connections: int = CONNECTIONS
) -> Bot:
    """A bot that is not connected yet. The first call reads certificates, which blocks."""
    # At INFO these loggers print addresses that hold the token, at DEBUG the library's own print messages.
    for name in ("httpx", "httpcore", "telegram"):
        logging.getLogger(name).setLevel(logging.WARNING)
    tls()
    local = urlsplit(base_url).hostname in LOOPBACK
    return Bot(
        token,
        base_url=f"{base_url}/bot",
        base_file_url=f"{base_url}/file/bot",
        request=HttpTransport(connections=connections, patience=patience, pace=pace, direct=local),
        get_updates_request=HttpTransport(connections=2, patience=patience, pace=pace, direct=local),
    )


class VerifiedConnections:
    """Opens a new connection for each repeat of a message and verifies it by `getMe`. When one fails, repeats that wait for a slot
    fail at once.
    """

    def __init__(self, token: str, base_url: str, *, patience: float, pace: float) -> None:
        self._token = token
        self._base_url = base_url
        self._patience = patience
        self._pace = pace
        self._slots = asyncio.Semaphore(PROOFS)
        self._failed = 0

    @contextlib.asynccontextmanager
    async def open_verified(self) -> AsyncIterator[Bot]:
        """A bot with such a connection. Raises `RequestNotSent`, or another `TelegramError` after which nothing was sent."""
        failed = self._failed
        async with self._slots:
            if failed != self._failed:
                raise RequestNotSent("another new connection has just not answered")
            bot = connect(self._token, self._base_url, self._patience, self._pace, connections=1)
            try:
                try:
                    async with asyncio.timeout(PROOF_SECONDS * self._pace):
                        await bot.initialize()
                except (RequestNotSent, OutcomeUnknown, TimeoutError, *GARBLED):
                    self._failed += 1
                    raise RequestNotSent("a new connection does not answer") from None
                yield bot
            finally:
                await bot.shutdown()


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """The TLS context of all clients: reading the certificates takes tens of milliseconds."""
    return httpx.create_ssl_context()


def lacks_right(exc: TelegramError) -> bool:
    """True where Telegram refuses a call because the bot lacks a right in a chat."""
    return any(part in exc.message.lower() for part in NO_RIGHT)


def lacks_topic(exc: TelegramError) -> bool:
    """True where Telegram refuses a message because its topic takes none."""
    return any(part in exc.message.lower() for part in NO_TOPIC)


def said(exc: BaseException) -> str:
    """A failure in words. Messages of the library that may hold the token are left out."""
    if isinstance(exc, InvalidToken):
        return "the bot token is refused"
    return str(exc) if isinstance(exc, TelegramError) else "something else than Telegram answers"


def delivery_error(exc: TelegramError) -> errors.DeliveryFailed:
    """The failure of a send: its class says whether nothing was sent for sure."""
    match exc:
        case TooManyRequests():
            return errors.DeliveryThrottled(f"Telegram: {exc}", retry_after=exc.wait)
        case RequestNotSent():
            return errors.DeliveryThrottled(f"Telegram cannot be reached: {exc}", retry_after=1.0)
        case OutcomeUnknown():
            return errors.DeliveryUncertain(f"Telegram did not confirm: {exc}")
        case ChatMigrated():
            return errors.TargetGone(f"the group became the supergroup {exc.new_chat_id}")
    said = exc.message.lower()
    if isinstance(exc, Forbidden) or lacks_right(exc) or any(part in said for part in GONE):
        return errors.TargetGone(f"Telegram: {exc}")
    return errors.DeliveryFailed(f"Telegram: {exc}")
