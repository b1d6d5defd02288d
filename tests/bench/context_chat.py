"""Runs the simulated chat of `context_trace.py` through the real core: turns, model context, masking, memory, compaction, artifacts.

Only the model is fake. It answers as the trace says, and bills each request by the same cache rules as the
fake provider of the tests. Time passes only where the trace says so.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from pydantic import BaseModel

from bot.config.ship_file import Context, Subagents
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from bot.contracts.model import ModelFacts, ModelReply, ModelRequest, Usage
from bot.contracts.tools import Effect
from bot.core import chat, events
from bot.core.archive_files import ChatStore
from bot.core.attachments import OutgoingFiles
from bot.core.chats import Chats, Fact
from bot.core.feature import Door
from bot.core.fit import AgentDeps
from bot.core.locales import Locales
from bot.core.outgoing import OutboxRow
from bot.core.prompt import InstructionFiles, Prompts
from bot.core.reply import ChatReply
from bot.core.runner import Runner, Slots, Turns
from bot.llm.messages_api import body_of
from bot.llm.models import ContextWindows, Learned, ModelDeps
from bot.llm.wrapper import SystemRoleModel
from bot.storage.artifacts import ArtifactStore
from bot.storage.notes import NoteStore
from bot.system import SystemDisk, UlidSource
from bot.telemetry.redaction import Redactor
from bot.testing import anthropic_cache as cache
from bot.testing import anthropic_rules as rules
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import reply, text, tool_use
from bot.tools.builtin import ToolPorts, builtin_tools
from bot.tools.dispatch import Dispatcher, Registry
from bot.tools.file_guard import FileGuard
from bot.tools.isolation import Isolation
from bot.tools.project import Project
from bot.tools.skills import SkillFolder
from tests.bench import context_bill as bill
from tests.bench.context_trace import CHARACTERS, Turn, words
from tests.memory_log import MemoryLog as EventLog

KEY = ChatKey.parse("telegram:chat:1")
EPOCHS = frozenset({"compaction", "masking", "injection"})
MEMORY_TOKENS = 500
"""Size in tokens of a memory or a summary of this chat."""
CHANGE_TOKENS = 100
"""Tokens that an update of the memory adds; the update removes as many."""
SECONDS_A_CALL, SECONDS_A_TOKEN = 1.5, 1 / 80
BOOT = "boot"


class Provider:
    """A `contracts.model.Model` that returns the replies in `answers` and refuses what the provider would
    refuse. `remembers` is the size of a memory or summary in tokens.
    """

    def __init__(self, clock: FakeClock, log: MemoryLog, remembers: int) -> None:
        self.bill = bill.Bill()
        self.answers: list[ModelReply] = []
        self.turn = 0
        self.frame = (0, 0)
        """Sizes in tokens of the tools and of the system prompt."""
        self._clock = clock
        self._log = log
        self._cache = cache.PromptCache(clock, lambda _: bill.SMALLEST)
        self._leave = rules.Leave(system_role=True)
        self._remembers = remembers
        self._changes = 0
        self._before: list[tuple[object, int]] = []
        self._asked = float("-inf")
        self._told = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
        body = json.loads(json.dumps(body_of(request), ensure_ascii=False))
        rules.check(body, self._leave)
        cache.check_breakpoints(body)
        found, keep = self._cache.look(body, cache.count_characters)
        own = request.purpose == "turn"
        answer = self.answers.pop(0) if own else reply(text(self._written(request)))
        usage = Usage(
            found["input_tokens"],
            max(1, len(cache.plain(answer.content)) // CHARACTERS),
            found["cache_read_input_tokens"],
            found["cache_creation_input_tokens"],
            found["cache_creation"]["ephemeral_1h_input_tokens"],
        )
        self.bill.sent.append(self._sent(body, request, usage))
        keep()
        if own:
            await self._clock.advance(SECONDS_A_CALL + usage.output_tokens * SECONDS_A_TOKEN)
        yield ModelReply(answer.content, answer.stop_reason, usage, model=request.model)

    def _sent(self, body: Json, request: ModelRequest, usage: Usage) -> bill.Sent:
        if request.purpose != "turn":
            return bill.Sent(usage, self.turn, request.purpose)
        parts: list[tuple[object, int]] = [(part.digest, part.end) for part in self._cache.parts]
        tools, system = len(body["tools"]), len(body["system"])
        self.frame = (parts[tools - 1][1], parts[tools + system - 1][1] - parts[tools - 1][1])
        entries = self._log.entries
        told = any(entries[at].kind in EPOCHS for at in range(self._told, len(entries)))
        stable = bill.shared(self._before, parts) if self._before else None
        warm = self._clock.now() - self._asked < bill.LIFETIME
        lost = warm and bool(self._before) and usage.cache_read_tokens < self._before[-1][1]
        broken = not told and ((stable is not None and stable < 1) or lost)
        self._before, self._asked, self._told = parts, self._clock.now(), len(entries)
        return bill.Sent(usage, self.turn, stable=stable, broken=broken)

    def _written(self, request: ModelRequest) -> str:
        """Return the memory or summary that a model writes for this chat, with as many facts as after weeks of use."""
        if request.purpose == "memory":
            _, _, asked = request.messages[-1]["content"][-1]["text"].rpartition("The memory as it is now")
            facts = [int(number) for number in re.findall(r"^- \[(\d+)\]", asked, re.MULTILINE)]
            if not facts:
                return f"<memory>\n{_sections(self._remembers)}\n</memory>"
            self._changes += 1
            new = _items(CHANGE_TOKENS, f"c{self._changes}")
            count = len(facts) * CHANGE_TOKENS // self._remembers
            gone = "\n".join(f"- {number}" for number in facts[: max(1, count)])
            used = "\n".join(f"- {number}" for number in facts[-2:])
            return f"<memory>\n## Facts\n{new}\n## Gone\n{gone}\n## Used\n{used}\n</memory>"
        return (
            f"<analysis>{words(MEMORY_TOKENS, 'thought')}</analysis>\n"
            f"<summary>\n## What happened\nMuch.\n\n{_sections(self._remembers)}\n</summary>"
        )

    async def check(self) -> None: ...

    async def facts(self, model: str) -> ModelFacts:
        return ModelFacts()

    async def close(self) -> None: ...


def _items(tokens: int, name: str) -> str:
    return "\n".join(f"- {at} {line}" for at, line in enumerate(words(tokens, name).splitlines()))


def _sections(tokens: int) -> str:
    """Return the sections of a memory of about `tokens` tokens."""
    return f"## Facts\n{_items(tokens - 60, 'fact')}\n\n## Decisions\n(none)\n\n## Preferences\n(none)\n\n## Open tasks\n- (none)"


class Query(BaseModel):
    query: str


class Look:
    """A tool whose results age. The trace decides the size of each result."""

    name = "look_up"
    description = "Look something up."
    input = Query
    effects: ClassVar[frozenset[Effect]] = frozenset({"read"})
    timeout_seconds = 60.0
    ages = True

    def __init__(self) -> None:
        self.results: list[str] = []

    async def run(self, args: Query) -> str:
        return self.results.pop(0)


class Screen:
    """A fake outbox whose platform accepts each message at once."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self._ids = itertools.count(1)

    async def send(self, row: OutboxRow) -> None:
        ends = (events.Sending(row.id, BOOT), events.RowEnded(row.id, "sent", str(next(self._ids))))
        self._chats.append(*(Fact(KEY, one, row.turn) for one in ends))

    find = revise = end = send


@dataclass
class Chat:
    """One chat in a folder. With `sends` the model answers through `chat_send`, else in plain text."""

    root: Path
    sends: bool = True
    limits: Context = field(default_factory=Context)
    memory_tokens: int = MEMORY_TOKENS

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.model = Provider(self.clock, self.log, self.memory_tokens)
        self.look = Look()
        self._ids = UlidSource()
        disk, ids, clock, log = SystemDisk(), self._ids, self.clock, self.log
        archive = ChatStore(self.root / "chats", disk=disk, log=log)
        artifacts = ArtifactStore(self.root / "artifacts", disk=disk, ids=ids, clock=clock, log=log)
        guard = FileGuard(self.root)
        skills = SkillFolder(self.root, [], log, guard)
        memory = NoteStore(self.root / "memory", disk=disk)
        project, isolation = Project(self.root), Isolation(self.root)
        ports = ToolPorts(archive.search, artifacts, skills, clock, memory, project, isolation, guard)
        registry = Registry([*builtin_tools(ports), self.look])
        self._windows = ContextWindows(Learned(), log=log)
        nobody: Any = None  # the bench needs no receiver of reports
        agent = AgentDeps(
            **self._services(ids=ids, artifacts=artifacts, notes=memory, guard=guard, skills=skills),
            models=ModelDeps(SystemRoleModel(self.model, self._windows), bill.MODEL, self._windows),
            archive=archive,
            alerts=nobody,
            registry=registry,
            dispatcher=Dispatcher(registry, clock=clock, log=log, artifacts=artifacts),
            prompts=Prompts(
                name="Shipmate",
                skills=skills,
                instructions=InstructionFiles(self.root, log, guard),
            ),
        )
        self._serve(agent)

    def _services(self, **stores: Any) -> dict[str, Any]:
        """Return the services of the chat. The bench has no channels and no operators."""
        redact = Redactor()
        manifest = SimpleNamespace(rules="Markdown.")
        settings = SimpleNamespace(context=self.limits, subagents=Subagents(), root=self.root, home=self.root)
        return {
            "settings": settings,
            "log": self.log,
            "boot": BOOT,
            "redact": redact,
            "manifests": {"telegram": manifest},
            "channels": {},
            "lists": None,
            "operators": None,
            "clock": self.clock,
            **stores,
        }

    def _serve(self, agent: AgentDeps) -> None:
        """Create the turns and the runner for the agent, as `bot.lifecycle` does, with a log in memory."""
        clock, ids = self.clock, self._ids
        nobody: Any = None  # the bench sends no files
        everybody: Any = SimpleNamespace(admitted=lambda _, quoted: quoted)
        make = functools.partial(chat.Chat, max_messages=self.limits.max_messages)
        self._event_log = EventLog()
        self._chats = Chats(self._event_log, make, clock=clock, ids=ids)
        files = OutgoingFiles(agent, self._chats)
        reply = functools.partial(
            ChatReply, split=lambda words: [words], show=lambda *_: None, limits=None, redact=str, files=files
        )
        door = Door()
        screen: Any = Screen(self._chats)
        self._turns = Turns(
            agent,
            self._chats,
            self._event_log,
            lambda of, turn, to: reply(of, turn, to, self._chats),
            nobody,
            door=door,
            access=everybody,
        )
        self._runner = Runner(
            agent,
            self._chats,
            self._event_log,
            outbox=screen,
            door=door,
            locales=Locales(self._chats),
            turns=self._turns,
            slots=Slots(1),
            alerts=nobody,
        )

    async def replay(self, turns: Sequence[Turn]) -> bill.Bill:
        """Run all turns; return the bill of the chat."""
        await self._windows.ask(self.model, bill.MODEL)
        await self._chats.get(KEY)
        await self._runner.start()
        await self._runner.open(KEY.channel)
        try:
            for number, turn in enumerate(turns):
                await self.clock.advance(turn.gap)
                self.model.turn = number
                await self._turn(number, turn)
        finally:
            await self._turns.summaries.stop()
            await self._runner.close(0.0)
        return self.model.bill

    async def _turn(self, number: int, turn: Turn) -> None:
        steps = [tool_use("look_up", query=words(20, f"q{number}")) for _ in turn.results]
        self.look.results = [words(size, f"r{number}.{at}") for at, size in enumerate(turn.results)]
        answer = words(turn.answer, f"a{number}")
        self.model.answers = [reply(step) for step in steps]
        self.model.answers.append(reply(tool_use("chat_send", text=answer) if self.sends else text(answer)))
        inbound = self._inbound(number, words(turn.said, f"s{number}"))
        self._chats.append(Fact(KEY, events.Received(inbound), id=inbound.request_id))
        await self._event_log.committed()
        await self._settled()
        status = self.log.of("turn_end")[-1].details
        if status["status"] != "done" or self.model.answers:
            raise RuntimeError(f"turn {number}: {status}")

    async def _settled(self) -> None:
        """Wait until all background work is done. Raises RuntimeError if work is left that no task does."""
        held = await self._chats.get(KEY)
        for _ in range(1_000):
            others = asyncio.all_tasks() - {asyncio.current_task()}
            if not others and held.open_since is None:
                return
            await (asyncio.wait(others) if others else asyncio.sleep(0))
        raise RuntimeError("the turn does not end")

    def _inbound(self, number: int, said: str) -> Inbound:
        fields: dict[str, Any] = {
            "channel": "telegram",
            "chat_id": "1",
            "chat_key": KEY,
            "chat_type": "direct",
            "user_id": "77",
            "keys": (f"k{number}",),
            "ts": int(self.clock.now() * 1000),
            "target": {},
            "text": said,
            "message_id": str(number),
            "request_id": self._ids.ulid(),
        }
        return Inbound.model_validate(fields)
