"""Says whether a summary tells of a turn: nothing can be taken out of a summary, so such a turn is not taken back."""

from __future__ import annotations

from collections.abc import Sequence

from bot.context.store import Turn
from bot.contracts.transcript import SAME, Boundary, Maker, TranscriptLine

MEMORY: Maker = "memory"
"""The maker of a compaction (`Boundary.how`)."""
UNDO = "undo"
"""The reason of the boundary that takes a turn back. In earlier versions it could take a summary away."""


def summed_up(turn: Turn, lines: Sequence[TranscriptLine], covers: str | None) -> bool:
    """True if a summary may tell of this turn, by the lines of its session. The memory, where that took a summary's place,
    knows what was said up to the entry that it `covers`.
    """
    own = {entry.uuid for entry in turn.entries}
    first = next((at for at, line in enumerate(lines) if line.uuid in own), len(lines))
    told = (line.event for line in lines[first:] if isinstance(line.event, Boundary))
    made = (one for one in told if one.head is not SAME and not one.again and one.reason != UNDO)
    return any(one.how != MEMORY or covers in own for one in made)
