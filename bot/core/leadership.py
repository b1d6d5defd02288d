"""The port for which of several processes on one log leads."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Leadership(Protocol):
    @property
    def epoch(self) -> int:
        """Grows with each process that begins to lead; 0 before this one does."""
        ...

    async def confirmed(self) -> None:
        """Return while this process surely leads. Where that is not known it waits, and where another one leads it never returns:
        nothing may leave then.
        """
        ...

    async def while_leading(self, call: Coroutine[Any, Any, T]) -> T:
        """The result of something that takes long. It is cancelled where this process surely leads no more; raises
        `errors.DeliveryUncertain` then.
        """
        ...

    def role(self) -> str:
        """A few words for operators; "" where there is nothing to tell."""
        ...


class SoleLeader:
    """The only process of a log in `.ship`."""

    epoch = 0

    async def confirmed(self) -> None:
        pass

    async def while_leading(self, call: Coroutine[Any, Any, T]) -> T:
        return await call

    def role(self) -> str:
        return ""
