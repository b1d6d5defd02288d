"""Every message that shows a question ends as its outcome, however that came."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts import approvals
from bot.contracts.approvals import CHOICES, QuestionButtons
from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Command, Inbound
from bot.contracts.outbound import Outbound, Sent
from bot.gateway.outbox import batch_sender
from bot.words import CATALOGUES
from tests.unit.gateway.conftest import killed
from tests.unit.gateway.desk import GROUP, MEMBER, OPERATOR, Desk
from tests.unit.gateway.outgoing import until

PLACES = 3
"""The group and the direct chats of two operators."""


class Copies(Desk):
    """A desk with two operators in direct chats; `edits` is what its messages were changed into, in their order."""

    def __init__(self, root: Path, **options: Any) -> None:
        operators = frozenset({UserRef("tele", OPERATOR), UserRef("tele", "2")})
        super().__init__(root, operators=operators, direct=lambda user: {"chat": user}, **options)
        self.edits: list[Outbound] = []
        self.editing = asyncio.Event()
        self.editing.set()

        async def edit(message: Outbound, _: str) -> None:
            await self.editing.wait()
            self.edits.append(message)

        def permalink(line: ArchiveLine) -> str:
            return f"https://tele.test/{line.chat_id}/{line.message_id}"

        self.tele.edit = edit  # type: ignore[attr-defined]
        self.tele.permalink = permalink  # type: ignore[attr-defined]

    def inbound(self, words: str = "hello", **more: Any) -> Inbound:
        return super().inbound(words, **{"keys": (self.ids.ulid(),), **more})

    async def shown(self) -> str:
        """Ask, and wait until every copy is on file as sent; the name of the question."""
        before = self._delivered()
        name = await self.asked()
        await until(lambda: self._delivered() == before + PLACES)
        return name

    def _delivered(self) -> int:
        """The notices that are on file as sent: then the log says so."""
        return [line.message for line in self.log.of("delivery")].count("notice delivered")

    def outcomes(self) -> set[str]:
        return {one.text.rpartition("\n\n")[2].partition(",")[0] for one in self.edits}


@pytest.fixture
async def desk(tmp_path: Path) -> Any:
    made = Copies(tmp_path)
    await made.open()
    yield made
    await made.close()


async def approved(desk: Copies, name: str) -> None:
    await desk.press("approve", f"{name} chat")


async def denied(desk: Copies, name: str) -> None:
    await desk.press("deny", name, "2")


async def expired(desk: Copies, _: str) -> None:
    await desk.clock.advance(approvals.SECONDS + 1)


async def stopped(desk: Copies, _: str) -> None:
    await desk.press("stop", user=MEMBER)


async def steered(desk: Copies, _: str) -> None:
    await desk.say("quick, something else", user_id=MEMBER, **GROUP)


ENDS = [
    (approved, "✅ Allowed by an operator"),
    (denied, "⛔ Denied by an operator"),
    (expired, "⌛ Nobody decided by 08:30 UTC. It was not run."),
    (stopped, "⏹ Stopped"),
    (steered, "No longer needed"),
]


@pytest.mark.parametrize(("end", "outcome"), ENDS)
async def test_every_copy_ends_as_its_outcome_without_buttons(desk: Copies, end: Any, outcome: str) -> None:
    await end(desk, await desk.shown())
    await until(lambda: len(desk.edits) == PLACES)
    assert desk.outcomes() == {outcome}
    assert {one.buttons and one.buttons.choices for one in desk.edits} == {()}
    gone = ("Answer with", "I've asked", "can decide within")
    assert not [one.text for one in desk.edits if any(words in one.text for words in gone)]
    assert {one.chat_key.chat_id for one in desk.edits} == {"-100", "1", "2"}
    await desk.idle()


@pytest.mark.parametrize(("end", "outcome"), ENDS)
async def test_so_they_do_where_a_kill_came_before_that(tmp_path: Path, end: Any, outcome: str) -> None:
    first = Copies(tmp_path)
    await first.open()
    name = await first.shown()
    first.editing.clear()
    await end(first, name)
    record = None
    while record is None or record.verdict is None:
        record = await first.journal.approval(name)
    await killed(first)
    second = Copies(tmp_path)
    second.clock.jump(approvals.SECONDS if end is expired else 0)
    await second.open()
    await second.approvals.recover()
    await until(lambda: len(second.edits) >= PLACES)
    await second.idle()
    assert second.outcomes() == {outcome}
    assert {one.chat_key.chat_id for one in second.edits} == {"-100", "1", "2"}
    await second.close()


def slow_in_the_group(desk: Copies) -> asyncio.Event:
    """What is sent to the group is there once the event is set."""
    send, free = desk.tele.send, asyncio.Event()

    async def slow(message: Outbound) -> Sent:
        sent = await send(message)
        if message.chat_key.chat_id == "-100":
            await free.wait()
        return sent

    desk.tele.send = slow  # type: ignore[method-assign]
    return free


async def test_a_copy_that_is_on_its_way_when_somebody_decides_ends_once_it_is_there(
    desk: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "GRACE_SECONDS", 0.0)
    free = slow_in_the_group(desk)
    name = await desk.asked()
    await until(lambda: len(desk.tele.sent) == PLACES)
    await denied(desk, name)
    await until(lambda: bool(desk.ran))
    assert {one.chat_key.chat_id for one in desk.edits} <= {"1", "2"}
    free.set()
    await until(lambda: len(desk.edits) == PLACES)
    assert desk.outcomes() == {"⛔ Denied by an operator"}


async def test_a_copy_that_arrived_in_the_moment_of_a_kill_is_looked_for_and_ends(tmp_path: Path) -> None:
    first = Copies(tmp_path)
    await first.open()
    slow_in_the_group(first)
    name = await first.asked()
    await until(lambda: len(first.tele.sent) == PLACES)
    await killed(first)
    second = Copies(tmp_path)

    async def find(message: Outbound) -> Sent | None:
        return Sent("found") if message.chat_key.chat_id == "-100" else None

    second.tele.find = find  # type: ignore[method-assign]
    await second.open()
    await until(lambda: bool(second.tele.sent))
    await denied(second, name)
    # The one that was looked for, and the one that was asked again.
    await until(lambda: [one.chat_key.chat_id for one in second.edits].count("-100") == 2)
    assert second.outcomes() == {"⛔ Denied by an operator"}
    await second.close()


async def test_what_says_how_it_ended_is_not_changed_again(desk: Copies) -> None:
    name = await desk.shown()
    await approved(desk, name)
    await until(lambda: len(desk.edits) == PLACES)
    await desk.idle()
    desk.clock.jump(3_600)
    await desk.approvals.recover()
    await desk.press("deny", name)
    await desk.idle()
    rows = [row for row in await desk.journal.deliveries(name) if row.kind == "notice"]
    assert all(
        row.text.endswith("✅ Allowed by an operator, 08:00 UTC, in this chat from now on.") for row in rows
    )
    assert len(desk.edits) == PLACES


async def test_a_question_ends_once_whatever_its_sentences_are_by_then(
    desk: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await desk.shown()
    monkeypatch.setitem(CATALOGUES["en"], "approval.who_operators", "Operators say so.")
    monkeypatch.setitem(CATALOGUES["en"], "approval.asked", "They know.")
    await approved(desk, name)
    await until(lambda: len(desk.edits) == PLACES)
    assert not [one.text for one in desk.edits if "30 minutes" in one.text]
    monkeypatch.setitem(CATALOGUES["en"], "approval.ended_chat", "Let through by {by}, {time}.")
    await desk.approvals.recover()
    await desk.idle()
    assert len(desk.edits) == PLACES


async def test_a_question_that_was_asked_in_other_words_before_a_kill_ends_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Copies(tmp_path)
    await first.open()
    await first.shown()
    (row,) = [
        row for row in await first.journal.deliveries(first.names()[0]) if row.chat_key.chat_id == "-100"
    ]
    # Nobody knows whether it is there, so it is asked again.
    again = replace(row, id=first.ids.ulid(), text=f"In other words:\n{row.text}", message_id="m99")
    await first.journal.put_outbox([again])
    await denied(first, first.names()[0])
    await until(lambda: len(first.edits) == PLACES + 1)
    assert first.outcomes() == {"⛔ Denied by an operator"}
    await first.close()


async def test_closed_twice_at_once_each_copy_is_changed_once(desk: Copies) -> None:
    name = await desk.shown()
    desk.editing.clear()
    await approved(desk, name)
    await desk.press("deny", name)
    await desk.idle()
    desk.editing.set()
    await until(lambda: len(desk.edits) >= PLACES)
    await desk.approvals.recover()
    await desk.idle()
    assert len(desk.edits) == PLACES


async def test_a_press_on_a_copy_that_does_not_say_how_it_ended_makes_it_say_so(desk: Copies) -> None:
    name = await desk.shown()
    desk.editing.clear()
    await approved(desk, name)
    await desk.idle()
    assert desk.edits == []
    desk.editing.set()
    await desk.press("deny", name, "2")
    await until(lambda: len(desk.edits) >= PLACES)
    assert desk.outcomes() == {"✅ Allowed by an operator"}


async def test_operators_elsewhere_see_where_it_was_asked(desk: Copies) -> None:
    await desk.shown()
    asked = {one.chat_key.chat_id: one.text for one in desk.tele.sent}
    assert "\n\nAsked in" not in asked["-100"]
    assert asked["1"].endswith("\n\nAsked in [this conversation](https://tele.test/-100/1).")
    assert asked["1"] == asked["2"]


async def test_of_a_direct_chat_no_address_is_shown(desk: Copies) -> None:
    await desk.say("work", user_id="77")
    await until(lambda: len(desk.names()) == PLACES)
    asked = {one.chat_key.chat_id: one.text for one in desk.tele.sent}
    assert asked["1"].endswith("\n\nAsked in a direct chat.")
    (mine,) = [one for one in desk.tele.sent if one.chat_key.chat_id == "77"]
    assert mine.buttons == QuestionButtons(desk.names()[0], ()), "no buttons for who may not decide"


async def test_a_question_that_cannot_be_read_at_a_start_is_an_error_in_the_log(desk: Copies) -> None:
    async def refuses(_: float) -> Any:
        raise errors.StorageError("no")

    desk.journal.decided_since = refuses  # type: ignore[method-assign, assignment]
    await desk.approvals.recover()
    assert [line.message for line in desk.log.of("error")] == ["what was decided cannot be read"]


@pytest.mark.parametrize(
    ("granted", "user", "choices"),
    [(False, MEMBER, ()), (True, MEMBER, ("once", "chat", "deny")), (False, OPERATOR, CHOICES)],
)
async def test_the_buttons_in_a_group_are_those_of_who_may_decide_there(
    desk: Copies, granted: bool, user: str, choices: tuple[str, ...]
) -> None:
    desk.granted = granted
    await desk.asked(user_id=user)
    await until(lambda: "-100" in {one.chat_key.chat_id for one in desk.tele.sent})
    (here,) = [one for one in desk.tele.sent if one.chat_key.chat_id == "-100"]
    assert here.buttons is not None
    assert here.buttons.choices == choices


async def test_where_no_operator_has_it_in_view_elsewhere_the_group_has_the_buttons(desk: Copies) -> None:
    send = desk.tele.send

    async def unreachable(message: Outbound) -> Sent:
        if message.chat_key.chat_id != "-100":
            raise errors.TargetGone("never written to")
        return await send(message)

    desk.tele.send = unreachable  # type: ignore[method-assign]
    await desk.asked()
    (here,) = desk.tele.sent
    assert here.buttons is not None
    assert here.buttons.choices == CHOICES


async def test_an_operator_who_is_slow_to_reach_keeps_the_group_waiting_for_moments_only(
    desk: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.gateway.approvals.REACHED_SECONDS", 0.01)
    send, free = desk.tele.send, asyncio.Event()

    async def slow(message: Outbound) -> Sent:
        if message.chat_key.chat_id != "-100":
            await free.wait()
        return await send(message)

    desk.tele.send = slow  # type: ignore[method-assign]
    await desk.asked()
    (here,) = desk.tele.sent
    assert here.buttons is not None
    assert here.buttons.choices == CHOICES
    free.set()
    await until(lambda: len(desk.tele.sent) == PLACES)


async def test_while_a_turn_waits_its_session_is_suspended(desk: Copies) -> None:
    signs: list[str] = []

    async def suspend(target: Any) -> None:
        signs.append(f"suspended {target['chat']}")

    async def indicate(_: Any, *, working: bool) -> None:
        signs.append("works" if working else "is done")

    desk.tele.suspend = suspend  # type: ignore[attr-defined]
    desk.tele.indicate = indicate  # type: ignore[method-assign, assignment]
    name = await desk.asked()
    await until(lambda: bool(signs))
    assert signs == ["suspended -100"]
    await desk.press("approve", name)
    await desk.idle()
    assert signs == ["suspended -100", "works"]
    del signs[:]
    await desk.asked(user_id="78")
    await until(lambda: bool(signs))
    await desk.say("/stop", user_id="78", command=Command(name="stop"), addressed="command", **GROUP)
    await desk.idle()
    assert "works" not in signs


async def test_each_copy_is_asked_and_ends_in_the_language_of_its_reader(desk: Copies) -> None:
    choosing = Command(name="language", args="zh")
    await desk.say("/language zh", user_id=OPERATOR, command=choosing, addressed="command")
    await desk.idle()
    desk.tele.sent.clear()
    name = await desk.asked()
    await until(lambda: len(desk.tele.sent) == PLACES)
    asked = {one.chat_key.chat_id: one for one in desk.tele.sent}
    assert asked["1"].text.startswith("77 想让我执行一条命令，可以吗？")
    assert "\n\n来自[这个对话](https://tele.test/-100/" in asked["1"].text
    assert asked["2"].text.startswith("77 wants me to run a command. May I?")
    assert {chat: one.language for chat, one in asked.items()} == {"1": "zh", "2": "en", "-100": "en"}
    await until(lambda: len(desk.log.of("delivery")) > PLACES)
    await approved(desk, name)
    await until(lambda: len(desk.edits) == PLACES)
    ends = {one.chat_key.chat_id: one.text.rpartition("\n\n")[2] for one in desk.edits}
    assert ends["1"] == "✅ 已允许，以后在这个聊天里不再询问（管理员，08:00 UTC）。"
    assert ends["2"] == "✅ Allowed by an operator, 08:00 UTC, in this chat from now on."


async def test_each_copy_ends_on_the_clocks_of_its_reader_and_stays_so_where_they_choose_others(
    desk: Copies,
) -> None:
    async def chooses(zone: str) -> None:
        choosing = Command(name="timezone", args=zone)
        await desk.say(f"/timezone {zone}", user_id=OPERATOR, command=choosing, addressed="command")
        await desk.idle()

    await chooses("Asia/Tokyo")
    desk.tele.sent.clear()
    name = await desk.shown()
    await approved(desk, name)
    await until(lambda: len(desk.edits) == PLACES)
    ends = {one.chat_key.chat_id: one.text.rpartition("\n\n")[2] for one in desk.edits}
    assert ends["1"] == "✅ Allowed by an operator, 17:00, in this chat from now on."
    assert ends["2"] == "✅ Allowed by an operator, 08:00 UTC, in this chat from now on."
    await desk.idle()
    await chooses("America/Lima")
    await desk.approvals.recover()
    await desk.idle()
    assert len(desk.edits) == PLACES


async def test_the_outcome_names_the_person_as_they_were_called_then_over_a_kill(tmp_path: Path) -> None:
    desk = Copies(tmp_path)
    await desk.open()
    name = await desk.shown()
    await desk.press("deny", name, user_name="An`n\u202e [x](https://evil.test)")
    await until(lambda: len(desk.edits) == PLACES)
    said = "⛔ Denied by `An\\u0060n\\u202e [x](https://evil.test)`, 08:00 UTC."
    assert {one.text.rpartition("\n\n")[2] for one in desk.edits} == {said}
    assert [one.details["by"] for one in desk.log.of("approval") if "by" in one.details] == ["tele:1"]
    await desk.idle()
    await desk.close()
    second = Copies(tmp_path)
    await second.open()
    record = await second.journal.approval(name)
    assert record is not None
    assert record.verdict is not None
    assert record.verdict.name == "An`n\u202e [x](https://evil.test)"
    await second.close()
