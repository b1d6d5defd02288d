"""`/receipt`: the path of a reply, in plain words, and never that of another chat."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from bot import errors
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Command, Inbound
from bot.contracts.journal import ANSWERED, InboxEnd, StepKind, StepRecord
from bot.contracts.outbound import OutboxRow, Sent
from bot.gateway.receipt import Receipts
from bot.words import say
from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.outgoing import TO, Desk, address

REPEATED = f"{say('delivery.repeated')}\n\n"
NOTHING_YET = say("receipt.none")

BEGAN = 1_800_000_000.0
"""2027-01-15 08:00:00 UTC"""


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    made = Desk(tmp_path)
    yield made
    await made.close()


def asking(words: str = "", *, answers: str | None = None, chat: str = "77") -> Inbound:
    return Inbound(
        channel="tele",
        chat_id=chat,
        chat_key=f"tele:chat:{chat}",
        chat_type="direct",
        user_id="77",
        keys=("r",),
        ts=1,
        target={"chat": chat},
        command=Command(name="receipt", args=words),
        answers=answers,
        request_id="09REQ",
    )


async def shown(desk: Desk, words: str = "", **more: Any) -> list[str]:
    return (await Receipts(desk.file).run(asking(words, **more))).splitlines()


async def step(desk: Desk, what: str, began: float, ended: float | None, result: Json) -> None:
    kind, name = what.split()
    until = None if ended is None else BEGAN + ended
    one = StepRecord("01REQ", f"{kind}-{name}", cast("StepKind", kind), name, BEGAN + began, until, result)
    await desk.file.begin_step(one)


async def test_the_path_of_a_reply_from_the_message_to_the_chat(desk: Desk) -> None:
    await desk.asked()
    usage = {"inputTokens": 200, "outputTokens": 41, "cacheReadTokens": 1_000, "cacheWriteTokens": 34}
    result = {"usage": usage, "costUsd": 0.01234, "providerRequestId": "req_7"}
    await step(desk, "model claude", 0.1, 1.35, result)
    await step(desk, "tool read_file", 1.4, 1.4125, {"is_error": True})
    await step(desk, "tool chat_send", 1.5, None, {})
    await desk.clock.advance(2.25)
    await desk.delivery.send(TO, "はい")
    await desk.clock.advance(0.5)
    await desk.file.finish("01REQ", ANSWERED)
    assert await shown(desk) == [
        "Receipt of 01REQ, times in UTC",
        "2027-01-15",
        "08:00:00.000 received: message from 77",
        "08:00:00.100 model claude: 1.250 s, 1234 tokens in (1000 from the cache), 41 out, 0.0123 $ (id req_7)",
        "08:00:01.400 tool read_file: 0.012 s, failed (id tool-read_file)",
        "08:00:01.500 tool chat_send: begun, no end recorded (id tool-chat_send)",
        "08:00:02.250 reply: delivered as message m1",
        "08:00:02.750 finished: answered",
    ]


async def test_the_parts_of_a_long_answer_have_their_ids_and_the_days_their_dates(desk: Desk) -> None:
    await desk.asked()
    await desk.clock.advance(86_400)
    await desk.delivery.send(TO, "\n\n".join(letter * 900 for letter in "甲乙"))
    assert (await shown(desk))[1:] == [
        "2027-01-15",
        "08:00:00.000 received: message from 77",
        "2027-01-16",
        "08:00:00.000 part 1 of 2: delivered as message m1",
        "08:00:00.000 part 2 of 2: delivered as message m2",
    ]


async def test_what_did_not_arrive_is_named_plainly(desk: Desk) -> None:
    desk.tele.failures = [errors.DeliveryUncertain("cut")]
    await desk.delivery.send(address(request_id="02REQ"), "twice")
    for number, error in enumerate(
        (
            errors.DeliveryThrottled("429", retry_after=3600),
            errors.TargetGone("blocked"),
            errors.DeliveryFailed("400"),
        ),
        3,
    ):
        desk.tele.failures = [error]
        with pytest.raises(errors.DeliveryFailed):
            await desk.delivery.send(address(str(number), f"0{number}REQ"), "words")

    async def lines(request_id: str, chat: str) -> list[str]:
        ids = [row.id for row in await desk.rows(request_id)]
        found = (await shown(desk, request_id, chat=chat))[2:]
        return [line.partition(" ")[2].replace(name, "ID") for line, name in zip(found, ids, strict=True)]

    assert await lines("02REQ", "77") == [
        "reply: uncertain: it may or may not have arrived, so it was sent once more (id ID)",
        "reply, repeated: delivered as message m1",
    ]
    assert await lines("03REQ", "3") == [
        "reply: deferred: the platform wants to be left alone until 09:00:00.000 (id ID)"
    ]
    assert await lines("04REQ", "4") == ["reply: failed: this chat could no longer be written to (id ID)"]
    assert await lines("05REQ", "5") == ["reply: failed: the platform refused it (id ID)"]


async def test_what_was_put_off_says_so_whatever_the_clock_shows(desk: Desk) -> None:
    row = OutboxRow("01ROW", "01REQ", ChatKey.parse("tele:chat:77"), {"chat": "77"}, "words")
    await desk.asked()
    await desk.file.put_outbox([row.put_off(BEGAN - 60)])  # the clock was set back meanwhile
    assert (await shown(desk))[-1].endswith(
        "reply: deferred: the platform wants to be left alone until 07:59:00.000 (id 01ROW)"
    )


async def test_the_newest_answer_counts_whatever_became_of_it(desk: Desk) -> None:
    await desk.delivery.send(address(request_id="02REQ"), "arrived")
    desk.tele.failures = [errors.DeliveryFailed("400")]
    with pytest.raises(errors.DeliveryFailed):
        await desk.delivery.send(address(request_id="03REQ"), "refused")
    lines = await shown(desk)
    assert lines[0] == "Receipt of 03REQ, times in UTC"
    assert "reply: failed: the platform refused it" in lines[-1]


async def test_a_reply_is_found_by_what_is_replied_to_and_by_either_id(desk: Desk) -> None:
    for number in (1, 2):
        to = address(request_id=f"0{number}REQ")
        await desk.asked(to)
        await desk.delivery.send(to, f"{REPEATED} {number}")
    for found in (
        await shown(desk, answers="m1"),
        await shown(desk, "m1"),
        await shown(desk, "01REQ", answers="m2"),
    ):
        assert found[0] == "Receipt of 01REQ, times in UTC"
    assert (await shown(desk))[0] == "Receipt of 02REQ, times in UTC"


async def test_a_message_to_us_leads_to_its_answer_also_where_it_joined_another(bench: Bench) -> None:
    for request_id, message_id in (("01REQ", "41"), ("02REQ", "42")):
        inbound = bench.inbound("问", message_id=message_id).model_copy(update={"request_id": request_id})
        await bench.journal.receive(inbound)
    await bench.journal.join_turn("01REQ", ["02REQ"])
    receipts = Receipts(bench.journal)
    assert "received: message 41 from 77" in await receipts.run(asking("41"))
    lines = (await receipts.run(asking(answers="42"))).splitlines()
    assert lines[:2] == [
        "Message 42 was answered together with another one.",
        "Receipt of 01REQ, times in UTC",
    ]


async def test_a_turn_that_waits_for_a_person_says_so_also_asked_by_an_edit_that_its_message_took_up(
    bench: Bench,
) -> None:
    for request_id, kind in (("01REQ", "message"), ("02REQ", "edit"), ("03REQ", "message")):
        inbound = bench.inbound("问", kind=kind, message_id="41").model_copy(
            update={"request_id": request_id}
        )
        await bench.journal.receive(inbound.model_copy(update={"keys": (request_id,)}))
    await bench.journal.begin_turn("03REQ", ChatKey.parse("tele:chat:77"), ["03REQ", "01REQ"])
    await bench.journal.finish("02REQ", InboxEnd("merged", merged_into="01REQ"))
    receipts = Receipts(bench.journal)
    path = await receipts.path("02REQ")
    assert (path.request_id, path.events[-1].words) == ("03REQ", "begun, and not finished yet")
    await bench.journal.suspend_turn("03REQ")
    path = await receipts.path("02REQ")
    assert path.events[-1].words == "begun, and waits for a person"


@pytest.mark.parametrize("asked", ["01REQ", "m1", "nonsense", "'; DROP TABLE outbox"])
async def test_another_chat_is_shown_nothing(desk: Desk, asked: str) -> None:
    await desk.asked()
    assert await desk.delivery.send(TO, "secret") == [Sent("m1")]
    for answer in (await shown(desk, asked, chat="78"), await shown(desk, answers=asked, chat="78")):
        assert len(answer) == 1
        assert answer[0].startswith("I know nothing of mine")
        assert "secret" not in answer[0]
    assert await shown(desk, chat="78") == [NOTHING_YET]


async def answered(bench: Bench, chat_key: ChatKey, words: str, **more: Any) -> str:
    """The id of a reply that somebody gets in a thread."""
    await bench.say(words, chat_id="-100", chat_key=chat_key, chat_type="group", **more)
    await bench.idle()
    return f"m{len(bench.tele.sent)}"


async def test_asked_outside_of_threads_it_is_of_what_its_person_was_answered_in_them(bench: Bench) -> None:
    first = await answered(bench, ChatKey.parse("tele:chat:-100:thread:1"), "one")
    mine = await answered(bench, ChatKey.parse("tele:chat:-100:thread:2"), "two")
    theirs = await answered(bench, ChatKey.parse("tele:chat:-100:thread:1"), "not mine", user_id="5")
    await answered(bench, ChatKey.parse("tele:chat:-1001:thread:1"), "elsewhere")
    here = asking(chat="-100")
    assert f"reply: delivered as message {mine}" in await Receipts(bench.journal).run(here)
    for known, asked in ((True, first), (False, theirs), (False, "m4")):
        found = await Receipts(bench.journal).run(asking(asked, chat="-100"))
        assert (f"reply: delivered as message {asked}" in found) is known
    one, _, other = (message.request_id for message in bench.tele.sent[:3])
    assert (await Receipts(bench.journal).run(asking(one, chat="-100"))).startswith(f"Receipt of {one}")
    assert (await Receipts(bench.journal).run(asking(other, chat="-100"))).startswith("I know nothing")


async def test_asked_in_the_thread_that_a_message_opened_it_is_of_the_answer_that_is_there(
    bench: Bench,
) -> None:
    for thread in ("1", "2"):
        await bench.say(f"top {thread}", target={"chat": "77", "thread": thread})
        await bench.idle()
    where = {"chat_key": ChatKey.parse("tele:chat:77:thread:1"), "target": {"chat": "77", "thread": "1"}}
    assert "delivered as message m1" in await Receipts(bench.journal).run(asking().model_copy(update=where))
    other = {"chat_key": ChatKey.parse("tele:chat:77:thread:3"), "target": {"chat": "77", "thread": "3"}}
    assert await Receipts(bench.journal).run(asking().model_copy(update=other)) == NOTHING_YET


async def test_it_answers_beside_a_running_turn_as_a_notice(bench: Bench) -> None:
    await bench.say("hello")
    await bench.tele.until(1)
    await bench.idle()
    await bench.say("/receipt", command=Command(name="receipt"), addressed="command")
    texts = await bench.tele.until(2)
    assert "reply: delivered as message m1" in texts[1]
    assert [role for role, _ in await bench.lines()] == ["user", "assistant"]
