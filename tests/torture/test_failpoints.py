"""Killed before, in and after every write, every change of the journal and every send of a turn: answered once."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bot.history import line_stream
from bot.testing.disk import When
from bot.testing.faults import Fault
from tests.blackbox.conftest import World
from tests.shares import one_in
from tests.torture import scene
from tests.torture.inside import Inside, environment, quick_ends
from tests.torture.outside import Alone

CHANNELS = ("telegram", "slack", "web", scene.FILES)
FIRST, SECOND = scene.WORDS.format(1), scene.WORDS.format(2)
Life = Inside | Alone
AT_ONCE = 2
"""Processes that start side by side."""


async def lives(
    root: Path, channel: str, faults: Sequence[Fault], live: Callable[..., Life] = Inside
) -> list[Fault]:
    """A question, a death for each fault, a life without any, another question: each answered once. Gives every
    place where the last life could have died until it had answered the first.
    """
    root.mkdir()
    born: list[Life] = []
    async with scene.new_world(root) as world:
        side = await scene.prepare(world, channel, lambda: born[-1].address("web") if born else "")
        with environment(world):
            try:
                await _mortal(world, side, faults, born, live)
                life = await _born(world, born, live)
                if not faults:
                    await side.say(FIRST)
                await scene.until_answered(side, FIRST)
                await scene.until_quiet(root)
                passed = scene.points(life.trace)
                await side.say(SECOND)
                await scene.until_answered(side, SECOND)
                await scene.until_quiet(root)
                await scene.ready(world.session, life.dashboard)
                shown = [await side.replies(words) for words in (FIRST, SECOND)]
            finally:
                await scene.leave(side)
                if born:
                    await born[-1].end()
        for words, replies in zip((FIRST, SECOND), shown, strict=True):
            scene.exactly_once(channel, words, replies, deaths=len(faults))
        scene.on_file_once(world, FIRST, SECOND, deaths=len(faults))
        if channel == scene.FILES:
            scene.read_once(world, 2, deaths=len(faults))
    return passed


async def _mortal(
    world: World, side: scene.Side, faults: Sequence[Fault], born: list[Life], live: Callable[..., Life]
) -> None:
    for number, fault in enumerate(faults):
        life = await _born(world, born, live, replace(fault))
        if not number:
            await side.say(FIRST)

        async def over(life: Life = life) -> bool:
            await side.bring_again()
            return life.dead or (bool(await side.replies(FIRST)) and not scene.unfinished(world.root))

        await scene.eventually_so(over)
        await life.end()


async def _born(world: World, born: list[Life], live: Callable[..., Life], *faults: Fault) -> Life:
    born.append(live(world, *faults))
    return await born[-1].start()


async def each(
    folder: Path, channel: str, plans: Sequence[Sequence[Fault]], live: Callable[..., Life] = Inside
) -> None:
    """Go through plans of death one by one; a failure says which one it was."""
    folder.mkdir(exist_ok=True)
    for number, plan in enumerate(plans):
        try:
            await lives(folder / str(number), channel, plan, live)
        except (AssertionError, TimeoutError) as error:
            error.add_note(f"{channel}: {json.dumps([vars_of(fault) for fault in plan])}")
            raise


def vars_of(fault: Fault) -> list[object]:
    return [fault.seam, fault.kind, fault.at, fault.when]


WHENS: tuple[When, ...] = ("before", "torn", "after")
LINES = [
    *(Fault("journal", "put_lines", at, when) for at in (1, 2, 3, 4) for when in WHENS[::2]),
    *(Fault("disk", "append", at, when) for at in (1, 2, 4) for when in WHENS),
    *(Fault("disk", "sync", at, when) for at in (1, 2, 3) for when in WHENS[::2]),
    *(Fault("journal", "drop_lines", when=when) for when in WHENS[::2]),
]
"""Between the steps of lines on their way to the disk (`bot.history.line_stream`); the last two come as a process ends."""


@pytest.fixture(autouse=True)
def _quick_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_ends(monkeypatch)


@pytest.mark.parametrize("channel", one_in(2, CHANNELS))
async def test_dead_at_a_failpoint_and_started_again_it_answers_each_message_once(
    channel: str, tmp_path: Path
) -> None:
    everywhere = await lives(tmp_path / "whole", channel, [])
    sends = [point for point in everywhere if point.seam == "channel"]
    assert {point.when for point in sends} == {"before", "after"}
    chosen = [*sends, *scene.spread(everywhere, 3, random.Random(channel))]
    await each(tmp_path, channel, [[fault] for fault in chosen])


@pytest.mark.parametrize("channel", one_in(3, CHANNELS))
async def test_dead_in_the_middle_of_going_on_after_a_death_it_still_answers_once(
    channel: str, tmp_path: Path
) -> None:
    plans = [
        [Fault("channel", "send", when="after"), Fault("journal", "update_outbox", when="before")],
        [Fault("journal", "put_outbox", when="after"), Fault("channel", "send", when="before")],
        [Fault("disk", "write", 4, "torn"), Fault("disk", "write", 4, "torn"), Fault("journal", "end_turn")],
    ]
    await each(tmp_path, channel, plans)


@pytest.mark.parametrize(
    "fault", [Fault("journal", "receive", when="after"), Fault("channel", "send", when="after")]
)
async def test_a_process_that_is_killed_at_a_failpoint_answers_once_when_it_is_started_again(
    fault: Fault, tmp_path: Path
) -> None:
    await each(tmp_path, "slack", [[fault]], Alone)


async def test_dead_between_two_steps_of_its_lines_it_answers_once(tmp_path: Path) -> None:
    await each(tmp_path, "telegram", [[fault] for fault in scene.spread(LINES, 4, random.Random(7))])


@pytest.mark.torture
@pytest.mark.parametrize("channel", CHANNELS)
async def test_dead_between_any_two_steps_of_its_lines(channel: str, tmp_path: Path) -> None:
    await each(tmp_path / "inside", channel, [[fault] for fault in LINES])
    await each(tmp_path / "alone", channel, [[fault] for fault in LINES], Alone)


@pytest.mark.torture
@pytest.mark.parametrize("channel", CHANNELS)
async def test_dead_at_any_failpoint_at_all(
    channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_stream, "SETTLE_SECONDS", 0.05)
    everywhere = await lives(tmp_path / "whole", channel, [])
    scene.tell(f"{channel}: {len(everywhere)} failpoints")
    await each(tmp_path, channel, [[fault] for fault in everywhere])


@pytest.mark.torture
@pytest.mark.parametrize("channel", CHANNELS)
async def test_dead_again_and_again(channel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_stream, "SETTLE_SECONDS", 0.05)
    rng = random.Random(scene.seed())
    everywhere = await lives(tmp_path / "whole", channel, [])
    plans = [rng.sample(everywhere, rng.randint(2, 4)) for _ in range(100)]
    await each(tmp_path, channel, plans)


@pytest.mark.torture
@pytest.mark.parametrize("channel", CHANNELS)
async def test_a_process_killed_at_any_failpoint_at_all(channel: str, tmp_path: Path) -> None:
    everywhere = await lives(tmp_path / "whole", channel, [], Alone)
    scene.tell(f"{channel}: {len(everywhere)} failpoints of a process")
    plans = [[fault] for fault in everywhere]
    async with asyncio.TaskGroup() as group:
        for part in range(AT_ONCE):
            group.create_task(each(_made(tmp_path / f"part{part}"), channel, plans[part::AT_ONCE], Alone))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
