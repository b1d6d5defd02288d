"""Taking the last turn of a conversation back, out of what was summed up since it began too."""

from __future__ import annotations

from bot.agent import epochs
from bot.agent.epochs import Change, Epochs
from bot.agent.kit import Kit
from bot.context import replay, undone
from bot.context.preserved import Preserved


async def take_back(chat_key: str, declared: Epochs, kit: Kit) -> None:
    """Declare that the last turn goes. Raises `errors.StorageError`; nothing has changed then."""
    store, turn = declared.store, declared.store.turns[-1]
    change = epochs.dropped([entry.uuid for entry in turn.entries])
    if store.head is not None and await declared.ledger.flush():
        lines = await kit.transcript.load(chat_key)
        before = undone.before(turn, lines, kit.max_messages)
        if before is not None and turn in store.turns[-1:]:
            Preserved("", tuple(before.turns), before.head, before.masked).restore(store)
            change = Change("boundary", change.data | {"head": before.head, replay.RESTORED: True})
    declared.declare("undo", change)
