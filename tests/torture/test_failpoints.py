"""Killed before, in and after every write, every change of the journal and every send of a turn: answered once."""

from __future__ import annotations

import asyncio
import functools
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
from tests.torture.engines import EMBEDDED, ENGINES, LOST_DISK, POSTGRESQL, Engine, engine_of, on
from tests.torture.inside import Inside, environment, quick_ends
from tests.torture.outside import Alone

CHANNELS = ("telegram", "slack", "web", scene.FILES)
FIRST, SECOND = scene.WORDS.format(1), scene.WORDS.format(2)
ALL = [
    on(engine, channel, torture=True)
    for engine in ENGINES
    for channel in CHANNELS
    if (channel, engine) != ("web", LOST_DISK)  # the key of its cookies is not shared
]
Life = Inside | Alone
AT_ONCE = 2
"""Processes that start side by side."""


async def lives(
    root: Path,
    channel: str,
    faults: Sequence[Fault],
    *,
    live: Callable[..., Life] = Inside,
    engine: str = EMBEDDED,
    part: str = "",
) -> list[Fault]:
    """A question, a death for each fault, a life without any, another question: each answered once. Gives every
    place where the last life could have died until it had answered the first.
    """
    root.mkdir()
    lasting = engine_of(engine, part)
    born: list[Life] = []
    async with scene.new_world(root) as world:
        world.config |= lasting.settings
        live = functools.partial(live, engine=lasting)
        side = await scene.prepare(world, channel, lambda: born[-1].address("web") if born else "")
        with environment(world):
            try:
                await _mortal(world, side, faults, born=born, live=live, lasting=lasting)
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
    world: World,
    side: scene.Side,
    faults: Sequence[Fault],
    *,
    born: list[Life],
    live: Callable[..., Life],
    lasting: Engine,
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
        lasting.between(world.root)


async def _born(world: World, born: list[Life], live: Callable[..., Life], *faults: Fault) -> Life:
    born.append(live(world, *faults))
    return await born[-1].start()


async def each(
    folder: Path,
    channel: str,
    plans: Sequence[Sequence[Fault]],
    *,
    live: Callable[..., Life] = Inside,
    engine: str = EMBEDDED,
    part: str = "",
) -> None:
    """Go through plans of death one by one; a failure says which one it was."""
    folder.mkdir(exist_ok=True)
    for number, plan in enumerate(plans):
        try:
            await lives(folder / str(number), channel, plan, live=live, engine=engine, part=part)
        except (AssertionError, TimeoutError) as error:
            error.add_note(f"{channel} on {engine}: {json.dumps([vars_of(fault) for fault in plan])}")
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


@pytest.mark.parametrize(
    ("channel", "engine"),
    [*one_in(2, [(channel, EMBEDDED) for channel in CHANNELS]), on(LOST_DISK, "telegram", torture=True)],
)
async def test_dead_at_a_failpoint_and_started_again_it_answers_each_message_once(
    channel: str, engine: str, tmp_path: Path
) -> None:
    everywhere = await lives(tmp_path / "whole", channel, [], engine=engine)
    sends = [point for point in everywhere if point.seam == "channel"]
    assert {point.when for point in sends} == {"before", "after"}
    chosen = [*sends, *scene.spread(everywhere, 3, random.Random(channel))]
    await each(tmp_path, channel, [[fault] for fault in chosen], engine=engine)


@pytest.mark.parametrize(
    ("channel", "engine"),
    [*one_in(3, [(channel, EMBEDDED) for channel in CHANNELS]), on(POSTGRESQL, "slack", torture=True)],
)
async def test_dead_in_the_middle_of_going_on_after_a_death_it_still_answers_once(
    channel: str, engine: str, tmp_path: Path
) -> None:
    plans = [
        [Fault("channel", "send", when="after"), Fault("journal", "update_outbox", when="before")],
        [Fault("journal", "put_outbox", when="after"), Fault("channel", "send", when="before")],
        [Fault("disk", "write", 4, "torn"), Fault("disk", "write", 4, "torn"), Fault("journal", "end_turn")],
    ]
    await each(tmp_path, channel, plans, engine=engine)


@pytest.mark.parametrize(
    "fault", [Fault("journal", "receive", when="after"), Fault("channel", "send", when="after")]
)
@pytest.mark.parametrize("engine", [EMBEDDED, on(LOST_DISK)])
async def test_a_process_that_is_killed_at_a_failpoint_answers_once_when_it_is_started_again(
    fault: Fault, engine: str, tmp_path: Path
) -> None:
    await each(tmp_path, "slack", [[fault]], live=Alone, engine=engine)


@pytest.mark.parametrize("engine", [EMBEDDED, on(LOST_DISK)])
async def test_dead_between_two_steps_of_its_lines_it_answers_once(engine: str, tmp_path: Path) -> None:
    plans = [[fault] for fault in scene.spread(LINES, 4, random.Random(7))]
    await each(tmp_path, "telegram", plans, engine=engine)


@pytest.mark.parametrize(("channel", "engine"), ALL)
async def test_dead_between_any_two_steps_of_its_lines(channel: str, engine: str, tmp_path: Path) -> None:
    await each(tmp_path / "inside", channel, [[fault] for fault in LINES], engine=engine)
    await each(tmp_path / "alone", channel, [[fault] for fault in LINES], live=Alone, engine=engine)


@pytest.mark.parametrize(("channel", "engine"), ALL)
async def test_dead_at_any_failpoint_at_all(
    channel: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_stream, "SETTLE_SECONDS", 0.05)
    everywhere = await lives(tmp_path / "whole", channel, [], engine=engine)
    scene.tell(f"{channel} on {engine}: {len(everywhere)} failpoints")
    await each(tmp_path, channel, [[fault] for fault in everywhere], engine=engine)


@pytest.mark.parametrize(("channel", "engine"), ALL)
async def test_dead_again_and_again(
    channel: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_stream, "SETTLE_SECONDS", 0.05)
    rng = random.Random(scene.seed())
    everywhere = await lives(tmp_path / "whole", channel, [], engine=engine)
    plans = [rng.sample(everywhere, rng.randint(2, 4)) for _ in range(100 if engine == EMBEDDED else 30)]
    await each(tmp_path, channel, plans, engine=engine)


@pytest.mark.parametrize(("channel", "engine"), ALL)
async def test_a_process_killed_at_any_failpoint_at_all(channel: str, engine: str, tmp_path: Path) -> None:
    everywhere = await lives(tmp_path / "whole", channel, [], live=Alone, engine=engine)
    scene.tell(f"{channel} on {engine}: {len(everywhere)} failpoints of a process")
    plans = [[fault] for fault in everywhere]
    async with asyncio.TaskGroup() as group:
        for part in range(AT_ONCE):
            folder = _made(tmp_path / f"part{part}")
            group.create_task(
                each(folder, channel, plans[part::AT_ONCE], live=Alone, engine=engine, part=f"part{part}")
            )


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
