"""“stop” alone: the command while a turn runs that its person may stop, and a message like any other else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.inbound import Attachment, Command, Inbound, Origin, Quoted
from bot.core.stop_words import asks_to_stop
from bot.words import say
from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.desk import GROUP as ROOM
from tests.unit.gateway.desk import MEMBER
from tests.unit.gateway.test_questions import Asks
from tests.unit.gateway.test_stops import running

FORWARDED = Quoted(user_id="77", text="stop", origin=Origin(how="forwarded", name="Bob"), brought=True)


@pytest.mark.parametrize(
    "words",
    [
        *("stop", "Stop.", " STOP!!! ", "stop please", "Stopp", "<@U0SHIP> stop", "@shipmate_bot: Stop"),
        *(
            "停",
            "停下来。",
            "停止！",
            "ストップ",
            "やめて",
            "ＳＴＯＰ",
            "🛑",
            "🛑\ufe0f",
            "그만",
            "Arrête !",
            "¡Detente!",
        ),
        *("стоп", "\u200fقف", "עצור", "रुको"),
    ],
)
def test_usual_words_ask_to_stop(words: str) -> None:
    assert asks_to_stop(words)


@pytest.mark.parametrize(
    "words",
    [
        *("", " ", "stop the server", "don't stop", "stop\nand start", "stop, then go on", "full stop", "no"),
        *(
            "@bob @ann stop",
            "stop @bob",
            "取消",
            "不要停",
            "停车场",
            "やめてほしい",
            "stop" * 60,
            "@shipmate_bot",
            "s t o p",
        ),
    ],
)
def test_words_that_say_more_do_not(words: str) -> None:
    assert not asks_to_stop(words)


@pytest.mark.parametrize("words", ["stop", "停下来"])
async def test_alone_it_stops_what_runs(bench: Bench, words: str) -> None:
    await running(bench)
    await bench.say("and this")
    await bench.say(words)
    assert await bench.tele.until(1) == [say("stop.stopped")]
    await bench.idle()
    assert await bench.journal.unfinished() == []
    assert [line[-1] for line in await bench.lines()] == ["long work", "and this"]


async def test_where_nothing_runs_it_is_a_message(bench: Bench) -> None:
    await bench.say("stop")
    assert await bench.tele.until(1) == ["re: stop"]


@pytest.mark.parametrize(
    "more",
    [
        {"quoted": (FORWARDED,), "text": ""},
        {"quoted": (FORWARDED,)},
        {"attachments": (Attachment(kind="photo"),)},
        {"text": "stop the server"},
    ],
)
async def test_what_brings_or_says_more_stops_nothing(bench: Bench, more: dict[str, Any]) -> None:
    await running(bench)
    await bench.say(**({"text": "stop"} | more))
    assert len(bench.agent.running) == 1
    assert bench.agent.hold is not None
    bench.agent.hold.set()
    await bench.idle()
    assert say("stop.stopped") not in bench.tele.texts


async def test_what_a_tool_asks_may_be_answered_with_it(tmp_path: Path) -> None:
    asks = Asks(tmp_path)
    await asks.open()
    await asks.begun()
    await asks.say("stop", user_id=MEMBER, **ROOM)
    await asks.idle()
    assert [one.words for one in asks.answers] == ["stop"]
    await asks.close()


async def test_a_full_disk_does_not_keep_it_from_working_and_brought_again_it_is_answered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, full = bench.journal.receive, asyncio.Event()

    async def refusing(inbound: Inbound) -> bool:
        if full.is_set():
            raise errors.StorageError("no space left")
        return await receive(inbound)

    monkeypatch.setattr(bench.journal, "receive", refusing)
    await running(bench)
    full.set()
    with pytest.raises(errors.StorageError):
        await bench.say("stop", keys=("stop",))
    await bench.idle()
    full.clear()
    assert await bench.say("stop", keys=("stop",))
    assert await bench.tele.until(1) == [say("stop.stopped")]
    assert bench.agent.requests[0].inbound is not None
    assert [one.inbound.text for one in bench.agent.requests if one.inbound] == ["long work"]


async def test_it_is_on_file_as_the_command(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await running(bench)
    written: list[Command | None] = []
    receive = bench.journal.receive

    async def seen(inbound: Inbound) -> bool:
        written.append(inbound.command)
        return await receive(inbound)

    monkeypatch.setattr(bench.journal, "receive", seen)
    await bench.say("stop")
    assert await bench.tele.until(1) == [say("stop.stopped")]
    assert written == [Command(name="stop")]
