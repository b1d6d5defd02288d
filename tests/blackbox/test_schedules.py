"""A due job is answered once, in its chat, at whatever point the process is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bot.system import SystemClock
from bot.testing.anthropic_script import Reply, reply, tool_use
from bot.testing.faults import VARIABLE, Fault
from tests.blackbox.conftest import ANN, PERSON, ROOM, World, eventually

WORDS = "Say what the weather is like. 天気"
ANSWER = "It is sunny. ☀️"


def planning(when: Callable[[], str]) -> Callable[[Any], Reply | str]:
    """Return a model that creates a job for a reminder, and answers when the job is due."""

    def script(body: Any) -> Reply | str:
        last = body["messages"][-1]["content"]
        if any(block["type"] == "tool_result" for block in last):
            told = json.dumps([block for block in last if block["type"] == "tool_result"], ensure_ascii=False)
            return "I will." if "Scheduled as job" in told else f"No: {told}"
        if last[-1]["text"] == WORDS:
            assert '"job": {' in last[0]["text"]
            return ANSWER
        if "remind me" in last[-1]["text"]:
            return reply(tool_use("schedule_create", {"prompt": WORDS, "when": when()}))
        return "Hello."

    return script


def in_an_hour() -> str:
    return ahead(3_600.0).isoformat()


def ahead(seconds: float) -> datetime:
    return datetime.fromtimestamp(SystemClock().now() + seconds, UTC)


async def jump(world: World, seconds: float = 3_610.0) -> None:
    """Advance the clock of the process; the default is a little more than an hour."""
    reader, writer = await asyncio.open_unix_connection(world.root / "clock")
    writer.write(json.dumps({"jump": seconds}).encode() + b"\n")
    with contextlib.suppress(ConnectionResetError):  # a kill by the due job may cut the connection
        await reader.readline()
    writer.close()


async def planned(world: World) -> None:
    """Create a job that is due in an hour, and kill the process before the job is due."""
    world.model.script(planning(in_an_hour))
    await world.start("telegram")
    world.telegram.say("remind me")
    await world.heard("I will.")
    await world.turns(1)
    await world.sent()
    await world.process.kill()
    world.process.faked("--clock", str(world.root / "clock"))


async def an_hour_later(world: World, *, wait: bool = True) -> None:
    (world.root / "clock").unlink(missing_ok=True)
    await world.process.start(wait=wait)
    await eventually((world.root / "clock").exists)
    await jump(world)


async def answered_once(world: World) -> None:
    await world.heard("I will.", ANSWER)
    await world.turns(2)
    world.telegram.say("hello")
    await world.heard("I will.", ANSWER, "Hello.")
    await world.turns(3)
    texts = ["remind me", "I will.", WORDS, ANSWER, "hello", "Hello."]
    await eventually(lambda: [line["text"] for line in world.archive()] == texts)
    assert sum(line["kind"] == "answer_shown" for line in world.log()) == 2, "nobody waits for a job"


@pytest.mark.parametrize(
    "fault",
    [
        Fault("log", "append", when="before"),
        Fault("log", "append", when="after"),
        Fault("log", "commit", when="after"),
    ],
    ids=lambda fault: f"{fault.kind} {fault.when}",
)
async def test_killed_around_its_firing_it_is_answered_once(world: World, fault: Fault) -> None:
    await planned(world)
    mortal = world.process.env
    world.process.env = mortal | {VARIABLE: json.dumps([asdict(fault)])}
    await an_hour_later(world)
    await world.process.ended()
    world.process.env = mortal
    await an_hour_later(world)
    await answered_once(world)
    assert await world.process.stop() == 0


async def test_killed_while_the_model_works_on_it_it_is_answered_once(world: World) -> None:
    await planned(world)
    gate, ordinary = asyncio.Event(), planning(in_an_hour)

    async def slow(body: Any) -> Reply | str:
        await gate.wait()
        return ordinary(body)

    world.model.script(slow)
    before = len(world.model.requests)
    await an_hour_later(world)
    await world.model.until(lambda: len(world.model.requests) > before)
    await world.process.kill()
    gate.set()
    world.model.script(ordinary)
    await an_hour_later(world)
    await answered_once(world)


async def test_a_clock_set_forward_by_years_is_no_work(world: World) -> None:
    world.config["schedule"] = {"timezone": "Europe/Berlin"}
    world.model.script(planning(lambda: "*/15 * * * *"))
    world.process.faked("--clock", str(world.root / "clock"))
    await world.start("telegram")
    world.telegram.say("remind me")
    await world.heard("I will.")
    await world.turns(1)
    before = worked(world)
    await jump(world, 3 * 365 * 86_400.0)
    await eventually(lambda: any(one.startswith(ANSWER) for one in world.texts()))
    world.telegram.say("hello")
    await eventually(lambda: "Hello." in world.texts())
    assert worked(world) - before < 15, (
        "seconds of the processor, of which each time that is counted alone takes minutes"
    )


def worked(world: World) -> float:
    """Return the CPU seconds of the process."""
    fields = Path(f"/proc/{world.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


async def test_in_slack_it_comes_in_its_thread_and_at_the_time_of_the_persons_clock(world: World) -> None:
    world.slack.world.users[ANN]["tz"] = "Asia/Kolkata"
    told: list[str] = []

    def local() -> str:
        told.append(ahead(5.5 * 3_600 + 5).isoformat()[:19])
        return told[-1]

    world.model.script(planning(local))
    await world.start("slack")
    root = await world.slack.say("<@U0SHIP> remind me", channel=ROOM, user=ANN)
    await world.slack.until(
        lambda: [one.text for one in world.slack.replies(ROOM, root)] == ["I will.", ANSWER]
    )
    results = [
        str(block["content"])
        for body in world.model.bodies
        for message in body["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
    ]
    assert "Time zone: Asia/Kolkata (as slack has it for the person)" in results[0]
    assert f"T{told[0][11:].removesuffix(':00')}+05:30" in results[0]


async def test_a_time_of_a_clock_waits_until_the_persons_zone_is_known(world: World) -> None:
    world.model.script(planning(lambda: "0 9 * * 1-5"))
    await world.start("telegram")
    world.telegram.say("remind me")
    await world.telegram.until(lambda: bool(world.texts()))
    assert world.texts()[0].startswith("No: ")
    assert "time zone is not known" in world.texts()[0]
    world.model.script(planning(lambda: "every 2h"))
    world.telegram.say("remind me")
    await world.telegram.until(lambda: world.texts()[1:] == ["I will."])
    await world.ask("/timezone Beijing", 3)
    world.model.script(planning(lambda: "0 9 * * 1-5"))
    await world.ask("remind me", 4)
    assert world.texts()[-1] == "I will."
    world.telegram.say("/jobs")
    await world.telegram.until(lambda: "Mon–Fri at 09:00 (Asia/Shanghai), next" in world.texts()[-1])


async def test_people_look_at_jobs_and_take_them_back(world: World) -> None:
    world.config["schedule"] = {"timezone": "Europe/Berlin"}
    world.model.script(planning(lambda: "0 9 * * 1-5"))
    await world.start("telegram")
    world.telegram.say("remind me")
    await world.heard("I will.")
    await world.ask("/jobs", 2)
    line = world.texts()[1]
    assert "Mon–Fri at 09:00 (Europe/Berlin), next" in line
    assert line.endswith(WORDS)
    await world.ask(f"/jobs cancel {line[:6]}", 3)
    await world.ask("/jobs", 4)
    assert world.texts()[3] == "There are no jobs here."
    await eventually(
        lambda: any(one["kind"] == "schedule" and "cancelled" in one["message"] for one in world.log())
    )
    assert world.texts(PERSON)[0] == "I will."
