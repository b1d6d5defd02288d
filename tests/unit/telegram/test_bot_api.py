"""Tests of the HTTP transport."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from telegram import InputFile
from telegram.request import RequestData
from telegram.request._requestparameter import RequestParameter

from channels.telegram import adapter, bot_api
from tests.unit.telegram.bed import Bed, message


@pytest.fixture
async def client() -> AsyncIterator[bot_api.HttpTransport]:
    made = bot_api.HttpTransport(connections=2, patience=5, direct=True)
    await made.initialize()
    yield made
    await made.shutdown()


async def test_a_bot_whose_start_was_cancelled_at_any_moment_leaves_nothing_open(bed: Bed) -> None:
    with warnings.catch_warnings(record=True) as unclosed:
        warnings.simplefilter("always")
        for moment in range(8):
            bot = await asyncio.to_thread(bot_api.connect, "123456:token", bed.server.url, 5.0)
            starting = asyncio.create_task(bot.initialize())
            for _ in range(moment):
                await asyncio.sleep(0)
            starting.cancel()
            await asyncio.wait([starting])
            await bot.shutdown()
            del bot, starting
        gc.collect()
    assert [str(one.message) for one in unclosed if one.category is ResourceWarning] == []


async def test_messages_do_not_wait_behind_signs_of_work(bed: Bed) -> None:
    bed.server.chat(1001)
    bed.server.fail("sendChatAction", action="hang", times=1_000)
    signs = [
        asyncio.create_task(bed.channel.indicate({"chat_id": "1001"}, working=True))
        for _ in range(bot_api.CONNECTIONS + 1)
    ]
    await bed.server.until(lambda: len(bed.server.called("sendChatAction")) == adapter.SIGNS)
    await bed.channel.send(message("first"))
    assert [seen.text for seen in bed.server.visible()] == ["first"]
    for sign in signs:
        sign.cancel()
    await asyncio.wait(signs)
    assert len(bed.server.called("sendChatAction")) == adapter.SIGNS


async def test_a_connection_that_the_service_closed_meanwhile_is_not_used_again(bed: Bed) -> None:
    bed.server.chat(1001)
    await bed.channel.send(message("one"))
    await bed.server.stop()
    await bed.pausing()
    await bed.server.start()
    await bed.channel.send(message("two"))
    assert [seen.text for seen in bed.server.visible()] == ["one", "two"]


async def test_a_file_goes_as_one_part_and_the_parameters_as_others(client: bot_api.HttpTransport) -> None:
    got: dict[str, object] = {}

    async def take(request: web.Request) -> web.Response:
        form = await request.post()
        file = form["document"]
        assert isinstance(file, web.FileField)
        got.update(
            caption=form["caption"], name=file.filename, kind=file.content_type, content=file.file.read()
        )
        return web.json_response({"ok": True, "result": True})

    app = web.Application()
    app.router.add_post("/sendDocument", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    data = RequestData(
        [
            RequestParameter.from_input("caption", "写好了"),
            RequestParameter.from_input("document", InputFile(b"\0\1", filename="note.txt")),
        ]
    )
    port = runner.addresses[0][1]
    assert await client.post(f"http://127.0.0.1:{port}/sendDocument", data) is True
    await runner.cleanup()
    assert got == {"caption": "写好了", "name": "note.txt", "kind": "text/plain", "content": b"\0\1"}


async def test_what_is_not_connected_says_that_nothing_was_sent() -> None:
    with pytest.raises(bot_api.RequestNotSent):
        await bot_api.HttpTransport(connections=1, patience=1, direct=True).post("http://127.0.0.1:1/getMe")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/getMe", "nowhere at all", "http:///getMe"])
async def test_what_could_not_leave_was_not_sent(client: bot_api.HttpTransport, url: str) -> None:
    with pytest.raises(bot_api.RequestNotSent):
        await client.post(url)
