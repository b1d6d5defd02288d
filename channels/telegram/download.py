"""Downloads the files of messages."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from urllib.parse import quote

from telegram.error import TelegramError

from bot import errors
from bot.contracts.inbound import Attachment
from channels import file_download
from channels.telegram import bot_api

_ELSEWHERE = {"", ".", ".."}
"""Path segments with which a path could leave the folder of files: relative segments, and "", with which an
absolute path begins.
"""


async def fetch(bot: bot_api.Bot, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
    """Yield the bytes of a file, as `contracts.channel.Files.fetch` does."""
    path, size = await _described(bot, attachment.ref or "")
    try:
        async with bot.download(path) as answer:
            file_download.check_status(answer.status, "Telegram")
            coming = file_download.read_chunks(answer, most, size)
            async with contextlib.aclosing(coming):
                async for piece in coming:
                    yield piece
    except (bot_api.RequestNotSent, *file_download.CONNECTION_ERRORS) as error:
        # The messages of these exceptions contain the address, which contains the token.
        raise errors.FileUnreachable(f"the download from Telegram failed: {type(error).__name__}") from None


async def _described(bot: bot_api.Bot, name: str) -> tuple[str, int | None]:
    if not name:
        raise errors.FileGone("the message names no file")
    try:
        path, size = await bot.file_path(name)
    except (
        bot_api.RequestNotSent,
        bot_api.OutcomeUnknown,
        bot_api.TooManyRequests,
        *bot_api.GARBLED,
    ) as error:
        raise errors.FileUnreachable(f"Telegram's getFile failed: {type(error).__name__}") from None
    except TelegramError as error:
        if "too big" in error.message.lower():
            raise errors.FileTooLarge(f"Telegram: {error}") from None
        raise errors.FileGone(f"Telegram: {error}") from None
    if not _ELSEWHERE.isdisjoint(path.split("/")):
        raise errors.FileGone("Telegram gives a path outside of its files")
    return quote(path), size
