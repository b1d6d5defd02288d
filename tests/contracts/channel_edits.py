"""More tests for channels that can edit their messages."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import pytest

from bot import errors
from bot.contracts.channel import Channel, Manifest
from bot.contracts.messages import Inbound
from tests.contracts.channel_contract import Rig, reply


class EditsContract:
    manifest: ClassVar[Manifest]

    async def test_a_message_is_changed_in_its_place(self, rig: Rig) -> None:
        edits = self._edits(rig)
        inbound = await _asked(rig)
        sent = await rig.channel.send(dataclasses.replace(reply(inbound, "half of"), kind="preview"))
        other = await rig.channel.send(reply(inbound, "another"))
        for words in ("half of it 你好", "the whole", "the whole"):
            await edits.edit(reply(inbound, words), sent.message_id)
        assert sorted(await rig.visible()) == ["another", "the whole"]
        await edits.delete(reply(inbound, ""), other.message_id)
        assert await rig.visible() == ["the whole"]

    async def test_what_is_not_there_cannot_be_changed(self, rig: Rig) -> None:
        edits = self._edits(rig)
        inbound = await _asked(rig)
        for name in ("1700000000.000001", "4242"):
            with pytest.raises(errors.EditRefused):
                await edits.edit(reply(inbound, "anything"), name)
        assert await rig.visible() == []
        await rig.channel.stop()
        with pytest.raises(errors.DeliveryFailed):
            await edits.edit(reply(inbound, "too late"), "4242")

    def _edits(self, rig: Rig) -> Channel:
        assert self.manifest.edits is not None
        return rig.channel


async def _asked(rig: Rig) -> Inbound:
    await rig.say("hello")
    return await rig.intake.offers(1)
