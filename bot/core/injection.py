"""Older messages that a turn loads; they are placed before the current message until the turn ends."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from bot import errors, tags, text
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Message
from bot.contracts.environment import Ids
from bot.core import estimate, events, prompt
from bot.core.chat import Chat

MOST_TOKENS = 30_000
"""Max estimated tokens loaded by one turn."""
LONGEST_LINE = 20_000
"""Max characters of an archive line; a longer line is shortened in the middle."""


class OlderMessages:
    """Implements `tools.context.Injection` for one turn, with at most `most` messages."""

    def __init__(
        self, chat: Chat, turn: str, most: int, append: Callable[[events.EventData], None], ids: Ids
    ) -> None:
        self._chat = chat
        self._turn = turn
        self._most = most
        self._append = append
        self._ids = ids

    def room(self) -> int:
        """Return how many more messages may be loaded (see `tools.context.Injection`); 0 once the token
        limit is reached.
        """
        running = self._chat.context.running
        if running is None or estimate.tokens(self._chat.context.older()) >= MOST_TOKENS:
            return 0
        return self._most - running.injected

    def in_view(self, line: ArchiveLine) -> bool:
        # ULIDs sort by time. Messages accepted after the turn's first message are not history yet.
        if line.request_id >= self._turn or line.request_id in self._chat.context.sources() - {""}:
            return True
        running, turn = self._chat.context.running, self._chat.turn
        if running is not None and self._name(line) in running.lines:
            return True
        # Platform message ids are unique only within a chat, since platforms number messages from 1 in each chat.
        asked = {one.message_id for one in turn.members} - {None} if turn is not None else set()
        return line.chat_key == self._chat.key and line.role == "user" and line.message_id in asked

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        """Load archive lines into the turn (see `tools.context.Injection`). Raises `errors.TurnStopped` if
        the turn has ended.
        """
        running = self._chat.context.running
        if running is None or running.id != self._turn:
            raise errors.TurnStopped
        lines = lines[max(0, len(lines) - self.room()) :]
        taken = fitted(lines, self._chat.context.older())
        names = tuple(self._name(line) for line in lines[len(lines) - len(taken) :])
        messages = prompt.loaded_messages(taken, tags.nonce(self._ids.ulid()))
        self._append(events.Injected(tuple(messages), tuple(line.ts for line in taken), names))
        return taken

    def _name(self, line: ArchiveLine) -> str:
        """Return a key for an archive line: the chat with the message id, or the text if there is no id.
        Platforms number messages from 1 in each chat.
        """
        key = (str(line.chat_key), line.ts, line.role, line.message_id or line.text)
        return hashlib.sha256(repr(key).encode()).hexdigest()[:24]


def fitted(lines: Sequence[ArchiveLine], loaded: Sequence[Message]) -> list[ArchiveLine]:
    """Return the newest lines, shortened, that fit in addition to the `loaded` messages; at least one line."""
    taken: list[ArchiveLine] = []
    budget = MOST_TOKENS - estimate.tokens(loaded)
    for line in reversed(lines):
        short = line.model_copy(update={"text": text.shorten_middle(line.text, LONGEST_LINE)})
        budget -= estimate.text_tokens(short.text) + 2 * estimate.BLOCK_TOKENS
        if budget < 0 and taken:
            break
        taken.insert(0, short)
    return taken
