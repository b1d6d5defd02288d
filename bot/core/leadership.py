"""The port for leader election among processes that share one log."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Leadership(Protocol):
    @property
    def epoch(self) -> int:
        """Increases with each process that becomes leader; 0 before."""
        ...

    async def confirmed(self) -> None:
        """Return while this process is certainly the leader. Wait while that is unknown; never return once
        another process leads, so that nothing more is sent.
        """
        ...

    async def while_leading(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of a long call. It is cancelled once this process is no longer certainly the
        leader; raises `errors.DeliveryUncertain` then.
        """
        ...

    def role(self) -> str:
        """Describe the state for operators; "" if there is nothing to say."""
        ...


class SoleLeader:
    """Leadership of the only process on a `.ship`."""

    epoch = 0

    async def confirmed(self) -> None:
        pass

    async def while_leading(self, call: Coroutine[Any, Any, T]) -> T:
        return await call

    def role(self) -> str:
        return ""
