"""The chat of the trace, held by the real runtime: its store, view, epochs, masks, memory, compactions and artifacts.

Only the model is not real: it answers as the trace says, and bills each request as the provider would, by the cache
rules that the test server has too. Time stands still but where the trace lets it pass.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from bot.agent.deps import AgentDeps, HistoryDeps, Limits
from bot.agent.pool import AgentPool
from bot.agent.recording import RecordedModel
from bot.contracts.agent import TurnRequest
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.model import InMemoryLearned, ModelFacts, ModelReply, ModelRequest, Usage
from bot.contracts.outbound import Sent
from bot.contracts.tools import Effect
from bot.core.artifacts import ArtifactStore
from bot.core.assembly import Prompts
from bot.core.file_names import encode
from bot.core.instructions import InstructionFiles
from bot.core.models import ModelDeps
from bot.core.notes.files import NoteStore
from bot.core.notes.memories import Memories
from bot.core.skills import SkillFolder
from bot.history.archive.store import ChatStore
from bot.history.retention import Retention
from bot.history.transcript.requests import RequestLog
from bot.history.transcript.store import Transcript
from bot.llm.body import body_of, headers_of
from bot.llm.windows import ContextWindows
from bot.llm.wrapper import SystemRoleModel
from bot.maintenance import IDLE_SECONDS, TEND_SECONDS
from bot.system import SystemDisk, UlidSource
from bot.testing import anthropic_cache as cache
from bot.testing import anthropic_rules as rules
from bot.testing.anthropic_compaction import Compactions
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.memory_journal import MemoryJournal
from bot.testing.model import reply, text, tool_use
from bot.tools.dispatch import Dispatcher
from bot.tools.file_provenance import FileProvenance
from bot.tools.isolation import Isolation
from bot.tools.project import Project
from bot.tools.registry import Registry, ToolPorts, builtin_tools
from bot.vetting import Vetting
from tests.bench import context_bill as bill
from tests.bench.context_trace import CHARACTERS, Turn, words

KEY = ChatKey.parse("telegram:chat:1")
EPOCHS = frozenset({"compaction", "masking", "injection"})
MEMORY_TOKENS = 500
"""Tokens of a memory or a summary of this chat."""
CHANGE_TOKENS = 100
"""Tokens that are new when the memory is brought up to date. As many go."""
FILES, FILE_TOKENS = 5, 1_000
"""The files that are read, and the tokens of each, and of a skill."""
SECONDS_A_CALL, SECONDS_A_TOKEN = 1.5, 1 / 80
LOOKED_UNTIL = 310.0
"""Seconds of quiet after which there is nothing more to be done for a chat."""


class Provider:
    """`contracts.model.Model` that answers what `answers` holds and refuses what the provider refuses. One that `compacts`
    writes summaries itself when it is asked to. A memory or summary has so many tokens as it `remembers`.
    """

    def __init__(
        self, clock: FakeClock, log: MemoryLog, *, compacts: bool = False, remembers: int = MEMORY_TOKENS
    ) -> None:
        self.bill = bill.Bill()
        self.answers: list[ModelReply] = []
        self.turn = 0
        self.thinks = 0
        """Tokens that are thought of each request, and billed with its answer."""
        self.frame = (0, 0)
        """Tokens of the tools and of the system prompt."""
        self._clock = clock
        self._log = log
        self._cache = cache.PromptCache(clock, lambda _: bill.SMALLEST)
        self._leave = rules.Leave(types={"compaction"}, system_role=True)
        self._compacts = compacts
        self._remembers = remembers
        self._changes = 0
        self._compactions = Compactions()
        self._before: list[tuple[object, int]] = []
        self._asked = float("-inf")
        self._told = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[Any]:
        body = json.loads(json.dumps(body_of(request), ensure_ascii=False))
        self._compactions.check(body, headers_of(request).get("anthropic-beta", ""), able=self._compacts)
        rules.check(body, dataclasses.replace(self._leave, prefill=request.summarize is not None))
        cache.check_breakpoints(body)
        found, keep = self._cache.look(body, cache.count_characters)
        own = request.purpose == "turn"
        answer = self.answers.pop(0) if own else reply(text(self._written(request)))
        if request.summarize is not None:
            block = self._compactions.sign(f"## What happened\nMuch.\n\n{_sections(self._remembers)}", body)
            answer = dataclasses.replace(answer, content=[block], stop_reason="compaction")
        usage = Usage(
            found["input_tokens"],
            max(1, len(cache.plain(answer.content)) // CHARACTERS),
            found["cache_read_input_tokens"],
            found["cache_creation_input_tokens"],
            found["cache_creation"]["ephemeral_1h_input_tokens"],
        )
        usage = dataclasses.replace(usage, output_tokens=usage.output_tokens + self.thinks)
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
        """What a model writes down of this chat: with many facts, as it would be after weeks."""
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
        return ModelFacts(compacts=self._compacts)

    async def close(self) -> None: ...


def _items(tokens: int, name: str) -> str:
    return "\n".join(f"- {at} {line}" for at, line in enumerate(words(tokens, name).splitlines()))


def _sections(tokens: int) -> str:
    """The sections of a memory of about so many tokens."""
    return f"## Facts\n{_items(tokens - 60, 'fact')}\n\n## Decisions\n(none)\n\n## Preferences\n(none)\n\n## Open tasks\n- (none)"


class Query(BaseModel):
    query: str


class Look:
    """A tool whose results age, of the size that the trace has for them."""

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
    """`contracts.agent.Reply` that keeps nothing."""

    written: Sequence[str] = ()

    def __init__(self) -> None:
        self._ids = itertools.count(1)

    async def send(self, text: str, step_id: str | None = None, files: object = ()) -> list[Sent]:
        return [Sent(str(next(self._ids)))]

    def preview(self, words: Callable[[], str]) -> None: ...


@dataclass
class Chat:
    """One chat in a folder. With `sends` the model answers through `chat_send`, else in plain
    text; without `remembers` there is no session memory; with `compacts` the provider writes the summaries; with `works`
    its folder is a project in which files and commits come with every turn; with `reads` a turn that uses tools begins with a
    look at one of five files, and the first with a skill.
    """

    root: Path
    sends: bool = True
    compacts: bool = False
    limits: Limits = field(default_factory=Limits)
    remembers: bool = True
    works: bool = False
    reads: bool = False
    memory_tokens: int = MEMORY_TOKENS

    def __post_init__(self) -> None:
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.model = Provider(self.clock, self.log, compacts=self.compacts, remembers=self.memory_tokens)
        self.look = Look()
        self._ids = UlidSource()
        self._screen = Screen()
        disk, ids, clock, log = SystemDisk(), self._ids, self.clock, self.log
        archive = ChatStore(self.root / "chats", disk=disk, log=log, clock=clock)
        artifacts = ArtifactStore(self.root / "artifacts", disk=disk, ids=ids, clock=clock, log=log)
        self._transcript = Transcript(self.root / "transcripts", disk=disk, ids=ids, clock=clock, log=log)
        self._requests = RequestLog(self.root / "transcripts", disk=disk, log=log)
        skill = self.root / ".claude" / "skills" / "reporting" / "SKILL.md"
        if self.reads:
            skill.parent.mkdir(parents=True)
            head = "---\nname: reporting\ndescription: Reports.\n---\n"
            skill.write_text(head + words(FILE_TOKENS, "skill"), encoding="utf-8")
            for number in range(FILES):
                (self.root / f"part{number}.md").write_text(
                    words(FILE_TOKENS, f"f{number}"), encoding="utf-8"
                )
        vetting = Vetting(self.root)
        skills = SkillFolder(self.root, [], log, vetting)
        memory = NoteStore(self.root / "memory", disk=disk)
        project, isolation, whose = Project(self.root), Isolation(self.root), FileProvenance(self.root)
        ports = ToolPorts(archive, artifacts, skills, clock, memory, project, isolation, whose, vetting)
        registry = Registry([*builtin_tools(ports), self.look])
        memories = Memories(self.root / "memory", disk=disk) if self.remembers else None
        instructions = InstructionFiles(self.root, encode=encode, log=log, vetting=vetting)
        windows = ContextWindows(InMemoryLearned(), log=log)
        self.deps = AgentDeps(
            models=ModelDeps(
                SystemRoleModel(RecordedModel(self.model, self._requests, ids=ids, redact=str), windows),
                bill.MODEL,
                windows,
            ),
            history=HistoryDeps(
                archive,
                self._transcript,
                self._requests,
                MemoryJournal(clock),
                artifacts,
                Retention(self.root, {}, disk),
                memories,
            ),
            limits=self.limits,
            registry=registry,
            dispatcher=Dispatcher(registry, clock=clock, log=log, artifacts=artifacts),
            prompts=Prompts(
                self.root,
                name="Shipmate",
                skills=skills,
                instructions=instructions,
                log=log,
                vetting=vetting,
                has_files=self.works,
            ),
            vetting=vetting,
            root=self.root,
            clock=clock,
            ids=ids,
            log=log,
            rules={"telegram": "Markdown."},
        )
        self.pool = AgentPool(self.deps)

    async def replay(self, turns: Sequence[Turn]) -> bill.Bill:
        """What the whole chat comes to."""
        await self.deps.models.windows.ask(self.model, bill.MODEL)
        try:
            for number, turn in enumerate(turns):
                await self._quiet(turn.gap)
                self.model.turn = number
                if self.works:
                    await asyncio.to_thread(self._commit, number)
                await self._turn(number, turn)
        finally:
            await self.pool.close()
            await self._transcript.close()
            await self._requests.close()
        return self.model.bill

    async def _turn(self, number: int, turn: Turn) -> None:
        steps = [tool_use("look_up", query=words(20, f"q{number}")) for _ in turn.results]
        self.look.results = [words(size, f"r{number}.{at}") for at, size in enumerate(turn.results)]
        answer = words(turn.answer, f"a{number}")
        if self.reads and number == 0:
            steps.insert(0, tool_use("skills_load") | {"input": {"name": "reporting"}})
        elif self.reads and steps:
            steps.insert(0, tool_use("read_file", path=f"part{number % FILES}.md"))
        self.model.answers = [reply(step) for step in steps]
        self.model.answers.append(reply(tool_use("chat_send", text=answer) if self.sends else text(answer)))
        inbound = self._inbound(number, words(turn.said, f"s{number}"))
        request = TurnRequest(inbound.request_id, KEY, inbound=inbound, reply=self._screen)
        outcome = await self.pool.run(request)
        if outcome.status != "done" or self.model.answers:
            raise RuntimeError(f"turn {number}: {outcome.status}, {outcome.detail}")
        await self._settled()

    async def _quiet(self, gap: float) -> None:
        """Let the time between two turns pass, with the chores that a gateway does meanwhile."""
        passed = min(gap, 200.0)
        await self.clock.advance(passed)
        while passed < min(gap, LOOKED_UNTIL):
            step = min(TEND_SECONDS, gap - passed)
            await self.clock.advance(step)
            passed += step
            await self.pool.tend()
            await self._settled()
        await self.clock.advance(gap - passed)
        self.pool.evict(IDLE_SECONDS)

    def _commit(self, number: int) -> None:
        """Somebody works here: a module comes with each turn, a folder with every twentieth, a report with every tenth."""
        (self.root / ".git").mkdir(exist_ok=True)
        (self.root / ".git" / "HEAD").write_text(f"{number:040x}\n", encoding="utf-8")
        package = self.root / f"part{number // 20}" / f"module{number}"
        package.mkdir(parents=True, exist_ok=True)
        (package / "main.py").write_text(f"print({number})\n", encoding="utf-8")
        report = self.root / "report.md"
        if number % 20 == 0:
            report.write_text("Done.\n", encoding="utf-8")
        elif number % 20 == 10:
            report.unlink()

    async def _settled(self) -> None:
        """What goes on beside the turns takes no time here: the next turn finds it done."""
        while any(runtime.busy for runtime in self.pool.runtimes.values()):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0)

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
