"""The console channel and its terminals, for the channel tests."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.contracts.channel import Channel
from bot.contracts.messages import OutgoingFile
from bot.testing.intake import RecordingIntake
from channels.console.manifest import MANIFEST, ConsoleSettings, socket_path
from tests.contracts.channel_contract import surroundings


class Terminal:
    """An attached terminal that speaks the console's protocol."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.heard: list[dict[str, Any]] = []

    @classmethod
    async def attach(cls, home: Path, chat: str = "local") -> Terminal:
        terminal = cls(*await asyncio.open_unix_connection(socket_path(home), limit=1 << 22))
        answer = await terminal.ask({"hello": {"chat": chat}}, "ok")
        assert answer == {"ok": True, "chat": chat, "name": "Shipmate"}
        return terminal

    async def ask(self, line: dict[str, Any], *kinds: str) -> dict[str, Any]:
        """Write one line; return the first answer that has one of the keys `kinds`."""
        self.writer.write(json.dumps(line).encode() + b"\n")
        return await self.read(*kinds)

    async def read(self, *kinds: str) -> dict[str, Any]:
        async with asyncio.timeout(90):
            while True:
                line = json.loads(await self.reader.readline())
                self.heard.append(line)
                if not set(kinds).isdisjoint(line):
                    assert isinstance(line, dict)
                    return line

    async def visible(self) -> list[str]:
        await self.ask({"ping": 1}, "pong")
        return [line["message"]["text"] for line in self.heard if "message" in line]

    def close(self) -> None:
        self.writer.close()


class ConsoleRig:
    def __init__(self, folder: Path) -> None:
        self.around = surroundings(folder)
        self.intake = RecordingIntake()
        self.channel = self.build()
        self.terminal: Terminal
        self.last: dict[str, Any] = {}
        self.confirmed = True
        self.count = 0

    def build(self) -> Channel:
        return MANIFEST.build(ConsoleSettings(), self.around)

    async def say(self, text: str, *, user: str = "first") -> None:
        self.count += 1
        self.last = {"id": f"m{self.count}", "text": text}
        await self.repeat()

    async def repeat(self) -> None:
        self.confirmed = "ok" in await self.terminal.ask(self.last, "ok", "error")

    async def again(self) -> None:
        if not self.confirmed:
            await self.repeat()

    async def say_as_self(self, text: str) -> None:
        raise AssertionError

    async def visible(self) -> list[str]:
        return await self.terminal.visible()

    async def received(self) -> list[tuple[str, bytes]]:
        named = [words.rpartition("📎 ")[2] for words in await self.visible() if "📎 " in words]
        return [(Path(path).name, Path(path).read_bytes()) for path in named]

    async def refuse_files(self) -> str:
        raise AssertionError

    async def fail_next_file(self) -> None:
        raise AssertionError

    async def lose_next_file(self) -> None:
        raise AssertionError

    def placed(self, file: OutgoingFile) -> OutgoingFile:
        (self.around.root / file.name).write_bytes(file.data)
        return replace(file, path=file.name)

    async def fail_next_send(self) -> None:
        raise AssertionError

    async def lose_next_answer(self) -> None:
        raise AssertionError

    def fits(self, part: str) -> bool:
        return len(part) <= 32_000
