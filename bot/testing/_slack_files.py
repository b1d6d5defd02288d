"""A base class of `SlackServer` that stores files and serves them for download."""

from __future__ import annotations

from urllib.parse import quote

from aiohttp import web

from bot.contracts.base import Json
from bot.testing._slack_trouble import FaultInjection
from bot.testing._slack_world import World

_SIGN_IN = "<!DOCTYPE html><html><title>Sign in to Slack</title></html>"


class FileHosting(FaultInjection):
    """Serves the files that people share, and accepts the files that the bot uploads."""

    world: World
    bot_token: str

    def add_file(self, name: str, data: bytes, *, mime: str = "text/plain", at: str = "") -> Json:
        """Upload a file as a person; return the file object to pass to `say(files=[…])`."""
        file_id = f"F0FILE{len(self.world.files) + 1:04d}"
        address = f"{at or self.url}/files-pri/{self.world.team}-{file_id}/download/{quote(name)}"
        file: Json = {
            "id": file_id,
            "name": name,
            "title": name,
            "mimetype": mime,
            "size": len(data),
            "mode": "hosted",
            "is_external": False,
            "url_private": address.replace("/download", ""),
            "url_private_download": address,
        }
        self.world.files[file_id] = (file, data)
        return file

    def forget_file(self, file_id: str) -> None:
        """Delete a file. Messages still refer to it, so downloads fail."""
        del self.world.files[file_id]

    def file_routes(self, app: web.Application) -> None:
        app.router.add_get("/files-pri/{file}/download/{name}", self._download)
        app.router.add_post("/upload/v1/{file}", self._upload)

    def sent_files(self, channel: str) -> list[tuple[str, str, bytes]]:
        """Return the files that the bot sent to a conversation, oldest first, each as name, MIME type and bytes."""
        posts = self.world.rooms[channel].posts.values()
        sent = [file for post in posts if post.bot_id == self.world.bot_id for file in post.files]
        return [(one["name"], one["mimetype"], self.world.files[one["id"]][1]) for one in sent]

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        data = await request.read()
        await self.record("upload", {"path": request.path, "bytes": len(data)}, request.headers)
        fault = self.take_fault("upload")
        if fault is not None and not fault.executes:
            return await self.broken(request, fault)
        upload = self.world.uploads.get(request.match_info["file"])
        if upload is None or self.clock.monotonic() > upload.until:
            return web.Response(status=410, text="expired")
        if "Authorization" in request.headers:
            return web.Response(status=400, text="a token does not belong here")
        if len(data) != upload.length:
            return web.Response(status=400, text="length")
        upload.data = data
        return await self.answered(request, fault, web.Response(text=f"OK - {len(data)}"))

    async def _download(self, request: web.Request) -> web.StreamResponse:
        await self.record("file", {"path": request.path}, request.headers)
        fault = self.take_fault("file")
        if fault is not None and not fault.sends:
            return await self.broken(request, fault)
        if request.headers.get("Authorization") != f"Bearer {self.bot_token}":
            # Real Slack sends its sign-in page with status 200 here, not an error.
            return web.Response(text=_SIGN_IN, content_type="text/html")
        file_id = request.match_info["file"].removeprefix(f"{self.world.team}-")
        if file_id not in self.world.files:
            return web.Response(status=404, text="not found")
        file, data = self.world.files[file_id]
        return await self.send_file(request, data, file["mimetype"], fault)
