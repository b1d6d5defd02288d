"""`/receipt`: an account of a turn in plain words, and never of one of another chat."""

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
    return (await Receipts(desk.file, desk.archive, desk.clock).run(asking(words, **more))).splitlines()


async def step(desk: Desk, what: str, began: float, ended: float | None, result: Json) -> None:
    kind, name = what.split()
    until = None if ended is None else BEGAN + ended
    one = StepRecord("01REQ", f"{kind}-{name}", cast("StepKind", kind), name, BEGAN + began, until, result)
    await desk.file.begin_step(one)


async def test_an_account_of_a_turn_for_its_person(desk: Desk) -> None:
    await desk.asked()
    usage = {"inputTokens": 200, "outputTokens": 41, "cacheReadTokens": 1_000, "cacheWriteTokens": 34}
    result = {"usage": usage, "costUsd": 0.01234, "providerRequestId": "req_7"}
    await step(desk, "model claude", 0.1, 1.35, result)
    await step(desk, "tool read_file", 1.4, 1.5, {"is_error": True})
    await step(desk, "tool run_shell", 1.5, 1.7, {})
    await step(desk, "tool chat_send", 1.7, None, {})
    await desk.clock.advance(2.25)
    await desk.delivery.send(TO, "はい")
    await desk.clock.advance(0.5)
    await desk.file.finish("01REQ", ANSWERED)
    assert await shown(desk) == [
        "You asked today 08:00 UTC: “你好”",
        "It took 2.2 s.",
        "Tools:",
        "- `read_file`: failed (0.1 s)",
        "- `run_shell`: done (0.2 s)",
        "- `chat_send`: begun, no end known",
        "1 request to claude: 1,234 tokens read (1,000 of them from the cache), 41 written. Cost: $0.012.",
        "My answer was delivered.",
        "For the people who run me: 01REQ",
    ]


@pytest.mark.parametrize(
    ("costs", "says"),
    [
        ([0.0], ""),
        ([None], ""),
        ([], ""),
        ([0.00002, 0.00003], " Cost: $0.000050."),
        ([1.234, 1.0], " Cost: $2.23."),
        ([0.5, None], " Cost: $0.50 and 1 request whose price I don't know."),
    ],
)
async def test_a_cost_is_told_where_it_is_known_and_something(
    desk: Desk, costs: list[float | None], says: str
) -> None:
    await desk.asked()
    usage = {"inputTokens": 5, "outputTokens": 1}
    for number, cost in enumerate(costs):
        row = StepRecord(
            "01REQ", f"m{number}", "model", "m", BEGAN, BEGAN + 1, {"usage": usage, "costUsd": cost}
        )
        await desk.file.begin_step(row)
    lines = await shown(desk, "01REQ")
    told = [line for line in lines if "tokens" in line]
    count = len(costs)
    requests = "1 request" if count == 1 else f"{count} requests"
    assert told == ([f"{requests} to m: {5 * count} tokens read, {count} written.{says}"] if costs else [])
    assert not any("0.0000 " in line for line in lines)


async def test_tools_of_one_name_and_result_are_one_line_and_a_file_is_told_as_that(desk: Desk) -> None:
    await desk.asked()
    rows = [
        ("read_file", {}),
        ("read_file", {"is_error": True}),
        ("read_file", {}),
        ("attachment", {"read": False}),
    ]
    for number, (name, result) in enumerate(rows):
        at = BEGAN + number * 40
        await desk.file.begin_step(StepRecord("01REQ", f"t{number}", "tool", name, at, at + 35, result))
    lines = await shown(desk, "01REQ")
    assert lines[lines.index("Tools:") + 1 : -1] == [
        "- `read_file` ×2: done (1 min 10 s)",
        "- `read_file`: failed (35 s)",
        "- your file: failed (35 s)",
    ]


async def test_the_ids_of_what_happened_are_told_once_at_the_end(desk: Desk) -> None:
    await desk.asked()
    await step(desk, "model claude", 0.1, 1.35, {"providerRequestId": "req_7"})
    await desk.delivery.send(TO, "\n\n".join(letter * 900 for letter in "甲乙"))
    said = "\n".join(await shown(desk))
    assert said.count("01REQ") == 1
    assert said.endswith("My answer was delivered in 2 parts.\nFor the people who run me: 01REQ")
    ids = ["req_7", "model-claude", "m1", "m2", *(row.id for row in await desk.rows("01REQ"))]
    assert [one for one in ids if one in said] == []


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
        return (await shown(desk, request_id, chat=chat))[:-1]

    assert await lines("02REQ", "77") == [
        "My answer: it may or may not have arrived, so I sent it once more",
        "My answer, sent once more: delivered",
    ]
    assert await lines("03REQ", "3") == [
        "My answer: not sent yet: the platform wants to be left alone until 09:00 UTC"
    ]
    assert await lines("04REQ", "4") == ["My answer: not delivered: this chat could no longer be written to"]
    assert await lines("05REQ", "5") == ["My answer: not delivered: the platform refused it"]


async def test_what_was_put_off_says_so_whatever_the_clock_shows(desk: Desk) -> None:
    row = OutboxRow("01ROW", "01REQ", ChatKey.parse("tele:chat:77"), {"chat": "77"}, "words")
    await desk.asked()
    await desk.file.put_outbox([row.put_off(BEGAN - 60)])  # the clock was set back meanwhile
    deferred = "My answer: not sent yet: the platform wants to be left alone until 07:59 UTC"
    assert (await shown(desk))[-2] == deferred


async def test_the_newest_answer_counts_whatever_became_of_it(desk: Desk) -> None:
    await desk.delivery.send(address(request_id="02REQ"), "arrived")
    desk.tele.failures = [errors.DeliveryFailed("400")]
    with pytest.raises(errors.DeliveryFailed):
        await desk.delivery.send(address(request_id="03REQ"), "refused")
    assert await shown(desk) == [
        "My answer: not delivered: the platform refused it",
        "For the people who run me: 03REQ",
    ]


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("failed", "It failed after 3.0 s."),
        ("stopped", "It was stopped after 3.0 s."),
        ("withdrawn", "It was taken back after 3.0 s."),
        ("answered", "It took 3.0 s."),
    ],
)
async def test_the_end_of_a_turn_is_told(desk: Desk, state: Any, says: str) -> None:
    await desk.asked()
    await desk.clock.advance(3)
    await desk.file.finish("01REQ", InboxEnd(state))
    assert says in await shown(desk, "01REQ")


async def test_a_turn_is_over_with_its_answer_for_who_asks_before_it_has_ended(desk: Desk) -> None:
    await desk.asked()
    await step(desk, "model claude", 0.1, 1.35, {})
    assert "I'm still at it." in await shown(desk, "01REQ")
    await desk.clock.advance(2)
    await desk.delivery.send(TO, "はい")
    assert "It took 2.0 s." in await shown(desk)
    await step(desk, "model claude-2", 2.1, None, {})
    assert "I'm still at it." in await shown(desk)


async def test_words_that_were_forgotten_are_not_told_again_and_edited_ones_as_they_are_now(
    bench: Bench,
) -> None:
    await bench.say("my first secret", message_id="41")
    await bench.idle()
    await bench.say("asked with a slip", message_id="42")
    await bench.idle()
    await bench.say("asked well", kind="edit", message_id="42")
    await bench.idle()
    assert await receipt(bench, "42") == "You asked today 08:00 UTC: “asked well”"
    await bench.say("/forget", command=Command(name="forget"), addressed="command", answers="41")
    await bench.idle()
    assert await receipt(bench, "41") == "You asked today 08:00 UTC: “[removed]”"
    await bench.say("", kind="delete", message_id="42")
    await bench.idle()
    assert await receipt(bench, "42") == "You asked today 08:00 UTC: “[removed]”"


async def receipt(bench: Bench, asked: str) -> str:
    """The first line of what a person is told of a message."""
    told = await Receipts(bench.journal, bench.archive, bench.clock).run(asking(asked))
    return told.splitlines()[0]


async def test_in_a_group_it_says_who_asked(bench: Bench) -> None:
    group: dict[str, Any] = {
        "chat_id": "-100",
        "chat_type": "group",
        "chat_key": ChatKey.parse("tele:chat:-100"),
    }
    await bench.say("what is it?", user_id="5", user_name="Zoë`", message_id="41", **group)
    await bench.idle()
    told = await Receipts(bench.journal, bench.archive, bench.clock).run(asking("41", chat="-100"))
    assert told.startswith("`Zoë\\u0060` asked today 08:00 UTC: “what is it?”")


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
        assert found[-1] == "For the people who run me: 01REQ"
    assert (await shown(desk))[-1] == "For the people who run me: 02REQ"


async def test_a_message_to_us_leads_to_its_answer_also_where_it_joined_another(bench: Bench) -> None:
    for request_id, message_id in (("01REQ", "41"), ("02REQ", "42")):
        inbound = bench.inbound("问", message_id=message_id).model_copy(update={"request_id": request_id})
        await bench.journal.receive(inbound)
    await bench.journal.join_turn("01REQ", ["02REQ"])
    receipts = Receipts(bench.journal, bench.archive, bench.clock)
    assert (await receipts.run(asking("41"))).splitlines()[0] == "You asked today 08:00 UTC: “问”"
    lines = (await receipts.run(asking(answers="42"))).splitlines()
    assert lines[:2] == [
        "I answered that together with this message:",
        "You asked today 08:00 UTC: “问”",
    ]
    assert lines[-1] == "For the people who run me: 01REQ"


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
    receipts = Receipts(bench.journal, bench.archive, bench.clock)
    lines = (await receipts.run(asking("02REQ"))).splitlines()
    assert (lines[-2], lines[-1]) == ("I'm still at it.", "For the people who run me: 03REQ")
    await bench.journal.suspend_turn("03REQ")
    lines = (await receipts.run(asking("02REQ"))).splitlines()
    assert lines[-2] == "I wait for an answer or a decision."


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
    receipts = Receipts(bench.journal, bench.archive, bench.clock)
    of = {f"m{number}": message.request_id for number, message in enumerate(bench.tele.sent, 1)}
    assert (await receipts.run(here)).endswith(of[mine])
    for known, asked in ((True, first), (False, theirs), (False, "m4")):
        found = await receipts.run(asking(asked, chat="-100"))
        assert found.endswith(of[asked]) is known
    assert (await receipts.run(asking(of[first], chat="-100"))).endswith(of[first])
    assert (await receipts.run(asking(of[theirs], chat="-100"))).startswith("I know nothing")


async def test_asked_in_the_thread_that_a_message_opened_it_is_of_the_answer_that_is_there(
    bench: Bench,
) -> None:
    for thread in ("1", "2"):
        await bench.say(f"top {thread}", target={"chat": "77", "thread": thread})
        await bench.idle()
    where = {"chat_key": ChatKey.parse("tele:chat:77:thread:1"), "target": {"chat": "77", "thread": "1"}}
    told = await Receipts(bench.journal, bench.archive, bench.clock).run(asking().model_copy(update=where))
    assert told.endswith(bench.tele.sent[0].request_id)
    other = {"chat_key": ChatKey.parse("tele:chat:77:thread:3"), "target": {"chat": "77", "thread": "3"}}
    assert (
        await Receipts(bench.journal, bench.archive, bench.clock).run(asking().model_copy(update=other))
        == NOTHING_YET
    )


async def test_it_answers_beside_a_running_turn_as_a_notice(bench: Bench) -> None:
    await bench.say("hello")
    await bench.tele.until(1)
    await bench.idle()
    await bench.say("/receipt", command=Command(name="receipt"), addressed="command")
    texts = await bench.tele.until(2)
    assert "My answer was delivered." in texts[1]
    assert [role for role, _ in await bench.lines()] == ["user", "assistant"]
