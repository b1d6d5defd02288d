"""Caches what is computed of an object, by the object's identity."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Of = TypeVar("Of")
Made = TypeVar("Made")

MESSAGES = 4_096
"""Messages of which something is remembered: those in the view of a chat are the same objects in request after request."""


class IdentityCache(Generic[Of, Made]):
    """The result of `make` for each of the last few objects; the oldest goes for a new one. Objects are told apart by identity and must not change
    afterwards. An exception of `make` is raised, and not cached.
    """

    def __init__(self, make: Callable[[Of], Made], *, most: int = 8) -> None:
        self._make = make
        self._most = most
        self._known: OrderedDict[int, tuple[Of, Made]] = OrderedDict()

    def __call__(self, of: Of) -> Made:
        # It is kept with what was said of it: as long as it is, no other object has its id.
        known = self._known.get(id(of))
        if known is None:
            known = (of, self._make(of))
            if len(self._known) >= self._most:
                self._known.popitem(last=False)  # not all at once: what is held stays the same
            self._known[id(of)] = known
        return known[1]

    def each(self, objects: Iterable[Of]) -> list[Made]:
        """The result for each of several objects, in order."""
        known = self._known
        return [found[1] if (found := known.get(id(of))) is not None else self(of) for of in objects]
