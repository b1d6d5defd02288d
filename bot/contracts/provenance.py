"""Provenance of a text: who wrote the text, and how untrusted it is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

ORIGIN = "origin"
"""Key of the provenance of a text. Stored blocks, and the messages for the model, have this key. It is never sent to a
model.
"""


class Taint(IntEnum):
    """Level of distrust of a text; a higher level is less trusted. `WORKSPACE`: the project's files, and output of
    commands that ran without network. `FOREIGN`: text that anybody may have written.
    """

    NONE = 0
    WORKSPACE = 1
    FOREIGN = 2


@dataclass(frozen=True, slots=True)
class Provenance:
    """The ids of people who wrote parts of a text, and the level of distrust (`taint`) of the rest of the text."""

    people: frozenset[str] = frozenset()
    taint: Taint = Taint.NONE

    def __or__(self, other: Provenance) -> Provenance:
        return Provenance(self.people | other.people, max(self.taint, other.taint))

    def packed(self) -> Any:
        """Return the provenance as JSON: a list of ids, or an object if there is untrusted text."""
        people = sorted(self.people)
        return {"people": people, "taint": self.taint.name.lower()} if self.taint else people


NOBODYS = Provenance()
WORKSPACES = Provenance(taint=Taint.WORKSPACE)
ANYBODYS = Provenance(taint=Taint.FOREIGN)


def unpacked(value: object) -> Provenance:
    """Return the provenance that `packed` converted to this JSON; `ANYBODYS` if the JSON is invalid."""
    facts = value if isinstance(value, dict) else {"people": value, "taint": "none"}
    people, name = facts.get("people"), str(facts.get("taint")).upper()
    if not isinstance(people, list) or name not in Taint.__members__:
        return ANYBODYS
    return Provenance(frozenset(map(str, people)), Taint[name])
