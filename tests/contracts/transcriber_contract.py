"""The tests that every `contracts.transcription.Transcriber` must pass."""

from __future__ import annotations

import pytest

from bot import errors
from bot.contracts.model import Transcriber

SAID = {b"OggS one": "你好, what is 2 + 2? 🎉", b"OggS silence": ""}
"""Recordings, each with the text that is spoken in it."""


class TranscriberContract:
    """Tests of a transcriber. Subclasses have a fixture `transcriber` that knows the recordings in `SAID`."""

    async def test_what_is_said_is_written_down(self, transcriber: Transcriber) -> None:
        for _ in range(2):
            for sound, words in SAID.items():
                assert await transcriber.transcribe(sound, "audio/ogg") == words

    async def test_what_cannot_be_understood_is_not_heard(self, transcriber: Transcriber) -> None:
        with pytest.raises(errors.TranscriptionFailed):
            await transcriber.transcribe(b"OggS noise", "audio/ogg")
