"""Caches results that are computed from an object. The key is the object's identity."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, TypeVar

Of = TypeVar("Of")
Made = TypeVar("Made")

MESSAGES = 16_384
"""Max number of messages for which a result is cached. All requests of a chat use the same message objects."""


@dataclass(eq=False)
class IdentityCache(Generic[Of, Made]):
    """Caches the results of `make` for the `most` newest objects, by identity. The objects must not change. Exceptions
    are not cached.
    """

    make: Callable[[Of], Made]
    _: KW_ONLY
    most: int = MESSAGES
    _known: OrderedDict[int, tuple[Of, Made]] = field(default_factory=OrderedDict)

    def __call__(self, of: Of) -> Made:
        # The object is stored too. While it exists, no other object can have the same id.
        known = self._known.get(id(of))
        if known is None:
            known = (of, self.make(of))
            while len(self._known) >= self.most:  # several threads may have added entries at once
                self._known.popitem(last=False)
            self._known[id(of)] = known
        return known[1]

    def each(self, objects: Iterable[Of]) -> list[Made]:
        known = self._known.get
        return [found[1] if (found := known(id(of))) is not None else self(of) for of in objects]
