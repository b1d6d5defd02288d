"""Which files a browser may display, and how they are served: their bytes decide, not their names."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from bot.contracts.channel import Channel
from bot.contracts.outbound import OutgoingFile
from bot.testing.intake import RecordingIntake
from channels.web.files import MOST_PIXELS
from tests.contracts.channel_contract import reply
from tests.contracts.web_rig import Browser

HTML = b"<!doctype html><script>alert(1)</script>"
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
PDF = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj"
SIZE = (30, 20)


def picture(kind: str, **how: Any) -> bytes:
    kept = io.BytesIO()
    Image.new("RGB", SIZE).save(kept, kind, **how)
    return kept.getvalue()


def lying() -> bytes:
    """A photo whose EXIF data say that it is shown turned by 90 degrees."""
    exif = Image.Exif()
    exif[0x010F], exif[0x0112] = "a camera", 6
    return picture("JPEG", exif=exif, icc_profile=bytes(70_000))


def png_of(width: int, height: int) -> bytes:
    """The beginning of a PNG of this size, whatever follows it."""
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
    """The type of a file, how the browser is to take it, its policy, and its bytes."""
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
