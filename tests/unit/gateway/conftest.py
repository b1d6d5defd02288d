"""A gateway on a real journal and archive, with a channel that keeps what it is given and an agent that is told what to do."""

from __future__ import annotations

import asyncio
import itertools
from asyncio import Future
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from bot import errors, text
from bot.access_list import AccessList
from bot.contracts.agent import (
    Agent,
    ChatStats,
    CompactResult,
    LastTurn,
    ModelInfo,
    SessionChange,
    SessionInfo,
    TurnOutcome,
    TurnRequest,
)
from bot.contracts.channel import FILE_PIECE, ChannelSettings, Health, Intake, Manifest, Pace
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Attachment, Inbound, Quoted
from bot.contracts.outbound import Outbound, Sent
from bot.core.artifacts import ArtifactStore
from bot.core.notes.files import NoteStore
from bot.core.outgoing_files import OutgoingLimits
from bot.disk_reserve import DiskReserve
from bot.gateway.builder import GatewayDeps, GatewaySettings, build_agent_services, build_gateway
from bot.gateway.conversation import Turn
from bot.gateway.outbox import batch_sender
from bot.gateway.outbox.files import OutgoingFiles
from bot.history.archive.store import ChatStore
from bot.journal.sqlite import SqliteJournal
from bot.system import SystemDisk, UlidSource
from bot.telemetry import Redactor
from bot.testing.clock import FakeClock
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.testing.log import MemoryLog

HERE = ChatKey.parse("tele:chat:77")
SECRET = "sk-ant-very-secret-000"


def refusing(bench: Bench, *names: str) -> FaultyJournal:
    """The journal of a bench that was made with `wrap=FaultyJournal` refuses these writes from now on."""
    journal: Any = bench.journal
    assert isinstance(journal, FaultyJournal)
    for name in names:
        journal.fail(JournalFailure(name, times=None))
    return journal


def leave_open(journal: SqliteJournal) -> None:
    """No end of a turn or of an inbound reaches the disk from now on."""
    journal.post.finish = unwritten  # type: ignore[method-assign]
    journal.post.end_turn = unwritten  # type: ignore[method-assign]


def unwritten(*_: Any, **__: Any) -> Future[None]:
    """In place of a posted write: the process dies before it reaches the disk, and nobody notices."""
    written: Future[None] = asyncio.get_running_loop().create_future()
    written.set_result(None)
    return written


def never(*_: Any, **__: Any) -> Future[Any]:
    """In place of a posted write: the disk takes for ever."""
    return asyncio.get_running_loop().create_future()


SETTINGS = {field.name for field in fields(GatewaySettings)}


class FakeChannel:
    """`contracts.channel.Channel` in memory; `failures` are raised by the next sends."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.addresses: tuple[str, ...] = ()
        self.largest_file = 50_000_000
        self.sent: list[Outbound] = []
        self.failures: list[errors.DeliveryFailed] = []
        self.finds: Sent | Exception | None = errors.DeliveryUncertain("cannot tell")
        self.signs: list[bool] = []
        self.prefix = "m"
        self.healed = 0
        self.thread: tuple[Quoted, ...] = ()
        self.files: dict[str, bytes | errors.FileFailed] = {}
        self.fetched: list[str] = []
        self.taken = 0
        self.holds: asyncio.Event | None = None
        self.changed = asyncio.Condition()

    async def start(self, intake: Intake) -> None: ...
    async def pause(self) -> None: ...
    async def stop(self) -> None: ...

    def split(self, words: str) -> list[str]:
        return text.split(words, 1_000)

    async def send(self, message: Outbound) -> Sent:
        if self.failures:
            raise self.failures.pop(0)
        self.sent.append(message)
        async with self.changed:
            self.changed.notify_all()
        return Sent(f"{self.prefix}{len(self.sent)}")

    async def delete(self, message: Outbound, message_id: str) -> None: ...

    async def find(self, message: Outbound) -> Sent | None:
        if isinstance(self.finds, Exception):
            raise self.finds
        return self.finds

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        self.signs.append(working)

    async def context(self, inbound: Inbound) -> tuple[Quoted, ...]:
        return self.thread

    async def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """`files` by their refs, a piece at a time; `taken` counts the pieces. Waits for `holds` before each."""
        found = self.files[attachment.ref or ""]
        self.fetched.append(attachment.ref or "")
        async with self.changed:
            self.changed.notify_all()
        if isinstance(found, errors.FileFailed):
            raise found
        for at in range(0, min(len(found), most), FILE_PIECE):
            if self.holds is not None:
                await self.holds.wait()
            self.taken += 1
            yield found[at : min(at + FILE_PIECE, most)]
        if len(found) > most:
            raise errors.FileTooLarge

    async def fetching(self, count: int = 1) -> None:
        """Wait until so many files were asked for."""
        async with asyncio.timeout(90), self.changed:
            await self.changed.wait_for(lambda: len(self.fetched) >= count)

    def health(self) -> Health:
        return Health(connected=True)

    async def heal(self) -> None:
        self.healed += 1

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.sent]

    async def until(self, count: int) -> list[str]:
        async with asyncio.timeout(90), self.changed:
            await self.changed.wait_for(lambda: len(self.sent) >= count)
        return self.texts


def _echo(request: TurnRequest) -> str:
    assert request.inbound is not None
    return f"re: {request.inbound.text}"


class FakeAgent:
    """`contracts.agent.Agent`: replies with what `answer` makes of a request; `hold` keeps turns running."""

    def __init__(self) -> None:
        self.requests: list[TurnRequest] = []
        self.hold: asyncio.Event | None = None
        self.began = asyncio.Event()
        self.answer: Callable[[TurnRequest], str | TurnOutcome] = _echo
        self.running: dict[ChatKey, asyncio.Task[Any]] = {}
        self.peak: dict[str, int] = {}
        self.sources: tuple[str, ...] = ()
        self.resets: list[ChatKey] = []
        self.compacted: list[tuple[ChatKey, str]] = []
        self.compaction = CompactResult("nothing")
        self.totals = ChatStats()
        self.kept = ""
        self.undone: list[ChatKey] = []
        self.forgot: list[ChatKey] = []
        self.outlines: list[SessionInfo] = []
        self.branched: list[tuple[ChatKey | str | int | None, ...]] = []
        self.chosen: str | None = None
        self.unknown: dict[str | None, errors.ModelError] = {}
        self.reachable = True
        self.branch = SessionChange("unknown")
        self.last_said: str | None = None
        self.restarts: list[ChatKey] = []
        self.adding: dict[ChatKey, asyncio.Event] = {}
        self.takes = False
        """Whether it takes up what is added where it is asked anew; `questions` are what it is asked then."""
        self.questions: list[TurnRequest] = []
        self.last_turns: dict[ChatKey, LastTurn] = {}
        self.described: list[ChatKey] = []
        self.messages = 0

    async def run(self, request: TurnRequest) -> TurnOutcome:
        assert request.chat_key not in self.running, "one chat never runs two turns at once"
        self.requests.append(request)
        task = asyncio.ensure_future(self.converse(request))
        self.running[request.chat_key] = task
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled() and getattr(task, "stopped", False):
                return TurnOutcome("stopped")
            raise
        finally:
            del self.running[request.chat_key]

    async def converse(self, request: TurnRequest) -> TurnOutcome:
        self.began.set()
        if request.stopped:
            return TurnOutcome("stopped")
        if request.pending_input and self.takes:
            request = await self._asked_anew(request)
        if self.hold is not None:
            request = await self._held(request, self.hold)
        answer = self.answer(request)
        if isinstance(answer, TurnOutcome):
            return answer
        assert request.reply is not None
        await request.reply.send(answer)
        return TurnOutcome("done", delivered=1)

    async def _held(self, request: TurnRequest, hold: asyncio.Event) -> TurnRequest:
        """Wait; what is added meanwhile, where the question is put anew, becomes part of it once it is on file."""
        while not hold.is_set():
            added = self.adding[request.chat_key] = asyncio.Event()
            either = [asyncio.ensure_future(one.wait()) for one in (hold, added)]
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in either:
                    one.cancel()
            if added.is_set() and self.takes:
                request = await self._asked_anew(request)
        return request

    async def _asked_anew(self, request: TurnRequest) -> TurnRequest:
        request = replace(request, also=(*request.also, *request.arrivals.take_more()))
        await request.arrivals.joined()
        self.questions.append(request)
        return request

    async def cut_off(self, chat_key: ChatKey) -> tuple[str, ...]:
        return self.sources

    async def stop(self, chat_key: ChatKey) -> bool:
        task = self.running.get(chat_key)
        if task is None:
            return False
        task.stopped = True  # type: ignore[attr-defined]
        task.cancel()
        return True

    async def restart_model_call(self, chat_key: ChatKey) -> bool:
        self.restarts.append(chat_key)
        if chat_key in self.adding:
            self.adding[chat_key].set()
        return chat_key in self.running

    async def reset(self, chat_key: ChatKey) -> int:
        self.resets.append(chat_key)
        return 4

    async def compact(self, chat_key: ChatKey, focus: str = "") -> CompactResult:
        self.compacted.append((chat_key, focus))
        return self.compaction

    async def stats(self, chat_key: ChatKey) -> ChatStats:
        return self.totals

    async def history(self, chat_key: ChatKey) -> str:
        return self.kept

    async def undo(self, chat_key: ChatKey) -> str | None:
        self.undone.append(chat_key)
        return self.last_said

    async def sessions(self, chat_key: ChatKey) -> list[SessionInfo]:
        return self.outlines

    async def resume(self, chat_key: ChatKey, session: str) -> SessionChange:
        self.branched.append((chat_key, session))
        return self.branch

    async def fork(self, chat_key: ChatKey, *, request_id: str | None = None, back: int = 0) -> SessionChange:
        self.branched.append((chat_key, request_id, back))
        return self.branch

    async def forget(self, chat_key: ChatKey) -> None:
        self.forgot.append(chat_key)

    async def describe(self, chat_key: ChatKey) -> ModelInfo:
        self.described.append(chat_key)
        return ModelInfo(
            self.chosen or "fake",
            chosen=self.chosen is not None,
            default="fake",
            window=None,
            price=None,
            messages=self.messages,
            max_messages=60,
        )

    async def quoting(self, chat_key: ChatKey, turns: Sequence[str], message_id: str) -> list[str]:
        """As it is where a turn is shown what its request brought."""
        contexts = {one.request_id: one.context for one in self.requests}
        return [
            turn for turn in turns if any(quote.message_id == message_id for quote in contexts.get(turn, ()))
        ]

    async def last_turn(self, chat_key: ChatKey) -> LastTurn | None:
        return self.last_turns.get(chat_key)

    async def choose_model(self, chat_key: ChatKey, model: str | None, request_id: str) -> ModelInfo:
        if model in self.unknown:
            raise self.unknown[model]
        self.chosen = model
        return replace(await self.describe(chat_key), confirmed=self.reachable)


def manifest(name: str, **more: Any) -> Manifest:
    def encode(address: Mapping[str, str]) -> ChatKey:
        return ChatKey(name, address["chat"])

    return Manifest(
        name=name,
        settings=ChannelSettings,
        build=lambda *_: FakeChannel(name),
        encode=encode,
        decode=lambda key: {"chat": key.thread or key.chat_id},
        pace={"direct": Pace(3, 1.0), "group": Pace(3, 3.0)},
        **more,
    )


class Bench:
    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.ids = UlidSource()
        self.disk = options.get("disk") or SystemDisk()
        self.channels = {"tele": FakeChannel("tele"), "local": FakeChannel("local")}
        self.tele = self.channels["tele"]
        self.manifests = {
            "tele": manifest(
                "tele", files=True, never_admit=frozenset({"1087968824"}), direct=options.get("direct")
            ),
            "local": manifest("local", access="local"),
        }
        journal = SqliteJournal(root / "journal.db", clock=self.clock, log=self.log)
        self.journal: SqliteJournal = options.pop("wrap", lambda one: one)(journal)
        self.archive: ChatStore = options.pop("archive", None) or ChatStore(
            root / "chats", disk=self.disk, log=self.log, clock=self.clock
        )
        self.lists = AccessList(root / "access.json", SystemDisk(), self.clock)
        self.agent = FakeAgent()
        agent: Agent = options.pop("agent", self.agent)
        operators = options.pop("operators", frozenset({UserRef("tele", "1")}))
        self.artifacts = ArtifactStore(
            root / "artifacts", disk=self.disk, ids=self.ids, clock=self.clock, log=self.log
        )
        self.memory = NoteStore(root / "memory", disk=self.disk)
        self.full = False
        """Whether memory is too short for files."""
        deps = GatewayDeps(
            GatewaySettings(
                "shipmate",
                {"tele": frozenset({"77", "-100"})},
                limits=options.pop("limits", False),
                **{name: value for name, value in options.items() if name in SETTINGS},
            ),
            self.channels,
            self.manifests,
            journal=self.journal,
            archive=self.archive,
            artifacts=self.artifacts,
            memory_files=self.memory,
            lists=self.lists,
            operators=operators,
            redact=Redactor({SECRET}),
            outgoing=OutgoingFiles(root / "outgoing", disk=self.disk, log=self.log, limits=OutgoingLimits()),
            disk=DiskReserve(None, self.log),
            clock=self.clock,
            ids=self.ids,
            log=self.log,
            transcriber=options.get("transcriber"),
        )
        services = build_agent_services(deps)
        gateway = build_gateway(deps, services, agent, rss_monitor=self, servers=self)
        self.delivery, self.approvals, self.questions = (
            services.delivery,
            services.approvals,
            services.questions,
        )
        self.access, self.jobs = services.access, services.jobs
        self.suspension, self.backlog = services.suspension, services.backlog
        self.gateway, self.tasks, self.turn_queue = gateway, gateway.tasks, gateway.turn_queue
        self.intake, self.router, self.stops = gateway.intake, gateway.router, gateway.stops
        self.commands, self.deletions, self.due_jobs = gateway.commands, gateway.deletions, gateway.due_jobs
        self.files = gateway.files
        self._started = False
        self.numbers = itertools.count(1)

    def sources(self) -> dict[str, str]:
        """There are no MCP servers."""
        return {}

    async def open(self, *names: str) -> int:
        """Connect channels, all where none is named; how many messages go on that an earlier process had left."""
        if not self._started:
            self._started = True
            self.gateway.start()
        return sum([await self.gateway.recovery.open(name) for name in names or self.channels])

    def inbound(self, words: str = "hello", **more: Any) -> Inbound:
        number = next(self.numbers)
        said: dict[str, Any] = {
            "channel": "tele",
            "chat_id": "77",
            "chat_key": "tele:chat:77",
            "chat_type": "direct",
            "user_id": "77",
            "keys": (f"k{number}",),
            "ts": 1_700_000_000_000 + number,
            "target": {"chat": "77"},
            "text": words,
            "message_id": str(number),
        }
        return Inbound.model_validate(said | more)

    async def say(self, words: str = "hello", **more: Any) -> bool:
        return await self.intake.accept(self.inbound(words, **more))

    async def idle(self) -> None:
        """Until nothing runs, and nothing can begin."""
        async with asyncio.timeout(90):
            while self.tasks.busy or (self._started and (self.turn_queue.ready or self.backlog.reading)):
                await (self.tasks.idle() if self.tasks.busy else asyncio.sleep(0))

    @property
    def running(self) -> dict[ChatKey, Turn]:
        """The turns that run, by chat."""
        return {key: chat.running for key, chat in self.turn_queue.chats() if chat.running is not None}

    async def lines(self, chat_key: ChatKey = HERE) -> list[tuple[str, str]]:
        return [(line.role, line.text) for line in await self.intake.recent(chat_key, 100)]

    async def close(self) -> None:
        await self.gateway.turns.drain(0)
        await self.delivery.close()
        await self.archive.close()
        await self.journal.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    await made.open()
    yield made
    await made.close()


async def killed(bench: Bench) -> None:
    """The process is gone: nothing that it would still write is written."""
    bench.journal.post.update_outbox = unwritten  # type: ignore[method-assign]
    leave_open(bench.journal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_sender, "GRACE_SECONDS", 0)  # the dead wait for nothing
        await bench.close()
