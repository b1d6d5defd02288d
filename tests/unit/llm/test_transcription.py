"""Requests to a transcription endpoint, and its failures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from bot import errors
from bot.llm.transcription import HttpTranscriber
from bot.testing.transcription import TranscriptionServer

SOUND, SILENCE = b"OggS\0 1234", b"OggS silence"


@pytest.fixture
async def server() -> AsyncIterator[TranscriptionServer]:
    async with TranscriptionServer({SOUND: "hello", SILENCE: ""}, key="sk-secret") as server:
        yield server


async def heard(server: TranscriptionServer, **more: Any) -> str:
    endpoint = (f"{server.url}/v1", more.pop("model", "whisper-1"), more.pop("key", "sk-secret"))
    return await HttpTranscriber(*endpoint, **more).transcribe(SOUND, "audio/ogg")


async def test_the_recording_goes_out_once_with_key_model_and_a_name_for_its_format(
    server: TranscriptionServer,
) -> None:
    assert await heard(server) == "hello"
    (call,) = server.calls
    assert call.params == {"model": "whisper-1", "response_format": "json", "file": "voice.ogg"}
    assert call.headers["Authorization"] == "Bearer sk-secret"


async def test_silence_has_no_words_and_noise_is_a_failure(server: TranscriptionServer) -> None:
    transcriber = HttpTranscriber(f"{server.url}/v1/", "whisper-1", "sk-secret")
    assert await transcriber.transcribe(SILENCE, "audio/ogg") == ""
    with pytest.raises(errors.TranscriptionFailed):
        await transcriber.transcribe(b"OggS noise", "audio/ogg")


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({"status": 500, "body": "no"}, "500"),
        ({"status": 302, "headers": {"Location": "http://127.0.0.1:9/"}}, "302"),
        ({"action": "cut"}, "cannot be reached"),
        ({"status": 200, "body": "not JSON"}, "not valid"),
        ({"status": 200, "body": {"text": 5}}, "not valid"),
    ],
    ids=["error", "redirect", "cut", "no JSON", "no text"],
)
async def test_each_failure_is_one_of_hearing_and_says_nothing_of_the_key(
    server: TranscriptionServer, fault: dict[str, Any], cause: str
) -> None:
    server.fail("transcriptions", **fault)
    with pytest.raises(errors.TranscriptionFailed, match=cause) as caught:
        await heard(server)
    assert "sk-secret" not in str(caught.value)
    assert await heard(server) == "hello"


async def test_a_wrong_key_or_model_is_not_heard(server: TranscriptionServer) -> None:
    for wrong in ({"key": "other"}, {"key": None}, {"model": "none"}):
        with pytest.raises(errors.TranscriptionFailed):
            await heard(server, **wrong)


async def test_an_endpoint_that_never_answers_is_given_up(server: TranscriptionServer) -> None:
    server.fail("transcriptions", action="hang")
    with pytest.raises(errors.TranscriptionFailed):
        await heard(server, seconds=0.2)
