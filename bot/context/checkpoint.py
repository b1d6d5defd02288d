"""Checkpoints: each boundary line names the state it leaves, so a store is filled from the newest boundary on.

The messages stay where they stand in the transcript, before the boundary. Its line names them by uuid, with what no
message tells: turns and their sources, the summary, the masks; and a digest of the whole. What is found there again
either has that digest or is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bot import text
from bot.context import blocks, deletions
from bot.context.store import AgentContextStore, Entry, Turn
from bot.contracts.base import Json, Message

KEY = "kept"
"""Its place in the data of a boundary."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a store after the boundary with this `uuid`."""

    uuid: str
    turns: tuple[Turn, ...]
    head: Message | None
    masked: dict[str, str]

    def restore(self, store: AgentContextStore) -> None:
        """Let a store hold just this."""
        store.clear()
        store.turns = list(self.turns)
        store.masked = dict(self.masked)
        store.compact((), self.head)


def told(store: AgentContextStore, change: Json) -> Json:
    """Return the checkpoint data for a boundary's line, after its change was applied. `change` is the line's other data."""
    turns = [
        {
            "requestId": turn.request_id,
            "sources": list(turn.sources),
            "uuids": [entry.uuid for entry in turn.entries],
        }
        for turn in store.turns
    ]
    head = {} if "head" in change or store.head is None else {"head": store.head}
    redacted_ids = [
        entry.uuid for turn in store.turns for entry in turn.entries if _is_redacted(entry.message)
    ]
    digest = _digest(store.turns, store.head, store.masked)
    kept = {"turns": turns, "masked": dict(store.masked), "digest": digest}
    hidden = {
        one for turn in store.turns for entry in turn.entries for one in deletions.hidden(entry.message)
    }
    unquoted = {"unquoted": sorted(hidden)} if hidden else {}
    return kept | head | ({"blank": redacted_ids} if redacted_ids else {}) | unquoted


def rebuilt(uuid: str, data: Json, messages: Mapping[str, Message]) -> Checkpoint | None:
    """Rebuild a checkpoint from a boundary's data and the messages before it; None if they are not all there, or
    not what it was. A boundary takes the thinking with it.
    """
    try:
        kept = data[KEY]
        head = data["head"] if "head" in data else kept.get("head")
        turns = tuple(
            Turn(
                turn["requestId"],
                tuple(turn["sources"]),
                deletions.with_redactions(
                    (Entry(one, blocks.without_thinking([messages[one]])[0]) for one in turn["uuids"]),
                    kept.get("blank", ()),
                    kept.get("unquoted", ()),
                ),
            )
            for turn in kept["turns"]
        )
        masked = dict(kept["masked"])
        fits = kept["digest"] == _digest(turns, head, masked)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return None
    return Checkpoint(uuid, turns, head, masked) if fits else None


def _is_redacted(message: Message) -> bool:
    """True if what was said in a message has been removed."""
    return deletions.REMOVED in json.dumps(message) and deletions.without(message) == message


def _digest(turns: Iterable[Turn], head: Message | None, masked: Mapping[str, str]) -> str:
    whole = [
        head,
        masked,
        [[turn.request_id, turn.sources, [[e.uuid, e.message] for e in turn.entries]] for turn in turns],
    ]
    # As the transcript writes it: what UTF-8 cannot carry is not on file either.
    dumped = text.clean(json.dumps(whole, ensure_ascii=False, separators=(",", ":"), default=str))
    return hashlib.sha256(dumped.encode()).hexdigest()
