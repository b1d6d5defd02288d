"""Port for leader election among processes that share one event log."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Leadership(Protocol):
    @property
    def epoch(self) -> int:
        """Return a number that increases with each process that becomes leader; 0 while there was no leader yet."""
        ...

    async def confirmed(self) -> None:
        """Return as soon as this process is certainly the leader. Waits while that is unknown, and never
        returns once another process leads, so that this process sends nothing more.
        """
        ...

    async def while_leading(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of a long call. The call is cancelled once this process is no longer certainly
        the leader; then `errors.DeliveryUncertain` is raised.
        """
        ...

    def role(self) -> str:
        """Describe the leadership state for operators; "" if there is nothing to report."""
        ...


class SoleLeader:
    """Leadership for the only process that uses a `.ship` folder."""

    epoch = 0

    async def confirmed(self) -> None:
        pass

    async def while_leading(self, call: Coroutine[Any, Any, T]) -> T:
        return await call

    def role(self) -> str:
        return ""
