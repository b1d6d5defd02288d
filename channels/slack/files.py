"""Reads the files of a message and downloads them with the bot's token, only from Slack's own hosts."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncGenerator
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot import errors
from bot.contracts.inbound import Attachment
from channels import file_download
from channels.slack import failures

MAX_FILES = 50
"""Max files of one message that are read. Slack allows ten."""

Kind = Literal["photo", "video", "audio", "voice", "file"]
_KINDS: dict[str, Kind] = {"image": "photo", "video": "video", "audio": "audio"}
_ID = re.compile(r"F[A-Z0-9]{2,40}")
_PAGE = "text/html"


def attachments(files: Any) -> tuple[Attachment, ...]:
    found = files[:MAX_FILES] if isinstance(files, list) else []
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
    return file_download.file_name(value) or None if isinstance(value, str) else None


def hosts(base_url: str) -> tuple[str, ...]:
    """Return the URL prefixes of Slack's files: the host of the Web API and its `files.` host."""
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
    """Yield the bytes of a file, as `contracts.channel.Files.fetch` does. `patience` is the timeout of each
    read in seconds.
    """
    file = await _described(client, attachment.ref or "")
    address, size = file.get("url_private_download"), file.get("size")
    own = hosts(str(client.base_url))
    # The author of an external file chooses its URL, which may be the URL of a Web API method.
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
                # Slack returned its sign-in page.
                raise errors.FileGone("Slack shows a page instead of the file")
            chunks = file_download.read_chunks(answer, most, size if isinstance(size, int) else None)
            async with contextlib.aclosing(chunks):
                async for chunk in chunks:
                    yield chunk
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
