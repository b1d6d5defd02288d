"""An agent on real rooms in a temporary folder, with a scripted model and a chat that records what it gets."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.agent.deps import AgentDeps, HistoryDeps
from bot.agent.pool import AgentPool
from bot.agent.recording import RecordedModel
from bot.contracts.agent import NoArrivals, PriorReply, Reply, TurnOutcome, TurnRequest
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, SeenFile
from bot.contracts.model import InMemoryLearned
from bot.contracts.outbound import Sent
from bot.core.artifacts import ArtifactStore
from bot.core.assembly import Prompts
from bot.core.file_names import encode
from bot.core.instructions import InstructionFiles
from bot.core.models import ModelDeps
from bot.core.notes.files import NoteStore
from bot.core.skills import SkillFolder
from bot.features.claims.performed_actions import ActionRecorder
from bot.history.archive import store as archive
from bot.history.archive.store import ChatStore
from bot.history.line_stream import LineStream
from bot.history.retention import Retention
from bot.history.transcript import store as transcript
from bot.history.transcript.requests import RequestLog
from bot.history.transcript.store import Transcript
from bot.llm.windows import ContextWindows
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.journal import FaultyJournal
from bot.testing.log import MemoryLog
from bot.testing.memory_journal import MemoryJournal
from bot.testing.model import ScriptedModel
from bot.tools.dispatch import Dispatcher, unwrapped
from bot.tools.file_provenance import FileProvenance
from bot.tools.isolation import Isolation
from bot.tools.project import Project
from bot.tools.registry import Registry, ToolPorts, builtin_tools
from bot.vetting import Vetting

KEY = ChatKey.parse("telegram:chat:1")


@dataclass
class Chat:
    """`contracts.agent.Reply`: what people see; `failures` are raised first. What its outbox has `written` is told by tests."""

    seen: list[str] = field(default_factory=list)
    failures: list[errors.DeliveryFailed] = field(default_factory=list)
    written: Sequence[str] = ()

    async def send(self, text: str, step_id: str | None = None, files: object = ()) -> list[Sent]:
        if self.failures:
            raise self.failures.pop(0)
        self.seen.append(text)
        return [Sent(str(len(self.seen)))]

    def preview(self, words: Callable[[], str]) -> None: ...


class Watched(Chat):
    """A chat that keeps what is `shown` in it while it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def preview(self, words: Callable[[], str]) -> None:
        self.shown.append(words())


class Written:
    """`contracts.agent.Reply` around another one; its outbox has the ids that `written` gives."""

    def __init__(self, inner: Reply, written: Callable[[], Sequence[str]]) -> None:
        self._inner = inner
        self._written = written
        self.preview = inner.preview
        self.send = inner.send

    @property
    def written(self) -> Sequence[str]:
        return self._written()


def each(waiting: list[Inbound]) -> Callable[[], list[Inbound]]:
    """Take what waits one by one, the last first."""
    return lambda: [waiting.pop()] if waiting else []


class Added(NoArrivals):
    """`contracts.agent.Arrivals` with what `take_more` gives and what `files` were read."""

    def __init__(
        self,
        take_more: Callable[[], list[Inbound]] = list,
        files: Callable[[Inbound], Awaitable[Sequence[SeenFile]]] | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self.quiet = quiet
        self.take_more = take_more  # type: ignore[method-assign]
        self._files = files

    async def files(self, inbound: Inbound) -> Sequence[SeenFile]:
        return await self._files(inbound) if self._files is not None else ()


def changed(deps: AgentDeps, **changes: Any) -> AgentDeps:
    """The deps with other values of these fields, in whichever group they stand."""
    groups: dict[str, Any] = {}
    for name in ("models", "history", "limits"):
        group = getattr(deps, name)
        own = {one.name for one in fields(group)} & changes.keys()
        groups[name] = replace(group, **{one: changes.pop(one) for one in own})
    return replace(deps, **groups, **changes)


class Bench:
    def __init__(
        self, root: Path, disk: Disk | None = None, journal: Any = None, *, streams: bool = False
    ) -> None:
        """`streams`: from `start` on its lines go to disk with the journal; else each write of them is flushed."""
        self.root = root
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.ids = UlidSource()
        self.model = ScriptedModel()
        self.chat = Chat()
        self.journal: FaultyJournal = journal or FaultyJournal(MemoryJournal(self.clock))
        disk = disk or SystemDisk()
        self.project = Project(root)
        self.stream = LineStream(self.journal, disk=disk, clock=self.clock, log=self.log)
        stream = self.stream if streams else None
        self.archive = ChatStore(root / "chats", disk=disk, log=self.log, clock=self.clock, stream=stream)
        self.transcript = Transcript(
            root / "transcripts", disk=disk, ids=self.ids, clock=self.clock, log=self.log, stream=stream
        )
        self.requests = RequestLog(root / "transcripts", disk=disk, log=self.log)
        self.artifacts = ArtifactStore(
            root / "artifacts", disk=disk, ids=self.ids, clock=self.clock, log=self.log
        )
        self.memory_files = NoteStore(root / "memory", disk=disk)
        vetting = Vetting(root)
        self.skills = SkillFolder(root, [], self.log, vetting)
        self.ports = ToolPorts(
            self.archive,
            self.artifacts,
            self.skills,
            self.clock,
            self.memory_files,
            self.project,
            Isolation(root),
            FileProvenance(root),
            vetting,
        )
        self.registry = Registry(builtin_tools(self.ports))
        self.deps = AgentDeps(
            models=ModelDeps(self.model, "scripted", ContextWindows(InMemoryLearned(), log=self.log)),
            history=HistoryDeps(
                self.archive,
                self.transcript,
                self.requests,
                self.journal,
                self.artifacts,
                Retention(root, {}, disk),
            ),
            registry=self.registry,
            dispatcher=self.dispatcher(self.registry),
            prompts=Prompts(
                root,
                name="Shipmate",
                skills=self.skills,
                instructions=InstructionFiles(root, encode=encode, log=self.log, vetting=vetting),
                log=self.log,
                vetting=vetting,
            ),
            vetting=vetting,
            root=root,
            clock=self.clock,
            ids=self.ids,
            log=self.log,
            rules={"telegram": "Markdown."},
        )
        self.restart()
        self._numbers = itertools.count(1)

    def configure(self, **changes: Any) -> None:
        self.deps = changed(self.deps, **changes)
        self.model = changes.get("model", self.model)
        self.restart()

    def add_tools(self, *tools: Any) -> None:
        registry = Registry([*(self.registry.get(n) for n in self.registry.names()), *tools])  # type: ignore[list-item]
        self.configure(registry=registry, dispatcher=self.dispatcher(registry))

    def dispatcher(self, registry: Registry, **more: Any) -> Dispatcher:
        around = ActionRecorder(unwrapped, registry)
        return Dispatcher(
            registry, clock=self.clock, log=self.log, artifacts=self.artifacts, around=around, **more
        )

    def restart(self) -> None:
        """A new process on the same files."""
        deps = self.deps
        model = RecordedModel(deps.models.model, self.requests, ids=deps.ids, redact=deps.redact)
        self.pool = AgentPool(changed(deps, model=model))

    def inbound(self, text: str, **more: Any) -> Inbound:
        number = next(self._numbers)
        fields: dict[str, Any] = {
            "channel": "telegram",
            "chat_id": "1",
            "chat_key": KEY,
            "chat_type": "direct",
            "user_id": "77",
            "keys": (f"k{number}",),
            "ts": 1_700_000_000_000 + number,
            "target": {},
            "text": text,
            "message_id": str(number),
            "request_id": self.ids.ulid(),
        }
        return Inbound.model_validate(fields | more)

    async def say(self, text: str, *, archive: bool = True, **more: Any) -> TurnOutcome:
        inbound = self.inbound(text)
        if archive:
            await self.store(
                inbound.ts, "user", text, request_id=inbound.request_id, message_id=inbound.message_id
            )
        return await self.pool.run(
            TurnRequest(inbound.request_id, KEY, inbound=inbound, **{"reply": self.chat} | more)
        )

    async def store(
        self, ts: int, role: Any, text: str, *, request_id: str = "", message_id: str | None = None
    ) -> None:
        meta = {"requestId": request_id} if request_id else None
        await self.archive.append(
            ArchiveLine(
                ts=ts,
                channel="telegram",
                chat_id="1",
                chat_key=KEY,
                role=role,
                text=text,
                meta=meta,
                message_id=message_id,
            )
        )

    @property
    def sent(self) -> list[Any]:
        """The messages of the last request."""
        return list(self.model.requests[-1].messages)

    async def start(self) -> None:
        """Bring what is on disk with the journal alone to its files, and let lines go there first."""
        await self.stream.replay({archive.FILES: self.archive, transcript.FILES: self.transcript})

    async def close(self) -> None:
        await self.pool.flush()
        await self.archive.close()
        await self.transcript.close()
        await self.requests.close()
        await self.stream.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    await made.close()


def said(*names: str, call: Json | None = None) -> tuple[PriorReply, ...]:
    """Messages of a turn that are in the chat under these ids, sent by this tool call."""
    return tuple(PriorReply(name, (name,), step_id=call["id"] if call else None) for name in names)


def words(message: Any) -> list[str]:
    """The texts of a message, without the block of the turn."""
    return [
        block["text"]
        for block in message["content"]
        if block["type"] == "text" and not block["text"].startswith("<turn_context")
    ]
