"""What goes out, alone: a delivery on a real journal and archive, with channels that keep what they are given."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from bot.contracts.archive import ArchiveLine, HistoryQuery
from bot.contracts.environment import Alert
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.journal import ANSWERED, Journal
from bot.contracts.outbound import Address, OutboxRow
from bot.core.leadership import SoleLeader
from bot.core.outgoing_files import OutgoingLimits
from bot.gateway.builder import build_delivery
from bot.gateway.live.message import NONE
from bot.gateway.outbox.files import OutgoingFiles
from bot.history.archive.store import ChatStore
from bot.journal.sqlite import SqliteJournal
from bot.system import SystemDisk, UlidSource
from bot.telemetry import Redactor
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.unit.gateway.conftest import SECRET, FakeChannel, manifest

HERE = ChatKey.parse("tele:chat:77")


def address(chat: str = "77", request_id: str = "01REQ", **more: Any) -> Address:
    fields: dict[str, Any] = {
        "chat_key": ChatKey("tele", chat),
        "chat_type": "direct",
        "target": {"chat": chat},
    } | more
    return Address("tele", chat, request_id=request_id, **fields)


TO = address()


async def until(condition: Callable[[], bool], clock: FakeClock | None = None) -> None:
    """Let the loop and the journal's thread work until a condition holds; `clock` goes on by 10 s a round."""
    async with asyncio.timeout(90):
        while not condition():
            if clock is not None:
                await clock.advance(10)
            await asyncio.sleep(0.004)


class Desk:
    """`wrap` makes the journal that the delivery sees of the real one."""

    def __init__(self, root: Path, *, clock: FakeClock | None = None, **options: Any) -> None:
        self.clock = clock or FakeClock()
        self.log = MemoryLog()
        self.ids = UlidSource()
        self.tele: FakeChannel = options.get("tele") or FakeChannel("tele")
        self.channels = {"tele": self.tele, "local": FakeChannel("local")}
        tele = manifest("tele", total=options.get("total"), edits=options.get("edits"))
        self.manifests = {"tele": tele, "local": manifest("local")}
        self.file = SqliteJournal(root / "journal.db", clock=self.clock, log=self.log)
        self.journal: Journal = options.get("wrap", lambda one: one)(self.file)
        self.archive = ChatStore(root / "chats", disk=SystemDisk(), log=self.log, clock=self.clock)
        self.alerts: asyncio.Queue[Alert] = asyncio.Queue()
        self.delivery = build_delivery(
            self.channels,
            self.manifests,
            journal=self.journal,
            archive=self.archive,
            files=OutgoingFiles(
                root / "outgoing",
                disk=options.get("disk") or SystemDisk(),
                log=self.log,
                limits=options.get("file_limits") or OutgoingLimits(),
            ),
            alerts=self.alerts,
            leadership=options.get("leadership") or SoleLeader(),
            redact=options.get("redact", Redactor({SECRET})),
            clock=self.clock,
            ids=self.ids,
            log=self.log,
            limits=options.get("limits", False),
            previewing=options.get("previewing", NONE),
            long_as_files=options.get("long_as_files", True),
        )

    async def asked(self, to: Address = TO, *, finished: bool = False) -> None:
        """The inbound that `to` answers is in the journal."""
        inbound = Inbound(
            channel=to.channel,
            chat_id=to.chat_id,
            chat_key=to.chat_key,
            chat_type=to.chat_type,
            user_id="77",
            keys=(to.request_id,),
            ts=1,
            target=dict(to.target),
            text="你好",
            request_id=to.request_id,
        )
        await self.file.receive(inbound)
        if finished:
            await self.file.finish(to.request_id, ANSWERED)

    async def rows(self, request_id: str = "01REQ") -> list[OutboxRow]:
        return await self.file.deliveries(request_id)

    async def states(self, request_id: str = "01REQ") -> list[tuple[str, str | None]]:
        return [(row.state, row.message_id) for row in await self.rows(request_id)]

    async def placed(self) -> None:
        """Until it is on file where something stands that is shown."""
        async with asyncio.timeout(90):
            while not any(row.message_id for row in await self.rows()):  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.004)

    async def archived(self, chat_key: ChatKey = HERE) -> list[ArchiveLine]:
        return (await self.archive.search(chat_key, HistoryQuery(limit=200))).lines

    async def lines(self) -> list[tuple[str, str]]:
        return [(line.role, line.text) for line in await self.archived()]

    async def slept(self, seconds: float, times: int = 1) -> None:
        """Let time pass once somebody waits for it."""
        for _ in range(times):
            await until(lambda: self.clock.sleeping > 0)
            await self.clock.advance(seconds)

    @contextlib.asynccontextmanager
    async def passing(self, step: float = 0.5) -> AsyncIterator[None]:
        """Inside, time passes as fast as everybody waits for it."""

        async def run() -> None:
            while True:
                await self.clock.advance(step) if self.clock.sleeping else None
                await asyncio.sleep(0.004)

        task = asyncio.create_task(run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def close(self) -> None:
        await self.delivery.close()
        await self.archive.close()
        await self.file.close()
