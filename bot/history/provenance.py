"""Where the lines of a text come from, carried on when it is written anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

MOST = 50
"""Of so many sources of one line is kept note, the newest."""
_Source = TypeVar("_Source")


def carried(
    before: Sequence[tuple[str, tuple[_Source, ...]]], after: Sequence[str], new: Sequence[_Source]
) -> list[tuple[_Source, ...]]:
    """The sources of each line of a text, from those of the text before it and those that are `new`.

    A line that is still there keeps its own. Any other may say in other words what stood in the lines that are gone:
    it has their sources too. So nothing that came from a source is ever without its name.
    """
    left: dict[str, list[tuple[_Source, ...]]] = {}
    for line, sources in before:
        left.setdefault(line, []).append(sources)
    kept = [left[line].pop(0) if left.get(line) else None for line in after]
    gone = (source for lines in left.values() for sources in lines for source in sources)
    fresh = tuple(dict.fromkeys((*gone, *new)))[-MOST:]
    return [fresh if sources is None else sources for sources in kept]
