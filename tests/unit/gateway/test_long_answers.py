"""An answer with long code is one answer: its words and a file, whatever the platform, the disk and the process do."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.channel import ReadingLimits
from bot.contracts.outbound import Outbound, OutgoingFile, Sent
from bot.core.outgoing_files import OutgoingLimits
from bot.features.live.preview_parts import GOES_ON
from bot.gateway.outbox import batch_sender
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.words import say, speaking
from tests.contracts.journal_rig import still_open
from tests.unit.gateway.conftest import SECRET, FakeChannel
from tests.unit.gateway.outgoing import TO, Desk
from tests.unit.gateway.test_outbox_kills import FOREVER, Process, finish
from tests.unit.gateway.test_outgoing_files import CHART, kept, shown
from tests.unit.gateway.test_preview_kills import OPTIONS, Wall
from tests.unit.gateway.test_previews import Screen, Writing, desk, shows

LIMITS = ReadingLimits(lines=4, characters=300, columns=60)
BODY = "\n".join(f"print({number})" for number in range(6))
CODE = f"```python\n{BODY}\n```"
ANSWER = f"Here is the script.\n\n{CODE}\n\nRun it with care."
LABEL = say("delivery.code_as_file", name="code.py")
SHORT = f"Here is the script.\n\n{LABEL}\n\nRun it with care."
DATA = f"{BODY}\n".encode()
REPEATED = f"{say('delivery.repeated')}\n\n"
ARCHIVED = f"{SHORT}\n[file: code.py]\n{CODE}"


def reading(tele: FakeChannel) -> Any:
    tele.reading_limits = LIMITS  # type: ignore[attr-defined]
    return tele


@pytest.fixture
async def made(tmp_path: Path) -> Any:
    one = Desk(tmp_path, tele=reading(FakeChannel("tele")))
    await one.asked()
    yield one
    await one.close()


async def test_it_goes_out_as_words_with_a_file_below_them(made: Desk, tmp_path: Path) -> None:
    sent = await made.delivery.send(TO, ANSWER, step_id="call", files=[CHART])
    assert shown(made.tele.sent) == [SHORT, "code.py", "chart.png"]
    assert [message.text for message in made.tele.sent] == [SHORT, "", ""]
    file = made.tele.sent[1].file
    assert file is not None
    assert (file.data, file.mime_type) == (DATA, "text/plain")
    assert [(row.state, row.message_id, row.step_id) for row in await made.rows()] == [
        ("sent", one.message_id, "call") for one in sent
    ]
    assert await made.lines() == [("assistant", f"{ARCHIVED}\n[file: chart.png]")]
    assert kept(tmp_path) == []


async def test_people_are_asked_what_they_think_below_the_words(made: Desk) -> None:
    await made.delivery.send(TO, ANSWER)
    assert [message.ends for message in made.tele.sent] == [True, False]


async def test_a_notice_and_a_channel_without_limits_are_left_alone(made: Desk, tmp_path: Path) -> None:
    await made.delivery.send(TO, ANSWER, kind="notice")
    assert shown(made.tele.sent) == [ANSWER]
    for number, options in enumerate(({}, {"tele": reading(FakeChannel("tele")), "long_as_files": False})):
        other = Desk(tmp_path / str(number), **options)
        await other.asked()
        await other.delivery.send(TO, ANSWER)
        assert shown(other.tele.sent) == [ANSWER]
        assert await other.lines() == [("assistant", ANSWER)]
        await other.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.FileRefused("no scope", forbidden=True), "delivery.file_forbidden"),
        (errors.DeliveryFailed("400"), "delivery.file_refused"),
    ],
)
async def test_where_the_platform_takes_no_file_its_code_comes_as_text(
    made: Desk, error: errors.DeliveryFailed, words: str
) -> None:
    plain = made.tele.send

    async def send(message: Outbound) -> Sent:
        if message.file is not None:
            raise error
        return await plain(message)

    made.tele.send = send  # type: ignore[method-assign]
    with speaking("zh"):
        await made.delivery.send(TO, ANSWER)
        instead = f"{say(words, name='code.py')}\n\n{CODE}"
        label = say("delivery.code_as_file", name="code.py")
    assert shown(made.tele.sent)[1:] == [instead]
    assert label in made.tele.sent[0].text
    assert [row.state for row in await made.rows()] == ["sent", "failed", "sent"]
    assert [words for _, words in await made.lines()] == [f"{made.tele.sent[0].text}\n{instead}"]


async def test_code_that_is_larger_than_a_file_may_be_or_that_no_disk_takes_is_sent_as_text(
    tmp_path: Path,
) -> None:
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure("replace"))
    options: dict[str, Any] = {"disk": disk, "file_limits": OutgoingLimits(file=10)}
    for number, (name, value) in enumerate(options.items()):
        one = Desk(tmp_path / str(number), tele=reading(FakeChannel("tele")), **{name: value})
        await one.asked()
        await one.delivery.send(TO, ANSWER)
        assert shown(one.tele.sent) == [ANSWER]
        await one.close()


async def test_a_secret_leaves_neither_in_the_words_nor_in_the_file(made: Desk) -> None:
    await made.delivery.send(TO, ANSWER.replace("print(3)", f"key = {SECRET}"))
    file = made.tele.sent[1].file
    assert file is not None
    assert SECRET.encode() not in file.data
    assert b"redacted" in file.data
    wide = SECRET[:9] + "**" + SECRET[9:11] + "**" + SECRET[11:]
    await made.delivery.send(TO, f"| a | b |\n|---|---|\n| {wide} | {'x' * 80} |")
    file = made.tele.sent[-1].file
    assert file is not None
    assert SECRET.encode() not in file.data


async def test_what_may_be_there_comes_again_with_all_that_it_stands_for(made: Desk) -> None:
    lost = [errors.DeliveryUncertain("lost")]
    plain = made.tele.send

    async def send(message: Outbound) -> Sent:
        if message.file is not None and lost:
            raise lost.pop()
        return await plain(message)

    made.tele.send = send  # type: ignore[method-assign]
    async with made.passing():
        await made.delivery.send(TO, ANSWER)
    again = made.tele.sent[1]
    assert (again.text.strip(), again.repeat_of is not None) == (say("delivery.repeated"), True)
    assert [row.text for row in await made.rows()] == [SHORT, CODE, CODE]
    assert await made.lines() == [("assistant", ARCHIVED)]


async def test_what_is_shown_while_it_is_written_becomes_the_words_of_the_answer(tmp_path: Path) -> None:
    one = desk(tmp_path, reading(Screen()))
    screen: Any = one.tele
    await one.asked()
    words = Writing(ANSWER[: ANSWER.index("print(2)") + 3])
    await shows(one, words)
    assert screen.seen == [f"Here is the script.\n\n```python\nprint(0)\nprint(1)\npr\n```\n{GOES_ON}"]
    words.words = ANSWER[: ANSWER.index("print(5)") + 3]
    await shows(one, words, 2)
    assert screen.seen == [f"Here is the script.\n\n{LABEL}{GOES_ON}"]
    words.words = ANSWER[:-10]
    await shows(one, words, 3)
    assert screen.seen[0].startswith(f"Here is the script.\n\n{LABEL}\n\nRun")
    sent = await one.delivery.send(TO, ANSWER)
    assert screen.stands == {sent[0].message_id: SHORT, sent[1].message_id: ""}
    await one.delivery.ended(TO)
    assert screen.seen == [SHORT, ""]
    assert await one.lines() == [("assistant", ARCHIVED)]
    await one.close()


async def test_what_was_shown_of_it_in_more_messages_says_that_it_is_no_part_of_it(tmp_path: Path) -> None:
    """What is certain of a stream stays the beginning of what follows."""
    one = desk(tmp_path, reading(Screen()))
    await one.asked()
    words = Writing()
    for end in range(20, len(ANSWER), 9):
        words.words = ANSWER[:end]
        one.delivery.preview(TO, words)
        await one.slept(1.0)
    await one.delivery.send(TO, ANSWER)
    sure = [message.sure for message in one.tele.sent if message.kind == "preview"]
    assert all(SHORT.startswith(words) or "```" in words for words in sure)
    await one.close()


class Shelf(Wall):
    """A wall on which files stand too."""

    def files(self) -> Counter[tuple[OutgoingFile | None, bool]]:
        return Counter((one.file, one.repeat_of is not None) for one in self.seen if one.file is not None)


async def _answer(one: Desk) -> None:
    words = Writing("Here is the script.\n\n```python\n" + BODY)
    one.delivery.preview(TO, words)
    await one.clock.sleep(120)
    with contextlib.suppress(errors.DeliveryDeferred):
        await one.delivery.send(TO, ANSWER)
    await one.delivery.ended(TO)
    await finish(one)


async def _go_on(one: Desk) -> None:
    if not await still_open(one.file):
        await finish(one)
    elif await one.delivery.resume(TO):
        await one.delivery.ended(TO)
        await finish(one)
    else:
        await _answer(one)


@pytest.mark.parametrize("tells", [True, False])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_killed_at_any_call_it_is_one_text_and_one_file(
    tmp_path: Path, when: str, tells: bool, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_sender, "GRACE_SECONDS", 0.0)
    lived, last = False, 1 - stride
    while not lived:
        last += stride
        world = Shelf(tmp_path / str(last), tells=tells)
        first = Process(world, last, when, tele=reading(FakeChannel("tele")), **OPTIONS)
        await first.desk.asked()
        lived = await first.live(_answer)
        second = Process(world, FOREVER, "before", tele=reading(FakeChannel("tele")), **OPTIONS)
        assert await second.live(_go_on)
        texts = [words for words in world.stands.values() if words and not words.startswith(REPEATED)]
        whole = [words for words in texts if words == SHORT]
        again = [words for words in world.stands.values() if words == REPEATED + SHORT]
        assert len(whole) <= 1, "never twice in silence"
        assert len(whole) + len(again) >= 1, "never lost"
        assert not any("```" in words for words in texts)
        # Where a platform cannot tell whether it arrived, what was left of it says by itself that it goes on.
        assert not (tells and any(words.endswith(GOES_ON) for words in texts)), "nothing is left half open"
        files = {repeated: file for file, repeated in world.files()}
        assert set(world.files().values()) == {1}
        assert {file.data for file in files.values() if file is not None} == {DATA}
        assert not (tells and True in files)
        assert kept(world.root) == []
        after = Desk(world.root, clock=world.clock)
        archived = "\n".join(words for _, words in await after.lines())
        assert archived.count(BODY) == 1
        assert archived.count("Run it with care.") == 1
        await after.close()
    assert last > 10
