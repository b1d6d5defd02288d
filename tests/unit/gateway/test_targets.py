"""Chats that are gone are left alone; all chats share the budget of the bot."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.channel import Pace
from tests.unit.gateway.outgoing import TO, Desk, address, until
from tests.unit.gateway.test_deferred import ELSEWHERE, HOUR, NEXT, THREE, deferred, desk

__all__ = ["desk"]


class TestAChatThatIsGone:
    async def test_is_not_written_to_again_not_even_after_a_restart_until_something_comes_from_it(
        self, tmp_path: Path
    ) -> None:
        first = Desk(tmp_path)
        first.tele.failures = [errors.TargetGone("bot was blocked")]
        with pytest.raises(errors.TargetGone):
            await first.delivery.send(TO, THREE)
        assert [(row.state, row.reason) for row in await first.rows()] == [("failed", "gone")] * 3
        with pytest.raises(errors.TargetGone):
            await first.delivery.send(NEXT, "again")
        await first.delivery.indicate(NEXT, working=True)
        assert (first.tele.sent, first.tele.signs) == ([], [])
        await first.close()

        second = Desk(tmp_path)
        with pytest.raises(errors.TargetGone):
            await second.delivery.send(address(request_id="05REQ"), "after a restart")
        (row,) = await second.rows("05REQ")
        assert (row.state, row.reason) == ("failed", "gone")
        await second.delivery.send(ELSEWHERE, "another chat")
        assert second.tele.texts == ["another chat"]
        await second.close()

        third = Desk(tmp_path)
        await third.delivery.reopen("tele", "77")
        await third.delivery.send(TO, "welcome back")
        (words,) = third.tele.texts
        assert words.endswith("\n\nwelcome back")
        assert "again" not in words, "that it was gone was known by then"
        assert await third.file.closed_targets() == {}
        await third.close()

    async def test_ends_what_waited_for_it(self, desk: Desk) -> None:
        await deferred(desk)
        with pytest.raises(errors.DeliveryDeferred):
            await desk.delivery.send(NEXT, "second")
        desk.tele.failures = [errors.TargetGone("archived")]
        await desk.slept(HOUR)
        await until(lambda: not desk.delivery.outbox.deferred)
        assert desk.tele.sent == []
        for request_id in ("01REQ", "02REQ"):
            assert [row.reason for row in await desk.rows(request_id)] == ["gone"]

    async def test_counts_at_once_where_the_disk_refuses_to_remember_it(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: object) -> None:
            raise errors.StorageError("ENOSPC")

        monkeypatch.setattr(desk.journal, "close_target", broken)
        monkeypatch.setattr(desk.journal, "open_target", broken)
        desk.tele.failures = [errors.TargetGone("blocked")]
        for _ in range(2):
            with pytest.raises(errors.TargetGone):
                await desk.delivery.send(TO, "hello")
        await desk.delivery.reopen("tele", "77")
        await desk.delivery.send(TO, "again")
        (words,) = desk.tele.texts
        assert words.count("hello") == 1


async def test_messages_and_signs_of_all_chats_share_one_budget(tmp_path: Path) -> None:
    desk = Desk(tmp_path, limits=True, total=Pace(4, 1.0))
    for number in range(3):
        await desk.delivery.indicate(address(str(number)), working=True)
    assert desk.tele.signs == [True, True, True]
    await desk.delivery.indicate(address("9"), working=True)
    assert len(desk.tele.signs) == 3, "the last slot is kept for a message"
    await desk.delivery.send(address("4"), "one")
    waiting = asyncio.create_task(desk.delivery.send(address("5"), "two"))
    await desk.slept(0.9)
    assert desk.tele.texts == ["one"]
    assert not desk.delivery.spare(address("6"))
    await desk.clock.advance(0.1)
    await waiting
    await desk.close()
