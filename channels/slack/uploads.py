"""Sends files to conversations: Slack names an address, takes the bytes there, and shows the file once it is told to."""

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

SECONDS = 200.0
"""For the way of the bytes."""
LONGEST_SHARE_WAIT = 16.0
"""Before the last time that Slack is told to show a file: half a minute after the first."""
SKEW = 60.0
"""Seconds by which Slack's clock may be behind."""
_TRY_AGAIN = frozenset({404, 408, 410, 429})
"""Answers of an address that is not good any more; another one may be."""


async def send(
    client: AsyncWebClient,
    session: aiohttp.ClientSession,
    message: Outbound,
    file: OutgoingFile,
    clock: Clock,
) -> Sent:
    """Up to the last call nothing is shown: whatever fails before it surely did not arrive. Where the answer of that is lost,
    Slack is asked whether the file was shared, and told again. Raises as `Channel.send`.
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
            if wait > LONGEST_SHARE_WAIT:
                raise errors.FileRefused("Slack does not share the file") from None
            await clock.sleep(wait)
            place, wait = await _shared(client, message.target["channel"], file_id), wait * 2
    return Sent(message_id=place)


async def _shared(client: AsyncWebClient, channel: str, file_id: str) -> str | None:
    """The message that shows a file; None where it surely is in none. Raises `errors.DeliveryUncertain` where Slack does not say."""
    try:
        return _place([(await client.files_info(file=file_id)).get("file")], channel)
    except failures.CALL_ERRORS as error:
        if failures.error_code(error) == "file_not_found":
            return None
        raise errors.DeliveryUncertain(f"Slack does not tell of a file: {failures.name(error)}") from None


def is_in(post: Json, message: Outbound, file: OutgoingFile) -> bool:
    """True of a post of ours that shows this file. Slack lets a file have no mark of ours, so it is known by its name, size and
    time; neither the post nor its file is one that another row has.
    """
    carried = [one for one in post.get("files") or () if isinstance(one, dict)]
    return may_be(post, message) and any(
        (one.get("name"), one.get("size")) == (file.name, len(file.data))
        and one.get("id") not in message.claimed
        for one in carried
    )


def may_be(post: Json, message: Outbound) -> bool:
    """True where a post came late enough to be this message, and is that of no other row."""
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
            data=io.BytesIO(file.data),  # goes in pieces; bytes would keep the loop
            headers={"Content-Type": "application/octet-stream"},
            proxy=client.proxy,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=SECONDS),
        ) as answer:
            if answer.status in _TRY_AGAIN or answer.status >= 500:
                raise _broken(f"Slack did not take a file: status {answer.status}")
            if answer.status != 200:
                raise errors.FileRefused(f"Slack: the upload was refused, status {answer.status}")
    except (aiohttp.ClientError, OSError) as error:
        raise _broken(f"Slack did not take a file: {type(error).__name__}") from None
    return file_id


def _broken(words: str) -> errors.DeliveryThrottled:
    """The bytes did not get there; they may at another time."""
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
    """The message that shows the file, where Slack has said so by now."""
    for file in files if isinstance(files, list) else ():
        shares = file.get("shares") if isinstance(file, dict) else None
        for kind in shares.values() if isinstance(shares, dict) else ():
            for share in kind.get(channel) or () if isinstance(kind, dict) else ():
                if isinstance(share, dict) and isinstance(share.get("ts"), str):
                    return str(share["ts"])
    return None
