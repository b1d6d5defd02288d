"""Tests of the download of files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.messages import Attachment
from bot.testing.telegram_service import FILE_LIMIT
from channels.telegram import bot_api
from tests.timers import leap_until_done
from tests.unit.telegram.bed import PATIENCE, Bed

DATA = "שורה\n猫\n".encode() * 100


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    made = Bed(tmp_path)
    async with made.server:
        made.channel = made.build()
        await made.channel.start(made.intake)
        yield made
        await made.channel.stop()


async def sent(bed: Bed, data: bytes = DATA) -> Attachment:
    bed.server.say(media="document", data=data, file_name="notes.txt")
    (file,) = (await bed.taken()).attachments
    return file


async def fetched(bed: Bed, file: Attachment) -> bytes:
    return b"".join([piece async for piece in bed.channel.fetch(file, most=10**8)])


async def refused(bed: Bed, file: Attachment, error: type[errors.FileFailed]) -> None:
    with pytest.raises(error) as caught:
        await fetched(bed, file)
    assert bed.server.token not in str(caught.value)
    assert bed.server.token not in bed.log.text


async def test_what_is_too_large_for_bots_is_not_fetched(bed: Bed) -> None:
    await refused(bed, await sent(bed, b"a" * (FILE_LIMIT + 1)), errors.FileTooLarge)
    assert bed.server.called("file") == []


async def test_a_place_that_is_no_longer_good_is_asked_for_anew(bed: Bed) -> None:
    file = await sent(bed)
    bed.server.fail("getFile", action="late", seconds=3_700)
    fetching = asyncio.create_task(fetched(bed, file))
    await bed.server.until(lambda: bool(bed.server.called("getFile")))
    await bed.server.clock.advance(3_700)  # type: ignore[attr-defined]
    with pytest.raises(errors.FileGone):
        await fetching
    assert await fetched(bed, file) == DATA


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "../bot1/getMe",
        "documents/../../x",
        "documents/",
        "http://evil.test/x",
        "",
        ".",
        None,
        7,
    ],
)
async def test_a_place_that_is_none_of_the_services_own_is_not_looked_at(bed: Bed, path: Any) -> None:
    file = await sent(bed)
    body = {"ok": True, "result": {"file_id": "x", "file_unique_id": "x", "file_path": path}}
    bed.server.fail("getFile", status=200, body=body)
    await refused(bed, file, errors.FileGone if isinstance(path, str) else errors.FileUnreachable)
    assert bed.server.called("file") == []


async def test_a_place_may_have_any_name(bed: Bed) -> None:
    bed.server.files["ünïcode name?#%2e.c++"] = DATA
    named = {"file_id": "x", "file_unique_id": "x", "file_path": "documents/ünïcode name?#%2e.c++"}
    bed.server.paths[named["file_path"]] = bed.server.clock.now() + 9
    bed.server.fail("getFile", status=200, body={"ok": True, "result": named})
    assert await fetched(bed, Attachment(kind="file", ref="x")) == DATA


@pytest.mark.parametrize(
    "how", [{"status": 502}, {"status": 429}, {"action": "lose"}, {"status": 200, "body": "[]"}], ids=str
)
async def test_what_the_service_cannot_tell_now_it_may_tell_later(bed: Bed, how: dict[str, Any]) -> None:
    file = await sent(bed)
    bed.server.fail("getFile", times=2, **how)
    await refused(bed, file, errors.FileUnreachable)


async def test_a_file_that_stalls_is_given_up(bed: Bed) -> None:
    file = await sent(bed)
    bed.server.fail("file", action="stall")
    fetching = asyncio.create_task(fetched(bed, file))
    await bed.server.until(lambda: bool(bed.server.called("file")))
    await leap_until_done(fetching, PATIENCE)
    with pytest.raises(errors.FileUnreachable):
        await fetching


async def test_what_is_asked_of_a_channel_that_stops_meanwhile_fails_plainly(bed: Bed) -> None:
    file = await sent(bed)
    pieces = bed.channel.fetch(file, most=10)
    await bed.channel.stop()
    with pytest.raises(errors.FileUnreachable):
        await anext(pieces)
    with pytest.raises(bot_api.RequestNotSent):
        bot_api.HttpTransport(connections=1, patience=1, direct=True).get(bed.server.url)
