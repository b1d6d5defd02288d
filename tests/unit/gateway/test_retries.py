"""[Try again] below the notice of a failure: the failed turn's messages once more, once, for those who may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Attachment
from bot.contracts.outbound import Outbound, OutboxRow
from bot.words import say
from tests.unit.gateway.conftest import Bench, killed, leave_open
from tests.unit.gateway.outgoing import until
from tests.unit.gateway.test_turns import command

BEGUN = say("retry.begun")
NOT_YOURS = say("retry.not_yours")
RETRYING = say("retry.trying")
NOT_YOURS_EITHER, RENEWED, RENEWING = (
    say(f"retry.{name}") for name in ("renew_not_yours", "renewed", "renewing")
)
UNKNOWN = say("retry.unknown")

FAILED = TurnOutcome("failed", notice="Something went wrong.")


def once(failed: int = 1) -> Any:
    """An agent that fails so many times."""
    left = [FAILED] * failed

    def answer(request: TurnRequest) -> str | TurnOutcome:
        assert request.inbound is not None
        return left.pop() if left else f"re: {request.inbound.text}"

    return answer


async def failed(bench: Bench, *words: str, **more: Any) -> str:
    """A turn that failed; its id, as the button below its notice has it."""
    bench.agent.answer = once()
    bench.agent.hold = asyncio.Event()
    for one in words:
        await bench.say(one, **more)
    await bench.agent.began.wait()
    bench.agent.hold.set()
    await bench.idle()
    notice = bench.tele.sent[-1]
    assert notice.text == "Something went wrong."
    assert notice.buttons is not None
    assert notice.buttons.choices == ("again",)
    return notice.buttons.question_id


async def press(bench: Bench, name: str, **more: Any) -> str:
    """What the person who presses is told at once."""
    before = len(bench.tele.sent)
    await bench.say("", **command("retry", args=name), message_id=None, keys=(bench.ids.ulid(),), **more)
    await bench.idle()
    (said,) = [one for one in bench.tele.texts[before:] if one in {BEGUN, NOT_YOURS, RETRYING, UNKNOWN}]
    return said


async def test_a_failed_message_is_tried_again_once_and_a_second_press_is_told_so(bench: Bench) -> None:
    name = await failed(bench, "what is new?")
    assert await press(bench, name) == RETRYING
    assert "re: what is new?" in bench.tele.texts
    assert await press(bench, name) == BEGUN
    assert bench.tele.texts.count("re: what is new?") == 1
    assert await bench.lines() == [
        ("user", "what is new?"),
        ("user", "what is new?"),
        ("assistant", "re: what is new?"),
    ]


async def test_what_fails_again_can_be_tried_again_by_its_own_button(bench: Bench) -> None:
    name = await failed(bench, "what is new?")
    bench.agent.answer = once()
    assert await press(bench, name) == RETRYING
    (again,) = [one for one in bench.tele.sent[1:] if one.buttons is not None]
    assert again.buttons is not None
    assert again.buttons.question_id != name
    assert await press(bench, again.buttons.question_id) == RETRYING
    assert "re: what is new?" in bench.tele.texts


async def test_all_that_the_turn_had_is_tried_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, debounce=0.05)
    await bench.open()
    bench.agent.answer = once()
    for words in ("one", "two"):
        await bench.say(words, attachments=(Attachment(kind="photo", name=f"{words}.jpg"),))
    while not bench.tele.sent:
        await bench.clock.advance(0.1)
        await asyncio.sleep(0.001)
    await bench.idle()
    buttons = bench.tele.sent[-1].buttons
    assert buttons is not None
    bench.agent.hold = asyncio.Event()
    bench.agent.hold.set()
    await bench.say("", **command("retry", args=buttons.question_id), message_id=None)
    while not bench.agent.requests[1:]:
        await bench.clock.advance(0.1)
        await asyncio.sleep(0.001)
    await bench.idle()
    request = bench.agent.requests[-1]
    assert request.inbound is not None
    assert request.inbound.text == "one\ntwo"
    assert [file.name for file in request.inbound.attachments] == ["one.jpg", "two.jpg"]
    await bench.close()


GROUP = {"chat_id": "-100", "chat_key": "tele:chat:-100", "chat_type": "group", "target": {"chat": "-100"}}


async def test_in_a_group_only_the_person_who_asked_and_operators_may(bench: Bench) -> None:
    name = await failed(bench, "what is new?", user_id="5", addressed="mention", **GROUP)
    assert await press(bench, name, user_id="6", **GROUP) == NOT_YOURS
    assert len(bench.agent.requests) == 1
    assert await press(bench, name, user_id="1", **GROUP) == RETRYING
    request = bench.agent.requests[-1]
    assert request.inbound is not None
    assert request.inbound.user_id == "5", "with the rights of the person who asked"


async def test_a_person_who_was_blocked_meanwhile_is_not_answered(bench: Bench) -> None:
    name = await failed(bench, "what is new?", user_id="5", addressed="mention", **GROUP)
    bench.lists.block("tele", "5")
    assert await press(bench, name, user_id="1", **GROUP) == NOT_YOURS
    assert len(bench.agent.requests) == 1


async def test_only_what_failed_here_can_be_tried_again(bench: Bench) -> None:
    name = await failed(bench, "what is new?")
    elsewhere = {"chat_id": "1", "chat_key": "tele:chat:1", "user_id": "1", "target": {"chat": "1"}}
    assert await press(bench, name, **elsewhere) == UNKNOWN
    assert await press(bench, "01UNKNOWN") == UNKNOWN
    await bench.say("and this?")
    await bench.idle()
    assert await press(bench, str(bench.agent.requests[-1].request_id)) == UNKNOWN


async def test_a_failure_that_has_no_words_to_show_ends_all_the_same(bench: Bench) -> None:
    bench.agent.answer = lambda _: TurnOutcome("failed", notice=" \n ")
    await bench.say("what is new?")
    await bench.idle()
    assert bench.tele.sent == []
    assert await bench.journal.unfinished() == []


async def test_the_notice_of_a_command_has_no_button(bench: Bench) -> None:
    async def broken(_: Any) -> str:
        raise asyncio.QueueEmpty

    bench.commands.run = broken  # type: ignore[method-assign, assignment]
    await bench.say("/new", **command("new"))
    await bench.idle()
    assert [one.buttons for one in bench.tele.sent] == [None]


@pytest.mark.parametrize("cut", ["before the press has ended", "before the new turn has ended"])
async def test_over_a_kill_it_is_tried_again_once(tmp_path: Path, cut: str) -> None:
    first = Bench(tmp_path)
    await first.open()
    name = await failed(first, "what is new?")
    first.agent.hold = asyncio.Event()
    first.agent.began.clear()
    if cut == "before the press has ended":
        leave_open(first.journal)
    await first.say("", **command("retry", args=name), message_id=None)
    await first.agent.began.wait()
    await killed(first)
    second = Bench(tmp_path)
    await second.open()
    await second.delivery.open()
    await until(lambda: "re: what is new?" in second.tele.texts)
    await second.idle()
    assert [text for text in second.tele.texts if text.startswith("re: ")] == ["re: what is new?"]
    assert await press(second, name) == BEGUN
    assert len(second.agent.requests) == 1
    assert await second.journal.unfinished() == []
    await second.close()


class Renewed(Bench):
    """A gateway on a channel that can change its messages; `edits` has what they were changed into, in order."""

    def __init__(self, root: Path, **more: Any) -> None:
        super().__init__(root, **more)
        self.edits: list[tuple[str, Outbound]] = []
        self.tele.edit = self._edit  # type: ignore[attr-defined]

    async def _edit(self, message: Outbound, message_id: str) -> None:
        self.edits.append((message_id, message))

    def shown(self) -> dict[str, Outbound]:
        """Each message as people see it, by its id."""
        sent = {f"m{number}": one for number, one in enumerate(self.tele.sent, 1)}
        return sent | dict(self.edits)

    async def edited(self, words: str = "what is old?", message_id: str = "31") -> str:
        """The message is edited after its answer; the id that the button below the answer has."""
        before = len(self.edits)
        await self.say(words, kind="edit", message_id=message_id, keys=(self.ids.ulid(),), ts=self.now())
        await until(lambda: len(self.edits) > before)
        buttons = self.edits[-1][1].buttons
        assert buttons is not None
        assert buttons.choices == ("renew",)
        return str(buttons.question_id)

    def now(self) -> int:
        return int(self.clock.now() * 1000)

    async def renew(self, name: str, **more: Any) -> str:
        """What the person who presses is told."""
        before = len(self.tele.sent)
        await self.say("", **command("renew", args=name), message_id=None, keys=(self.ids.ulid(),), **more)
        await self.idle()
        (said,) = [one for one in self.tele.texts[before:] if one in ANSWERS]
        return said


ANSWERS = {RENEWED, NOT_YOURS_EITHER, RENEWING, UNKNOWN}


@pytest.fixture
async def renewed(tmp_path: Path) -> AsyncIterator[Renewed]:
    made = Renewed(tmp_path, operators=frozenset({UserRef("tele", "1")}))
    await made.open()
    yield made
    await made.close()


async def answered(bench: Renewed) -> None:
    await bench.say("what is new?", message_id="31")
    await bench.idle()
    assert bench.tele.texts == ["re: what is new?"]


async def test_an_edit_after_the_answer_offers_one_in_its_place_once(renewed: Renewed) -> None:
    await answered(renewed)
    name = await renewed.edited()
    assert renewed.shown()["m1"].text == "re: what is new?"
    assert await renewed.renew(name) == RENEWING
    assert await renewed.renew(name) == RENEWED
    assert renewed.shown()["m1"].text == "re: what is old?"
    buttons = renewed.shown()["m1"].buttons
    assert buttons is None or buttons.choices == ()
    assert [one for one in renewed.tele.texts if one not in ANSWERS] == ["re: what is new?"]
    assert [one.inbound.text for one in renewed.agent.requests if one.inbound is not None] == [
        "what is new?",
        "what is old?",
    ]


async def test_a_further_edit_offers_it_again_below_the_newer_answer(renewed: Renewed) -> None:
    await answered(renewed)
    assert await renewed.renew(await renewed.edited()) == RENEWING
    await renewed.clock.advance(5)
    name = await renewed.edited("what is blue?")
    assert renewed.shown()["m1"].text == "re: what is old?"
    assert await renewed.renew(name) == RENEWING
    assert renewed.shown()["m1"].text == "re: what is blue?"


async def test_only_the_author_and_operators_have_it_answered_again(renewed: Renewed) -> None:
    group = {
        "chat_id": "-100",
        "chat_key": "tele:chat:-100",
        "chat_type": "group",
        "target": {"chat": "-100"},
    }
    await renewed.say("what is new?", message_id="31", addressed="mention", **group)
    await renewed.idle()
    before = len(renewed.edits)
    edit = {
        "kind": "edit",
        "message_id": "31",
        "addressed": "mention",
        "keys": ("edit",),
        "ts": renewed.now(),
    }
    await renewed.say("what is old?", **edit, **group)
    await until(lambda: len(renewed.edits) > before)
    buttons = renewed.edits[-1][1].buttons
    assert buttons is not None
    place = {**group, "user_id": "78"}
    assert await renewed.renew(buttons.question_id, **place) == NOT_YOURS_EITHER
    assert await renewed.renew(buttons.question_id) == UNKNOWN
    assert await renewed.renew("0" * 26, **group) == UNKNOWN
    assert await renewed.renew(buttons.question_id, **{**place, "user_id": "1"}) == RENEWING
    assert renewed.shown()["m1"].text == "re: what is old?"


async def test_nothing_is_offered_where_no_one_message_is_the_answer(renewed: Renewed) -> None:
    async def twice(request: TurnRequest) -> TurnOutcome:
        assert request.reply is not None
        for words in ("one", "two"):
            await request.reply.send(words)
        return TurnOutcome("done", delivered=2)

    renewed.agent.converse = twice  # type: ignore[method-assign]
    await renewed.say("what is new?", message_id="31")
    await renewed.idle()
    await renewed.say("what is old?", kind="edit", message_id="31", keys=("edit",), ts=renewed.now())
    await renewed.idle()
    assert renewed.edits == []


async def states(bench: Bench, message: Outbound) -> list[str]:
    """The states of what went out for the request of a message."""
    return [row.state for row in await bench.journal.deliveries(message.request_id)]


async def test_a_kill_after_the_press_changes_the_answer_all_the_same_and_adds_none(tmp_path: Path) -> None:
    first = Renewed(tmp_path)
    await first.open()
    await answered(first)
    name = await first.edited()
    first.agent.hold = asyncio.Event()
    await first.say("", **command("renew", args=name), message_id=None, keys=("press",))
    await until(lambda: len(first.agent.requests) == 2 and RENEWING in first.tele.texts)
    for one in first.tele.sent:
        while await states(first, one) != ["sent"]:  # noqa: ASYNC110 - the journal tells nobody
            await asyncio.sleep(0)
    await killed(first)
    second = Renewed(tmp_path)
    await second.open()
    await until(lambda: bool(second.edits))
    await second.idle()
    assert [(place, one.text) for place, one in second.edits] == [("m1", "re: what is old?")]
    assert not any("re:" in one for one in second.tele.texts)
    await second.close()


async def test_what_is_deleted_later_leaves_the_newer_answer_as_it_is(renewed: Renewed) -> None:
    await answered(renewed)
    assert await renewed.renew(await renewed.edited()) == RENEWING
    before = len(renewed.edits)
    await renewed.say("", kind="delete", message_id="31", keys=("gone",))
    await renewed.idle()
    assert not any("what is new?" in one.text for _, one in renewed.edits[before:])


async def test_an_edit_that_the_outbox_cannot_be_asked_about_is_kept_without_an_offer(
    renewed: Renewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await answered(renewed)

    async def unreadable(_: str) -> list[OutboxRow]:
        raise errors.StorageError

    monkeypatch.setattr(renewed.journal, "deliveries", unreadable)
    await renewed.say("what is old?", kind="edit", message_id="31", keys=("edit",), ts=renewed.now())
    await renewed.idle()
    assert renewed.edits == []
    assert "the outbox cannot be read" in renewed.log.text
