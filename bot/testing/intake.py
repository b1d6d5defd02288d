"""A fake of the core's intake, for tests of channels. It records the messages that a channel passes on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from bot.contracts.approvals import OpenLoop, ShownQuestion
from bot.contracts.channel import HomeSection
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import ArchiveLine, Conversation, Inbound
from bot.contracts.model import AnsweringModel
from bot.testing.changes import Changes
from bot.words import Sentence


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a channel could not parse."""

    channel: str
    key: str
    raw: str
    reason: str


class RecordingIntake:
    """A `contracts.channel.Intake` in memory that admits everyone. It rejects a message if an accepted message had the same
    key. It accepts messages that are not addressed to the bot only in the chats in `overheard`.

    `offered` lists every message passed to `accept`, `accepted` the accepted ones. While `failure` is set,
    `accept` raises it. `questions` returns the questions in `open`. `recent` returns archive lines from `lines`,
    to which each accepted message is added.
    """

    def __init__(self) -> None:
        self.offered: list[Inbound] = []
        self.accepted: list[Inbound] = []
        self.dead_letters: list[DeadLetter] = []
        self.lacking: dict[str, str] = {}
        """Sentence that a channel reported about each right that the bot lacks. The right is the key."""
        self.failure: Exception | None = None
        self.lines: dict[ChatKey, list[ArchiveLine]] = defaultdict(list)
        self.open: dict[ChatKey, list[ShownQuestion]] = defaultdict(list)
        self.names: dict[ChatKey, str] = {}
        """Names that people gave their conversations, by chatKey."""
        self.overheard: set[ChatKey] = set()
        self._seen: set[str] = set()
        self._changes = Changes()

    async def accept(self, inbound: Inbound) -> bool:
        self.offered.append(inbound)
        try:
            if self.failure is not None:
                raise self.failure
            if not self._seen.isdisjoint(inbound.keys):
                return False
            if inbound.addressed == "chat" and not (
                await self.hears_all(inbound.chat_key) or self._has(inbound)
            ):
                return False
            self._seen.update(inbound.keys)
            self.accepted.append(inbound)
            self.lines[inbound.chat_key].append(ArchiveLine.of(inbound))
            return True
        finally:
            await self._changes.tell()

    async def hears_all(self, chat: ChatKey) -> bool:
        return chat.chat in self.overheard

    def _has(self, change: Inbound) -> bool:
        said = (change.chat_key, change.message_id)
        return change.kind != "message" and said in [(one.chat_key, one.message_id) for one in self.accepted]

    async def keep_dead_letter(self, channel: str, key: str, raw: str, reason: str) -> None:
        self.dead_letters.append(DeadLetter(channel, key, raw, reason))
        await self._changes.tell()

    def report_missing_right(self, _channel: str, right: str, words: Sentence) -> None:
        self.lacking[right] = str(words)

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        return self.lines[chat_key][-limit:] if limit > 0 else []

    async def conversations(
        self, chat_key: ChatKey, *, query: str = "", after: ChatKey | None = None, limit: int
    ) -> list[Conversation]:
        newest = {one.chat_key: one for one in self.accepted if chat_key.contains(one.chat_key)}
        spoken = sorted(newest.values(), key=self.accepted.index, reverse=True)
        found = [one for key in spoken if (one := await self.conversation(key.chat_key)) is not None]
        found = [one for one in found if query.casefold() in one.title.casefold()]
        begin = next((at for at, one in enumerate(found, 1) if one.chat_key == after), 0)
        return found[begin : begin + limit]

    async def conversation(self, chat_key: ChatKey) -> Conversation | None:
        said = [one for one in self.accepted if one.chat_key == chat_key]
        if not said:
            return None
        return Conversation(chat_key, self.names.get(chat_key) or said[0].text, said[-1].ts / 1000)

    async def rename(self, chat_key: ChatKey, name: str, _person: UserRef) -> None:
        self.names[chat_key] = name

    async def home(self, opened: Inbound) -> tuple[HomeSection, ...]:
        return (HomeSection("Home", (f"of {opened.user_id}, {opened.language}, {opened.zone}",)),)

    async def model(self, _: ChatKey, _person: UserRef) -> AnsweringModel:
        return AnsweringModel()

    async def questions(self, chat_key: ChatKey, _: UserRef, _since: float) -> list[ShownQuestion]:
        return self.open[chat_key]

    async def ratings(self, _: ChatKey, _since: float) -> dict[str, str]:
        return {}

    async def acts(self, _: ChatKey) -> bool:
        return False

    async def board(self, _: UserRef) -> list[OpenLoop]:
        return []

    async def until(self, condition: Callable[[], bool], timeout: float = 90.0) -> None:  # noqa: ASYNC109
        """Wait until `condition()` holds."""
        await self._changes.until(condition, timeout)

    async def offers(self, count: int) -> Inbound:
        """Wait until `accept` was called `count` times; return the message of the last call."""
        await self.until(lambda: len(self.offered) >= count)
        return self.offered[-1]
