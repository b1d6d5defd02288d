"""A long life leaves no open file behind and no memory held. `EVENTS=… make torture` makes it longer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.blackbox.conftest import World
from tests.torture import scene

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")
EVENTS = int(os.environ.get("EVENTS", "40000"))
AT_ONCE, BUSY = 50, 400
"""Messages that come together, and chats that speak at the same time of the life; the older ones fall silent."""
MEGABYTE = 1_000_000
TREMBLE, FILES = 24 * MEGABYTE, 8
"""By how much the resident memory and the number of open files go up and down."""


def resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("events", [200, pytest.param(EVENTS, marks=pytest.mark.torture)])
async def test_a_long_life_leaves_no_open_file_and_no_memory_behind(tmp_path: Path, events: int) -> None:
    async with World(tmp_path) as world:
        world.config["channels"]["telegram"] |= {"allow": ["*"], "streaming": {"enabled": False}}
        world.model.script(lambda body: f"answer {len(body['messages'])} 你好")
        await world.start("telegram")
        pid, looks = world.process.pid, list[tuple[int, int]]()
        for number in range(0, events, AT_ONCE):
            world.telegram.calls.clear()
            world.model.requests.clear()
            for chat in range(AT_ONCE):
                place = 5_000 + number // 40 + (number + chat) % BUSY
                world.telegram.say(f"question {number + chat} 问题", chat_id=place)
            await world.telegram.until(lambda: len(world.telegram.called("sendMessage")) >= AT_ONCE)
            looks.append((resident(pid), len(list(Path(f"/proc/{pid}/fd").iterdir()))))
        warm = looks[len(looks) * 7 // 10 :]
        scene.tell(
            f"{events} messages: {looks[0][0] // MEGABYTE} MB at first, {warm[-1][0] // MEGABYTE} MB in the end"
        )
        assert max(files for _, files in warm) <= looks[0][1] + FILES, looks
        assert max(memory for memory, _ in warm) <= warm[0][0] + TREMBLE, looks
        assert await world.process.stop() == 0
