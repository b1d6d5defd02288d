"""The files of a message: named as far as they can be, whatever is wrong with them; downloaded with the bot's token, from
Slack's own hosts alone.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot import errors, text
from bot.contracts.inbound import Attachment
from channels import file_download
from channels.slack import failures

MOST = 50
"""Files read of one message; Slack itself allows ten."""

Kind = Literal["photo", "video", "audio", "voice", "file"]
_KINDS: dict[str, Kind] = {"image": "photo", "video": "video", "audio": "audio"}
# Controls and the marks that turn the direction of writing: a name must read as it is written.
_MARKS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ID = re.compile(r"F[A-Z0-9]{2,40}")
_PAGE = "text/html"


def attachments(files: Any) -> tuple[Attachment, ...]:
    found = files[:MOST] if isinstance(files, list) else []
    return tuple(_attachment(file if isinstance(file, dict) else {}) for file in found)


def _attachment(file: dict[Any, Any]) -> Attachment:
    mime, size = _word(file.get("mimetype")), file.get("size")
    kind = _KINDS.get((mime or "").partition("/")[0], "file")
    return Attachment(
        kind="voice" if file.get("subtype") == "slack_audio" else kind,
        name=_word(file.get("name")),
        size=size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        mime=mime,
        ref=_word(file.get("id")),
    )


def _word(value: Any) -> str | None:
    return text.head(_MARKS.sub("", text.clean(value)), 255) or None if isinstance(value, str) else None


def hosts(base_url: str) -> tuple[str, ...]:
    """Prefixes that the address of a file must have: the host of the Web API, and the host of files beside it."""
    parts = urlsplit(base_url)
    own = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"
    return (own, f"https://files.{parts.hostname}/") if parts.scheme == "https" else (own,)


async def fetch(
    client: AsyncWebClient,
    session: aiohttp.ClientSession,
    attachment: Attachment,
    *,
    most: int,
    patience: float,
) -> AsyncGenerator[bytes]:
    """As `contracts.channel.Files.fetch`; `patience` bounds each wait for the network, in seconds."""
    file = await _described(client, attachment.ref or "")
    address, size = file.get("url_private_download"), file.get("size")
    own = hosts(str(client.base_url))
    # What is only linked has the address that somebody gave it, which may be that of a method.
    if file.get("is_external") or not isinstance(address, str) or not address.startswith(own):
        raise errors.FileGone("the file is not kept by Slack itself")
    try:
        async with session.get(
            address,
            headers={"Authorization": f"Bearer {client.token}", **file_download.HEADERS},
            proxy=client.proxy,
            allow_redirects=False,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=patience, sock_read=patience),
        ) as answer:
            file_download.check_status(answer.status, "Slack")
            if answer.content_type == _PAGE != file.get("mimetype"):
                # Instead of a refusal comes the page for signing in.
                raise errors.FileGone("Slack shows a page instead of the file")
            coming = file_download.read_chunks(answer, most, size if isinstance(size, int) else None)
            async with contextlib.aclosing(coming):
                async for piece in coming:
                    yield piece
    except file_download.CONNECTION_ERRORS as error:
        raise errors.FileUnreachable(f"Slack's file broke off: {type(error).__name__}") from None


async def _described(client: AsyncWebClient, name: str) -> dict[str, Any]:
    if _ID.fullmatch(name) is None:
        raise errors.FileGone("the message names no file")
    try:
        file = (await client.files_info(file=name)).get("file")
    except failures.CALL_ERRORS as error:
        kind: type[errors.FileFailed] = (
            errors.FileForbidden if failures.lacks_right(error) else errors.FileGone
        )
        kind = errors.FileUnreachable if failures.may_pass(error) else kind
        raise kind(f"Slack does not tell of the file: {failures.name(error)}") from None
    if not isinstance(file, dict):
        raise errors.FileUnreachable("Slack's answer names no file")
    return file
