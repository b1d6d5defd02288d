"""The disk refuses one operation or all later ones, writes only half of the bytes, or is really full."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import errors
from bot.system import SystemClock
from bot.testing.anthropic_script import pause
from bot.testing.clock import SteeredClock
from bot.testing.disk import WRITES
from bot.testing.faults import Fault
from tests.blackbox.conftest import START_SECONDS, World, eventually
from tests.shares import one_in
from tests.torture import scene
from tests.torture.inside import Inside, environment, quick_ends
from tests.torture.outside import Alone

FIRST, SECOND, THIRD = (scene.WORDS.format(number) for number in (1, 2, 3))
ERRORS = ("EIO", "ENOSPC", "EMFILE", "EDQUOT")


@pytest.fixture(autouse=True)
def _quick_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    quick_ends(monkeypatch)


async def refused(
    root: Path,
    channel: str,
    *,
    at: int,
    seam: str,
    error: str,
    when: str,
    lasting: bool,
    kind: str = "",
    times: int = 1,
) -> int:
    """Send a message while an operation fails, and one after the disk has recovered. The process must stay up, and
    nothing may be answered twice. The first message is answered or its person is told; the second is answered. Return
    the number of operations.
    """
    root.mkdir()
    clock = SteeredClock(SystemClock())
    async with scene.new_world(root) as world:
        side = await scene.prepare(world, channel, lambda: life.address("web"))
        life = Inside(world, clock=clock)
        with environment(world):
            await life.start()
            first, before = life, len(_changes(life, seam))
            kind = "write" if seam == "disk" else "commit"
            life.faults.arm(Fault(seam, kind, at, when, "error", error, None if lasting else 1))  # type: ignore[arg-type]
            try:
                await side.say(FIRST)
                if lasting:
                    await _told_or(side, seconds=1.0)
                    life.faults.mend()

                async def over() -> bool:
                    clock.advance(1.0)
                    await side.bring_again()
                    return bool(await _seen(side))

                await scene.eventually_so(over)
                life.faults.mend()
                await side.say(SECOND)
                await scene.until_answered(side, SECOND)
                # The gateway notices free space only at its next check of the disk.
                await scene.eventually_so(lambda: is_ready(world, first.dashboard))
                await life.end()
                # The next start closes work that could not be closed, and sends nothing again.
                life = await Inside(world).start()
                await side.say(THIRD)
                await scene.until_answered(side, THIRD)
                await scene.until_quiet(root)
                shown = await _seen(side)
                for words in (SECOND, THIRD):
                    assert await side.replies(words) == [scene.answered(words)]
                count = len(_changes(first, seam)) - before
            finally:
                await scene.leave(side)
                await life.end()
        if shown[0] != errors.StorageError().person:
            scene.exactly_once(channel, FIRST, shown)
        else:
            assert len(shown) == 1
        said = [line["text"] for line in world.archive() if line["role"] == "user"]
        assert said == [FIRST, SECOND, THIRD]
    return count


def _changes(life: Inside, seam: str) -> list[str]:
    kinds = WRITES if seam == "disk" else {"commit"}
    return [kind for where, kind, _ in life.trace if where == seam and kind in kinds]


async def _seen(side: scene.Side) -> list[str]:
    """Return the visible texts about the first message."""
    told = await side.replies(errors.StorageError().person) if isinstance(side, scene.TelegramSide) else []
    return [*await side.replies(FIRST), *told]


async def _told_or(side: scene.Side, seconds: float) -> None:
    """Wait until a text about the first message is visible, at most for these seconds."""

    async def seen() -> bool:
        await side.bring_again()
        return bool(await _seen(side))

    with contextlib.suppress(TimeoutError):
        await scene.eventually_so(seen, seconds)


async def everywhere(root: Path, plans: list[tuple[str, int, str, str, bool]]) -> None:
    for number, (seam, at, error, when, lasting) in enumerate(plans):
        try:
            await refused(
                root / str(number), "telegram", at=at, seam=seam, error=error, when=when, lasting=lasting
            )
        except (AssertionError, TimeoutError) as problem:
            problem.add_note(f"{seam} {at} {error} {when} {'lasting' if lasting else 'once'}")
            raise


def all_plans(disk: int, log: int) -> list[tuple[str, int, str, str, bool]]:
    plans = [
        ("disk", at, ERRORS[at % len(ERRORS)], when, lasting)
        for at in range(1, disk + 1)
        for when in ("before", "torn", "after")
        for lasting in (False, True)
    ]
    return plans + [
        ("log", at, "EIO", when, lasting)
        for at in range(1, log + 1)
        for when in ("before", "torn", "after")
        for lasting in (False, True)
    ]


@pytest.mark.torture
async def test_an_operation_that_fails_costs_no_message(tmp_path: Path) -> None:
    plans = scene.spread(all_plans(10, 10), 6, random.Random(3))
    await everywhere(tmp_path, plans)


async def test_what_was_sent_while_its_record_was_refused_is_not_sent_again(
    tmp_path: Path, stride: int
) -> None:
    await everywhere(tmp_path, [("log", at, "EIO", "before", True) for at in range(6, 14, stride)])


@pytest.mark.torture
async def test_any_operation_may_fail(tmp_path: Path) -> None:
    whole = {"at": 10_000, "error": "EIO", "when": "before", "lasting": False}
    disk = await refused(tmp_path / "disk", "telegram", seam="disk", **whole)  # type: ignore[arg-type]
    log = await refused(tmp_path / "log", "telegram", seam="log", **whole)  # type: ignore[arg-type]
    plans = all_plans(disk, log)
    scene.tell(f"{len(plans)} ways to fail")
    await everywhere(tmp_path, plans)


async def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    async with scene.new_world(tmp_path) as world:
        side = await scene.prepare(world, "telegram", str)
        life = Inside(world)
        with environment(world):
            await life.start()
            monkeypatch.setattr(os, "write", lambda handle, data: write(handle, bytes(data[:7])))
            await side.say(FIRST)
            await scene.until_answered(side, FIRST)
            await scene.until_quiet(tmp_path)
            await life.end()
            monkeypatch.undo()
        scene.on_file_once(world, FIRST)


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mount a file system of this size on a folder. Skip the test if this process may not mount one."""
    folder.mkdir()
    mounted = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", folder],
            capture_output=True,
            check=False,
        )
        if os.geteuid() == 0
        else None
    )
    if mounted is None or mounted.returncode:
        pytest.skip("a file system can be mounted by root alone, and where the kernel allows it")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.torture
async def test_a_disk_that_is_really_full_and_gets_room_again(tmp_path: Path) -> None:
    home = tmp_path / ".ship"
    with small_disk(home, "1m"):
        async with scene.new_world(tmp_path) as world:
            side = await scene.prepare(world, "telegram", str)
            life = await Alone(world).start()
            assert not life.dead, life.process.stderr
            await side.say(FIRST)
            await scene.until_answered(side, FIRST)
            ballast = home / "ballast"
            _fill(ballast)
            await side.say(SECOND)
            await asyncio.sleep(3)  # the disk stays full for these seconds
            assert not life.dead, life.process.stderr
            ballast.unlink()

            async def second_settled() -> bool:
                return bool(await side.replies(SECOND) or await side.replies(errors.StorageError().person))

            # Wait before the third message. Otherwise one turn takes both messages, and this model answers only the last
            # one.
            await scene.eventually_so(second_settled)
            await side.say(THIRD)
            await scene.until_answered(side, THIRD)
            await scene.until_quiet(tmp_path)
            for words in (FIRST, THIRD):
                scene.exactly_once("telegram", words, await side.replies(words))
            await life.end()
            said = [line["text"] for line in world.archive() if line["role"] == "user"]
            assert said == [FIRST, SECOND, THIRD]


@pytest.mark.parametrize("still_full", one_in(2, [True, False]))
async def test_a_full_disk_and_a_kill_double_no_answer_and_lose_none(
    tmp_path: Path, *, still_full: bool
) -> None:
    """The disk fills up while twenty turns wait for the model. The turns are answered, and the process is killed."""
    home, people = tmp_path / ".ship", range(2001, 2021)
    with small_disk(home, "24m"):
        async with scene.new_world(tmp_path) as world:
            await scene.prepare(world, "telegram", str)
            world.config["channels"]["telegram"]["allow"] = ["*"]
            gate = asyncio.Event()
            world.model.script(lambda body: pause(scene.script(body), gate))
            life = await Alone(world).start()
            words = {person: scene.WORDS.format(person) for person in people}
            for person in people:
                world.telegram.say(words[person], chat_id=person)
            await world.model.until(lambda: len(world.model.requests) >= len(people), START_SECONDS)
            ballast = home / "ballast"
            _fill(ballast)
            gate.set()
            await eventually(lambda: all(map(world.texts, people)))
            # Until then, the write-ahead log may have room, and a message may be taken in.
            await scene.eventually_so(lambda: not_ready(world, life.dashboard))
            late = people.stop
            world.telegram.say(scene.WORDS.format(late), chat_id=late)
            if not still_full:
                await scene.until_quiet(tmp_path)
            await world.process.kill()
            left = (home / "reserve").stat().st_size
            if not still_full:
                ballast.unlink()
            life = await Alone(world).start()
            assert not life.dead, life.process.stderr
            if still_full:
                await scene.eventually_so(lambda: not_ready(world, life.dashboard))
                assert not world.texts(late), "it was taken in by a disk that is full"
                ballast.unlink()
            await eventually(lambda: bool(world.texts(late)))
            await scene.until_quiet(tmp_path)
            await scene.eventually_so(lambda: is_ready(world, life.dashboard))
            for person in people:
                scene.exactly_once("telegram", words[person], world.texts(person), deaths=still_full)
            scene.tell(f"{len(people)} turns on a full disk left {left // 1024} kB of the reserve")
            await life.end()
            said = Counter(line["text"] for line in world.archive())
            assert all(said[words[one]] == said[scene.answered(words[one])] == 1 for one in people), said


async def is_ready(world: World, address: str) -> bool:
    async with world.session.get(f"{address}/readyz") as answer:
        return answer.status == 200


async def not_ready(world: World, address: str) -> bool:
    async with world.session.get(f"{address}/readyz") as answer:
        return answer.status == 503 and not (await answer.json())["parts"]["disk"]["ok"]


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
