"""Loads the store of a chat from its transcript, with no more of that than counts."""

from __future__ import annotations

from collections.abc import Sequence

from bot.agent.deps import AgentDeps
from bot.agent.view_changes import ViewChanges
from bot.context import checkpoint, replay
from bot.contracts.transcript import Boundary, TranscriptLine
from bot.history.reading import Loaded


async def load_store(declared: ViewChanges, deps: AgentDeps, *, known: bool) -> Sequence[TranscriptLine]:
    """Carry out the transcript: from the newest boundary on whose rest is there as it was; where there is none, the newest
    turns, if the older ones would be cut at once; else all of it, as where a memory is `known`. Returns the lines.
    """
    # What the memory tells of a cut depends on all that goes.
    most = deps.limits.max_messages if not known else None
    loaded, mended = await _replayed(declared, most)
    declared.take_up(declared.ledger.facts)
    deps.models.choice.name = declared.ledger.facts.chosen_model or None
    if mended:
        declared.apply("repair", Boundary())
        loaded, _ = await _replayed(declared, most)
    elif loaded.short:
        declared.within_cap(_rest_gone)
    return loaded.lines


async def _replayed(declared: ViewChanges, most: int | None) -> tuple[Loaded, int]:
    """Fill the store from what is on file; how much of it had to be mended."""
    store, ledger = declared.store, declared.ledger
    store.reset()
    loaded = await ledger.load(most=most)
    base = None
    if loaded.base is not None:
        base = checkpoint.rebuilt(loaded.base, loaded.messages)
        if base is None:
            loaded = await ledger.load(whole=True)
    mended = replay.replay(store, loaded.lines, base)
    if loaded.short and (mended or not store.over_cap()):
        store.reset()
        loaded = await ledger.load(whole=True)
        mended = replay.replay(store, loaded.lines)
    return loaded, mended


def _rest_gone(over: Sequence[str]) -> Boundary:
    """These go, and all that stands before them."""
    return Boundary(dropped=tuple(over), restored=True)
