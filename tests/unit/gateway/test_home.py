"""The page of a person: what the bot does for them, their jobs, their settings; strangers read that they have to be let in."""

from __future__ import annotations

import asyncio

from bot.contracts.approvals import Approval
from bot.contracts.channel import HomeSection
from bot.contracts.identity import ChatKey
from bot.contracts.jobs import JobRequest
from bot.words import say, speaking
from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.outgoing import until

SETTINGS = (
    say("home.language", language="English"),
    say("home.zone", zone="UTC", time="08:00"),
    say("home.listen"),
)


def question(bench: Bench, user_id: str) -> Approval:
    return Approval(
        request_id=bench.ids.ulid(),
        call_id="c",
        chat_key=ChatKey.parse("tele:chat:77"),
        tool="run_shell",
        fingerprint="f",
        shown="ls",
        why="default",
        rule="",
        channel="tele",
        user_id=user_id,
        granted=False,
        lasting=False,
    )


async def test_it_shows_state_jobs_and_settings_of_its_person_alone(bench: Bench) -> None:
    state, jobs, settings = await bench.intake.home(bench.inbound())
    assert state.lines == (say("status.ready"), say("home.model", model="fake"))
    assert jobs == HomeSection(say("home.jobs"), (say("home.no_jobs"),))
    assert settings == HomeSection(say("home.settings"), SETTINGS)
    bench.agent.hold = asyncio.Event()
    await bench.say("work")
    await until(lambda: bool(bench.agent.requests))
    for user in ("77", "1"):
        asked = question(bench, user)
        await bench.journal.ask(asked.request_id, asked)
    state, *_ = await bench.intake.home(bench.inbound())
    assert state.lines[:2] == (say("status.working", count=1), say("home.waits", act="run a command"))
    other, *_ = await bench.intake.home(bench.inbound(user_id="1"))
    assert other.lines[0] == "I wait for a decision: may I run a command?"
    bench.agent.hold.set()
    await bench.idle()


async def test_jobs_are_those_of_all_chats_on_the_clocks_and_in_the_language_of_the_person_and_bounded(
    bench: Bench,
) -> None:
    for number in range(12):
        asking = bench.inbound(user_id="77" if number else "1", request_id=f"R{number}")
        await bench.jobs.create(JobRequest(asking, f"job {number}", "every 2h"))
    _, jobs, settings = await bench.intake.home(bench.inbound(zone="Asia/Tokyo", language="zh"))
    assert len(jobs.lines) == 11
    assert "2027年1月15日（周五）19:00" in jobs.lines[0]
    assert jobs.lines[0].endswith("job 1")
    with speaking("zh"):
        assert jobs.lines[10] == say("home.more_jobs", count=1)
        assert settings.lines[0] == say("home.language", language="简体中文")


async def test_a_stranger_reads_that_they_have_to_be_let_in_and_nothing_is_kept_of_them(bench: Bench) -> None:
    (only,) = await bench.intake.home(bench.inbound(user_id="666", language="zh", zone="Asia/Tokyo"))
    with speaking("zh"):
        assert only.lines == (say("strangers.hello"),)
    await bench.idle()
    assert await bench.journal.locales() == {}
    assert bench.tele.sent == []
