"""A fake server with OpenAI's transcription API."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from bot.testing.loopback import Loopback


class TranscriptionServer(Loopback):
    """A fake transcription API. It returns the text in `said` for each known recording. Like the real
    service, it refuses any other recording, model or key.
    """

    def __init__(
        self, said: Mapping[bytes, str] | None = None, *, key: str = "", model: str = "whisper-1"
    ) -> None:
        super().__init__()
        self.said = dict(said or {})
        self.key = key
        self.model = model

    def routes(self, app: web.Application) -> None:
        app.router.add_post("/v1/audio/transcriptions", self._transcribe)

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        file = form.get("file")
        told = {name: value for name, value in form.items() if isinstance(value, str)}
        named, sound = "", b""
        if isinstance(file, web.FileField):
            named, sound = file.filename, file.file.read()
            file.file.close()
        await self.record("transcriptions", told | {"file": named}, request.headers)
        fault = self.take_fault("transcriptions")
        if fault is not None and not fault.executes:
            return await self.broken(request, fault)
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return _refused(401, "Incorrect API key provided")
        if told.get("model") != self.model:
            return _refused(404, "The model does not exist")
        if sound not in self.said:
            return _refused(400, "The audio file could not be decoded or its format is not supported.")
        return web.json_response({"text": self.said[sound]})


def _refused(status: int, words: str) -> web.Response:
    error = {"message": words, "type": "invalid_request_error", "param": None, "code": None}
    return web.json_response({"error": error}, status=status)
