"""Client of the Bot API: python-telegram-bot over an HTTP layer that tells requests that surely failed from those with
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
"""Exceptions of the library for an object that is not what it claims to be."""

GONE = (
    "chat not found",
    "chat was deactivated",
    "peer_id_invalid",
)
"""Parts of a 400's description of a chat that cannot be reached."""
NO_TOPIC = ("message thread not found", "topic_deleted", "topic_closed")
"""Parts of a 400's description where a topic is gone or closed. Its chat is open."""
NO_RIGHT = ("not enough rights", "have no rights", "chat_write_forbidden", "need administrator rights")
"""Parts of a 400's description where the bot lacks a right in a chat."""

CONNECTIONS = 64
"""Requests at once. The service takes some thirty messages a second of one bot; a file may take longer."""

IDLE = 4.0
"""Seconds after which a connection that was not used is not used again: a NAT, or a laptop that slept, may have
forgotten it without telling, and what is sent on it then has an unknown outcome.
"""
FILE_SECONDS = 180.0
"""Seconds for the way of a file and its answer."""
PROOFS = 8
"""Connections at once that are made for repeats."""
PROOF_SECONDS = 10.0
"""Seconds a new connection gets to answer `getMe`."""

JSON = {"Content-Type": "application/json"}

_LONGEST_WAIT = 24 * 3600.0


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
    """One HTTP client for the library, several times faster than its own. Failures are classified as `RequestNotSent` or
    `OutcomeUnknown` before the library sees them.
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
                # No proxy stands before loopback.
                trust_env=not self._direct,
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
        try:
            status, payload = await self._exchange(
                url, method, request_data, _seconds(read_timeout, self._pace, self._patience)
            )
        except NOT_SENT as exc:
            raise RequestNotSent(errors.connection_reason(exc)) from exc
        except OUTCOME_UNKNOWN as exc:
            raise OutcomeUnknown(errors.connection_reason(exc)) from exc
        body = _json_object(payload)
        if status >= 500 or (
            status < 300 and (body is None or body.get("ok") is not True or "result" not in body)
        ):
            raise OutcomeUnknown(f"status {status} without an answer")
        if status == 429:
            raise TooManyRequests(_wait(body or {}))
        if status >= 300:
            return status, json.dumps(_refusal(body or {})).encode()
        return status, payload

    def get(self, url: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """A file, to be read a piece at a time: `patience` bounds each wait, not the whole."""
        if self._session is None:
            raise RequestNotSent("not connected")
        waits = aiohttp.ClientTimeout(
            total=None,
            connect=1.5 * self._patience,
            sock_connect=self._patience / 2,
            sock_read=self._patience,
        )
        return self._session.get(
            url, headers=file_download.HEADERS, timeout=waits, allow_redirects=False, auto_decompress=False
        )

    async def _exchange(
        self, url: str, method: str, sent: RequestData | None, patience: float
    ) -> tuple[int, bytes]:
        if self._session is None:
            raise RequestNotSent("not connected")
        connecting = self._patience / 2
        timeout = aiohttp.ClientTimeout(
            total=patience + 2 * self._patience,
            connect=self._patience + connecting,
            sock_connect=connecting,
            sock_read=patience,
        )
        body = _body(sent)
        async with self._session.request(
            method,
            url,
            data=body,
            headers=JSON if isinstance(body, bytes) else None,
            timeout=timeout,
            allow_redirects=False,
        ) as answer:
            return answer.status, await answer.read()


def _seconds(given: Any, pace: float, otherwise: float) -> float:
    return float(given) * pace if isinstance(given, int | float) else otherwise


def _body(sent: RequestData | None) -> aiohttp.FormData | bytes | None:
    if sent is None:
        return None
    if not sent.contains_files:
        return sent.json_payload
    # The service takes the name of a file as it stands there; percent signs would be shown.
    form = aiohttp.FormData(sent.json_parameters, quote_fields=False)
    for name, (file_name, content, mime) in sent.multipart_data.items():
        # It goes in pieces; bytes would keep the loop.
        data = io.BytesIO(content) if isinstance(content, bytes) else content
        form.add_field(name, data, filename=file_name, content_type=mime)
    return form


def _json_object(payload: bytes) -> Json | None:
    try:
        body = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _refusal(body: Json) -> Json:
    """The parts of an error answer that the library reads, each of the type that it expects."""
    parameters = body.get("parameters")
    moved = parameters.get("migrate_to_chat_id") if isinstance(parameters, dict) else None
    return {
        "description": _short(body.get("description")),
        "parameters": {"migrate_to_chat_id": moved} if type(moved) is int else None,
    }


def _short(description: object) -> str:
    """A reason as it may stand in a log line; the service's own are much shorter."""
    said = description if isinstance(description, str) else ""
    return text.head(" ".join(text.clean(said[:1_000]).split()), 200)


def _wait(body: Json) -> float:
    parameters = body.get("parameters")
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait > 0:
        return 1.0
    return min(float(wait), _LONGEST_WAIT)


class Bot(telegram.Bot):
    """The library's bot. Updates are raw JSON: one that cannot be decoded must not hide the others. Messages are sent as plain
    objects: of the answer nothing is needed but the number, so the library's own objects would be made for nothing.
    """

    async def shutdown(self) -> None:
        """Close both clients. The library's own leaves them open where its `initialize` was cancelled before it ended."""
        await super().shutdown()
        for request in self._request:
            await request.shutdown()

    async def say(self, message: Json) -> int:
        """Send a message with the fields of `sendMessage`; returns its number. Raises a `TelegramError`."""
        return _number_of(await self._post("sendMessage", message), "sendMessage")

    async def send_file(self, message: Json, file: OutgoingFile) -> int:
        """Send a file with the fields of `sendDocument`; returns the message's number. Raises a `TelegramError`."""
        document = telegram.InputFile(file.data, filename=file.name)
        document.mimetype = file.mime_type
        found = await self._post("sendDocument", {**message, "document": document}, read_timeout=FILE_SECONDS)
        return _number_of(found, "sendDocument")

    async def change(self, message: Json) -> None:
        """Change a message, with the fields of `editMessageText`. Raises a `TelegramError`."""
        await self._post("editMessageText", message)

    async def remove(self, chat: int, message: int) -> None:
        """Take a message away. Raises a `TelegramError`."""
        await self._post("deleteMessage", {"chat_id": chat, "message_id": message})

    async def draft(self, message: Json) -> None:
        """Show a message as being written, with the fields of `sendMessageDraft`. Raises a `TelegramError`."""
        await self._post("sendMessageDraft", message)

    async def show_typing(self, chat: int, thread: int | None) -> None:
        """Show that the bot writes. Raises a `TelegramError`."""
        await self._post("sendChatAction", {"chat_id": chat, "action": "typing", "message_thread_id": thread})

    async def react(self, emoji: str, chat: int, message: int) -> None:
        """Put a reaction below a message. Raises a `TelegramError`."""
        reaction = [{"type": "emoji", "emoji": emoji}]
        await self._post("setMessageReaction", {"chat_id": chat, "message_id": message, "reaction": reaction})

    async def raw_updates(
        self, offset: int | None, *, hold: int, patience: float, kinds: list[str], limit: int = 100
    ) -> list[Any]:
        """The updates from `offset` on, which confirms those before it. With none, waits for `hold` seconds."""
        data: Json = {"timeout": hold, "limit": limit, "allowed_updates": kinds, "offset": offset}
        found = await self._post("getUpdates", data, read_timeout=hold + patience)
        if not isinstance(found, list):
            raise OutcomeUnknown("getUpdates answered without a list")
        return found

    async def file_path(self, file_id: str) -> tuple[str, int | None]:
        """The path of a file below the service's address for files, valid for an hour, and its size. Raises a
        `TelegramError`.
        """
        found = await self._post("getFile", {"file_id": file_id})
        path = found.get("file_path") if isinstance(found, dict) else None
        if not isinstance(path, str):
            raise OutcomeUnknown("getFile answered without a path")
        size = found.get("file_size")
        return path, size if type(size) is int else None

    def download(self, path: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The file at a `file_path`."""
        return cast("HttpTransport", self._request[1]).get(f"{self._base_file_url}/{path}")


def _number_of(found: Any, method: str) -> int:
    if not (isinstance(found, dict) and type(found.get("message_id")) is int and "chat" in found):
        raise OutcomeUnknown(f"{method} answered without a message")
    return int(found["message_id"])


def connect(token: str, base_url: str, patience: float, pace: float = 1.0) -> Bot:
    """A bot that is not connected yet. Blocks for the certificates; call it off the loop."""
    # At INFO these loggers print addresses that hold the token, at DEBUG the library's own print messages.
    for name in ("httpx", "httpcore", "telegram"):
        logging.getLogger(name).setLevel(logging.WARNING)
    tls()
    return _bot(token, base_url, CONNECTIONS, patience, pace)


def _bot(token: str, base_url: str, connections: int, patience: float, pace: float) -> Bot:
    local = urlsplit(base_url).hostname in LOOPBACK
    return Bot(
        token,
        base_url=f"{base_url}/bot",
        base_file_url=f"{base_url}/file/bot",
        request=HttpTransport(connections=connections, patience=patience, pace=pace, direct=local),
        get_updates_request=HttpTransport(connections=2, patience=patience, pace=pace, direct=local),
    )


class VerifiedConnections:
    """Opens a new connection for each repeat of a message, and lets `getMe` prove it first. Where one fails, those that
    wait for a slot fail at once: they would only find out the same.
    """

    def __init__(self, token: str, base_url: str, *, patience: float, pace: float) -> None:
        self._token = token
        self._base_url = base_url
        self._patience = patience
        self._pace = pace
        self._places = asyncio.Semaphore(PROOFS)
        self._failed = 0

    @contextlib.asynccontextmanager
    async def open_verified(self) -> AsyncIterator[Bot]:
        """A bot with such a connection. Raises a `TelegramError` that says that nothing was sent."""
        failed = self._failed
        async with self._places:
            if failed != self._failed:
                raise RequestNotSent("another new connection has just not answered")
            bot = _bot(self._token, self._base_url, 1, self._patience, self._pace)
            try:
                try:
                    async with asyncio.timeout(PROOF_SECONDS * self._pace):
                        await bot.initialize()
                except (OutcomeUnknown, TimeoutError, *GARBLED):
                    self._failed += 1
                    raise RequestNotSent("a new connection does not answer") from None
                except RequestNotSent:
                    self._failed += 1
                    raise
                yield bot
            finally:
                await bot.shutdown()


@lru_cache(maxsize=1)
def tls() -> ssl.SSLContext:
    """One for all clients: reading the certificates takes tens of milliseconds."""
    return httpx.create_ssl_context()


def lacks_right(exc: TelegramError) -> bool:
    """True where Telegram refuses a call because the bot lacks a right in a chat."""
    return any(part in exc.message.lower() for part in NO_RIGHT)


def lacks_topic(exc: TelegramError) -> bool:
    """True where Telegram refuses a message because its topic takes none."""
    return any(part in exc.message.lower() for part in NO_TOPIC)


def said(exc: BaseException) -> str:
    """A failure in words, without those that may hold the token."""
    if isinstance(exc, InvalidToken):
        return "the bot token is refused"
    return str(exc) if isinstance(exc, TelegramError) else "something else than Telegram answers"


def delivery_error(exc: TelegramError) -> errors.DeliveryFailed:
    """The failure of a send, which says how sure it is that nothing was sent."""
    match exc:
        case TooManyRequests():
            return errors.DeliveryThrottled(f"Telegram: {exc}", retry_after=exc.wait)
        case RequestNotSent():
            return errors.DeliveryThrottled(f"Telegram cannot be reached: {exc}", retry_after=1.0)
        case OutcomeUnknown():
            return errors.DeliveryUncertain(f"Telegram did not confirm: {exc}")
        case ChatMigrated():
            sentence = f"the group became the supergroup {exc.new_chat_id}"
            return errors.TargetGone(sentence)
    said = exc.message.lower()
    if isinstance(exc, Forbidden) or lacks_right(exc) or any(part in said for part in GONE):
        return errors.TargetGone(f"Telegram: {exc}")
    return errors.DeliveryFailed(f"Telegram: {exc}")
