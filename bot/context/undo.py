"""Restores the history before the last turn when it has been summed up since: the messages behind the summary stand there
again, since a turn cannot be taken out of a summary. What is too large then is summed up anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bot.context import memory
from bot.context.replay import replay
from bot.context.store import AgentContextStore, Turn
from bot.contracts.transcript import SAME, Boundary, TranscriptLine

UNDO = "undo"
"""The reason of the boundary that takes a turn back."""


def before(turn: Turn, lines: Sequence[TranscriptLine], cap: int) -> AgentContextStore | None:
    """The history without this turn and without what may tell of it, from the lines of its session; None where nothing
    does, or where it cannot be had: a message that was removed since must not come back.
    """
    own = {entry.uuid for entry in turn.entries}
    first = next((at for at, line in enumerate(lines) if line.uuid in own), len(lines))
    since = lines[first:]
    summed_up = next((at for at, line in enumerate(since) if _tells(line)), None)
    if summed_up is None or any(_removes(line) for line in since[summed_up:]):
        return None
    store = AgentContextStore(cap)
    kept = [*lines[:first], *(_without_summary(line) for line in since)]
    if replay(store, kept):
        return None
    same = (one.entries for one in store.turns if one.request_id == turn.request_id)
    store.drop(entry.uuid for entries in same for entry in entries)
    on_file = {line.uuid for line in lines if line.message is not None}
    if not all(entry.uuid in on_file for one in store.turns for entry in one.entries):
        return None
    # Who wrote it for another prompt or model may not take it back.
    store.compact((), memory.in_plain_words(store.head) if store.head is not None else None)
    return store


def _tells(line: TranscriptLine) -> bool:
    """True if something was summed up, or put in the place of a summary."""
    event = line.event
    return isinstance(event, Boundary) and event.head is not SAME and not event.again and event.reason != UNDO


def _removes(line: TranscriptLine) -> bool:
    return isinstance(line.event, Boundary) and bool(line.event.blank or line.event.unquoted)


def _without_summary(line: TranscriptLine) -> TranscriptLine:
    """The line as if nothing had been summed up: what went with a summary stays."""
    event = line.event
    if not isinstance(event, Boundary) or event.head is SAME:
        return line
    left = Boundary(reason=event.reason, dropped=() if _tells(line) else event.dropped)
    return replace(line, event=left)
