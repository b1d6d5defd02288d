from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bot.contracts.archive import ArchiveLine
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.history.archive.store import ChatStore
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.disk import WRITES
from bot.testing.log import MemoryLog
from tests import postgres
from tests.torture.engines import EMBEDDED, POSTGRESQL, on

HERE = ChatKey.parse("web:chat:1")
ON_A_DISK = {
    f"test_{name}"
    for name in (
        *("archive", "archive_faults", "archive_kept", "archive_search", "artifacts", "line_stream"),
        *("requests", "retention", "revisions", "transcript"),
    )
}
"""The modules whose tests run on files alone, and on files of which PostgreSQL has what other hosts need."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.module.__name__.rpartition(".")[2] in ON_A_DISK:
        metafunc.parametrize("engine", [EMBEDDED, on(POSTGRESQL, torture=True)], indirect=True)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What has the files: on PostgreSQL, a disk that a test makes is that of the host which leads."""
    name = getattr(request, "param", EMBEDDED)
    if name == EMBEDDED:
        yield name
        return
    from bot.journal.shared_disk import Copies, SharedDisk

    leads = SharedDisk(SystemDisk(), tmp_path, postgres.shared().journal(), log=MemoryLog())
    leads.begin(Copies(tmp_path, SystemDisk(), MemoryLog()))
    methods = {
        one: staticmethod(getattr(leads, one)) for one in (*WRITES, "read", "open", "size", "names", "exists")
    }
    front = type("LeadersDisk", (), methods)
    for module in (request.module, sys.modules[__name__]):
        if hasattr(module, "SystemDisk"):
            monkeypatch.setattr(module, "SystemDisk", front)
    yield name
    leads.close()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "chats"


@pytest.fixture
def store(folder: Path, log: MemoryLog, clock: FakeClock) -> Callable[..., ChatStore]:
    def make(limit: int = 1000, disk: Disk | None = None) -> ChatStore:
        return ChatStore(folder, disk=disk or SystemDisk(), log=log, archive_after_lines=limit, clock=clock)

    return make


@pytest.fixture
def said() -> Callable[..., ArchiveLine]:
    def make(text: str, chat_key: ChatKey = HERE, **fields: object) -> ArchiveLine:
        given = {"ts": 1_800_000_000_000, "channel": "web", "chatId": "1", "role": "user"}
        return ArchiveLine.model_validate({**given, "chatKey": chat_key, "text": text, **fields})

    return make
