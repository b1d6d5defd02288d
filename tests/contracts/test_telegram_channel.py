"""Runs the tests of the channel interface with the Telegram channel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from bot import text
from bot.contracts.channel import Webhook
from bot.contracts.messages import OutgoingFile
from bot.testing.clock import FakeClock
from bot.testing.telegram import refusal
from channels.telegram import render
from channels.telegram.manifest import MANIFEST, TelegramSettings
from tests.contracts.channel_contract import ChannelContract, listening_port, surroundings
from tests.contracts.channel_edits import EditsContract
from tests.contracts.channel_files import DownloadsContract
from tests.contracts.channel_sends_files import SendsFilesContract
from tests.unit.telegram.bed import Bed

PEOPLE = {"first": 1001, "second": 1002}
SAID = "first"


class TelegramRig(Bed):
    """The Telegram channel with the real library, connected to the loopback server."""

    last: Any = None
    webhook: Webhook | None = None

    def build(self, **_: Any) -> Any:
        settings = TelegramSettings(
            bot_token=self.server.token, base_url=self.server.url, webhook=self.webhook
        )
        self.around = surroundings(self.folder, self.clock)
        return MANIFEST.build(settings, self.around)

    async def say(self, text: str, *, user: str = SAID) -> None:
        self.last = self.server.say(text, chat_id=PEOPLE[user])

    async def repeat(self) -> None:
        await self.server.until(lambda: len(self.server.updates) == 0)
        self.server.repeat(self.last)

    async def upload(self, data: bytes, *, name: str, words: str = "look") -> None:
        self.server.say(words, chat_id=PEOPLE[SAID], media="document", data=data, file_name=name)

    async def forget_files(self) -> None:
        for name in list(self.server.files):
            self.server.forget_file(name)

    @property
    def secrets(self) -> list[str]:
        return [self.server.token, self.server.token.partition(":")[2]]

    async def again(self) -> None:
        if self.intake.offered and not self.intake.accepted:
            await self.wake()
        else:
            await self.server.until(lambda: len(self.server.updates) == 0)

    async def say_as_self(self, text: str) -> None:
        self.server.say(text, fields={"from": self.server.me})
        await self.server.until(lambda: len(self.server.updates) == 0)

    async def visible(self) -> list[str]:
        return [seen.text for seen in self.server.visible(PEOPLE[SAID])]

    async def fail_next_send(self) -> None:
        self.server.fail("sendMessage", **refusal(429, "Too Many Requests: retry after 2", retry_after=2))

    async def lose_next_answer(self) -> None:
        self.server.fail("sendMessage", action="lose")

    async def received(self) -> list[tuple[str, bytes]]:
        return [(name, data) for name, _, data in self.server.documents(PEOPLE[SAID])]

    async def refuse_files(self) -> str:
        chat = self.server.chat(PEOPLE[SAID])
        chat.members[self.server.me["id"]] = "restricted"
        chat.rights = {"can_send_messages": True}
        return f"send files in {PEOPLE[SAID]}"

    async def fail_next_file(self) -> None:
        self.server.fail("sendDocument", **refusal(429, "Too Many Requests: retry after 2", retry_after=2))

    async def lose_next_file(self) -> None:
        self.server.fail("sendDocument", action="lose")

    def placed(self, file: OutgoingFile) -> OutgoingFile:
        return file

    def fits(self, part: str) -> bool:
        shown = render.render(part)
        return text.utf16_len(shown.text) <= 4096 and len(shown.entities) <= 100


class TelegramWebhookRig(TelegramRig):
    """A Telegram rig that receives updates over a webhook instead of polling."""

    webhook = Webhook(url="https://bot.example.org/telegram", port=0)

    async def again(self) -> None:
        clock = self.server.clock
        assert isinstance(clock, FakeClock)
        await self.until(lambda: len(self.server.updates) == 0 or clock.sleeping > 0)
        await clock.advance(64)


_IDS = st.integers(1, 2**52).flatmap(lambda number: st.sampled_from([str(number), str(-number)]))


class _TelegramContract(ChannelContract):
    manifest = MANIFEST
    addresses = st.fixed_dictionaries(
        {"chat_id": _IDS}, optional={"message_thread_id": st.integers(1, 2**31).map(str)}
    )
    pinned: ClassVar = {
        "telegram:chat:1001": {"chat_id": "1001"},
        "telegram:chat:-1001234567890": {"chat_id": "-1001234567890"},
        "telegram:chat:-1001234567890:topic:7": {"chat_id": "-1001234567890", "message_thread_id": "7"},
    }

    people = ("1001",)


class TestTelegramChannel(SendsFilesContract, DownloadsContract, EditsContract, _TelegramContract):
    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[TelegramRig]:
        rig = TelegramRig(tmp_path)
        async with rig.server:
            rig.channel = rig.build()
            await rig.channel.start(rig.intake)
            yield rig
            await rig.channel.stop()


class TestTelegramWebhook(_TelegramContract):
    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[TelegramRig]:
        rig = TelegramWebhookRig(tmp_path)
        async with rig.server:
            rig.channel = rig.build()
            await rig.channel.start(rig.intake)
            rig.server.hook.front = listening_port(rig.around)
            yield rig
            await rig.channel.stop()
