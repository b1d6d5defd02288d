"""Taking the last turn of a conversation back, out of what was summed up since it began too."""

from __future__ import annotations

from dataclasses import replace

from bot.agent.deps import AgentDeps
from bot.agent.view_changes import ViewChanges
from bot.context import undo
from bot.context.checkpoint import Checkpoint
from bot.contracts.identity import ChatKey
from bot.contracts.transcript import Boundary


async def take_back(chat_key: ChatKey, declared: ViewChanges, deps: AgentDeps) -> None:
    """Declare that the last turn goes. Raises `errors.StorageError`; nothing has changed then."""
    store, turn = declared.store, declared.store.turns[-1]
    change = Boundary(dropped=tuple(entry.uuid for entry in turn.entries))
    if store.head is not None and await declared.ledger.flush():
        lines = await deps.transcript.load(chat_key)
        before = undo.before(turn, lines, deps.max_messages)
        if before is not None and turn in store.turns[-1:]:
            Checkpoint("", tuple(before.turns), before.head, before.masked).restore(store)
            change = replace(change, head=before.head, restored=True)
    declared.apply("undo", change)
