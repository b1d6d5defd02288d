"""The waits for the disk between a message and its answer."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bot.system import SystemDisk
from bot.testing.anthropic_script import Reply, reply, tool_use
from bot.testing.journal import WRITES
from tests.blackbox.conftest import World, eventually
from tests.torture.inside import Inside, environment, quick_ends
from tests.torture.scene import unfinished

PATH = frozenset({"receive", "put_outbox"})
"""The changes of the journal that a message waits for: it is taken in; its answer is about to be sent."""


class Stuck:
    """Flushes that never come to their end, from `hold` on until `let_go`."""

    def __init__(self) -> None:
        self.held = threading.Event()
        self.over = threading.Event()

    def wait(self) -> None:
        if self.held.is_set():
            assert self.over.wait(60)


class StuckDisk(SystemDisk):
    """Files of conversations can be written, and no flush of them comes back."""

    def __init__(self, stuck: Stuck) -> None:
        self.stuck = stuck

    def append(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        super().append(path, data, sync=sync)
        if sync and path.suffix == ".jsonl":
            self.stuck.wait()

    def replace(self, path: Path, data: bytes) -> None:
        super().replace(path, data)
        if path.suffix == ".jsonl":
            self.stuck.wait()

    def sync(self, path: Path) -> None:
        super().sync(path)
        self.stuck.wait()


class StuckJournal:
    """Every change is carried out; of those that are not on the path, the caller does not hear while it is stuck."""

    def __init__(self, inner: Any, stuck: Stuck, awaited: Counter[str], writing: set[Any]) -> None:
        self._inner = inner
        self._stuck = stuck
        self.awaited = awaited
        self.writing = writing

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name == "post":
            return StuckJournal(found, self._stuck, self.awaited, self.writing)
        return self._told_late(name, found) if name in WRITES else found

    def _told_late(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **more: Any) -> Any:
            carried_out = asyncio.ensure_future(call(*given, **more))
            self.writing.add(carried_out)
            carried_out.add_done_callback(self.writing.discard)
            if name in PATH:
                self.awaited[name] += self._stuck.held.is_set()
                return carried_out
            return asyncio.ensure_future(self._late(carried_out))

        return called

    async def _late(self, carried_out: asyncio.Future[Any]) -> Any:
        found = await carried_out
        if self._stuck.held.is_set():
            await asyncio.to_thread(self._stuck.wait)
        return found


@pytest.mark.parametrize("sends", [True, False])
async def test_a_message_waits_for_the_disk_twice_before_it_is_answered(
    world: World, sends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_ends(monkeypatch)
    world.only("telegram")

    def script(body: Any) -> Reply:
        words = body["messages"][-1]["content"][-1].get("text", "")
        return reply(tool_use("chat_send", {"text": f"to {words}"}) if sends else f"to {words}")

    world.model.script(script)
    stuck = Stuck()
    journals: list[StuckJournal] = []

    def wrapped(made: Any) -> Any:
        journals.append(StuckJournal(made, stuck, Counter(), set()))
        return journals[-1]

    with environment(world):
        life = await Inside(world, disk=StuckDisk(stuck), journal=wrapped).start()
        try:
            world.telegram.say("first")  # a person who is new is greeted, and so on
            await eventually(lambda: "to first" in world.texts())
            await eventually(lambda: not journals[0].writing and not unfinished(world.root))
            stuck.held.set()
            world.telegram.say("second")
            await eventually(lambda: "to second" in world.texts())
            assert journals[0].awaited == {"receive": 1, "put_outbox": 1}
        finally:
            stuck.held.clear()
            stuck.over.set()
            await life.end()
