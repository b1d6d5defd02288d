"""Sends files: `files.getUploadURLExternal` returns a URL for the bytes, and `files.completeUploadExternal`
shares the file.
"""

from __future__ import annotations

import io
from typing import Any

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.contracts.outbound import Outbound, OutgoingFile, Sent
from channels.slack import failures, files

UPLOAD_SECONDS = 200.0
"""Timeout of the upload in seconds."""
MAX_SHARE_WAIT = 16.0
"""Max seconds to wait before the last attempt to share a file; this attempt is half a minute after the first."""
SKEW = 60.0
"""Max seconds by which Slack's clock may be behind."""
_EXPIRED = frozenset({404, 408, 410, 429})
"""HTTP statuses of an upload URL that is no longer valid. A new URL may work."""


async def send(
    client: AsyncWebClient,
    session: aiohttp.ClientSession,
    message: Outbound,
    file: OutgoingFile,
    clock: Clock,
) -> Sent:
    """Upload and share a file. Nothing is visible before the last call, so a failure before it can be
    retried. If the response of the last call is lost, `files.info` says whether the file was shared.
    Raises what `Channel.send` raises.
    """
    with failures.raised_as(_not_shown):
        file_id = await _upload(client, session, file)
    place, wait = None, 1.0
    while place is None:
        try:
            with failures.raised_as(_perhaps_shown):
                answer = await client.files_completeUploadExternal(
                    files=[{"id": file_id, "title": file.name}],
                    channel_id=message.target["channel"],
                    thread_ts=message.target.get("thread_ts"),
                    initial_comment=message.text.strip() or None,
                )
            place = _place(answer.get("files"), message.target["channel"]) or file_id
        except errors.DeliveryUncertain:
            if wait > MAX_SHARE_WAIT:
                raise errors.FileRefused("Slack does not share the file") from None
            await clock.sleep(wait)
            place, wait = await _shared(client, message.target["channel"], file_id), wait * 2
    return Sent(message_id=place)


async def _shared(client: AsyncWebClient, channel: str, file_id: str) -> str | None:
    """Return the `ts` of the message that shows a file; None if no message shows it. Raises
    `errors.DeliveryUncertain` if Slack does not say.
    """
    try:
        return _place([(await client.files_info(file=file_id)).get("file")], channel)
    except failures.CALL_ERRORS as error:
        if failures.error_code(error) == "file_not_found":
            return None
        raise errors.DeliveryUncertain(f"Slack does not tell of a file: {failures.name(error)}") from None


def is_in(post: Json, message: Outbound, file: OutgoingFile) -> bool:
    """Return True if a post of the bot shows this file. A file has no metadata, so name, size and time are
    compared. Posts and files of other outbox rows do not count.
    """
    carried = [one for one in post.get("files") or () if isinstance(one, dict)]
    return may_be(post, message) and any(
        (one.get("name"), one.get("size")) == (file.name, len(file.data))
        and one.get("id") not in message.claimed
        for one in carried
    )


def may_be(post: Json, message: Outbound) -> bool:
    """Return True if a post is not older than this message and does not belong to another outbox row."""
    return float(post["ts"]) >= message.meant_at - SKEW and str(post["ts"]) not in message.claimed


async def _upload(client: AsyncWebClient, session: aiohttp.ClientSession, file: OutgoingFile) -> str:
    told = await client.files_getUploadURLExternal(filename=file.name, length=len(file.data))
    address, file_id = told.get("upload_url"), told.get("file_id")
    own = files.hosts(str(client.base_url))
    if not isinstance(address, str) or not isinstance(file_id, str) or not address.startswith(own):
        raise _broken("Slack did not take a file: it names no address of its own")
    try:
        async with session.post(
            address,
            data=io.BytesIO(file.data),  # aiohttp sends a stream in chunks; bytes would block the event loop
            headers={"Content-Type": "application/octet-stream"},
            proxy=client.proxy,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=UPLOAD_SECONDS),
        ) as answer:
            if answer.status in _EXPIRED or answer.status >= 500:
                raise _broken(f"Slack did not take a file: status {answer.status}")
            if answer.status != 200:
                raise errors.FileRefused(f"Slack: the upload was refused, status {answer.status}")
    except (aiohttp.ClientError, OSError) as error:
        raise _broken(f"Slack did not take a file: {type(error).__name__}") from None
    return file_id


def _broken(words: str) -> errors.DeliveryThrottled:
    return errors.DeliveryThrottled(words, retry_after=1.0)


def _not_shown(error: BaseException) -> errors.DeliveryFailed:
    failure = _perhaps_shown(error)
    if isinstance(failure, errors.DeliveryUncertain):
        return errors.DeliveryThrottled(f"Slack: {failures.name(error)}", retry_after=1.0)
    return failure


def _perhaps_shown(error: BaseException) -> errors.DeliveryFailed:
    failure = failures.send_error(error)
    if type(failure) is not errors.DeliveryFailed:
        return failure
    return errors.FileRefused(f"Slack: {failures.name(error)}", forbidden=failures.lacks_right(error))


def _place(files: Any, channel: str) -> str | None:
    """Return the `ts` of the message in a channel that shows a file, from the file's `shares`."""
    for file in files if isinstance(files, list) else ():
        shares = file.get("shares") if isinstance(file, dict) else None
        for kind in shares.values() if isinstance(shares, dict) else ():
            for share in kind.get(channel) or () if isinstance(kind, dict) else ():
                if isinstance(share, dict) and isinstance(share.get("ts"), str):
                    return str(share["ts"])
    return None
