"""Sends files to a server and watches the event loop: `python -m tests.bench.uploads FILE ADDRESS`.

Each long block of the event loop is written to FILE, in the format of `tests.bench.watched`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp

from bot.contracts.identity import ChatKey
from bot.contracts.messages import Outbound, OutgoingFile
from bot.llm.transcription import HttpTranscriber
from bot.system import SystemClock
from bot.testing.intake import RecordingIntake
from bot.testing.log import MemoryLog
from channels.slack import files
from channels.slack.web_api import WebClient
from channels.telegram import bot_api
from tests.bench.watched import Watch

SIZE = 10_000_000


async def send(address: str) -> None:
    """Send the largest allowed files in each of the ways in which files are sent."""
    file = OutgoingFile("table.csv", "text/csv", bytes(SIZE))
    target = {"channel": "C1"}
    message = Outbound("OUT1", "REQ1", ChatKey.parse("slack:chat:C1"), target, "", file=file)
    async with aiohttp.ClientSession() as session:
        log, intake = MemoryLog(), RecordingIntake()
        client = WebClient(log, intake, token="xoxb-1", base_url=f"{address}/api/", session=session)
        await files.send(client, message, file, SystemClock())
    bot = await asyncio.to_thread(bot_api.connect, "123456:token", address, 60.0)
    await bot.initialize()
    await bot.send({"chat_id": 1}, file)
    await bot.shutdown()
    await HttpTranscriber(address, "whisper").transcribe(file.data, "audio/ogg")


def main() -> None:
    watch = Watch(Path(sys.argv[1]))
    watch.ready = True
    watch.start()
    asyncio.run(send(sys.argv[2]))


if __name__ == "__main__":
    main()
