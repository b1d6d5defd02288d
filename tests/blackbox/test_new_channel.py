"""A channel is a folder: nothing else is edited to add one."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from tests.blackbox.conftest import Process

PROJECT = Path(__file__).parents[2]

MANIFEST = """
from bot.contracts.channel import ChannelSettings, Manifest
from bot.contracts.identity import ChatKey


class Settings(ChannelSettings):
    greeting: str = "hello"


def build(settings, around):
    from channels.parrot.adapter import Parrot

    return Parrot(settings, around)


MANIFEST = Manifest(
    name="parrot",
    settings=Settings,
    build=build,
    encode=lambda address: ChatKey("parrot", address["chat"]),
    decode=lambda key: {"chat": key.chat_id},
    access="local",
)
"""

ADAPTER = '''
import asyncio
import itertools

from bot import text
from bot.contracts.channel import Health
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import Sent


class Parrot:
    """Lines over a TCP socket on loopback; the first line it writes is the greeting of its settings."""

    name = "parrot"

    def __init__(self, settings, around):
        self.settings, self.around, self.addresses = settings, around, ()
        self.count, self.writers = itertools.count(1), {}

    async def start(self, intake):
        self.intake = intake
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.addresses = (f"tcp://127.0.0.1:{self.server.sockets[0].getsockname()[1]}",)

    async def serve(self, reader, writer):
        self.writers["one"] = writer
        writer.write(self.settings.greeting.encode() + b"\\n")
        while line := await reader.readline():
            number = next(self.count)
            await self.intake.accept(
                Inbound(
                    channel="parrot", chat_id="one", chat_key=ChatKey("parrot", "one"), chat_type="direct", user_id="you",
                    keys=(f"line:{number}",), ts=int(self.around.clock.now() * 1000), target={"chat": "one"},
                    text=line.decode().strip(), message_id=str(number),
                )
            )

    async def pause(self):
        pass

    async def stop(self):
        for writer in self.writers.values():
            writer.close()
        self.server.close()

    def split(self, words):
        return text.split(words, 10_000)

    async def send(self, message):
        self.writers["one"].write(message.text.replace("\\n", " ").encode() + b"\\n")
        return Sent(message.id)

    async def find(self, message):
        return None

    async def indicate(self, target, *, working):
        pass

    async def context(self, inbound):
        return ()

    def health(self):
        return Health(connected=True)

    async def heal(self):
        pass
'''


async def test_a_channel_in_a_new_folder_is_found_configured_and_talks(tmp_path: Path) -> None:
    code, home = tmp_path / "code", tmp_path / "home"
    for package in ("bot", "channels"):
        shutil.copytree(PROJECT / package, code / package)
    folder = code / "channels" / "parrot"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "manifest.py").write_text(MANIFEST, encoding="utf-8")
    (folder / "adapter.py").write_text(ADAPTER, encoding="utf-8")
    home.mkdir()
    config: dict[str, Any] = {
        "llm": {"provider": "demo"},
        "channels": {
            "web": {"enabled": False},
            "console": {"enabled": False},
            "parrot": {"greeting": "ahoy"},
        },
    }
    config["dashboard"] = {"enabled": False}
    (home / "ship.json").write_text(json.dumps(config), encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
    where = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import bot; print(bot.__file__)", env=env, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await where.communicate()
    assert str(code) in out.decode(), "the copy is what runs"
    process = await Process(home, {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}, fresh=True).start()
    assert process.ready_line.startswith("ready parrot tcp://127.0.0.1:")
    reader, writer = await asyncio.open_connection("127.0.0.1", int(process.ready_line.rpartition(":")[2]))
    assert await reader.readline() == b"ahoy\n"
    writer.write("Polly 你好\n".encode())
    assert "Polly 你好" in (await asyncio.wait_for(reader.readline(), 90)).decode()
    writer.close()
    assert await process.stop() == 0
    assert (home / ".ship" / "chats" / "parrot%3Achat%3Aone.jsonl").is_file()
