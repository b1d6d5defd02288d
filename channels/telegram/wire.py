"""python-telegram-bot with an HTTP layer that tells what surely did not happen from what may have."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import httpx
import telegram
from telegram.error import ChatMigrated, Forbidden, NetworkError, TelegramError
from telegram.request import HTTPXRequest, RequestData

from bot import errors
from bot.contracts import Json

UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
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
"""What the library raises when it decodes an object that is not what it claims to be."""

GONE = (
    "chat not found",
    "chat was deactivated",
    "peer_id_invalid",
    "not enough rights",
    "have no rights",
    "chat_write_forbidden",
    "need administrator rights",
    "topic_closed",
    "topic_deleted",
)
"""Parts of a 400's description that mean that nobody can be reached there."""

CONNECTIONS = 16
"""Requests at once: at a tenth of a second each, five times as many as the service takes of one bot."""

_LONGEST_WAIT = 24 * 3600.0


class Unsent(NetworkError):
    """The request did not leave, or was refused without being executed."""


class Unclear(NetworkError):
    """The request left, and what became of it is unknown."""


class Flood(TelegramError):
    """The service asks to wait. `wait` is in seconds."""

    def __init__(self, wait: float) -> None:
        super().__init__(f"asked to wait {wait:g} s")
        self.wait = wait


class Wire(HTTPXRequest):
    """One HTTP client. What it raises or returns is sorted before the library sees it.

    Requests wait here for one of `connections` and never in the client's pool, whose work for each request grows
    with the number of those that wait.
    """

    def __init__(self, *, connections: int, patience: float, options: Json) -> None:
        super().__init__(
            connection_pool_size=connections,
            read_timeout=patience,
            write_timeout=patience,
            connect_timeout=patience / 2,
            pool_timeout=patience,
            httpx_kwargs=options,
        )
        self._places = asyncio.Semaphore(connections)

    async def do_request(
        self, url: str, method: str, request_data: RequestData | None = None, *args: Any, **kwargs: Any
    ) -> tuple[int, bytes]:
        try:
            async with self._places:
                status, payload = await super().do_request(url, method, request_data, *args, **kwargs)
        except NetworkError as exc:
            kind = Unsent if isinstance(exc.__cause__, UNSENT) else Unclear
            raise kind(type(exc.__cause__ or exc).__name__) from exc
        body = _json_object(payload)
        if status >= 500 or (
            status < 300 and (body is None or body.get("ok") is not True or "result" not in body)
        ):
            raise Unclear(f"status {status} without an answer")
        if status == 429:
            raise Flood(_wait(body or {}))
        if status >= 300:
            return status, json.dumps(_refusal(body or {})).encode()
        return status, payload


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
        "description": str(body.get("description") or ""),
        "parameters": {"migrate_to_chat_id": moved} if type(moved) is int else None,
    }


def _wait(body: Json) -> float:
    parameters = body.get("parameters")
    wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
    if isinstance(wait, bool) or not isinstance(wait, (int, float)) or not wait > 0:
        return 1.0
    return min(float(wait), _LONGEST_WAIT)


class Bot(telegram.Bot):
    """The library's bot, with updates as raw JSON: one that cannot be decoded must not hide the others."""

    async def raw_updates(
        self, offset: int | None, *, hold: int, patience: float, kinds: list[str], limit: int = 100
    ) -> list[Any]:
        """The updates from `offset` on, which confirms those before it. With none, waits for `hold` seconds."""
        data: Json = {"timeout": hold, "limit": limit, "allowed_updates": kinds, "offset": offset}
        found = await self._post("getUpdates", data, read_timeout=hold + patience)
        if not isinstance(found, list):
            raise Unclear("getUpdates answered without a list")
        return found


def connect(token: str, base_url: str, patience: float) -> Bot:
    """A bot that is not connected yet. Blocks for the certificates; call it off the loop."""
    # At INFO these loggers print addresses that hold the token, at DEBUG the library's own print messages.
    for name in ("httpx", "httpcore", "telegram"):
        logging.getLogger(name).setLevel(logging.WARNING)
    local = urlsplit(base_url).hostname in {"127.0.0.1", "::1", "localhost"}
    # No proxy stands before loopback.
    options = {"verify": _tls(), "trust_env": not local}

    return Bot(
        token,
        base_url=f"{base_url}/bot",
        base_file_url=f"{base_url}/file/bot",
        request=Wire(connections=CONNECTIONS, patience=patience, options=options),
        get_updates_request=Wire(connections=2, patience=patience, options=options),
    )


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """One for all clients: reading the certificates takes tens of milliseconds."""
    return httpx.create_ssl_context()


def delivery_error(exc: TelegramError) -> errors.DeliveryFailed:
    """How sure it is that a message was not sent."""
    match exc:
        case Flood():
            return errors.DeliveryThrottled(f"Telegram: {exc}", retry_after=exc.wait)
        case Unsent():
            return errors.DeliveryThrottled(f"Telegram cannot be reached: {exc}", retry_after=1.0)
        case Unclear():
            return errors.DeliveryUncertain(f"Telegram did not confirm: {exc}")
        case ChatMigrated():
            sentence = f"the group became the supergroup {exc.new_chat_id}, which must be let in anew"
            return errors.TargetGone(sentence)
    if isinstance(exc, Forbidden) or any(part in exc.message.lower() for part in GONE):
        return errors.TargetGone(f"Telegram: {exc}")
    return errors.DeliveryFailed(f"Telegram: {type(exc).__name__}: {exc}")
