"""Which starts look for messages that a journal has lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bot.history.search.searched_archive import SearchedArchive

from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import ChatKey
from bot.gateway.lost_messages import LostMessages
from bot.history.archive.store import ChatStore
from bot.journal import SqliteJournal
from bot.system import SystemDisk, UlidSource
from bot.testing.clock import FakeClock
from bot.testing.journal import FaultyJournal, JournalFailure
from bot.testing.log import MemoryLog

HERE = ChatKey.parse("telegram:chat:5")


class Start:
    """A gateway that starts on a folder, as far as it looks for what was lost."""

    def __init__(self, home: Path) -> None:
        self.clock, self.log = FakeClock(), MemoryLog()
        chats = home / "chats"
        self.archive = SearchedArchive(
            ChatStore(chats, disk=SystemDisk(), log=self.log, clock=self.clock),
            home / "index.db",
            folder=chats,
            disk=SystemDisk(),
            log=self.log,
        )
        self.journal = FaultyJournal(SqliteJournal(home / "journal.db", clock=self.clock, log=self.log))
        self.looked: list[ChatKey] = []
        nobody: Any = None
        counted: Any = self
        self.losses = LostMessages(
            {"slack": nobody, "telegram": nobody},
            journal=self.journal,
            archive=counted,
            recall=self.archive,
            delivery=nobody,
            locales=nobody,
            reports=counted,
            clock=self.clock,
            log=self.log,
        )

    async def search(self, chat_key: ChatKey, query: Any) -> Any:
        self.looked.append(chat_key)
        return await self.archive.search(chat_key, query)

    def tell(self, subject: str, words: str) -> None: ...

    async def run(self) -> list[ChatKey]:
        """The chats that it looks at."""
        await self.journal.open()
        await self.losses.begin()
        await self.losses.tell("telegram")
        return self.looked

    async def say(self) -> None:
        said = ArchiveLine(
            ts=int(self.clock.now() * 1000),
            channel="telegram",
            chat_id="5",
            chat_key=HERE,
            role="assistant",
            text="hello",
            request_id=UlidSource(self.clock).ulid(),
        )
        await self.archive.append(said)

    async def end(self) -> None:
        await self.archive.close()
        await self.journal.close()


async def test_where_nothing_was_ever_said_no_later_start_looks_at_every_chat(tmp_path: Path) -> None:
    first = Start(tmp_path)
    assert await first.run() == []
    await first.say()
    await first.end()
    second = Start(tmp_path)
    assert await second.run() == []
    await second.end()


@pytest.mark.parametrize("refused", [False, True])
async def test_each_start_looks_where_something_was_said_before(tmp_path: Path, *, refused: bool) -> None:
    """Also where the journal did not take it that nothing was."""
    first = Start(tmp_path)
    if refused:
        first.journal.fail(JournalFailure("forget_loss"))
        await first.run()
        assert first.log.at("error")
    await first.say()
    await first.end()
    second = Start(tmp_path)
    assert await second.run() == [HERE]
    await second.end()
