"""Downloads and uploads files. The bot's token is sent only to Slack's own hosts."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from bot import errors
from bot.contracts.environment import Clock
from bot.contracts.messages import Attachment, Outbound, OutgoingFile, Sent
from channels.http_api import HEADERS, download
from channels.slack import web_api

UPLOAD_SECONDS = 200.0  # Timeout in seconds of an upload
MAX_SHARE_WAIT = 16.0
"""Max seconds between two attempts to share an uploaded file. So the last attempt comes half a minute
after the first.
"""
_ID = re.compile(r"F[A-Z0-9]{2,40}")
_EXPIRED = frozenset({404, 408, 410, 429})
"""HTTP statuses of an expired upload URL. The upload is tried again with a new URL."""


def hosts(base_url: str) -> tuple[str, ...]:
    """Return the URL prefixes of Slack's files: the Web API's host and, if it uses HTTPS, also its `files.` host."""
    parts = urlsplit(base_url)
    own = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/"
    return (own, f"https://files.{parts.hostname}/") if parts.scheme == "https" else (own,)


async def fetch(
    client: web_api.WebClient, attachment: Attachment, *, most: int, patience: float
) -> AsyncGenerator[bytes]:
    """Yield the bytes of a file, as `contracts.channel.Channel.fetch` specifies. `patience` is a read's timeout in seconds."""
    if _ID.fullmatch(attachment.ref or "") is None:
        raise errors.FileGone("the message names no file")
    with web_api.raised_as(_unknown):
        file = (await client.files_info(file=attachment.ref or "")).get("file")
    if not isinstance(file, dict):
        raise errors.FileUnreachable("Slack's answer names no file")
    address = file.get("url_private_download")
    own = hosts(str(client.base_url))
    # The author of an external file chooses its URL, so the token must not be sent there.
    if file.get("is_external") or not isinstance(address, str) or not address.startswith(own):
        raise errors.FileGone("the file is not kept by Slack itself")
    headers = {"Authorization": f"Bearer {client.token}", **HEADERS}
    timeout = aiohttp.ClientTimeout(total=None, connect=patience, sock_read=patience)
    how: Any = {"proxy": client.proxy, "allow_redirects": False, "auto_decompress": False}
    opening = client.session.get(address, headers=headers, timeout=timeout, **how)
    pieces = download(opening, "Slack", most, file.get("size"), file.get("mimetype"))
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            yield piece


def _unknown(error: BaseException) -> errors.FileFailed:
    kind: type[errors.FileFailed] = errors.FileForbidden if web_api.lacks_right(error) else errors.FileGone
    kind = errors.FileUnreachable if web_api.may_pass(error) else kind
    return kind(f"files.info failed: {web_api.name(error)}")


async def send(client: web_api.WebClient, message: Outbound, file: OutgoingFile, clock: Clock) -> Sent:
    """Upload a file, then share it. Nobody sees an unshared file, so an upload that fails can be repeated. If the response to
    the share call is lost, `files.info` says if the file was shared. Raises the exceptions of `Channel.send`.
    """
    channel = message.target["channel"]
    with web_api.raised_as(_not_shown):
        file_id = await _upload(client, file)
    ts, wait = None, 1.0
    while ts is None:
        try:
            with web_api.raised_as(_perhaps_shown):
                shared: Any = [{"id": file_id, "title": file.name}]
                where: Any = {"channel_id": channel, "thread_ts": message.target.get("thread_ts")}
                comment = message.text.strip() or None
                complete = client.files_completeUploadExternal
                answer = await complete(files=shared, initial_comment=comment, **where)
            ts = _shown_at(answer.get("files"), channel) or file_id
        except errors.DeliveryUncertain:
            if wait > MAX_SHARE_WAIT:
                raise errors.FileRefused("Slack does not share the file") from None
            await clock.sleep(wait)
            try:
                ts = _shown_at([(await client.files_info(file=file_id)).get("file")], channel)
            except web_api.CALL_ERRORS as error:
                if web_api.error_code(error) != "file_not_found":
                    reason = web_api.name(error)
                    raise errors.DeliveryUncertain(f"files.info failed: {reason}") from None
            wait *= 2
    return Sent(message_id=ts)


async def _upload(client: web_api.WebClient, file: OutgoingFile) -> str:
    told = await client.files_getUploadURLExternal(filename=file.name, length=len(file.data))
    address, file_id = told.get("upload_url"), told.get("file_id")
    own = hosts(str(client.base_url))
    if not isinstance(address, str) or not isinstance(file_id, str) or not address.startswith(own):
        raise _broken("it names no address of its own")
    timeout = aiohttp.ClientTimeout(total=UPLOAD_SECONDS)
    headers = {"Content-Type": "application/octet-stream"}
    how: Any = {"proxy": client.proxy, "allow_redirects": False, "headers": headers, "timeout": timeout}
    # Pass a stream, which aiohttp sends in pieces. Sending all bytes at once would block the event loop.
    data = io.BytesIO(file.data)
    try:
        async with client.session.post(address, data=data, **how) as answer:
            if answer.status in _EXPIRED or answer.status >= 500:
                raise _broken(f"status {answer.status}")
            if answer.status != 200:
                raise errors.FileRefused(f"Slack: the upload was refused, status {answer.status}")
    except (aiohttp.ClientError, OSError) as error:
        raise _broken(type(error).__name__) from None
    return file_id


def _broken(reason: str) -> errors.DeliveryThrottled:
    return errors.DeliveryThrottled(f"Slack: the upload failed: {reason}", retry_after=web_api.SHORT)


def _not_shown(error: BaseException) -> errors.DeliveryFailed:
    failure = _perhaps_shown(error)
    return _broken(web_api.name(error)) if isinstance(failure, errors.DeliveryUncertain) else failure


def _perhaps_shown(error: BaseException) -> errors.DeliveryFailed:
    failure = web_api.send_error(error)
    if type(failure) is not errors.DeliveryFailed:
        return failure
    return errors.FileRefused(f"Slack: {web_api.name(error)}", forbidden=web_api.lacks_right(error))


def _shown_at(files: Any, channel: str) -> str | None:
    for file in files if isinstance(files, list) else ():
        shares = file.get("shares") if isinstance(file, dict) else None
        for kind in shares.values() if isinstance(shares, dict) else ():
            for share in kind.get(channel) or () if isinstance(kind, dict) else ():
                if isinstance(share, dict) and isinstance(share.get("ts"), str):
                    return str(share["ts"])
    return None
