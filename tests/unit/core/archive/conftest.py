from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bot.contracts.archive import ArchiveLine
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from tests.archives import WrittenArchive

HERE = ChatKey.parse("web:chat:1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "chats"


@pytest.fixture
def store(folder: Path, log: MemoryLog, clock: FakeClock) -> Callable[..., WrittenArchive]:
    def make(limit: int = 1000, disk: Disk | None = None) -> WrittenArchive:
        return WrittenArchive(
            folder, disk=disk or SystemDisk(), log=log, archive_after_lines=limit, clock=clock
        )

    return make


@pytest.fixture
def said() -> Callable[..., ArchiveLine]:
    def make(text: str, chat_key: ChatKey = HERE, **fields: object) -> ArchiveLine:
        given = {"ts": 1_800_000_000_000, "channel": "web", "chatId": "1", "role": "user"}
        return ArchiveLine.model_validate({**given, "chatKey": chat_key, "text": text, **fields})

    return make
