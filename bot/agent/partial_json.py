"""The JSON of a tool call's input while it arrives: what can be read of it so far, for display only."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import jiter

# Any escape; in the group, half of a surrogate pair whose other half does not come any more.
_ESCAPE = re.compile(
    r"""\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}
      | u([dD][89a-fA-F][0-9a-fA-F]{2})(?!(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z)
      | .)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The value received so far. `complete`: a strict parse of all of it gives this value. `was_repaired`: strings, lists or objects
    were closed to get it, so it is for display only and must never be executed. Neither is true where nothing can be
    read of what came last; then `value` is what could be read before.
    """

    value: Any = None
    complete: bool = False
    was_repaired: bool = False


class PartialJSON:
    """Takes pieces as they come, which costs nothing; reads them when it is asked what they are."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._read = 0
        self._last = Snapshot()

    def feed(self, piece: str) -> None:
        """One piece more."""
        self._pieces.append(piece)

    def snapshot(self) -> Snapshot:
        """Parse the pieces so far. A string that has not ended is given as far as it goes, without an escape that is
        not complete.
        """
        if self._read < len(self._pieces):
            self._pieces = ["".join(self._pieces)]
            self._read = 1
            self._last = _parsed(self._pieces[0], self._last)
        return self._last


def _parsed(raw: str, last: Snapshot) -> Snapshot:
    try:
        return Snapshot(json.loads(raw, object_pairs_hook=_unique, parse_constant=_refuse), complete=True)
    except (ValueError, RecursionError):
        pass
    for words in (raw, _ESCAPE.sub(_whole, raw)):
        try:
            return Snapshot(_repaired(words), was_repaired=True)
        except ValueError:
            continue
    return Snapshot(last.value)


def _repaired(raw: str) -> Any:
    return jiter.from_json(
        raw.encode("utf-8", "replace"),
        partial_mode="trailing-strings",
        allow_inf_nan=False,
        catch_duplicate_keys=True,
        cache_mode="none",
    )


def _whole(escape: re.Match[str]) -> str:
    """Replace half a surrogate pair: `jiter` refuses it, and we do not."""
    return "\\ufffd" if escape[1] else escape[0]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a key stands twice")
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(constant)
