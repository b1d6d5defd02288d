"""More tests for channels that can send files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import pytest

from bot import errors
from bot.contracts.messages import Outbound, OutgoingFile
from tests.contracts.channel_contract import Rig, reply

NAMES = (
    "report.pdf",
    "数据 表.csv",
    "📊 chart.png",
    "تقرير.txt",
    "דוח.tar.gz",
    "a" * 110 + ".txt",
    "no ending",
)
BYTES = bytes(range(256)) * 300


class SendsFilesRig(Rig, Protocol):
    async def received(self) -> list[tuple[str, bytes]]:
        """Return the files that the bot sent to the direct chat, oldest first, each as name and content."""
        ...

    async def refuse_files(self) -> str:
        """Make the platform refuse files because the bot lacks a right."""
        ...

    async def fail_next_file(self) -> None:
        """Make the next file fail before people can see it."""

    async def lose_next_file(self) -> None:
        """Make the platform show the next file and lose the answer."""

    def placed(self, file: OutgoingFile) -> OutgoingFile:
        """Store the file as a turn would, if the channel reads files from disk. Return the file."""
        ...


class SendsFilesContract:
    _needs: Callable[[Any], None]

    @pytest.mark.parametrize("name", NAMES)
    async def test_a_file_arrives_with_its_name_and_all_that_is_in_it(
        self, rig: SendsFilesRig, name: str
    ) -> None:
        sent = await rig.channel.send(await self._message(rig, name))
        assert await rig.received() == [(name, BYTES)]
        assert sent.message_id

    async def test_each_file_is_a_message_of_its_own_below_the_text(self, rig: SendsFilesRig) -> None:
        message = await self._message(rig, "one.csv")
        await rig.channel.send(replace(message, id=f"{7:026d}", text="here it is", file=None))
        ids = [
            (await rig.channel.send(one)).message_id for one in (message, await self._message(rig, "two.csv"))
        ]
        assert len(set(ids)) == 2
        assert [name for name, _ in await rig.received()] == ["one.csv", "two.csv"]
        assert (await rig.visible())[0] == "here it is"

    async def test_a_repeat_says_that_it_is_one(self, rig: SendsFilesRig) -> None:
        message = await self._message(rig, "one.csv")
        await rig.channel.send(replace(message, text="(perhaps again)\n\n", repeat_of="01BEFORE"))
        assert [name for name, _ in await rig.received()] == ["one.csv"]
        assert any("(perhaps again)" in words for words in await rig.visible())

    async def test_a_file_that_fails_says_so_and_is_not_tried_again(self, rig: SendsFilesRig) -> None:
        self._needs("fail_next_send")
        message = await self._message(rig, "one.csv")
        await rig.fail_next_file()
        with pytest.raises(errors.DeliveryThrottled):
            await rig.channel.send(message)
        assert await rig.received() == []
        await rig.channel.send(message)
        assert await rig.received() == [("one.csv", BYTES)]

    async def test_a_file_whose_answer_is_lost_is_uncertain(self, rig: SendsFilesRig) -> None:
        self._needs("lose_next_answer")
        message = await self._message(rig, "one.csv")
        await rig.lose_next_file()
        with pytest.raises(errors.DeliveryUncertain):
            await rig.channel.send(message)
        assert await rig.received() == [("one.csv", BYTES)]

    async def test_without_the_right_a_file_is_refused_and_operators_hear_which(
        self, rig: SendsFilesRig
    ) -> None:
        self._needs("fail_next_send")
        message = await self._message(rig, "one.csv")
        right = await rig.refuse_files()
        with pytest.raises(errors.FileRefused) as caught:
            await rig.channel.send(message)
        assert caught.value.forbidden
        assert right in rig.intake.lacking
        assert await rig.received() == []
        await rig.channel.send(replace(message, id=f"{7:026d}", text="words go on", file=None))
        assert await rig.visible() == ["words go on"]

    async def test_a_stopped_channel_sends_no_file(self, rig: SendsFilesRig) -> None:
        message = await self._message(rig, "one.csv")
        await rig.channel.stop()
        with pytest.raises(errors.DeliveryFailed):
            await rig.channel.send(message)

    async def _message(self, rig: SendsFilesRig, name: str) -> Outbound:
        assert rig.channel.largest_file >= len(BYTES)
        if not rig.intake.accepted:
            await rig.say("hello")
            await rig.intake.until(lambda: bool(rig.intake.accepted))
        file = rig.placed(OutgoingFile(name, "application/octet-stream", BYTES))
        return replace(reply(rig.intake.accepted[0], ""), file=file)
