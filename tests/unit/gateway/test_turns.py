"""Lanes, commands, stop, notices, restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.agent import CompactResult, TurnOutcome, TurnRequest
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Command
from bot.contracts.outbound import Outbound, Sent
from bot.words import say
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.conftest import Bench, killed, leave_open
from tests.unit.gateway.outgoing import until

REPEATED = f"{say('delivery.repeated')}\n\n"
CUT_OFF = say("commands.cut_off", prefix="/")


def command(name: str, **more: Any) -> dict[str, Any]:
    return {"command": Command(name=name, **more), "addressed": "command"}


async def test_one_chat_answers_in_order_and_different_chats_side_by_side(bench: Bench) -> None:
    bench.agent.hold = asyncio.Event()
    for number in range(5):
        await bench.say(f"a{number}", user_id="77")
        await bench.say(f"b{number}", chat_id="1", chat_key="tele:chat:1", user_id="1")
    await until(lambda: len(bench.agent.running) == 2)
    assert set(bench.agent.running) == {ChatKey.parse("tele:chat:77"), ChatKey.parse("tele:chat:1")}
    bench.agent.hold.set()
    await bench.idle()
    for key, letter in (("tele:chat:77", "a"), ("tele:chat:1", "b")):
        assert [m.text for m in bench.tele.sent if str(m.chat_key) == key] == [
            f"re: {letter}{n}" for n in range(5)
        ]


async def test_no_more_turns_run_at_once_than_allowed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_concurrent=2)
    await bench.open()
    bench.agent.hold = asyncio.Event()
    for number in range(6):
        await bench.say(chat_key=f"tele:chat:{number}", chat_id=str(number))
    await until(lambda: len(bench.agent.running) == 2)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(bench.agent.running) == 2
    bench.agent.hold.set()
    assert len(await bench.tele.until(6)) == 6
    await bench.idle()
    assert bench.turn_queue.active == 0, "an idle lane is gone"
    await bench.close()


async def test_messages_of_the_same_person_wait_for_the_running_turn_to_take_them(bench: Bench) -> None:
    bench.agent.hold = asyncio.Event()
    group: dict[str, Any] = {"chat_id": "-100", "chat_key": "tele:chat:-100", "chat_type": "group"}
    await bench.say("one", **group)
    await bench.agent.began.wait()
    await bench.say("two", **group)
    await bench.say("three", **group)
    await bench.say("theirs", user_id="5", **group)
    await bench.say("four", **group)
    take = bench.agent.requests[0].arrivals.take_more
    assert [inbound.text for inbound in take()] == ["two", "three"], (
        "what stands behind somebody else's waits"
    )
    assert take() == []
    bench.agent.hold.set()
    await bench.idle()
    assert bench.tele.texts == ["re: one", "re: theirs", "re: four"]
    assert await bench.journal.unfinished() == []


async def test_a_stop_passes_the_queue_and_what_the_person_has_waiting_goes_too(bench: Bench) -> None:
    bench.agent.hold = asyncio.Event()
    await bench.say("long work")
    await bench.agent.began.wait()
    await bench.say("and then this")
    await bench.say("/stop", **command("stop"))
    await bench.idle()
    assert bench.tele.texts == [say("stop.stopped")]
    assert len(bench.agent.requests) == 1
    assert await bench.journal.unfinished() == []
    await bench.say("/stop", **command("stop"))
    await bench.idle()
    assert bench.tele.texts[-1] == say("stop.nothing")


async def test_status_answers_while_a_turn_runs_and_new_waits_for_it(bench: Bench) -> None:
    bench.agent.hold = asyncio.Event()
    await bench.say("long work")
    await bench.agent.began.wait()
    await bench.say("/new", **command("new"))
    await bench.say("/status", **command("status"))
    (said,) = await bench.tele.until(1)
    assert "Working" in said
    assert "1 more waiting" in said
    assert bench.agent.resets == []
    bench.agent.hold.set()
    await bench.idle()
    assert bench.agent.resets == [ChatKey.parse("tele:chat:77")]


async def test_status_does_not_call_idle_what_waits_for_a_place(tmp_path: Path) -> None:
    bench = Bench(tmp_path, max_concurrent=1)
    await bench.open()
    bench.agent.hold = asyncio.Event()
    await bench.say("of somebody else", user_id="1", chat_id="1", chat_key="tele:chat:1")
    await bench.agent.began.wait()
    await bench.say("mine")
    await bench.say("/status", **command("status"))
    (said,) = await bench.tele.until(1)
    assert said.startswith("Not begun yet, 1 waiting.")
    bench.agent.hold.set()
    await bench.idle()
    await bench.close()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("start", "I'm shipmate"),
        ("help", "/stop"),
        ("whoami", "You're tele:77, a member."),
        ("status", "Ready. Model: "),
        ("new", "New conversation. (/resume brings"),
        ("compact", "too little here to summarise"),
        ("stats", "0 answers so far, $0.00."),
        ("usage", "0 answers so far"),
        ("history", "don't remember anything from this conversation"),
        ("undo", "nothing here that I could undo"),
        ("stop", "Nothing's running here."),
        ("lauch", "I don't know /lauch. See /help."),
    ],
)
async def test_commands_say_what_they_should_and_the_agent_never_sees_them(
    bench: Bench, name: str, says: str
) -> None:
    await bench.say(f"/{name}", **command(name))
    await bench.tele.until(1)
    await bench.idle()
    assert says in "\n".join(bench.tele.texts)  # help is more than one message here
    assert {one.kind for one in bench.tele.sent} == {"notice"}
    assert bench.agent.requests == []
    assert await bench.lines() == []


async def test_a_history_is_compacted_with_what_matters_most_and_the_person_is_told(bench: Bench) -> None:
    bench.agent.compaction = CompactResult("summary", 12, 41_000, 12_500)
    asked = Command(name="compact", args=" das Budget für 東京 ")
    await bench.say("/compact das Budget für 東京", command=asked, addressed="command")
    (said,) = await bench.tele.until(1)
    assert said == "Done: I keep a summary of the older part now."
    assert bench.agent.compacted == [(ChatKey.parse("tele:chat:77"), "das Budget für 東京")]
    await bench.say("/compact", user_id="1", **command("compact"))
    figures = "A summary stands for 12 messages. In view: about 12,500 tokens, 41,000 before."
    assert (await bench.tele.until(2))[1] == f"{said} {figures}"


async def test_a_summary_that_failed_is_told_as_that(bench: Bench) -> None:
    bench.agent.compaction = CompactResult("failed")
    await bench.say("/compact", **command("compact"))
    assert "nothing has changed" in (await bench.tele.until(1))[0]


async def test_an_operator_is_told_so(bench: Bench) -> None:
    await bench.say("/whoami", user_id="1", **command("whoami"))
    assert "an operator" in (await bench.tele.until(1))[0]


async def test_an_empty_message_and_one_that_cannot_be_opened_get_an_answer_without_the_model(
    bench: Bench,
) -> None:
    await bench.say(" \n")
    await bench.say("", attachments=(Attachment(kind="voice"), Attachment(kind="file", name="报告.pdf")))
    await bench.idle()
    empty, closed = bench.tele.texts
    assert empty == say("turn.empty")
    assert "“报告.pdf”" in closed
    assert "voice notes" in closed
    assert bench.agent.requests == []


async def test_the_note_on_attachments_stands_once_below_the_first_message(bench: Bench) -> None:
    await bench.say("what is this?", attachments=(Attachment(kind="photo", name="a.jpg"),))
    await bench.idle()
    (said,) = bench.tele.texts
    assert said == "re: what is this?\n\nI couldn't look at the photo you sent."


async def test_a_notice_reaches_the_person_and_not_the_archive(bench: Bench) -> None:
    bench.agent.answer = lambda _: TurnOutcome("failed", notice="Plain sentence.")
    await bench.say()
    await bench.idle()
    assert bench.tele.texts == ["Plain sentence."]
    assert bench.tele.sent[0].kind == "notice"
    assert await bench.lines() == [("user", "hello")]


async def test_what_was_unfinished_goes_on_after_a_restart_in_order_and_what_was_delivered_is_only_closed(
    tmp_path: Path,
) -> None:
    first = Bench(tmp_path)
    await first.open()
    first.agent.hold = asyncio.Event()
    await first.say("one")
    await first.agent.began.wait()
    await first.say("two", user_id="1", chat_id="1", chat_key="tele:chat:1")
    await first.close()
    second = Bench(tmp_path)
    assert len(await still_open(second.journal)) == 2
    assert await second.open("tele") == 2
    await second.idle()
    assert sorted(second.tele.texts) == ["re: one", "re: two"]
    assert await second.lines() == [("user", "one"), ("assistant", "re: one")]
    await second.close()
    third = Bench(tmp_path)
    assert await third.open("tele") == 0
    await third.close()


async def test_a_turn_that_goes_on_is_told_what_it_had_delivered(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    await first.open()
    leave_open(first.journal)
    await first.say("one")
    await first.idle()
    await first.close()
    second = Bench(tmp_path)
    second.agent.answer = lambda request: TurnOutcome("done", delivered=len(request.delivered))
    assert await second.open("tele") == 1
    await second.idle()
    assert second.agent.requests[0].delivered == ("m1",)
    assert second.tele.sent == []
    assert await second.journal.unfinished() == []
    assert await second.lines() == [("user", "one"), ("assistant", "re: one")]
    await second.close()


async def test_what_had_joined_a_cut_off_turn_gets_no_turn_of_its_own(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    await first.say("one")
    await first.say("and two")
    await first.say("three", user_id="1")
    ids = [inbound.request_id for inbound in await still_open(first.journal)]
    await first.close()
    second = Bench(tmp_path)
    second.agent.sources = (ids[0], ids[1])
    assert await second.open("tele") == 2
    await second.idle()
    assert second.tele.texts == ["re: one", "re: three"]
    assert await second.journal.unfinished() == []
    await second.close()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Sent("m1"), []),
        (None, ["again"]),
        (errors.DeliveryUncertain("cannot tell"), [REPEATED + "again"]),
    ],
)
@pytest.mark.parametrize("what", ["a command", "a turn that failed"])
async def test_a_notice_that_a_kill_cut_off_is_brought_to_its_end_and_nothing_is_done_again(
    what: str, found: Sent | Exception | None, said: list[str], tmp_path: Path
) -> None:
    first = Bench(tmp_path)
    await first.open()
    first.agent.answer = lambda _: TurnOutcome("failed", notice="again")
    first.commands.run = lambda _: asyncio.sleep(0, "again")  # type: ignore[method-assign, assignment]
    sending = asyncio.Event()

    async def cut(message: Outbound) -> Sent:
        sending.set()
        await asyncio.Event().wait()
        raise AssertionError

    first.tele.send = cut  # type: ignore[method-assign]
    await first.say("/help", **(command("help") if what == "a command" else {}))
    await sending.wait()
    await killed(first)
    second = Bench(tmp_path)
    second.tele.finds = found
    assert await second.open("tele") == 0
    await second.delivery.open()
    while second.delivery.outbox.deferred:
        await second.clock.advance(2)
        await asyncio.sleep(0.001)
    assert second.tele.texts == said
    assert second.agent.requests == []
    assert await second.journal.unfinished() == []
    assert await second.lines() == ([] if what == "a command" else [("user", "/help")])
    await second.close()


@pytest.mark.parametrize("where", ["before", "in", "after"])
async def test_what_a_kill_may_have_cut_off_is_not_taken_back_twice(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Bench(tmp_path)
    await first.open()
    reached = asyncio.Event()

    async def cut(*_: Any, **__: Any) -> str:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    if where == "before":
        monkeypatch.setattr(first.journal.post, "begin_turn", lambda *_: asyncio.ensure_future(cut()))
    elif where == "in":
        first.agent.undo = cut  # type: ignore[method-assign]
    else:
        first.delivery.conclude = cut  # type: ignore[method-assign, assignment]
    await first.say("/undo", **command("undo"))
    await reached.wait()
    assert first.agent.undone == ([ChatKey.parse("tele:chat:77")] if where == "after" else [])
    await killed(first)
    second = Bench(tmp_path)
    await second.open()
    await second.idle()
    assert second.agent.undone == ([ChatKey.parse("tele:chat:77")] if where == "before" else [])
    (words,) = second.tele.texts
    assert (words == CUT_OFF) is (where != "before")
    assert await second.journal.unfinished() == []
    await second.close()


async def test_what_comes_in_before_its_channel_is_open_waits_and_keeps_its_place(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    await bench.say("one")
    await bench.say("two")
    assert bench.turn_queue.active == 0
    assert await bench.open("tele") == 0
    await bench.idle()
    assert bench.tele.texts == ["re: one", "re: two"]
    await bench.close()


async def test_work_that_fails_inside_is_logged_and_the_lane_goes_on(bench: Bench) -> None:
    def answer(request: TurnRequest) -> str:
        assert request.inbound is not None
        return f"fine: {1 // (request.inbound.text != 'bad')}"

    bench.agent.answer = answer
    await bench.say("bad")
    await bench.say("good")
    await bench.idle()
    assert bench.tele.texts == [errors.ShipmateError().person, "fine: 1"]
    assert await bench.journal.unfinished() == []
    assert any("ZeroDivisionError" in entry.message for entry in bench.log.at("error"))


async def test_a_sign_of_work_is_shown_within_a_second_kept_alive_and_cleared(bench: Bench) -> None:
    bench.agent.hold = asyncio.Event()
    await bench.say()
    await bench.agent.began.wait()
    assert bench.tele.signs == []
    await bench.clock.advance(1.0)
    assert bench.tele.signs == [True]
    await bench.clock.advance(9.0)
    assert bench.tele.signs == [True, True, True]
    bench.agent.hold.set()
    await bench.idle()
    assert bench.tele.signs[-1] is False
