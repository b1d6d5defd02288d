"""What a restart leaves of an approval that is waited for."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from bot.contracts import approvals
from bot.contracts.approvals import Verdict
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Command
from bot.contracts.outbound import Outbound, Sent
from bot.words import say
from tests.contracts.journal_approvals import approval
from tests.unit.gateway.conftest import killed, never
from tests.unit.gateway.desk import GROUP, MEMBER, Desk
from tests.unit.gateway.outgoing import until


@pytest.mark.parametrize("pressed", ["before", "after"])
async def test_a_restart_finds_what_waits_and_asks_only_once(tmp_path: Path, pressed: str) -> None:
    desk = Desk(tmp_path)
    await desk.open()
    name = await desk.asked()
    await desk.close()
    assert not desk.ran
    again = Desk(tmp_path)
    again.numbers = itertools.count(100)
    if pressed == "before":
        assert await again.journal.resolve(name, Verdict("approved", UserRef("tele", "1")))
    await again.open()
    if pressed == "after":
        await until(lambda: again.approvals.waits(ChatKey.parse("tele:chat:-100")))
        await again.press("approve", name)
    await again.idle()
    assert again.ran == [Verdict("approved", UserRef("tele", "1"), "once")]
    assert not [one for one in again.tele.sent if one.buttons is not None]
    assert "approved" in again.tele.texts
    await again.close()


async def test_a_question_that_a_restart_cut_off_is_asked_again_where_it_was_not_seen(tmp_path: Path) -> None:
    first = Desk(tmp_path)
    await first.open()
    seen = asyncio.Event()

    async def hangs(message: Outbound) -> Sent:
        seen.set()
        await asyncio.Event().wait()
        return Sent(message.id)

    first.tele.send = hangs  # type: ignore[method-assign]
    await first.say("work", user_id=MEMBER, **GROUP)
    async with asyncio.timeout(90):
        await seen.wait()
    await first.close()

    second = Desk(tmp_path)
    second.numbers = itertools.count(100)
    await second.open()
    async with asyncio.timeout(90):
        await second.tele.until(1)
    assert [str(one.chat_key) for one in second.tele.sent] == [GROUP["chat_key"]]
    await second.press("approve", second.names()[0])
    await second.idle()
    assert "approved" in second.tele.texts
    await second.close()


async def test_its_time_goes_on_over_a_restart(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.open()
    name = await desk.asked()
    await desk.close()
    again = Desk(tmp_path)
    again.numbers = itertools.count(100)
    again.clock.jump(approvals.SECONDS + 1)
    await again.open()
    await again.press("approve", name)
    await again.idle()
    assert again.ran == [Verdict("expired")]
    await again.close()


@pytest.mark.parametrize("named", ["as a button does", "in short", "not at all"])
async def test_a_decision_that_a_kill_cut_off_before_its_answer_is_told_and_made_once(
    tmp_path: Path, named: str
) -> None:
    desk = Desk(tmp_path)
    await desk.open()
    name = await desk.asked()
    args = {"as a button does": name, "in short": name[-6:].lower(), "not at all": ""}[named]
    desk.agent.hold = asyncio.Event()
    desk.journal.post.finish = never  # type: ignore[method-assign]
    await desk.press("approve", args, keys=("press",), message_id="press")
    await until(lambda: bool(desk.ran))
    other = await desk.journal.ask("OTHER", approval(chat_key=ChatKey.parse("tele:chat:-100")))
    await killed(desk)
    again = Desk(tmp_path)
    await again.open()
    await again.idle()
    assert "✅ Allowed." in again.tele.texts
    assert say("approval.unknown") not in again.tele.texts
    assert [one.id for one in await again.journal.open_approvals()] == [other.id]
    await again.close()


async def test_a_second_press_that_a_kill_cut_off_has_decided_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.open()
    name = await desk.asked()
    # Both are on file before the first of them decides.
    presses = [
        desk.inbound("", user_id="1", command=Command(name="approve", args=name), **GROUP).model_copy(
            update={"request_id": desk.ids.ulid()}
        )
        for _ in range(2)
    ]
    for press in presses:
        assert await desk.journal.receive(press)
    verdict = Verdict("approved", UserRef("tele", "1"), request_id=presses[0].request_id)
    assert await desk.journal.resolve(name, verdict)
    await killed(desk)
    again = Desk(tmp_path)
    await again.open()
    await again.idle()
    assert [again.tele.texts.count(words) for words in ("✅ Allowed.", say("approval.unknown"))] == [1, 1]
    await again.close()
