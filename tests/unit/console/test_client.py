from __future__ import annotations

import asyncio
import io
import os
import pty
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.approvals import CHOICES, QuestionButtons
from bot.contracts.channel import Channel
from bot.contracts.identity import ChatKey
from bot.testing.intake import RecordingIntake
from bot.words import speaking
from channels.console import client
from channels.console.manifest import MANIFEST
from channels.console.settings import ConsoleSettings
from tests.contracts.channel_contract import reply, surroundings


class Tty:
    """A terminal with a person in front of it."""

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


async def _echo(channel: Channel, intake: RecordingIntake, turns: int) -> list[int]:
    """A gateway that answers every message with two; how many had been offered when each answer began."""
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
    out = io.StringIO()
    answering = asyncio.create_task(_echo(channel, intake, 3))
    with os.fdopen(read, encoding="utf-8") as stdin:
        code = await client.converse(home, stdin=stdin, stdout=out, quiet=0.01)
    assert code == 0
    assert await answering == [1, 2, 3]
    said = ["one", "二つ目", "last without end"]
    assert out.getvalue() == "".join(f"You said {words}\nand that is all\n" for words in said)


async def test_a_regular_file_can_be_the_input(
    channel: Channel, intake: RecordingIntake, home: Path, tmp_path: Path
) -> None:
    questions = tmp_path / "questions.txt"
    questions.write_text("one\r\ntwo\r\n", encoding="utf-8")
    answering = asyncio.create_task(_echo(channel, intake, 2))
    with questions.open(encoding="utf-8") as stdin:
        assert await client.converse(home, stdin=stdin, stdout=io.StringIO(), quiet=0.01) == 0
    await answering
    assert [inbound.text for inbound in intake.accepted] == ["one", "two"]


async def test_another_chat_can_be_named(channel: Channel, intake: RecordingIntake, home: Path) -> None:
    answering = asyncio.create_task(_echo(channel, intake, 1))
    out = io.StringIO()
    code = await client.converse(home, stdin=io.StringIO("hi\n"), stdout=out, chat_id="other", quiet=0.01)
    assert code == 0
    await answering
    assert intake.accepted[0].chat_key == ChatKey.parse("console:chat:other")
    assert out.getvalue().startswith("You said hi\n")


async def test_an_answer_without_a_sign_of_work_is_whole_once_it_is_quiet(
    channel: Channel, intake: RecordingIntake, home: Path
) -> None:
    talking = asyncio.create_task(
        client.converse(home, stdin=io.StringIO("hi\n"), stdout=(out := io.StringIO()), quiet=0.01)
    )
    await channel.send(reply(await intake.offers(1), "a command's answer"))
    assert await talking == 0
    assert out.getvalue() == "a command's answer\n"


async def test_a_message_that_is_not_taken_in_is_said_and_fails_the_run(
    channel: Channel, intake: RecordingIntake, home: Path
) -> None:
    intake.failure = errors.StorageError()
    out = io.StringIO()
    assert await client.converse(home, stdin=io.StringIO("one\ntwo\n"), stdout=out, quiet=0.01) == 1
    assert out.getvalue() == f"{errors.StorageError().person}\n" * 2


async def test_a_message_too_long_for_the_line_is_refused_before_it_is_sent(
    channel: Channel, intake: RecordingIntake, home: Path
) -> None:
    out = io.StringIO()
    assert await client.converse(home, stdin=io.StringIO("x" * 1_000_001), stdout=out) == 1
    assert out.getvalue() == "That message is too long.\n"
    assert intake.offered == []


async def test_a_gateway_that_no_terminal_reaches_is_told_with_the_setting(home: Path) -> None:
    out = io.StringIO()
    assert await client.converse(home, stdin=io.StringIO("hi\n"), stdout=out) == 1
    assert out.getvalue().startswith("No terminal can reach Shipmate here.")
    assert "`channels.console` is off" in out.getvalue()


async def test_when_the_gateway_goes_it_says_so(
    channel: Channel, intake: RecordingIntake, home: Path
) -> None:
    out = io.StringIO()
    talking = asyncio.create_task(client.converse(home, stdin=io.StringIO("hi\n"), stdout=out))
    await intake.offers(1)
    await channel.stop()
    assert await talking == 1
    assert out.getvalue() == "Shipmate has stopped.\n"


async def test_a_person_types_sees_the_work_and_the_answer_and_leaves(
    channel: Channel, intake: RecordingIntake, home: Path, tty: Tty
) -> None:
    talking = asyncio.create_task(client.converse(home, stdin=tty.stdin, stdout=tty.stdout))
    await tty.shows("› ")
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


async def test_what_is_answered_cannot_steer_the_terminal(
    channel: Channel, intake: RecordingIntake, home: Path
) -> None:
    talking = asyncio.create_task(
        client.converse(home, stdin=io.StringIO("hi\n"), stdout=(out := io.StringIO()), quiet=0.01)
    )
    await channel.send(reply(await intake.offers(1), "a\x1b[2Jb\x9bc\rd\te\nf"))
    await talking
    assert out.getvalue() == "ab\ufffdd\te\nf\n"


async def test_output_that_lacks_a_character_shows_a_replacement(
    channel: Channel, intake: RecordingIntake, home: Path
) -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    talking = asyncio.create_task(client.converse(home, stdin=io.StringIO("hi\n"), stdout=out, quiet=0.01))
    await channel.send(reply(await intake.offers(1), "fünf"))
    assert await talking == 0
    assert raw.getvalue() == b"f?nf\n"


async def test_a_person_is_greeted_once_and_a_program_is_not(
    channel: Channel, intake: RecordingIntake, home: Path, tty: Tty
) -> None:
    talking = asyncio.create_task(client.converse(home, stdin=tty.stdin, stdout=tty.stdout))
    greeting = f"Shipmate in {home.parent.name}. /help lists the commands; Ctrl-C stops me, Ctrl-D leaves."
    await tty.shows(greeting)
    tty.type("hi\n")
    await channel.send(reply(await intake.offers(1), "hello"))
    await tty.shows("hello")
    tty.type("\x04")
    assert await talking == 0
    assert tty.shown.count(greeting) == 1
    assert "not done" not in tty.shown  # nothing runs
    read, write = os.pipe()
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as stdin:
        assert await client.converse(home, stdin=stdin, stdout=(out := io.StringIO())) == 0
    assert out.getvalue() == ""


async def test_ctrl_c_asks_the_gateway_to_stop_and_the_second_one_leaves(
    channel: Channel, intake: RecordingIntake, home: Path, tty: Tty
) -> None:
    talking = asyncio.create_task(client.converse(home, stdin=tty.stdin, stdout=tty.stdout))
    await tty.shows("› ")
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
    assert "not done" not in tty.shown  # it was stopped


async def test_ctrl_c_where_nothing_runs_stops_nothing_and_says_how_to_leave(
    channel: Channel, intake: RecordingIntake, home: Path, tty: Tty
) -> None:
    talking = asyncio.create_task(client.converse(home, stdin=tty.stdin, stdout=tty.stdout))
    await tty.shows("› ")
    tty.type("hi\n")
    await channel.send(reply(await intake.offers(1), "hello"))
    await tty.shows("hello")
    signal.raise_signal(signal.SIGINT)
    await tty.shows("Press Ctrl-C again to leave.")
    signal.raise_signal(signal.SIGINT)
    assert await talking == 0
    assert [inbound.text for inbound in intake.offered] == ["hi"]
    assert "Stopping" not in tty.shown


async def test_ctrl_c_stops_a_turn_that_waits_for_a_decision(
    channel: Channel, intake: RecordingIntake, home: Path, tty: Tty
) -> None:
    talking = asyncio.create_task(client.converse(home, stdin=tty.stdin, stdout=tty.stdout))
    await tty.shows("› ")
    tty.type("delete it\n")
    question = replace(reply(await intake.offers(1), "May I?"), buttons=QuestionButtons("W6AG6Q", CHOICES))
    await channel.send(question)
    await tty.shows("May I?")
    signal.raise_signal(signal.SIGINT)
    assert (await intake.offers(2)).text == "/stop"
    tty.type("\x04")
    assert await talking == 0


async def test_ctrl_c_counts_anew_after_the_next_message(
    channel: Channel, intake: RecordingIntake, home: Path, tty: Tty
) -> None:
    talking = asyncio.create_task(client.converse(home, stdin=tty.stdin, stdout=tty.stdout))
    await tty.shows("› ")
    signal.raise_signal(signal.SIGINT)
    await tty.shows("Press Ctrl-C again to leave.")
    tty.type("go on\n")
    await intake.offers(1)
    signal.raise_signal(signal.SIGINT)
    assert (await intake.offers(2)).text == "/stop"
    assert not talking.done()
    tty.type("\x04")
    assert await talking == 0


@pytest.mark.parametrize(
    "outlived",
    [(True, "I go on with it; shipmate chat shows you the answer."), (False, "when Shipmate runs again.")],
)
async def test_who_leaves_before_the_answer_is_told_what_becomes_of_it(
    channel: Channel, intake: RecordingIntake, home: Path, tty: Tty, outlived: tuple[bool, str]
) -> None:
    goes_on, told = outlived
    talking = asyncio.create_task(client.converse(home, stdin=tty.stdin, stdout=tty.stdout, outlived=goes_on))
    await tty.shows("› ")
    tty.type("long work\n")
    inbound = await intake.offers(1)
    await channel.send(reply(inbound, "I look into it"))
    await channel.indicate(inbound.target, working=True)
    await tty.shows("I look into it")
    await tty.shows("… ")
    tty.type("\x04")
    assert await talking == 0
    await tty.shows(told)


async def test_a_gateway_that_goes_before_the_answer_goes_on_later(
    channel: Channel, intake: RecordingIntake, home: Path, tty: Tty
) -> None:
    talking = asyncio.create_task(client.converse(home, stdin=tty.stdin, stdout=tty.stdout))
    await tty.shows("› ")
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


async def test_it_speaks_the_language_of_the_terminal_and_names_it_to_the_gateway(
    channel: Channel, intake: RecordingIntake, home: Path
) -> None:
    with speaking("zh"):
        talking = asyncio.create_task(
            client.converse(home, stdin=io.StringIO("hi\n"), stdout=(out := io.StringIO()))
        )
    await intake.offers(1)
    assert intake.accepted[0].language == "zh"
    await channel.stop()
    assert await talking == 1
    assert out.getvalue() == "Shipmate 已停止。\n"
