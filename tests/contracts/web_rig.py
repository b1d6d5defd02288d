"""The web channel and its browsers, for the channel tests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from bot.contracts.channel import Channel
from bot.contracts.messages import OutgoingFile
from bot.testing.intake import RecordingIntake
from channels.web.manifest import MANIFEST, WebSettings
from tests.contracts.channel_contract import surroundings


class Stream:
    """An event stream as a browser reads it."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> tuple[str, Any]:
        """Return the name and data of the next event; a comment counts as an event with the name ""."""
        async with asyncio.timeout(90):
            block = (await self.response.content.readuntil(b"\n\n")).decode()
        if not block:
            raise EOFError
        fields = dict(line.partition(": ")[::2] for line in block.strip("\n").split("\n"))
        if "event" not in fields:
            return ("", fields[""]) if "" in fields else await self.next()
        return fields["event"], json.loads(fields["data"])


class Browser:
    """A browser with cookies of its own."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.http: aiohttp.ClientSession
        self._streams: list[aiohttp.ClientResponse] = []

    async def __aenter__(self) -> Self:
        self.http = aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for response in self._streams:
            response.close()
        await self.http.close()

    @property
    def url(self) -> str:
        return self._channel.addresses[0]

    async def get(self, path: str, **how: Any) -> tuple[int, Any]:
        async with self.http.get(self.url + path, **how) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: Any, **how: Any) -> tuple[int, Any]:
        async with self.http.post(self.url + path, json=body, **how) as answer:
            return answer.status, await answer.json() if answer.status != 204 else None

    async def file(self, name: str, called: str) -> bytes:
        """Download a file that the bot sent; check that the browser would save it under the name `called`."""
        async with self.http.get(f"{self.url}/api/files/{name}") as answer:
            assert answer.status == 200
            assert answer.content_type == "application/octet-stream"
            told = answer.content_disposition
            assert told is not None
            assert (told.type, told.filename) == ("attachment", called)
            return await answer.read()

    async def say(self, text: str, key: str = "m1") -> int:
        return (await self.post("/api/messages", {"text": text, "clientId": key}))[0]

    async def give(self, data: bytes, name: str, kind: str = "", *, piece: int = 256 * 1024) -> str:
        """Upload a file to the page in pieces, as the page's script does; return the file's id."""
        status, told = await self.post("/api/files", {"name": name, "type": kind, "size": len(data)})
        assert status == 201, told
        for at in range(0, len(data) or 1, piece):
            status, answer = await self.piece(told["id"], at, data[at : at + piece])
            have = min(at + piece, len(data))
            shown = answer.pop("file", {"id": None})["id"]
            whole = have == len(data)
            assert (status, answer, shown) == (
                200,
                {"have": have, "whole": whole},
                told["id"] if whole else None,
            )
        return str(told["id"])

    async def piece(self, name: str, at: int, data: bytes) -> tuple[int, Any]:
        how = {"Content-Type": "application/octet-stream"}
        path = f"{self.url}/api/files/{name}?at={at}"
        async with self.http.post(path, data=data, headers=how) as answer:
            return answer.status, await answer.json()

    async def listen(self, conversation: str = "first", **headers: str) -> Stream:
        path = f"{self.url}/api/events?conversation={conversation}"
        response = await self.http.get(path, headers=headers)
        assert response.status == 200
        self._streams.append(response)
        return Stream(response)

    async def page(self, conversation: str = "first") -> list[dict[str, Any]]:
        """Return the messages that a newly opened page shows of a conversation."""
        stream = await self.listen(conversation)
        name, data = await stream.next()
        assert name == "history"
        stream.response.close()
        messages = data["messages"]
        assert isinstance(messages, list)
        return messages


class WebRig:
    def __init__(self, folder: Path) -> None:
        self.around = surroundings(folder)
        self.intake = RecordingIntake()
        self.channel = self.build()
        self.browsers: dict[str, Browser] = {}
        self.last: tuple[Browser, str, str]
        self.confirmed = True
        self.count = 0

    def build(self) -> Channel:
        return MANIFEST.build(WebSettings(port=0), self.around)

    async def say(self, text: str, *, user: str = "first") -> None:
        if user not in self.browsers:
            self.browsers[user] = await Browser(self.channel).__aenter__()
        self.count += 1
        self.last = (self.browsers[user], text, f"m{self.count}")
        await self.repeat()

    async def repeat(self) -> None:
        browser, text, key = self.last
        self.confirmed = await browser.say(text, key) == 202

    async def again(self) -> None:
        if not self.confirmed:
            await self.repeat()

    async def upload(self, data: bytes, *, name: str, words: str = "look") -> None:
        browser = self.browsers.get("first") or await Browser(self.channel).__aenter__()
        self.browsers["first"] = browser
        file = await browser.give(data, name)
        body = {"text": words, "clientId": "with-file", "files": [file]}
        assert (await browser.post("/api/messages", body))[0] == 202

    async def forget_files(self) -> None:
        for path in (self.around.home / "received").glob("*/*.bin"):
            path.unlink()

    @property
    def secrets(self) -> list[str]:
        return []

    async def say_as_self(self, text: str) -> None:
        raise AssertionError

    async def visible(self) -> list[str]:
        shown = [await browser.page() for browser in self.browsers.values()]
        return [message["text"] for page in shown for message in page if message["role"] == "assistant"]

    async def received(self) -> list[tuple[str, bytes]]:
        browser = self.browsers["first"]
        files = [file for message in await browser.page() for file in message.get("files", ())]
        return [(file["name"], await browser.file(file["id"], file["name"])) for file in files]

    async def refuse_files(self) -> str:
        raise AssertionError

    async def fail_next_file(self) -> None:
        raise AssertionError

    async def lose_next_file(self) -> None:
        raise AssertionError

    def placed(self, file: OutgoingFile) -> OutgoingFile:
        return file

    async def fail_next_send(self) -> None:
        raise AssertionError

    async def lose_next_answer(self) -> None:
        raise AssertionError

    def fits(self, part: str) -> bool:
        return len(part) <= 32_000

    async def close(self) -> None:
        for browser in self.browsers.values():
            await browser.__aexit__(None, None, None)
        await self.channel.stop()
