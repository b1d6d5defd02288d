"""Checkpoints: each boundary line names the state it leaves, so a store is filled from the newest boundary on.

The messages stay where they stand in the transcript, before the boundary. Its line names them by uuid, with what no
message tells: turns and their sources, the summary, the masks; and a digest of the whole. What is found there again
either has that digest or is not used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bot import text
from bot.context.store import AgentContextStore, Turn, with_redactions
from bot.contracts.base import Message
from bot.contracts.tools import OMISSION
from bot.contracts.transcript import (
    UNCHANGED,
    Boundary,
    KeptTurn,
    LastingFacts,
    MessageEvent,
    RetainedView,
    TranscriptLine,
)
from bot.core import blocks
from bot.core.repair import Entry


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The content of a store after the boundary with this `uuid`."""

    uuid: str
    turns: tuple[Turn, ...]
    head: Message | None
    masked: dict[str, str]

    def restore(self, store: AgentContextStore) -> None:
        """Let a store hold just this."""
        store.restore(self.turns, self.head, self.masked)


def kept(store: AgentContextStore, change: Boundary, facts: LastingFacts, since: str | None) -> RetainedView:
    """Return the checkpoint for a boundary's line, after the boundary was applied."""
    entries = [entry for turn in store.turns for entry in turn.entries]
    return RetainedView(
        turns=tuple(
            KeptTurn(
                request_id=turn.request_id,
                sources=turn.sources,
                uuids=tuple(entry.uuid for entry in turn.entries),
                began=turn.began,
            )
            for turn in store.turns
        ),
        masked=dict(store.masked),
        digest=_digest(store.turns, store.head, store.masked),
        head=store.head if change.head is UNCHANGED else None,
        blank=tuple(entry.uuid for entry in entries if entry.redacted),
        unquoted=tuple((entry.uuid, tuple(sorted(entry.unquoted))) for entry in entries if entry.unquoted),
        since=since,
        totals=facts.totals,
        frame=facts.frame,
        chosen_model=facts.chosen_model,
        chosen_effort=facts.chosen_effort,
        answered_at=facts.answered_at,
    )


def rebuilt(line: TranscriptLine, messages: Mapping[str, MessageEvent]) -> Checkpoint | None:
    """Rebuild a checkpoint from a boundary and the messages before it; None if they are not all there, or not what it
    was. A boundary takes the thinking with it.
    """
    boundary = line.event
    if not isinstance(boundary, Boundary) or boundary.kept is None:
        return None
    kept = boundary.kept
    head = kept.head if boundary.head is UNCHANGED else boundary.head
    masked, blank, unquoted = dict(kept.masked), frozenset(kept.blank), dict(kept.unquoted)
    try:
        turns = tuple(
            Turn(
                turn.request_id,
                turn.sources,
                tuple(
                    entry
                    for one in turn.uuids
                    for entry in with_redactions([_entry(one, messages[one])], blank, unquoted.get(one, ()))
                ),
                turn.began,
            )
            for turn in kept.turns
        )
        fits = kept.digest == _digest(turns, head, masked)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return None  # a message that was damaged
    return Checkpoint(line.uuid, turns, head, masked) if fits else None


def _entry(uuid: str, said: MessageEvent) -> Entry:
    entry = Entry.of(uuid, said)
    return replace(entry, message=blocks.without_thinking([entry.message])[0])


def _digest(turns: Iterable[Turn], head: Message | None, masked: Mapping[str, str]) -> str:
    whole = [
        head,
        masked,
        [[turn.request_id, turn.sources, [[e.uuid, _sayings(e)] for e in turn.entries]] for turn in turns],
    ]
    # As the transcript writes it: what UTF-8 cannot carry is not on file either.
    dumped = text.clean(json.dumps(whole, ensure_ascii=False, separators=(",", ":"), default=str))
    return hashlib.sha256(dumped.encode()).hexdigest()


def _sayings(entry: Entry) -> Message:
    """The message without what its words say too, which older lines did not have."""
    message = entry.message
    if not any(OMISSION in block for block in message["content"]):
        return message
    content = [{key: block[key] for key in block if key != OMISSION} for block in message["content"]]
    return {**message, "content": content}
