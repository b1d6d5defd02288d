"""A channel of text lines over TCP on this machine. Each line is a message, and each answer is a line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from bot import text
from bot.contracts.channel import Channel, ChannelDeps, Health, Intake
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound, Outbound, Quoted, Sent
from bot.errors import DeliveryFailed
from shipmate_lines.settings import LinesSettings

CHAT = "one"
LONGEST = 10_000
"""Max characters of a line."""


class Lines(Channel):
    """Serves the client that connected last."""

    name = "lines"

    def __init__(self, settings: LinesSettings, deps: ChannelDeps) -> None:
        self.addresses: tuple[str, ...] = ()
        self._settings = settings
        self._deps = deps
        self._client: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def start(self, intake: Intake) -> None:
        self._intake = intake
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._settings.port)
        self.addresses = (f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}",)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._client = writer
        writer.write(f"{self._settings.greeting}\n".encode())
        while line := await reader.readline():
            number = f"{self._deps.rng.getrandbits(64):016x}"
            await self._intake.accept(
                Inbound(
                    channel=self.name,
                    chat_id=CHAT,
                    chat_key=ChatKey(self.name, CHAT),
                    chat_type="direct",
                    user_id="you",
                    keys=(f"line:{number}",),
                    ts=int(self._deps.clock.now() * 1000),
                    target={"chat": CHAT},
                    text=line.decode(errors="replace").strip(),
                    message_id=number,
                )
            )

    async def pause(self) -> None:
        if self._server is not None:
            self._server.close()

    async def stop(self) -> None:
        await self.pause()
        if self._client is not None:
            self._client.close()

    def split(self, words: str) -> list[str]:
        return text.split(words, LONGEST)

    async def send(self, message: Outbound) -> Sent:
        if self._client is None or self._client.is_closing():
            raise DeliveryFailed("nobody is connected")
        self._client.write(message.text.replace("\n", " ").encode() + b"\n")
        return Sent(message.id)

    async def find(self, _: Outbound) -> Sent | None:
        """Return None: a line whose write failed did not arrive."""
        return None

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        """Do nothing, because a line cannot show that the bot works."""

    async def context(self, _: Inbound) -> tuple[Quoted, ...]:
        return ()

    def health(self) -> Health:
        return Health(connected=self._server is not None)

    async def heal(self) -> None:
        """Do nothing, because the server in this process needs no new connection."""
