from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from bot import errors
from bot.contracts.approvals import CHOICES, QuestionButtons
from bot.contracts.channel import Channel
from bot.testing.intake import RecordingIntake
from bot.words import speaking
from channels.console import client
from channels.console.manifest import MANIFEST, ConsoleSettings
from tests.contracts.channel_contract import reply, surroundings


class Tty:
    """A terminal and the person who uses it."""

    def __init__(self) -> None:
        self._master, slave = pty.openpty()
        self.stdin = os.fdopen(slave, "r", encoding="utf-8")
        self.stdout = os.fdopen(os.dup(slave), "w", encoding="utf-8")
        self.shown = ""
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        self.shown += os.read(self._master, 1 << 16).decode("utf-8", "replace")
        self._changed.set()

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    async def shows(self, words: str) -> None:
        async with asyncio.timeout(90):
            while words not in self.shown:
                self._changed.clear()
                await self._changed.wait()

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        self.stdin.close()
        self.stdout.close()
        os.close(self._master)


@pytest.fixture
async def tty() -> AsyncIterator[Tty]:
    tty = Tty()
    yield tty
    tty.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return surroundings(tmp_path).home


@pytest.fixture
def intake() -> RecordingIntake:
    return RecordingIntake()


@pytest.fixture
async def channel(tmp_path: Path, intake: RecordingIntake) -> AsyncIterator[Channel]:
    channel = MANIFEST.build(ConsoleSettings(), surroundings(tmp_path))
    await channel.start(intake)
    yield channel
    await channel.stop()


async def piped(home: Path, stdin: TextIO | str, **how: Any) -> tuple[int, str]:
    """Return the exit code and the output of a conversation with this input."""
    out = how.pop("stdout", io.StringIO())
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        if isinstance(stdin, str):
            file.write(stdin)
            file.seek(0)
            stdin = file
        return await client.converse(home, stdin=stdin, stdout=out, quiet=0.01, **how), getattr(
            out, "getvalue", str
        )()


@pytest.fixture
async def talking(channel: Channel, home: Path, tty: Tty) -> AsyncIterator[asyncio.Task[int]]:
    """Start a conversation and wait for the prompt. Each test must end the conversation."""
    task = asyncio.create_task(client.converse(home, stdin=tty.stdin, stdout=tty.stdout))
    await tty.shows("› ")
    yield task
    assert task.done()


async def _echo(channel: Channel, intake: RecordingIntake, turns: int) -> list[int]:
    """Answer each message with two messages. Return how many messages had been offered at each first answer."""
    offered = []
    for number in range(turns):
        await intake.until(lambda: len(intake.accepted) > number)  # noqa: B023  awaited in its own round
        inbound = intake.accepted[number]
        await channel.indicate(inbound.target, working=True)
        await channel.send(reply(inbound, f"You said {inbound.text}"))
        await asyncio.sleep(0)
        await channel.send(reply(inbound, "and that is all"))
        offered.append(len(intake.offered))
        await channel.indicate(inbound.target, working=False)
    return offered


async def test_lines_of_a_pipe_are_answered_one_after_another(
    channel: Channel, intake: RecordingIntake, home: Path
) -> None:
    read, write = os.pipe()
    os.write(write, "one\n\n  \n二つ目\nlast without end".encode())
    os.close(write)
    answering = asyncio.create_task(_echo(channel, intake, 3))
    with os.fdopen(read, encoding="utf-8") as stdin:
        found = await piped(home, stdin)
    assert await answering == [1, 2, 3]
    said = ["one", "二つ目", "last without end"]
    assert found == (0, "".join(f"You said {words}\nand that is all\n" for words in said))


@pytest.mark.parametrize(
    ("answer", "shown"),
    [("a command's answer", "a command's answer"), ("a\x1b[2Jb\x9bc\rd\te\nf", "ab\ufffdd\te\nf")],
    ids=["plain", "control sequences"],
)
async def test_an_answer_is_complete_once_it_is_quiet_and_cannot_steer_the_terminal(
    channel: Channel, intake: RecordingIntake, home: Path, answer: str, shown: str
) -> None:
    talking = asyncio.create_task(piped(home, "hi\n"))
    await channel.send(reply(await intake.offers(1), answer))
    assert await talking == (0, f"{shown}\n")


async def test_a_message_that_is_refused_fails_the_run(
    channel: Channel, intake: RecordingIntake, home: Path
) -> None:
    assert await piped(home, "x" * 1_000_001) == (1, "That message is too long.\n")
    assert intake.offered == []
    intake.failure = errors.StorageError()
    assert await piped(home, "one\ntwo\n") == (1, f"{errors.StorageError().person}\n" * 2)


async def test_a_gateway_that_no_terminal_reaches_is_told_with_the_setting(home: Path) -> None:
    code, out = await piped(home, "hi\n")
    assert code == 1
    assert out.startswith("No terminal can reach Shipmate here.")
    assert "`channels.console` is off" in out


@pytest.mark.parametrize(
    ("language", "said"), [("en", "Shipmate has stopped.\n"), ("zh", "Shipmate 已停止。\n")]
)
async def test_it_says_when_the_gateway_stops_in_the_language_of_the_terminal(
    channel: Channel, intake: RecordingIntake, home: Path, language: str, said: str
) -> None:
    with speaking(language):
        talking = asyncio.create_task(piped(home, "hi\n"))
    assert (await intake.offers(1)).language == language
    await channel.stop()
    assert await talking == (1, said)


async def test_a_person_is_greeted_once_and_a_program_is_not(
    channel: Channel, intake: RecordingIntake, home: Path, tty: Tty, talking: asyncio.Task[int]
) -> None:
    greeting = f"Shipmate in {home.parent.name}. /help lists the commands; Ctrl-C stops me, Ctrl-D leaves."
    await tty.shows(greeting)
    tty.type("مرحبا 👋🏽\n")
    inbound = await intake.offers(1)
    assert inbound.text == "مرحبا 👋🏽"
    await channel.indicate(inbound.target, working=True)
    await tty.shows("… ")
    await channel.send(reply(inbound, "**أهلا**"))
    await tty.shows("**أهلا**")
    await channel.indicate(inbound.target, working=False)
    tty.type("\x04")
    assert await talking == 0
    assert tty.shown.count(greeting) == 1
    assert "not done" not in tty.shown, "nothing runs"
    assert await piped(home, "") == (0, "")


async def test_ctrl_c_asks_the_gateway_to_stop_and_the_second_one_leaves(
    intake: RecordingIntake, tty: Tty, talking: asyncio.Task[int]
) -> None:
    tty.type("long work\n")
    await intake.offers(1)
    signal.raise_signal(signal.SIGINT)
    await tty.shows("Stopping. Press Ctrl-C again to leave.")
    command = (await intake.offers(2)).command
    assert command is not None
    assert command.name == "stop"
    assert not talking.done()
    signal.raise_signal(signal.SIGINT)
    assert await talking == 0
    assert len(intake.offered) == 2
    assert "not done" not in tty.shown, "it was stopped"


async def test_ctrl_c_where_nothing_runs_says_how_to_leave_and_counts_anew_after_a_message(
    channel: Channel, intake: RecordingIntake, tty: Tty, talking: asyncio.Task[int]
) -> None:
    signal.raise_signal(signal.SIGINT)
    await tty.shows("Press Ctrl-C again to leave.")
    tty.type("hi\n")
    await channel.send(reply(await intake.offers(1), "hello"))
    await tty.shows("hello")
    assert not talking.done()
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    assert await talking == 0
    assert [inbound.text for inbound in intake.offered] == ["hi"]
    assert "Stopping" not in tty.shown


async def test_ctrl_c_stops_a_turn_that_waits_for_a_decision(
    channel: Channel, intake: RecordingIntake, tty: Tty, talking: asyncio.Task[int]
) -> None:
    tty.type("delete it\n")
    question = replace(reply(await intake.offers(1), "May I?"), buttons=QuestionButtons("W6AG6Q", CHOICES))
    await channel.send(question)
    await tty.shows("May I?")
    signal.raise_signal(signal.SIGINT)
    assert (await intake.offers(2)).text == "/stop"
    tty.type("\x04")
    assert await talking == 0


@pytest.mark.parametrize("outlived", [True, False])
async def test_who_leaves_before_the_answer_is_told_what_becomes_of_it(
    channel: Channel, intake: RecordingIntake, home: Path, tty: Tty, *, outlived: bool
) -> None:
    talking = asyncio.create_task(
        client.converse(home, stdin=tty.stdin, stdout=tty.stdout, outlived=outlived)
    )
    await tty.shows("› ")
    tty.type("long work\n")
    inbound = await intake.offers(1)
    await channel.indicate(inbound.target, working=True)
    await tty.shows("… ")
    tty.type("\x04")
    assert await talking == 0
    await tty.shows("shipmate chat shows you the answer." if outlived else "when Shipmate runs again.")


async def test_a_gateway_that_stops_before_the_answer_goes_on_later(
    channel: Channel, intake: RecordingIntake, tty: Tty, talking: asyncio.Task[int]
) -> None:
    tty.type("long work\n")
    await intake.offers(1)
    await channel.stop()
    assert await talking == 1
    await tty.shows("Shipmate has stopped.")
    await tty.shows("I go on with it when Shipmate runs again.")


async def test_characters_cut_between_two_reads_stay_whole() -> None:
    read, write = os.pipe()
    whole = "日本\n語".encode()
    os.write(write, whole[:4])
    with os.fdopen(read, encoding="utf-8") as stdin:
        found = client.read_lines(stdin)
        first = asyncio.ensure_future(anext(found))
        await asyncio.sleep(0)
        os.write(write, whole[4:])
        os.close(write)
        assert await first == "日本"
        assert [line async for line in found] == ["語"]
