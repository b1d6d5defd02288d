"""A full file system: operators get one alert, which names the cause."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.blackbox.conftest import PERSON, World
from tests.torture.test_disk import small_disk

OPERATOR = 2002


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 65_536)


async def test_a_full_disk_raises_one_alarm_with_the_right_cause(tmp_path: Path) -> None:
    with small_disk(tmp_path / ".ship", "64m"):
        async with World(tmp_path, speed=10.0) as world:
            world.config["operators"] = [f"telegram:{OPERATOR}"]
            await world.start("telegram")
            await world.ask("/whoami", 1, chat_id=OPERATOR)
            fill(tmp_path / ".ship" / "ballast")
            world.telegram.say("hello", chat_id=PERSON)
            await world.telegram.until(lambda: len(world.texts(OPERATOR)) >= 2)
            asked = len(world.telegram.called("getUpdates"))
            await world.telegram.until(lambda: len(world.telegram.called("getUpdates")) > asked + 3)
            (tmp_path / ".ship" / "ballast").unlink()
            await world.telegram.until(lambda: any("room again" in one for one in world.texts(OPERATOR)))
            _, *alarms = world.texts(OPERATOR)
            assert ["no room on the disk" in one or "room again" in one for one in alarms] == [True, True], (
                alarms
            )
            await world.process.stop()
