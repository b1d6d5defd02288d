"""Pictures that people send: told by their bytes, kept as they are, shown to the model."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import SeenFile
from bot.core import attachments
from bot.core.attachments import Limits
from bot.documents.pictures import LARGEST, Picture, picture_of
from tests.unit.gateway.conftest import SECRET, Bench
from tests.unit.gateway.picture_files import gif, jpeg, png, webp
from tests.unit.gateway.test_files import file, seen, whole

CHAT = ChatKey.parse("tele:chat:77")


@pytest.mark.parametrize(
    ("data", "picture"),
    [
        (png(640, 480), Picture("image/png", 640, 480)),
        (jpeg(1280, 720), Picture("image/jpeg", 1280, 720)),
        (gif(10, 20), Picture("image/gif", 10, 20)),
        (webp(b"VP8X", 4_000, 3_000), Picture("image/webp", 4_000, 3_000)),
        (webp(b"VP8L", 300, 200), Picture("image/webp", 300, 200)),
        (webp(b"VP8 ", 300, 200), Picture("image/webp", 300, 200)),
    ],
)
def test_a_picture_is_known_by_its_bytes(data: bytes, picture: Picture) -> None:
    assert picture_of(data) == picture
    for end in range(len(data)):
        found = picture_of(data[:end])
        assert found is None or found == picture


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xc4\x00\x04",
        b"\xff\xd8" + b"\xff\x01" * 40,
        png(0, 5),
        b"RIFF1234WAVE",
        b"BM" + bytes(40),
        b"<svg/>",
    ],
)
def test_what_is_none_or_damaged_is_none(data: bytes) -> None:
    assert picture_of(data) is None


def test_what_a_picture_takes_of_a_request_follows_from_its_pixels() -> None:
    assert Picture("image/png", 200, 200).tokens == 54
    assert Picture("image/png", 1_092, 1_092).tokens == 1_591
    assert Picture("image/png", 8_000, 8_000).tokens == 1_600
    assert Picture("image/png", 8_000, 80).tokens == 34


async def test_a_picture_is_kept_as_it_is_and_shown(bench: Bench) -> None:
    data = png(640, 480)
    bench.tele.files["f1"] = data
    (one,) = await seen(bench, file(kind="photo", mime="text/plain"))
    assert one.shown is not None
    assert (one.shown.type, one.shown.size, one.shown.tokens, one.artifact) == (
        "image/png",
        len(data),
        411,
        None,
    )
    assert base64.b64decode(await whole(bench, SeenFile(one.shown.artifact))) == data
    assert bench.tele.texts == ["re: look"]


async def test_a_picture_alone_is_a_message(bench: Bench) -> None:
    bench.tele.files["f1"] = png()
    (one,) = await seen(bench, file(kind="photo"), words="")
    assert one.read
    assert bench.tele.texts == ["re: "]


@pytest.mark.parametrize(
    ("data", "why", "told"),
    [
        (png(more=b"x" * LARGEST), "it is larger than 16 MB", ""),
        (png(more=b"y" * 300_000 + SECRET.encode()), "it holds one of my own secrets", ""),
        (errors.FileGone("gone"), "it is not there any more", "it isn't there any more"),
    ],
)
async def test_what_cannot_be_shown_is_told_and_not_kept(
    bench: Bench, data: Any, why: str, told: str
) -> None:
    bench.tele.files["f1"] = data
    (one,) = await seen(bench, file(kind="photo"))
    assert (one.shown, one.why) == (None, why)
    assert bench.tele.texts == [f"re: look\n\nI couldn't read “f1.log” ({told or why})."]
    assert not list(bench.root.glob("artifacts/*/*.txt"))
    kept = [path.read_bytes() for path in bench.root.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in data for data in kept)


async def test_a_damaged_picture_is_of_no_kind_that_is_read(bench: Bench) -> None:
    bench.tele.files["f1"] = b"\x89PNG\r\n\x1a\n" + bytes(100)
    (one,) = await seen(bench, file(kind="photo"))
    assert (one.read, one.why) == (False, "")
    assert bench.tele.texts == ["re: look\n\nI couldn't look at the photo you sent."]


async def test_where_the_model_sees_none_the_person_hears_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files=Limits(pictures=False))
    await bench.open()
    bench.tele.files["f1"] = png()
    (one,) = await seen(bench, file(kind="photo"))
    assert not one.read
    assert "I couldn't look at the photo" in bench.tele.texts[0]
    await bench.close()


async def test_the_pictures_of_a_message_have_a_bound_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "TOGETHER", 2_500)
    bench.tele.files |= {name: png(more=b"z" * 1_000) for name in ("f1", "f2", "f3")}
    found = await seen(bench, file("f1"), file("f2"), file("f3"))
    assert [one.read for one in found] == [True, True, False]
    assert found[2].why == "the pictures of one message may have 2.5 kB together"


async def test_after_a_restart_a_picture_is_known_and_one_that_has_gone_is_told(bench: Bench) -> None:
    bench.tele.files["f1"] = png()
    (one,) = await seen(bench, file(kind="photo"))
    inbound = bench.agent.requests[-1].inbound
    assert inbound is not None
    taken = bench.tele.taken
    assert await bench.files.read(inbound) == (one,)
    await bench.artifacts.forget(CHAT, (inbound.request_id,))
    (again,) = await bench.files.read(inbound)
    assert again.why == "it is not there any more"
    assert bench.tele.taken == taken
