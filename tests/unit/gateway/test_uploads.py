"""While memory is short files are refused with a plain sentence, and text is answered all the same."""

from __future__ import annotations

from bot.contracts.inbound import Attachment
from bot.words import say
from tests.unit.gateway.conftest import Bench

NO_ROOM = say("files.no_room")

PHOTO = Attachment(kind="photo", name="猫.jpg", size=4_000_000_000)


async def test_a_file_alone_is_refused_and_logged(bench: Bench) -> None:
    bench.full = True
    assert await bench.say("", attachments=(PHOTO, PHOTO))
    assert await bench.tele.until(1) == [NO_ROOM]
    assert bench.agent.requests == []
    (line,) = bench.log.of("memory")
    assert (line.level, line.details) == ("warn", {"files": 2})


async def test_the_text_beside_a_file_is_answered_and_the_file_is_refused(bench: Bench) -> None:
    bench.full = True
    await bench.say("שלום, what is this?", attachments=(PHOTO,))
    assert await bench.tele.until(1) == [f"re: שלום, what is this?\n\n{NO_ROOM}"]


async def test_text_is_answered_as_ever_and_files_again_once_there_is_room(bench: Bench) -> None:
    bench.full = True
    await bench.say("no file here")
    bench.full = False
    await bench.say("", attachments=(PHOTO,))
    texts = await bench.tele.until(2)
    assert "re: no file here" in texts
    assert not any(NO_ROOM in words for words in texts)
    assert bench.log.of("memory") == []
