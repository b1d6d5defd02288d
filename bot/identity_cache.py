"""Caches results that are computed from an object, using the object's identity as the key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

Of = TypeVar("Of")
Made = TypeVar("Made")

MESSAGES = 16_384
"""Max number of messages for which computed results are cached. The messages of a chat are the same objects
in each request to the model.
"""


class IdentityCache(Generic[Of, Made]):
    """Caches the results of `make` for the last `most` objects, by identity. The objects must not change.
    Exceptions are not cached.
    """

    def __init__(self, make: Callable[[Of], Made], *, most: int = 8) -> None:
        self._make = make
        self._most = most
        self._known: OrderedDict[int, tuple[Of, Made]] = OrderedDict()

    def __call__(self, of: Of) -> Made:
        # The object is stored too, because no other object can have its id while it exists.
        known = self._known.get(id(of))
        if known is None:
            known = (of, self._make(of))
            if len(self._known) >= self._most:
                self._known.popitem(last=False)  # one at a time, so that the cache stays full
            self._known[id(of)] = known
        return known[1]


_Record = list[Any]
"""A list whose first item is the object. The other items are the results of the `MessageFact`s, each at a
fixed index.
"""
_UNKNOWN: Any = object()
_EMPTY: _Record = [_UNKNOWN]
_records: OrderedDict[int, _Record] = OrderedDict()


class MessageFact(Generic[Of, Made]):
    """An `IdentityCache` for messages and other parts of requests. All results for an object share one
    record, so that `MESSAGES` objects are cached however many `MessageFact`s there are.
    """

    def __init__(self, make: Callable[[Of], Made]) -> None:
        self._make = make
        self._place = len(_EMPTY)
        for record in (_EMPTY, *_records.values()):
            record.append(_UNKNOWN)

    def __call__(self, of: Of) -> Made:
        return self.each((of,))[0]

    def each(self, objects: Iterable[Of]) -> list[Made]:
        """Return the results for several objects, in order."""
        place, found = self._place, []
        for of in objects:
            record = _records.get(id(of))
            fact = record[place] if record is not None else _UNKNOWN
            found.append(fact if fact is not _UNKNOWN else self._found(of))
        return found

    def _found(self, of: Of) -> Made:
        made = self._make(of)
        record = _records.get(id(of))
        if record is None:
            record = [of, *_EMPTY[1:]]
            while len(_records) >= MESSAGES:  # several threads may have added a record at the same time
                _records.popitem(last=False)
            _records[id(of)] = record
        record[self._place] = made
        return made
