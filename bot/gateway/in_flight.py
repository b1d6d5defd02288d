"""Inbound that are in no queue and not finished yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

BURST = 16
"""Messages being written down side by side: more come in than are taken in one after another."""


@dataclass(slots=True)
class InFlight:
    """`first` is the first requestId of this process; "" before there is one. `writing` are the requestIds of what is
    being written down, `beside` those of what is carried out beside the queues.
    """

    first: str = ""
    writing: set[str] = field(default_factory=set)
    beside: set[str] = field(default_factory=set)

    @property
    def burst(self) -> bool:
        """True while much comes in."""
        return len(self.writing) >= BURST

    def known(self) -> Iterator[str]:
        """The requestIds of all of them."""
        yield from self.writing
        yield from self.beside
