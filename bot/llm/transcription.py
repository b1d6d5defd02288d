"""`HttpTranscriber`: asks an endpoint in the form of OpenAI's transcriptions to write down a recording."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

import aiohttp

from bot import errors

_SUFFIXES = {
    "audio/ogg": "ogg",
    "audio/mp4": "m4a",
    "audio/mpeg": "mp3",
    "audio/wav": "wav",
    "audio/webm": "webm",
    "audio/flac": "flac",
}
"""Endpoints tell the format by the name of the file."""
MOST = 1_000_000
"""Bytes of an answer."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is what stands before `/audio/transcriptions`."""

    url: str
    model: str
    key: str | None = None


class HttpTranscriber:
    """`contracts.transcription.Transcriber` over HTTP: one recording, one request. `seconds` bound it."""

    def __init__(self, endpoint: Endpoint, *, seconds: float = 60.0) -> None:
        self._endpoint = endpoint
        self._timeout = aiohttp.ClientTimeout(total=seconds)

    async def transcribe(self, sound: bytes, type: str) -> str:  # noqa: A002 - as in the protocol
        form = aiohttp.FormData()
        form.add_field("model", self._endpoint.model)
        form.add_field("response_format", "json")
        # It goes in pieces; bytes would keep the loop.
        voice = io.BytesIO(sound)
        form.add_field("file", voice, filename=f"voice.{_SUFFIXES.get(type, 'bin')}", content_type=type)
        key = self._endpoint.key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout, headers=headers) as session,
                # A redirect would carry the key, and what was said, elsewhere.
                session.post(
                    f"{self._endpoint.url.rstrip('/')}/audio/transcriptions", data=form, allow_redirects=False
                ) as answer,
            ):
                if answer.status != 200:
                    raise errors.TranscriptionFailed(f"the transcription answers {answer.status}")
                raw = await answer.content.read(MOST + 1)
                while len(raw) <= MOST and (more := await answer.content.read(MOST)):
                    raw += more
        except (aiohttp.ClientError, OSError) as error:
            # Neither its words nor its address, which may hold a password.
            raise errors.TranscriptionFailed(
                f"the transcription cannot be reached: {errors.connection_reason(error)}"
            ) from None
        return _words(raw)


def _words(raw: bytes) -> str:
    try:
        told = json.loads(raw) if len(raw) <= MOST else None
    except (ValueError, RecursionError):
        told = None
    words = told.get("text") if isinstance(told, dict) else None
    if not isinstance(words, str):
        raise errors.TranscriptionFailed("the transcription's answer makes no sense")
    return words
