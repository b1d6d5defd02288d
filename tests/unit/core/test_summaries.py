"""A chat that becomes quiet is compacted while the provider's cache still contains it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bot.config.ship_file import Compaction, Context, Idle
from bot.contracts.base import Message
from bot.contracts.identity import ChatKey
from bot.core import events
from bot.core.chat import Chat
from bot.core.events import Event, EventData
from bot.core.fit import Fit, Frame
from bot.core.prompt import Frozen
from bot.core.summaries import Summaries
from bot.llm.models import ContextWindows, Learned, ModelDeps
from bot.storage.notes import NoteStore
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import ScriptedModel, reply, text
from tests.unit.core import world
from tests.unit.core.stand_ins import agent

SUMMARY = "## Facts\n- 服务器叫「海」\n\n## Open tasks\n(none)"


class Quiet:
    """A chat with ended turns of `size` characters each. Its last request read `cached` tokens from the cache."""

    def __init__(self, home: Path, size: int, cached: int, policy: Compaction) -> None:
        self.chat = Chat(ChatKey("telegram", "1"))
        self.clock, self.model, log = (
            FakeClock(),
            ScriptedModel(reply(text(f"<summary>{SUMMARY}</summary>"))),
            MemoryLog(),
        )
        people = world.World(1, finds=True, kills=set(), refuses=range(0))
        services = agent(
            Context(compaction=policy), clock=self.clock, notes=NoteStore(home, disk=SystemDisk())
        )
        self.summaries = Summaries(services, lambda _, data: self.append(data))
        self.fit = Fit(
            self.chat,
            ModelDeps(self.model, "m", ContextWindows(Learned(), log=log)),
            services,
            self.append,
        )
        for _ in range(6):
            said = world.inbound(people, 0)
            turn = said.request_id
            self.append(events.Received(said), turn)
            self.append(events.TurnStarted((turn,), "boot"), turn)
            message: Message = {"role": "user", "content": [text("w" * size)]}
            self.append(events.Told(message, (turn,)), turn)
            self.append(events.Asked("call", "boot", "m"), turn)
            self.append(events.Answered("call", [text("yes")], "end_turn", usage={"cacheRead": cached}), turn)
            self.append(events.TurnEnded("answered"), turn)

    def append(self, data: EventData, turn: str = "") -> None:
        at, seq = self.clock.now(), self.chat.seq
        self.chat.apply(Event(str(seq), self.chat.key, at, data, turn, seq=seq + 1))

    async def look(self, seconds: float) -> bool:
        """Let these seconds pass after the last request. Return True if the chat was compacted."""
        await self.summaries.before_turn(self.fit)
        self.fit.begin(Frame(Frozen("rules"), [text("rules")], ((),)))
        await self.clock.advance(seconds)
        await self.summaries.look()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await task
        return self.chat.context.head is not None


IDLE = Compaction()


@pytest.mark.parametrize(
    ("size", "cached", "policy", "seconds", "compacted"),
    [
        (8_000, 100, IDLE, 280.0, True),
        (8_000, 100, IDLE, 200.0, False),
        (8_000, 100, IDLE, 300.0, False),
        (8_000, 0, IDLE, 280.0, False),
        (800, 100, IDLE, 280.0, False),
        (8_000, 100, Compaction(idle=Idle(enabled=False)), 280.0, False),
        (8_000, 100, Compaction(enabled=False), 280.0, False),
    ],
)
async def test_a_quiet_chat_is_compacted_just_before_the_cache_forgets_it(
    tmp_path: Path, *, size: int, cached: int, policy: Compaction, seconds: float, compacted: bool
) -> None:
    quiet = Quiet(tmp_path, size, cached, policy)
    assert await quiet.look(seconds) is compacted
    assert len(quiet.model.requests) == compacted
    if compacted:
        assert "「海」" in str(quiet.chat.context.view()[0])
