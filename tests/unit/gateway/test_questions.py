"""Questions of tools in the chats: who answers them, and what ends the waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.approvals import SECONDS
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Origin, Quoted
from bot.contracts.questions import Answer, Question
from tests.unit.gateway.desk import GROUP, MEMBER, Desk
from tests.unit.gateway.outgoing import until


class Asks(Desk):
    """A gateway whose turns ask their person something, and reply with what came of it."""

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root, **options)
        self.answers: list[Answer] = []

    async def ask_people(self, request: TurnRequest) -> TurnOutcome:
        assert request.reply is not None
        assert request.inbound is not None
        if request.inbound.text != "work":
            await request.reply.send("heard")
            return TurnOutcome("done", delivered=1)
        answer = await self.questions.ask(Question(request.request_id, request.chat_key, "How many?"))
        self.answers.append(answer)
        await request.reply.send(f"{answer.ended} {answer.words}")
        return TurnOutcome("done", delivered=1)

    async def begun(self) -> None:
        await self.say("work", user_id=MEMBER, **GROUP)
        await until(lambda: self.tele.texts == ["How many?"])


@pytest.fixture
async def asks(tmp_path: Path) -> AsyncIterator[Asks]:
    made = Asks(tmp_path)
    await made.open()
    yield made
    await made.close()


async def test_the_next_words_of_whom_was_asked_are_the_answer(asks: Asks) -> None:
    await asks.begun()
    assert asks.tele.sent[0].kind == "notice"
    await asks.say("five", user_id="78", **GROUP)
    await asks.say("四", user_id=MEMBER, **GROUP)
    await asks.say("six", user_id=MEMBER, **GROUP)
    await asks.idle()
    assert asks.answers == [Answer("answered", "四")]
    assert asks.tele.texts[1] == "answered 四"


async def test_where_only_mentions_are_listened_to_the_answer_counts_all_the_same(asks: Asks) -> None:
    thread = {**GROUP, "chat_key": "tele:chat:-100:thread:1"}
    await asks.press("listen", "mention")
    await until(lambda: len(asks.tele.texts) == 1)
    asks.tele.sent.clear()
    await asks.say("work", user_id=MEMBER, addressed="mention", **thread)
    await until(lambda: asks.tele.texts == ["How many?"])
    assert not await asks.say("five", user_id="78", addressed="thread", **thread)
    assert not await asks.say("<@78> six?", user_id=MEMBER, addressed="thread", to_others=True, **thread)
    assert await asks.say("四", user_id=MEMBER, addressed="thread", **thread)
    await asks.idle()
    assert asks.answers == [Answer("answered", "四")]
    assert not await asks.say("and more", user_id=MEMBER, addressed="thread", **thread)


async def test_what_is_forwarded_answers_nothing(asks: Asks) -> None:
    await asks.begun()
    passed_on = Quoted(user_id=MEMBER, text="nine", origin=Origin(how="forwarded", name="Eve"), brought=True)
    await asks.say("", user_id=MEMBER, quoted=(passed_on,), **GROUP)
    assert asks.answers == []
    await asks.say("four", user_id=MEMBER, quoted=(passed_on,), **GROUP)
    await asks.idle()
    assert asks.answers == [Answer("answered", "four")]


async def test_its_place_is_for_others_meanwhile(tmp_path: Path) -> None:
    asks = Asks(tmp_path, max_concurrent=1)
    await asks.open()
    await asks.begun()
    home: dict[str, Any] = {"chat_id": "77", "chat_key": "tele:chat:77", "target": {"chat": "77"}}
    await asks.say("hello", user_id=MEMBER, **home)
    await until(lambda: "heard" in asks.tele.texts)
    await asks.say("5", user_id=MEMBER, **GROUP)
    await asks.idle()
    assert asks.answers == [Answer("answered", "5")]
    await asks.close()


async def test_an_answer_interrupts_nothing(tmp_path: Path) -> None:
    asks = Asks(tmp_path, mode="interrupt")
    await asks.open()
    await asks.begun()
    await asks.say("5", user_id=MEMBER, **GROUP)
    await asks.idle()
    assert asks.answers == [Answer("answered", "5")]
    await asks.close()


async def test_half_an_hour_ends_it(asks: Asks) -> None:
    await asks.begun()
    await until(lambda: any(due >= SECONDS for due in asks.clock.wakes))
    await asks.clock.advance(SECONDS + 1)
    await asks.idle()
    assert asks.answers == [Answer("expired")]


async def test_a_stop_ends_it(asks: Asks) -> None:
    await asks.begun()
    await asks.press("stop", user=MEMBER)
    await asks.idle()
    assert asks.answers == []
    assert not asks.questions.waits(ChatKey.parse("tele:chat:-100"))


async def test_a_command_of_whom_was_asked_ends_it_and_runs(asks: Asks) -> None:
    await asks.begun()
    await asks.press("new", user="78")
    await asks.press("new", user=MEMBER)
    await until(lambda: len(asks.answers) == 1)
    await asks.idle()
    assert asks.answers == [Answer("nobody")]


async def test_one_question_at_a_time_in_a_chat(asks: Asks) -> None:
    await asks.begun()
    second = asyncio.create_task(
        asks.questions.ask(Question("R", ChatKey.parse("tele:chat:-100"), "And when?"))
    )
    await until(lambda: asks.suspension.asking(ChatKey.parse("tele:chat:-100")) == 2)
    assert asks.tele.texts == ["How many?"]
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    await asks.say("5", user_id=MEMBER, **GROUP)
    await asks.idle()
    assert asks.answers == [Answer("answered", "5")]
    assert "And when?" not in asks.tele.texts


async def test_without_a_turn_there_is_nobody(asks: Asks) -> None:
    assert await asks.questions.ask(Question("R", ChatKey.parse("tele:chat:1"), "Well?")) == Answer("nobody")


async def test_a_turn_that_has_ended_asks_nothing_more(asks: Asks) -> None:
    """A tool may outlive its turn, whose end is not on file yet."""
    ending = asyncio.Event()
    asks.journal.post.end_turn = lambda *_, **__: ending.set()  # type: ignore[method-assign, assignment]
    await asks.say("hello", user_id=MEMBER, **GROUP)
    await ending.wait()
    chat = ChatKey.parse("tele:chat:-100")
    assert await asks.questions.ask(Question("R", chat, "And when?")) == Answer("nobody")
    assert "And when?" not in asks.tele.texts
