"""Voice notes: heard where somebody hears them, and else told plainly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot.contracts.inbound import Attachment
from bot.documents.decoder import sound_type
from bot.testing.transcription import FakeTranscriber
from bot.words import say
from tests.unit.gateway.conftest import SECRET, Bench
from tests.unit.gateway.test_files import file, seen, whole

SOUND = b"OggS\0\2" + bytes(90_000)
VOICE = Attachment(kind="voice", ref="v1", size=len(SOUND), mime="audio/ogg")


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"OggS\0", "audio/ogg"),
        (b"\0\0\0\x20ftypM4A ", "audio/mp4"),
        (b"ID3\4", "audio/mpeg"),
        (b"\xff\xfb\x90", "audio/mpeg"),
        (b"RIFF1234WAVEfmt ", "audio/wav"),
        (b"\x1a\x45\xdf\xa3\1", "audio/webm"),
        (b"fLaC\0", "audio/flac"),
        (b"RIFF1234WEBPVP8 ", None),
        (b"hello", None),
        (b"", None),
    ],
)
def test_a_recording_is_known_by_its_bytes(head: bytes, found: str | None) -> None:
    assert sound_type(head) == found


async def with_hearing(tmp_path: Path, said: dict[bytes, str]) -> Bench:
    bench = Bench(tmp_path, transcriber=FakeTranscriber(said))
    await bench.open()
    return bench


async def test_a_voice_note_is_heard_and_its_words_are_kept_without_our_secrets(tmp_path: Path) -> None:
    bench = await with_hearing(tmp_path, {SOUND: f" 你好, the key is {SECRET} \n"})
    bench.tele.files["v1"] = SOUND
    (one,) = await seen(bench, VOICE, words="")
    assert one.head == "你好, the key is [redacted]"
    assert await whole(bench, one) == one.head
    assert bench.tele.texts == ["re: "]
    inbound = bench.agent.requests[-1].inbound
    assert inbound is not None
    assert await bench.files.read(inbound) == (one,)
    await bench.close()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"OggS noise", "I couldn't read a file (I couldn't listen to it just now)."),
        (b"OggS silence", "I couldn't read a file (I heard no words in it)."),
        (b"#!/bin/sh", say("files.cannot_voice", count=1)),
        (SOUND + bytes(5_000_000), "I couldn't read a file (it is larger than 5 MB)."),
    ],
    ids=["noise", "silence", "no sound", "too large"],
)
async def test_of_what_was_not_heard_the_person_hears(tmp_path: Path, data: bytes, told: str) -> None:
    bench = await with_hearing(tmp_path, {b"OggS silence": " "})
    bench.tele.files["v1"] = data
    await bench.say("", attachments=(VOICE,))
    assert await bench.tele.until(1) == [told]
    await bench.idle()
    assert bench.agent.requests == []
    await bench.close()


async def test_an_audio_file_is_heard_too_and_text_in_one_is_not_read(tmp_path: Path) -> None:
    bench = await with_hearing(tmp_path, {SOUND: "a song"})
    bench.tele.files |= {"f1": SOUND, "f2": b"plain words"}
    one, other = await seen(bench, file("f1", kind="audio"), file("f2", kind="audio"))
    assert (one.head, other.read) == ("a song", False)
    await bench.close()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", say("files.cannot_voice", count=1)),
        ("look", f"re: look\n\n{say('files.cannot_voice', count=1)}"),
    ],
)
async def test_where_nobody_hears_the_person_is_told_to_write_and_nothing_is_fetched(
    bench: Bench, words: str, told: str
) -> None:
    bench.tele.files["v1"] = SOUND
    await bench.say(words, attachments=(VOICE,))
    assert await bench.tele.until(1) == [told]
    assert bench.tele.fetched == []


async def test_other_files_beside_a_voice_note_have_their_own_sentence(bench: Bench) -> None:
    video: Any = Attachment(kind="video", name="a.mp4")
    await bench.say("", attachments=(video, VOICE))
    assert await bench.tele.until(1) == [
        f"{say('files.cannot_video', count=1)} {say('files.cannot_voice', count=1)}"
    ]
