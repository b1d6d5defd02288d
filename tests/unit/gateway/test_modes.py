"""Queue modes, and what each does with messages that come while a turn runs; before and after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Command
from bot.contracts.outbound import Outbound, Sent
from tests.unit.gateway.conftest import Bench, killed
from tests.unit.gateway.outgoing import until


async def made(root: Path, **options: Any) -> Bench:
    bench = Bench(root, **options)
    bench.agent.answer = together
    await bench.open()
    return bench


def together(request: TurnRequest) -> str:
    assert request.inbound is not None
    return "re: " + " + ".join(one.text for one in (request.inbound, *request.also))


async def _unreachable(*_: object, **__: object) -> None:
    raise errors.DeliveryFailed("nobody there")


async def busy(bench: Bench) -> None:
    bench.agent.hold = asyncio.Event()
    await bench.say("one")
    await bench.agent.began.wait()


async def freed(bench: Bench) -> None:
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    await bench.idle()


@pytest.mark.parametrize(
    ("mode", "steers", "said"),
    [
        ("steer", True, ["re: one", "re: two", "re: three"]),
        ("followup", False, ["re: one", "re: two", "re: three"]),
        ("collect", False, ["re: one", "re: two + three"]),
        ("interrupt", False, ["re: two + three"]),
    ],
)
async def test_what_a_person_adds_while_a_turn_runs(
    tmp_path: Path, mode: str, steers: bool, said: list[str]
) -> None:
    bench = await made(tmp_path, mode=mode)
    await busy(bench)
    await bench.say("two")
    await bench.say("three")
    assert steers or bench.agent.requests[0].arrivals.take_more() == []
    await freed(bench)
    assert bench.tele.texts == said
    assert await bench.journal.unfinished() == []
    await bench.close()


async def quick(bench: Bench, *texts: str) -> None:
    for words in texts:
        asked = len(bench.agent.questions)
        await bench.say(words)
        await until(lambda asked=asked: len(bench.agent.questions) > asked)  # type: ignore[misc]


async def test_quick_messages_are_one_question_and_after_two_more_it_is_put_no_more(tmp_path: Path) -> None:
    bench = await made(tmp_path)
    bench.agent.takes = True
    await busy(bench)
    await quick(bench, "two", "三")
    await bench.say("four")
    for question in bench.agent.questions:
        records = [await bench.journal.inbound(one.request_id) for one in question.also]
        assert {one.turn_id for one in records if one is not None} == {question.request_id}
    await freed(bench)
    assert bench.tele.texts == ["re: one + two + 三", "re: four"]
    assert [one.pending_input for one in bench.agent.requests] == [False, False]
    assert len(bench.agent.restarts) == 2
    assert await bench.journal.unfinished() == []
    await bench.close()


async def test_an_edit_while_nothing_is_seen_of_the_answer_leaves_one_answer(tmp_path: Path) -> None:
    bench = await made(tmp_path)
    bench.agent.takes = True
    await busy(bench)
    await bench.say("one, I mean eins", kind="edit", message_id="1")
    await until(lambda: bool(bench.agent.questions))
    await freed(bench)
    assert bench.tele.texts == ["re: one + one, I mean eins"]
    await bench.close()


async def test_once_something_was_seen_or_done_the_question_stays_as_it_is(tmp_path: Path) -> None:
    bench = await made(tmp_path)
    bench.agent.takes = True
    await busy(bench)
    bench.agent.requests[0].arrivals.effect_begins()
    await bench.say("two")
    await freed(bench)
    assert (bench.agent.restarts, bench.tele.texts) == ([], ["re: one", "re: two"])
    bench.agent.requests[0].arrivals.effect_begins()  # its turn is over
    bench.agent.began.clear()
    await busy(bench)
    reply = bench.agent.requests[-1].reply
    assert reply is not None
    await reply.send("seen")
    await bench.say("four")
    await freed(bench)
    assert bench.agent.restarts == []
    assert bench.tele.texts[2:] == ["seen", "re: one", "re: four"]
    await bench.close()


async def test_killed_before_it_is_asked_anew_or_after_it_is_answered_once_with_all_of_it(
    tmp_path: Path,
) -> None:
    bench = await made(tmp_path)
    bench.agent.takes = True
    await busy(bench)
    await quick(bench, "two")
    await killed(bench)
    again = await made(tmp_path)
    await again.idle()
    assert again.tele.texts == ["re: one + two"]
    assert await again.journal.unfinished() == []
    await again.close()


async def test_what_comes_while_a_turn_reads_is_part_of_the_question(tmp_path: Path) -> None:
    bench = await made(tmp_path)
    bench.agent.takes = True
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: Any) -> tuple[()]:
        reading.set()
        await go_on.wait()
        return ()

    bench.tele.context = slow  # type: ignore[assignment, method-assign]
    await bench.say("one")
    await reading.wait()
    await bench.say("two")
    await bench.say("zwei", kind="edit", message_id="2")
    go_on.set()
    await bench.idle()
    assert bench.tele.texts == ["re: one + zwei"]
    assert [one.pending_input for one in bench.agent.requests] == [True]
    await bench.close()


async def test_what_interrupts_is_of_the_same_person_in_the_same_chat(tmp_path: Path) -> None:
    bench = await made(tmp_path, mode="interrupt")
    bench.agent.hold = asyncio.Event()
    group: dict[str, Any] = {"chat_id": "-100", "chat_key": "tele:chat:-100", "chat_type": "group"}
    await bench.say("one", **group)
    await bench.agent.began.wait()
    await bench.say("theirs", user_id="5", **group)
    await bench.say("elsewhere", **{**group, "chat_key": "tele:chat:-100:topic:1"})
    await bench.say("/new", command=Command(name="new"), **group)
    assert len(bench.agent.running) >= 1
    await freed(bench)
    assert sorted(bench.tele.texts[:3]) == ["re: elsewhere", "re: one", "re: theirs"]
    await bench.close()


class TestMessagesOfOneChatThatEachOpenAThread:
    """As those of a direct chat in Slack."""

    @staticmethod
    def thread(name: str, **more: Any) -> dict[str, Any]:
        return {"message_id": name, "target": {"chat": "77", "thread": name}, **more}

    @pytest.mark.parametrize(
        ("mode", "said"),
        [
            ("steer", [("re: one + two + three", "1")]),
            ("followup", [("re: one", "1"), ("re: two", "2"), ("re: three", "3")]),
            ("collect", [("re: one", "1"), ("re: two + three", "2")]),
            ("interrupt", [("re: two + three", "2")]),
        ],
    )
    async def test_are_one_conversation_and_answered_where_the_first_is(
        self, tmp_path: Path, mode: str, said: list[tuple[str, str]]
    ) -> None:
        bench = await made(tmp_path, mode=mode)
        bench.agent.hold = asyncio.Event()

        def answer(request: TurnRequest) -> str:
            more = request.arrivals.take_more()
            return " + ".join([together(request), *(one.text for one in more)])

        bench.agent.answer = answer
        await bench.say("one", **self.thread("1"))
        await bench.agent.began.wait()
        await bench.say("two", **self.thread("2"))
        await bench.say("three", **self.thread("3"))
        await freed(bench)
        assert [(one.text, one.target["thread"]) for one in bench.tele.sent] == said
        assert await bench.journal.unfinished() == []
        await bench.close()

    async def test_are_one_burst(self, tmp_path: Path) -> None:
        bench = await made(tmp_path, debounce=1.0)
        await bench.say("one", **self.thread("1"))
        await bench.say("two", **self.thread("2"))
        await bench.clock.advance(1.0)
        await bench.idle()
        assert bench.tele.texts == ["re: one + two"]
        receipt = await bench.commands.run(
            bench.inbound("/receipt 2", command=Command(name="receipt", args="2"), target={"chat": "77"})
        )
        assert receipt.startswith(
            "I answered that together with this message:\nYou asked today 08:00 UTC: “one”\n"
        )
        await bench.close()

    async def test_go_on_together_after_a_restart(self, tmp_path: Path) -> None:
        first = await made(tmp_path, debounce=1.0)
        first.agent.hold = asyncio.Event()
        await first.say("one", **self.thread("1"))
        await first.say("two", **self.thread("2"))
        await first.clock.advance(1.0)
        await first.agent.began.wait()
        await first.close()
        second = await made(tmp_path, debounce=1.0)
        await second.idle()
        assert [(one.text, one.target["thread"]) for one in second.tele.sent] == [("re: one + two", "1")]
        assert await second.journal.unfinished() == []
        await second.close()


async def test_new_words_interrupt_the_answer_to_the_old_ones(tmp_path: Path) -> None:
    bench = await made(tmp_path, mode="interrupt")
    bench.agent.hold = asyncio.Event()
    await bench.say("teh", message_id="m")
    await bench.agent.began.wait()
    await bench.say("the", message_id="m", kind="edit")
    await freed(bench)
    assert bench.tele.texts == ["re: the"]
    await bench.close()


async def test_what_comes_while_a_turn_reads_its_thread_is_answered_with_it_where_all_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = await made(tmp_path, mode="interrupt")
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_: object) -> Any:
        reading.set()
        await go_on.wait()
        return ()

    monkeypatch.setattr(bench.tele, "context", slow)
    await bench.say("one")
    await reading.wait()
    await bench.say("two", attachments=(Attachment(kind="file", name="报告.pdf"),))
    go_on.set()
    await bench.idle()
    (said,) = bench.tele.texts
    assert said.startswith("re: one + two\n\n")
    assert "报告.pdf" in said
    assert await bench.journal.unfinished() == []
    await bench.close()


async def test_a_burst_is_one_turn_and_one_line_names_all_that_came_along(tmp_path: Path) -> None:
    bench = await made(tmp_path, debounce=1.5)
    await bench.say("", attachments=(Attachment(kind="photo", name="a.jpg"),))
    await bench.say("look 👀", attachments=(Attachment(kind="file", name="b.pdf"),))
    await bench.clock.advance(1.5)
    (said,) = await bench.tele.until(1)
    assert said.startswith("re:  + look 👀\n\n")
    assert "the photo you sent" in said
    assert "b.pdf" in said
    await bench.idle()
    await bench.say("", attachments=(Attachment(kind="photo", name="c.jpg"),))
    await bench.say(" ", attachments=(Attachment(kind="photo", name="d.jpg"),))
    await bench.clock.advance(1.5)
    words = (await bench.tele.until(2))[1]
    await bench.idle()
    assert words == "I couldn't look at the 2 photos you sent."
    assert len(bench.agent.requests) == 1
    assert await bench.journal.unfinished() == []
    await bench.close()


async def test_a_burst_that_fails_is_told_of_once(tmp_path: Path) -> None:
    bench = await made(tmp_path, debounce=1.0)

    def broken(_: TurnRequest) -> TurnOutcome:
        raise ZeroDivisionError

    bench.agent.answer = broken
    await bench.say("one")
    await bench.say("two")
    await bench.clock.advance(1.0)
    await bench.tele.until(1)
    await bench.idle()
    assert len(bench.tele.texts) == 1
    assert await bench.journal.unfinished() == []
    assert bench.running == {}
    await bench.close()


class TestAfterARestart:
    async def test_a_sign_of_work_that_was_shown_before_is_cleared_however_quick_the_answer_is(
        self, tmp_path: Path
    ) -> None:
        first = await made(tmp_path)
        await busy(first)
        await first.clock.advance(1.0)
        assert first.tele.signs == [True]
        first.tele.indicate = _unreachable  # type: ignore[method-assign]  # killed, it clears nothing
        await first.close()
        second = await made(tmp_path)
        await second.idle()
        assert second.tele.texts == ["re: one"]
        assert second.tele.signs == [False]
        await second.close()

    async def test_what_had_been_collected_is_one_turn_behind_the_one_that_goes_on(
        self, tmp_path: Path
    ) -> None:
        first = await made(tmp_path, mode="collect")
        await busy(first)
        await first.say("two")
        await first.say("three")
        await first.close()
        second = Bench(tmp_path, mode="collect")
        second.agent.answer = together
        second.agent.sources = (first.agent.requests[0].request_id,)
        await second.open()
        await second.idle()
        assert second.tele.texts == ["re: one", "re: two + three"]
        assert await second.journal.unfinished() == []
        await second.close()

    async def test_a_burst_that_had_begun_goes_on_with_all_its_messages_and_no_others(
        self, tmp_path: Path
    ) -> None:
        first = await made(tmp_path, debounce=1.0, mode="collect")
        first.agent.hold = asyncio.Event()
        await first.say("one")
        await first.say("two")
        await first.clock.advance(1.0)
        await first.agent.began.wait()
        await first.clock.advance(60.0)
        await first.say("three")
        await first.close()
        second = Bench(tmp_path, debounce=1.0, mode="collect")
        second.agent.answer = together
        await second.open()
        await second.idle()
        assert second.tele.texts == ["re: one + two", "re: three"]
        await second.close()

    async def test_a_burst_is_what_the_journal_took_in_together_whatever_its_request_ids_say(
        self, tmp_path: Path
    ) -> None:
        bench = Bench(tmp_path, debounce=1.0, mode="followup")
        for number, (words, later) in enumerate([("one", 0.0), ("two", 0.5), ("three", 60.0)]):
            await bench.clock.advance(later)
            await bench.journal.receive(bench.inbound(words, request_id=f"R{number}"))
        bench.agent.answer = together
        await bench.open()
        await bench.idle()
        assert bench.tele.texts == ["re: one + two", "re: three"]
        await bench.close()

    async def test_a_burst_is_one_turn_on_file(self, tmp_path: Path) -> None:
        bench = await made(tmp_path, debounce=1.0)
        await bench.say("one", message_id="1")
        await bench.say("two", message_id="2")
        await bench.clock.advance(1.0)
        await bench.idle()
        assert bench.tele.texts == ["re: one + two"]
        (first,), (second,) = [
            await bench.journal.about(ChatKey.parse("tele:chat:77"), name) for name in ("1", "2")
        ]
        assert [first.turn_id, second.turn_id] == [first.inbound.request_id] * 2
        turn = await bench.journal.turn(first.inbound.request_id)
        assert turn is not None
        assert turn.state == "done"
        await bench.close()

    async def test_a_burst_whose_reply_was_delivered_is_not_answered_again(self, tmp_path: Path) -> None:
        first = await made(tmp_path, debounce=1.0)
        answered = asyncio.Event()

        async def run(request: TurnRequest) -> TurnOutcome:
            assert request.reply is not None
            await request.reply.send("both answered")
            answered.set()
            await asyncio.Event().wait()  # killed in the model call after the answer
            raise AssertionError

        first.agent.run = run  # type: ignore[method-assign]
        await first.say("one")
        await first.say("two")
        await first.clock.advance(1.0)
        await answered.wait()
        await first.close()
        second = Bench(tmp_path, debounce=1.0)
        second.agent.answer = lambda request: TurnOutcome("done", delivered=len(request.delivered))
        await second.open()
        await second.idle()
        assert [one.delivered for one in second.agent.requests] == [("m1",)]
        assert second.tele.sent == []
        assert await second.journal.unfinished() == []
        await second.close()

    @pytest.mark.parametrize("foreseen", [True, False])
    async def test_what_failed_together_and_was_told_of_is_not_answered_again(
        self, tmp_path: Path, foreseen: bool
    ) -> None:
        first = await made(tmp_path, debounce=1.0)
        sending = asyncio.Event()

        async def cut(message: Outbound) -> Sent:
            sending.set()
            await asyncio.Event().wait()
            raise AssertionError

        first.tele.send = cut  # type: ignore[method-assign]

        def broken(request: TurnRequest) -> TurnOutcome:
            if foreseen:
                assert len(request.arrivals.take_more()) == 1
                return TurnOutcome("failed", notice="It did not work.")
            raise ZeroDivisionError

        first.agent.answer = broken
        first.agent.hold = asyncio.Event()
        await first.say("one")
        await first.say("two")
        await first.clock.advance(1.0)
        await first.agent.began.wait()
        if foreseen:
            await first.clock.advance(60.0)
            await first.say("three")
        first.agent.hold.set()
        await sending.wait()
        await killed(first)
        second = await made(tmp_path, debounce=1.0)
        second.tele.finds = Sent("m1")
        await second.delivery.open()
        await second.idle()
        assert second.tele.texts == []
        assert second.agent.requests == []
        assert await second.journal.unfinished() == []
        one, two = [(await second.journal.about(ChatKey.parse("tele:chat:77"), str(n)))[0] for n in (1, 2)]
        assert (one.state, two.state) == ("failed", "failed")
        assert two.turn_id == one.inbound.request_id
        await second.close()


async def test_what_waits_or_joins_a_running_turn_is_marked(bench: Bench) -> None:
    marked: list[str] = []

    async def react(target: Any, message_id: str) -> None:
        marked.append(f"{target['chat']} {message_id}")
        raise errors.DeliveryFailed("not in this chat")

    bench.tele.react = react  # type: ignore[attr-defined]
    bench.agent.hold = asyncio.Event()
    await bench.say("one", message_id="1")
    await bench.agent.began.wait()
    await bench.say("two", message_id="2")
    await bench.say("of somebody else", message_id="3", user_id="1", chat_type="group")
    assert [one.text for one in bench.agent.requests[0].arrivals.take_more()] == ["two"]
    bench.agent.hold.set()
    await bench.idle()
    assert marked == ["77 2", "77 3"]
    assert bench.log.at("error") == []
