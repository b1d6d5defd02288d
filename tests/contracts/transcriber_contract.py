"""What every `contracts.transcription.Transcriber` promises."""

from __future__ import annotations

import pytest

from bot import errors
from bot.contracts.model import Transcriber

SAID = {b"OggS one": "你好, what is 2 + 2? 🎉", b"OggS silence": ""}
"""Recordings, and what is said in each."""


class TranscriberContract:
    """Subclasses have a fixture `transcriber` that knows `SAID`."""

    async def test_what_is_said_is_written_down(self, transcriber: Transcriber) -> None:
        for _ in range(2):
            for sound, words in SAID.items():
                assert await transcriber.transcribe(sound, "audio/ogg") == words

    async def test_what_cannot_be_understood_is_not_heard(self, transcriber: Transcriber) -> None:
        with pytest.raises(errors.TranscriptionFailed):
            await transcriber.transcribe(b"OggS noise", "audio/ogg")
