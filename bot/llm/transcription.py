"""`HttpTranscriber`: transcribes recordings with an endpoint compatible with OpenAI's transcription API."""

from __future__ import annotations

import io

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
"""File name suffixes by MIME type. Endpoints recognise the format of a recording by its file name."""


class HttpTranscriber:
    """Transcribes recordings over HTTP. `url` is the part of the address before `/audio/transcriptions`. Each recording is sent
    in one request. `seconds` is the timeout of a request.
    """

    def __init__(self, url: str, model: str, key: str | None = None, *, seconds: float = 60.0) -> None:
        self._url = f"{url.rstrip('/')}/audio/transcriptions"
        self._model = model
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = aiohttp.ClientTimeout(total=seconds)

    async def transcribe(self, sound: bytes, mime: str) -> str:
        """Return the text of a recording; "" if nobody speaks. Raises `errors.TranscriptionFailed`."""
        form = aiohttp.FormData()
        form.add_field("model", self._model)
        form.add_field("response_format", "json")
        # A file object is sent in pieces. Sending the recording at once would block the event loop.
        voice = io.BytesIO(sound)
        form.add_field("file", voice, filename=f"voice.{_SUFFIXES.get(mime, 'bin')}", content_type=mime)
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout, headers=self._headers) as session,
                # Do not follow redirects, which could send the key and the recording to any address.
                session.post(self._url, data=form, allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    raise errors.TranscriptionFailed(f"the transcription endpoint answers {answer.status}")
                told = await answer.json(content_type=None)
        except (aiohttp.ClientError, OSError) as error:
            # The error's text and address are left out, because they may contain a password.
            raise errors.TranscriptionFailed(
                f"the transcription endpoint cannot be reached: {errors.connection_reason(error)}"
            ) from None
        except ValueError:
            told = None
        if not isinstance(told, dict) or not isinstance(words := told.get("text"), str):
            raise errors.TranscriptionFailed("the transcription endpoint's answer is not valid")
        return words
