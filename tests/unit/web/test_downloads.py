"""A browser displays or saves a file of its chat. The file's bytes decide, not its name."""

from __future__ import annotations

import asyncio
import io
import struct
import tracemalloc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from PIL import Image

from bot.contracts.channel import Channel
from bot.contracts.messages import OutgoingFile
from bot.http_server import Connections
from bot.testing.clock import FakeClock
from bot.testing.intake import RecordingIntake
from bot.testing.log import MemoryLog
from channels.web import routes
from channels.web.files import MOST_PIXELS
from channels.web.manifest import MANIFEST, WebSettings
from tests.contracts.channel_contract import reply, surroundings
from tests.contracts.web_rig import Browser

BYTES = bytes(range(256)) * 80_000


@pytest.fixture
def connections(clock: FakeClock) -> Connections:
    return Connections(8, clock=clock, log=MemoryLog())


@pytest.fixture
async def channel(
    tmp_path: Path, clock: FakeClock, intake: RecordingIntake, connections: Connections
) -> AsyncIterator[Channel]:
    """A channel whose server uses the fake clock."""
    around = replace(surroundings(tmp_path, clock), serve=connections.server)
    channel = MANIFEST.build(WebSettings(port=0), around)
    await channel.start(intake)
    yield channel
    await channel.stop()


@pytest.fixture
async def place(channel: Channel, browser: Browser, intake: RecordingIntake) -> str:
    """Let the bot send a file of 20 MB, and return its address."""
    await browser.say("a table, please", "m1")
    message = replace(reply(intake.accepted[0], ""), file=OutgoingFile("table.csv", "text/csv", BYTES))
    sent = await channel.send(message)
    return f"{browser.url}/api/files/{sent.message_id}"


async def test_little_of_it_is_in_memory(browser: Browser, place: str) -> None:
    tracemalloc.start()
    try:
        async with asyncio.timeout(90), browser.http.get(place) as answer:
            assert await answer.content.read(1_000) == BYTES[:1_000]
            held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert max(held, most) < len(BYTES) / 4


async def test_who_takes_nothing_is_given_up(
    browser: Browser, place: str, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "STALLED_SECONDS", 0.05)
    async with asyncio.timeout(90):
        answer = await browser.http.get(place)
        while any(one.connections for one in connections.servers):  # noqa: ASYNC110 - until the server has closed it
            await asyncio.sleep(0)
        with pytest.raises(aiohttp.ClientError):
            await answer.read()


async def test_a_head_has_the_size_alone(browser: Browser, place: str) -> None:
    async with browser.http.head(place) as answer:
        assert (answer.content_length, await answer.read()) == (len(BYTES), b"")


HTML = b"<!doctype html><script>alert(1)</script>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj"
SIZE = (30, 20)


def picture(kind: str, **how: Any) -> bytes:
    kept = io.BytesIO()
    Image.new("RGB", SIZE).save(kept, kind, **how)
    return kept.getvalue()


def lying() -> bytes:
    """Return a photo whose EXIF data turn it by 90 degrees."""
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "a camera", 6
    return picture("JPEG", exif=exif, icc_profile=bytes(70_000))


def png_of(width: int, height: int) -> bytes:
    """Return the beginning of a PNG of this size."""
    return picture("PNG")[:16] + struct.pack(">II", width, height) + picture("PNG")[24:]


SHOWN = [
    (picture("PNG"), "image/png", SIZE),
    (picture("JPEG"), "image/jpeg", SIZE),
    (picture("GIF"), "image/gif", SIZE),
    (picture("WEBP"), "image/webp", SIZE),
    (picture("WEBP", lossless=True), "image/webp", SIZE),
    (lying(), "image/jpeg", SIZE),
    (picture("PNG") + HTML, "image/png", SIZE),
    (b"GIF89a/*" + picture("GIF")[8:] + b"*/=1;alert(1)", "image/gif", None),
    (PDF, "application/pdf", None),
]
SAVED = [
    HTML,
    SVG,
    b"",
    HTML + picture("PNG"),
    b"\n" + PDF,
    picture("PNG")[:20],
    picture("JPEG")[:30],
    png_of(0, 10),
    png_of(40_000, 40_000),
    png_of(MOST_PIXELS // 10 + 1, 10),
    picture("BMP"),
    picture("TIFF"),
]


async def served(browser: Browser, id_: str) -> tuple[str, str, str, bytes]:
    """Return the content type of a file, its disposition, its content policy and its bytes."""
    async with browser.http.get(f"{browser.url}/api/files/{id_}") as answer:
        assert answer.status == 200
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["X-Frame-Options"] == "DENY"
        told, policy = answer.content_disposition, answer.headers["Content-Security-Policy"]
        assert told is not None
        assert policy.startswith("default-src 'none'; ")
        assert "script-src" not in policy
        return answer.content_type, told.type or "", policy, await answer.read()


async def test_a_picture_or_pdf_is_displayed_as_what_it_is_whatever_it_is_called(
    browser: Browser, channel: Channel, intake: RecordingIntake
) -> None:
    for data, kind, sides in SHOWN:
        id_ = await browser.give(data, "page.html", "text/html")
        assert (await browser.post("/api/messages", {"text": "", "clientId": id_, "files": [id_]}))[0] == 202
        sent = await channel.send(
            replace(
                reply(intake.accepted[-1], "here"),
                id=f"0{id_[1:-1]}X",
                file=OutgoingFile("a.csv", "text/csv", data),
            )
        )
        for file in (id_, sent.message_id):
            found, how, policy, body = await served(browser, file)
            assert (found, how, body) == (kind, "inline", data)
            assert ("sandbox" in policy) == (kind != "application/pdf")
        for message in (await browser.page())[-2:]:
            (shown,) = message["files"]
            assert shown["type"] == kind
            if sides is not None:
                assert (shown["width"], shown["height"]) == sides


@pytest.mark.parametrize("data", SAVED, ids=range(len(SAVED)))
async def test_any_other_file_is_saved_whatever_it_is_called(browser: Browser, data: bytes) -> None:
    id_ = await browser.give(data, "picture.png", "image/png")
    found, how, policy, body = await served(browser, id_)
    assert (found, how, body) == ("application/octet-stream", "attachment", data)
    assert policy.endswith("sandbox")
    await browser.post("/api/messages", {"text": "look", "clientId": id_, "files": [id_]})
    assert (await browser.page())[-1]["files"] == [{"id": id_, "name": "picture.png", "size": len(data)}]
