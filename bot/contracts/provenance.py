"""Provenance of a text: its authors, and how far they are trusted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

ORIGIN = "origin"
"""The key beside the text of a block that is kept, and in each message of the model: whose words that text holds. It is
never sent to a model.
"""
SOURCES = "sources"
"""The same of the requestIds of the turns that notes come from, by their paths."""


class Taint(IntEnum):
    """The level of untrusted text, in order. `WORKSPACE`: the project's files, and the output of commands without
    network. `FOREIGN`: words of any author.
    """

    NONE = 0
    WORKSPACE = 1
    FOREIGN = 2


@dataclass(frozen=True, slots=True)
class Provenance:
    """The ids of the people whose words a text holds, and the level of what stands in it beside them."""

    people: frozenset[str] = frozenset()
    taint: Taint = Taint.NONE

    def __or__(self, other: Provenance) -> Provenance:
        return Provenance(self.people | other.people, max(self.taint, other.taint))

    def packed(self) -> Any:
        """As JSON: a list of ids, with the level where there is one."""
        people = sorted(self.people)
        return {"people": people, "taint": self.taint.name.lower()} if self.taint else people


NOBODYS = Provenance()
WORKSPACES = Provenance(taint=Taint.WORKSPACE)
ANYBODYS = Provenance(taint=Taint.FOREIGN)


def unpacked(value: object) -> Provenance:
    """An origin out of JSON; `ANYBODYS` where it cannot be read."""
    facts = value if isinstance(value, dict) else {"people": value, "taint": "none"}
    people, name = facts.get("people"), str(facts.get("taint")).upper()
    if not isinstance(people, list) or name not in Taint.__members__:
        return ANYBODYS
    return Provenance(frozenset(map(str, people)), Taint[name])
