"""PDFs that people send: shown where they are short, and read as text."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
from pathlib import Path

import pypdf
import pytest

from bot.contracts.inbound import SeenFile
from bot.core.attachments import Limits
from bot.documents import parser_process, pdf, reader
from bot.errors import NoReadableText
from tests.unit.gateway import picture_files
from tests.unit.gateway.conftest import SECRET, Bench
from tests.unit.gateway.test_files import file, seen, whole

TWO = picture_files.pdf("first words", "second words")
TEXT = "# Page 1\nfirst words\n\n# Page 2\nsecond words\n\n"


def protected() -> bytes:
    writer = pypdf.PdfWriter(io.BytesIO(TWO))
    writer.encrypt("password", algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


async def test_pages_and_text_are_read_by_another_process() -> None:
    found = await pdf.read(TWO, 10_000)
    assert (found.pages, found.text) == (2, TEXT)
    assert (await pdf.read(TWO, 12)).text == TEXT[:12]
    assert (await pdf.read(picture_files.pdf("", ""), 100)).text == ""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"%PDF-1.7\nnothing", ""),
        (TWO[:300], ""),
        (protected(), pdf.PROTECTED),
        (TWO.replace(b"/Kids[4 0 R 6 0 R]", b"/Kids[2 0 R 2 0 R]"), ""),
    ],
    ids=["no PDF", "cut", "protected", "a loop"],
)
async def test_what_cannot_be_read_is_none(data: bytes, why: str) -> None:
    with pytest.raises(NoReadableText) as caught:
        await pdf.read(data, 1_000)
    assert caught.value.why == why


async def test_a_parser_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    endless = tmp_path / "endless.py"
    endless.write_text("while True: pass")
    with pytest.raises(NoReadableText):
        await parser_process.run(TWO, reader=endless, seconds=0.2)


async def test_a_stop_ends_the_parser(tmp_path: Path) -> None:
    begun, endless = tmp_path / "begun", tmp_path / "endless.py"
    os.mkfifo(begun)
    endless.write_text(
        f"import os\nwith open({str(begun)!r}, 'w') as told: told.write(str(os.getpid()))\nwhile True: pass"
    )
    reading = asyncio.create_task(parser_process.run(TWO, reader=endless))
    process = int(await asyncio.to_thread(begun.read_text))
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_the_reader_tells_its_facts_first() -> None:
    for data, facts, words in ((TWO, {"pages": 2}, TEXT), (protected(), {"protected": True}, "")):
        out = io.StringIO()
        reader.tell(data, 10_000, out)
        head, _, rest = out.getvalue().partition("\n")
        assert (json.loads(head), rest) == (facts, words)
    out = io.StringIO()
    reader.tell(TWO, 5, out)
    assert out.getvalue() == '{"pages": 2}\n# Pag'


async def test_a_short_one_is_shown_and_its_text_is_kept_beside_it(bench: Bench) -> None:
    bench.tele.files["f1"] = TWO
    (one,) = await seen(bench, file(mime="image/png"))
    assert (one.head, one.lines) == (TEXT, 6)
    assert one.shown is not None
    assert (one.shown.type, one.shown.size) == ("application/pdf", len(TWO))
    assert one.shown.tokens == 2 * 1_600 + len(TEXT) // 3
    assert base64.b64decode(await whole(bench, SeenFile(one.shown.artifact))) == TWO
    assert bench.tele.texts == ["re: look"]
    inbound = bench.agent.requests[-1].inbound
    assert inbound is not None
    assert await bench.files.read(inbound) == (one,)
    await bench.artifacts.forget(inbound.chat_key, (inbound.request_id,))
    assert [again.why for again in await bench.files.read(inbound)] == ["it is not there any more"]


async def test_of_a_long_one_the_text_alone_is_read(tmp_path: Path) -> None:
    bench = Bench(tmp_path, files=Limits(pages=1))
    await bench.open()
    bench.tele.files |= {"f1": TWO, "f2": picture_files.pdf("", "")}
    one, empty = await seen(bench, file(), file("f2"))
    assert (one.shown, one.head) == (None, TEXT)
    assert (empty.read, empty.why) == (False, "it has 2 pages and no text that could be read")
    await bench.close()


async def test_a_scan_is_shown_without_text(bench: Bench) -> None:
    bench.tele.files["f1"] = picture_files.pdf("")
    (one,) = await seen(bench, file())
    assert one.shown is not None
    assert one.artifact is None
    inbound = bench.agent.requests[-1].inbound
    assert inbound is not None
    assert await bench.files.read(inbound) == (one,)


async def test_one_that_holds_a_secret_of_ours_is_not_shown(bench: Bench) -> None:
    bench.tele.files |= {
        "f1": picture_files.pdf(f"key {SECRET}"),
        "f2": picture_files.pdf("", more=SECRET.encode()),
    }
    one, other = await seen(bench, file(), file("f2"))
    assert (one.shown, one.head) == (None, "# Page 1\nkey [redacted]\n\n")
    assert (other.read, other.why) == (False, "it holds one of my own secrets")
    kept = [path.read_bytes() for path in bench.root.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in data for data in kept)
