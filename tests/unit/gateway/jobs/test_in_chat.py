"""A job in the gateway: its turn, its place, and those who write meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from bot import errors
from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.approvals import Approval, Verdict
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Command
from bot.contracts.jobs import JobRequest
from bot.contracts.provenance import Provenance
from bot.words import say
from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.desk import Desk


async def plan(bench: Bench, when: str = "every 1h", prompt: str = "the news", **more: Any) -> str:
    asked = JobRequest(bench.inbound(**more), prompt, when, "", Provenance(frozenset({"77"})))
    return (await bench.jobs.create(asked)).split()[3]


async def look(bench: Bench) -> None:
    await bench.due_jobs.look()
    await bench.idle()
    await bench.due_jobs.look()


async def test_what_is_due_is_answered_where_it_was_asked_for_and_stands_in_the_archive(bench: Bench) -> None:
    name = await plan(bench, target={"chat": "77", "topic": "5", "reply_to": "12"})
    bench.clock.jump(3_600)
    await look(bench)
    await look(bench)
    (message,) = bench.tele.sent
    assert (message.text, message.kind, dict(message.target)) == (
        "re: the news",
        "reply",
        {"chat": "77", "topic": "5"},
    )
    lines = await bench.intake.recent(ChatKey.parse("tele:chat:77"), 10)
    assert [(line.role, line.text) for line in lines] == [("user", "the news"), ("assistant", "re: the news")]
    assert lines[0].meta is not None
    assert lines[0].meta["job"] == name


async def test_after_a_restart_it_is_answered_once(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    await first.open()
    await plan(first)
    first.agent.hold = asyncio.Event()
    first.clock.jump(3_600)
    await first.due_jobs.look()
    async with asyncio.timeout(90):
        await first.agent.began.wait()
    await first.close()
    second = Bench(tmp_path)
    second.clock.jump(3_700)
    await second.open()
    await look(second)
    await look(second)
    assert [one.text for one in second.tele.sent] == ["re: the news"]
    assert [request.inbound.due is not None for request in second.agent.requests if request.inbound] == [True]
    await second.close()


async def test_neither_joins_what_its_person_says_nor_is_joined_by_it(bench: Bench) -> None:
    await plan(bench)
    bench.agent.hold = asyncio.Event()
    await bench.say("one")
    bench.clock.jump(3_600)
    await bench.due_jobs.look()
    await bench.say("two")
    taken: list[str] = []

    def answer(request: TurnRequest) -> str:
        assert request.inbound is not None
        more = request.arrivals.take_more()
        taken.append(" ".join([request.inbound.text, *(one.text for one in (*request.also, *more))]))
        return "re: " + request.inbound.text

    bench.agent.answer = answer
    bench.agent.hold.set()
    await bench.idle()
    assert taken == ["one", "the news", "two"]


async def test_its_person_can_stop_it(bench: Bench) -> None:
    await plan(bench)
    bench.agent.hold = asyncio.Event()
    bench.clock.jump(3_600)
    await bench.due_jobs.look()
    await bench.agent.began.wait()
    await bench.say(command=Command(name="stop"))
    await look(bench)
    assert bench.tele.texts == ["Stopped."]
    assert "next" in (await bench.jobs.listed(bench.inbound())).words


async def test_three_failed_turns_pause_it_and_the_chat_reads_that(bench: Bench) -> None:
    name = await plan(bench)
    bench.agent.answer = lambda _: TurnOutcome("failed", notice="The model is away.")
    for _ in range(5):
        bench.clock.jump(3_600)
        await look(bench)
    await look(bench)
    assert bench.tele.texts[:3] == ["The model is away."] * 3
    assert len(bench.tele.sent) == 4
    assert bench.tele.sent[3].kind == "notice"
    assert bench.tele.texts[3].startswith("I've paused “")
    await bench.say(command=Command(name="jobs"))
    await bench.idle()
    assert f"{name} – every hour (UTC), paused: it failed three times in a row" in bench.tele.texts[4]


async def test_in_a_chat_that_is_gone_nothing_is_run_until_somebody_writes_there(bench: Bench) -> None:
    await plan(bench)
    bench.tele.failures = [errors.TargetGone("the bot was removed")]
    for _ in range(3):
        bench.clock.jump(3_600)
        await look(bench)
    assert len(bench.agent.requests) == 1, "no turn is paid for that nobody can read"
    assert bench.tele.sent == []
    await bench.say("back again")
    await bench.idle()
    bench.clock.jump(3_600)
    await look(bench)
    lost = say("delivery.missed", which="“re: the news”")
    assert bench.tele.texts == [f"{lost}\n\nre: back again", "re: the news"]


async def test_what_the_chat_has_to_be_told_waits_for_a_platform_that_asks_for_patience(bench: Bench) -> None:
    await plan(bench, "every 20h")
    bench.clock.jump(4 * 86_400 + 8 * 3_600)
    bench.tele.failures = [errors.DeliveryThrottled("429", retry_after=600.0)]
    for _ in range(3):
        await look(bench)
    assert bench.tele.sent == []
    await bench.clock.advance(700.0)
    await look(bench)
    (told,) = bench.tele.texts
    assert "“the news”" in told
    assert "skipped" in told


async def test_a_stranger_whose_job_is_due_is_not_greeted(bench: Bench) -> None:
    await plan(bench)
    bench.lists.block("tele", "77")
    bench.clock.jump(3_600)
    await look(bench)
    assert bench.tele.sent == []
    assert [entry.level for entry in bench.log.of("schedule")][-1] == "warn"


async def test_what_needs_an_approval_is_refused_at_once_but_not_what_was_allowed_for_longer(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    await desk.open()
    await plan(desk)
    desk.clock.jump(3_600)
    await look(desk)
    assert desk.ran == [Verdict("unattended")]
    assert desk.tele.texts == ["unattended"]
    approval = Approval(
        "R",
        "c",
        ChatKey.parse("tele:chat:77"),
        "run_shell",
        "f1",
        "x",
        "rule",
        "",
        "tele",
        "77",
        granted=False,
        lasting=True,
    )
    record = await desk.journal.ask("A1", approval)
    await desk.journal.resolve(record.id, Verdict("approved", UserRef("tele", "1"), "always"))
    desk.clock.jump(3_600)
    await look(desk)
    assert desk.ran[1] == Verdict("approved", UserRef("tele", "1"), "always")
    await desk.close()


async def test_with_a_message_that_is_forgotten_the_job_goes_that_was_made_for_it(bench: Bench) -> None:
    await bench.say("remind me", message_id="m9")
    await bench.idle()
    (request,) = bench.agent.requests
    assert request.inbound is not None
    await bench.jobs.create(JobRequest(request.inbound, "the news", "every 1h"))
    await bench.say(kind="delete", message_id="m9")
    await bench.idle()
    assert await bench.journal.jobs() == []
