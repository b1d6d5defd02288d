"""Which of the armed failures an operation meets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar


class Countdown(Protocol):
    """The `at`-th operation that matches fails, and `times` in a row with it; None: for ever."""

    at: int
    times: int | None


FailureT = TypeVar("FailureT", bound=Countdown)


def due(armed: list[FailureT], matches: Callable[[FailureT], bool]) -> FailureT | None:
    """Count one operation; the failure it meets, which leaves `armed` with its last time."""
    for failure in armed:
        if not matches(failure):
            continue
        failure.at -= 1
        if failure.at > 0:
            continue
        if failure.times is not None:
            failure.times -= 1
            if failure.times <= 0:
                armed.remove(failure)
        return failure
    return None
