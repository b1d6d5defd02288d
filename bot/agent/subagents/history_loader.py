"""Older messages that a task loads: they stand before what it was asked, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence

from bot.agent.active import INJECTED_TOKENS, fitted
from bot.agent.deps import AgentDeps
from bot.agent.incoming import fresh_nonce
from bot.context import estimate, prompt
from bot.contracts.archive import ArchiveKey, ArchiveLine
from bot.contracts.base import Message
from bot.contracts.identity import ChatKey
from bot.tools.context import Injection


class HistoryLoader:
    """`tools.context.Injection` of one task. `seen` is that of the turn where the task sees what the turn does, else
    None; `request_id` and `chat_key` are those of the turn.
    """

    def __init__(self, request_id: str, chat_key: ChatKey, deps: AgentDeps, seen: Injection | None) -> None:
        self.messages: list[Message] = []
        self._request_id = request_id
        self._chat_key = chat_key
        self._deps = deps
        self._seen = seen
        self._keys: set[ArchiveKey] = set()

    def release(self) -> None:
        """The task is over: what it held of messages goes."""
        self.messages = []

    def room(self) -> int:
        full = estimate.tokens(self.messages) >= INJECTED_TOKENS
        return 0 if full else self._deps.limits.max_injected - len(self.messages)

    def in_view(self, line: ArchiveLine) -> bool:
        if str((line.meta or {}).get("requestId") or "") >= self._request_id or self._key(line) in self._keys:
            return True
        return self._seen is not None and self._seen.in_view(line)

    async def inject(self, lines: Sequence[ArchiveLine]) -> list[ArchiveLine]:
        taken = fitted(lines[-self.room() :], self.messages)
        self._keys.update(map(self._key, lines[len(lines) - len(taken) :]))
        self.messages += prompt.loaded_messages(taken, fresh_nonce(self._deps))
        return taken

    def _key(self, line: ArchiveLine) -> ArchiveKey:
        return ArchiveKey.of(line, self._chat_key)
