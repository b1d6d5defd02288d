"""Filling the store of a chat from its transcript, with no more of that than counts."""

from __future__ import annotations

from collections.abc import Sequence

from bot.agent import ledger, tally, view_changes
from bot.agent.deps import AgentDeps
from bot.agent.upkeep import Upkeep
from bot.agent.view_changes import ViewChange, ViewChanges
from bot.context import checkpoint, replay
from bot.history.transcript import Loaded, TranscriptLine


async def filled(declared: ViewChanges, upkeep: Upkeep, deps: AgentDeps) -> Sequence[TranscriptLine]:
    """Carry out the transcript: from the newest boundary on whose rest is there as it was; where there is none, the newest
    turns, if the older ones would be cut at once; else all of it. Returns the lines.
    """
    # What the memory tells of a cut depends on all that goes.
    most = deps.max_messages if not upkeep.markdown else None
    loaded = await declared.ledger.load(most=most)
    base = None
    if loaded.base is not None:
        base = checkpoint.rebuilt(loaded.base.uuid, loaded.base.data or {}, loaded.messages)
        if base is None:
            loaded = await declared.ledger.load(whole=True)
    mended = replay.replay(declared.store, loaded.lines, base)
    if loaded.short and (mended or not declared.store.over_cap()):
        declared.store.clear()
        loaded = await declared.ledger.load(whole=True)
        mended = replay.replay(declared.store, loaded.lines)
    _take_up(declared, deps)
    return await _changed(declared, loaded, mended=bool(mended), most=most)


async def _changed(
    declared: ViewChanges, loaded: Loaded, *, mended: bool, most: int | None
) -> Sequence[TranscriptLine]:
    """Write down what the store has become other than the lines tell; the lines with that."""
    if mended:
        declared.apply("repair", view_changes.dropped([]))
        return (await declared.ledger.load(whole=loaded.base is None)).lines
    if loaded.short:
        declared.within_cap(_rest_gone)
        return (await declared.ledger.load(most=most)).lines
    return loaded.lines


def _rest_gone(over: Sequence[str]) -> ViewChange:
    """These go, and all that stands before them."""
    return ViewChange("boundary", view_changes.dropped(over).data | {replay.RESTORED: True})


def _take_up(declared: ViewChanges, deps: AgentDeps) -> None:
    """What the lines tell of the chat as a whole."""
    facts = declared.ledger.facts
    declared.tally.load(facts.get(tally.KEY))
    declared.frame = facts.get(ledger.FRAME)
    deps.choice.name = facts.get(ledger.CHOSEN)
    if (answered := facts.get(ledger.ANSWERED)) is not None:
        # It was asked before it answered.
        ago = max(0.0, deps.clock.now() - answered / 1000)
        declared.asked_at = deps.clock.monotonic() - ago
