from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from bot.contracts.model import Transcriber
from bot.llm.transcription import HttpTranscriber
from bot.testing.transcription import FakeTranscriber, TranscriptionServer
from tests.contracts.transcriber_contract import SAID, TranscriberContract


class TestFakeTranscriber(TranscriberContract):
    @pytest.fixture
    def transcriber(self) -> Transcriber:
        return FakeTranscriber(SAID)


class TestHttpTranscriber(TranscriberContract):
    @pytest.fixture
    async def transcriber(self) -> AsyncIterator[Transcriber]:
        async with TranscriptionServer(SAID, key="sk-secret") as server:
            yield HttpTranscriber(f"{server.url}/v1/", "whisper-1", "sk-secret")
