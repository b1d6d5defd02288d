from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from bot.contracts.channel import Channel, Webhook
from bot.contracts.messages import OutgoingFile
from bot.testing._slack_requests import SIGNING_SECRET
from bot.testing.clock import FakeClock
from bot.testing.intake import RecordingIntake
from bot.testing.slack import SlackServer
from channels.slack import render
from channels.slack.manifest import MANIFEST, SlackSettings
from tests.contracts.channel_contract import ChannelContract, listening_port, surroundings
from tests.contracts.channel_edits import EditsContract
from tests.contracts.channel_files import DownloadsContract
from tests.contracts.channel_sends_files import BYTES, SendsFilesContract

OPENS = "apps.connections.open"

PEOPLE = {"first": "U0ADA", "second": "U0GRACE"}


class SlackRig:
    def __init__(self, folder: Path, server: SlackServer, clock: FakeClock) -> None:
        self.server, self.clock = server, clock
        self.around = surroundings(folder, clock)
        self.intake = RecordingIntake()
        self.direct = {
            label: server.add_im(server.add_user(user, name=label)) for label, user in PEOPLE.items()
        }
        self.channel = self.build()
        self.last: Any = None

    def build(self) -> Channel:
        server = self.server
        settings = SlackSettings(
            bot_token=server.bot_token, app_token=server.app_token, base_url=server.api_url
        )
        return MANIFEST.build(settings, self.around)

    async def say(self, text: str, *, user: str = "first") -> None:
        await self.server.say(text, channel=self.direct[user], user=PEOPLE[user])
        self.last = self.server.deliveries[-1].payload

    async def repeat(self) -> None:
        await self.server.envelope(self.last)

    async def upload(self, data: bytes, *, name: str, words: str = "look") -> None:
        file = self.server.add_file(name, data)
        await self.server.say(words, channel=self.direct["first"], user=PEOPLE["first"], files=[file])

    async def forget_files(self) -> None:
        for name in list(self.server.world.files):
            self.server.forget_file(name)

    @property
    def secrets(self) -> list[str]:
        return [self.server.bot_token, self.server.app_token]

    async def again(self) -> None:
        # The pong arrives after all earlier acks, so once it is here, no ack is on its way.
        await self.server.until(lambda: self.server.sockets > 0)
        pongs, opened = self.server.pongs, len(self.server.called(OPENS))
        await self.server.ping()

        def answered() -> bool:
            fell = not self.server.sockets or len(self.server.called(OPENS)) > opened
            return fell or self.server.pongs > pongs

        await self.server.until(answered)
        await self.clock.advance(66 if any(d.attempts > 1 for d in self.server.unacked()) else 3)

    async def say_as_self(self, text: str) -> None:
        world = self.server.world
        await self.server.say(text, channel=self.direct["first"], user=world.bot_user, bot_id=world.bot_id)
        await self.server.until(lambda: not self.server.unacked())

    async def visible(self) -> list[str]:
        return [seen.text for room in self.direct.values() for seen in self.server.replies(room)]

    async def fail_next_send(self) -> None:
        self.server.limit("chat.postMessage")

    async def lose_next_answer(self) -> None:
        self.server.fail("chat.postMessage", action="lose")

    async def received(self) -> list[tuple[str, bytes]]:
        return [(name, data) for name, _, data in self.server.sent_files(self.direct["first"])]

    async def refuse_files(self) -> str:
        self.server.api.scopes.discard("files:write")
        return "files:write"

    async def fail_next_file(self) -> None:
        self.server.fail("upload", status=500)

    async def lose_next_file(self) -> None:
        self.server.fail("files.completeUploadExternal", action="lose")

    def placed(self, file: OutgoingFile) -> OutgoingFile:
        return file

    def fits(self, part: str) -> bool:
        return len(render.render(part)) <= 12_000


class SlackWebhookRig(SlackRig):
    """A Slack rig that receives events over HTTP instead of sockets."""

    def build(self) -> Channel:
        server = self.server
        settings = SlackSettings(
            bot_token=server.bot_token,
            signing_secret=SIGNING_SECRET,
            webhook=Webhook(url="https://bot.example.org/slack", port=0),
            base_url=server.api_url,
        )
        return MANIFEST.build(settings, self.around)

    async def again(self) -> None:
        async with asyncio.timeout(90):
            while self.server.unacked() and not self.clock.sleeping:  # noqa: ASYNC110 - a sleep begins without an event
                await asyncio.sleep(0.001)
        await self.clock.advance(66 if self.server.unacked() else 3)


class _SlackContract(ChannelContract):
    manifest = MANIFEST
    addresses = st.fixed_dictionaries(
        {"channel": st.from_regex(r"[CDG][A-Z0-9]{2,12}", fullmatch=True)},
        optional={"thread_ts": st.from_regex(r"[0-9]{10}\.[0-9]{6}", fullmatch=True)},
    )
    pinned: ClassVar = {
        "slack:chat:D0123ABCD": {"channel": "D0123ABCD"},
        "slack:chat:C0123ABCD:thread:1700000000.000100": {
            "channel": "C0123ABCD",
            "thread_ts": "1700000000.000100",
        },
    }

    people = ("U0ADA", "W0GRACE")


class TestSlackChannel(SendsFilesContract, DownloadsContract, EditsContract, _SlackContract):
    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[SlackRig]:
        clock = FakeClock()
        async with SlackServer(clock=clock) as server:
            rig = SlackRig(tmp_path, server, clock)
            await rig.channel.start(rig.intake)
            yield rig
            await rig.channel.stop()

    async def test_a_file_whose_answer_is_lost_is_uncertain(self, rig: SlackRig) -> None:  # type: ignore[override]
        """Unlike on other platforms, the outcome is known here, because Slack can be asked whether it has the file."""
        message = await self._message(rig, "one.csv")
        await rig.lose_next_file()
        sending = asyncio.ensure_future(rig.channel.send(message))
        async with asyncio.timeout(90):
            while not sending.done():
                await rig.clock.advance(0.25)
                await asyncio.sleep(0.01)
        assert (await sending).message_id
        assert await rig.received() == [("one.csv", BYTES)]


class TestSlackWebhook(_SlackContract):
    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[SlackRig]:
        clock = FakeClock()
        async with SlackServer(clock=clock) as server:
            rig = SlackWebhookRig(tmp_path, server, clock)
            await rig.channel.start(rig.intake)
            await server.post_to(f"http://127.0.0.1:{listening_port(rig.around)}/slack")
            yield rig
            await rig.channel.stop()
