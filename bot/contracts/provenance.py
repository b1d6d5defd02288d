"""Provenance of a text: its authors, and how far they are trusted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

ORIGIN = "origin"
"""Key of a stored block, and of each message of the model: whose words its text contains. Never sent to a model."""


class Taint(IntEnum):
    """How far text is untrusted, ascending. `WORKSPACE`: the project's files, and output of commands without network. `FOREIGN`: words of
    anybody.
    """

    NONE = 0
    WORKSPACE = 1
    FOREIGN = 2


@dataclass(frozen=True, slots=True)
class Provenance:
    """The ids of people whose words a text contains, and the taint of everything else in it."""

    people: frozenset[str] = frozenset()
    taint: Taint = Taint.NONE

    def __or__(self, other: Provenance) -> Provenance:
        return Provenance(self.people | other.people, max(self.taint, other.taint))

    def packed(self) -> Any:
        """As JSON: a list of ids, or an object if there is taint."""
        people = sorted(self.people)
        return {"people": people, "taint": self.taint.name.lower()} if self.taint else people


NOBODYS = Provenance()
WORKSPACES = Provenance(taint=Taint.WORKSPACE)
ANYBODYS = Provenance(taint=Taint.FOREIGN)


def unpacked(value: object) -> Provenance:
    """The inverse of `packed`; `ANYBODYS` if the JSON is invalid."""
    facts = value if isinstance(value, dict) else {"people": value, "taint": "none"}
    people, name = facts.get("people"), str(facts.get("taint")).upper()
    if not isinstance(people, list) or name not in Taint.__members__:
        return ANYBODYS
    return Provenance(frozenset(map(str, people)), Taint[name])
