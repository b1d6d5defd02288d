"""The health of a part of the gateway."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartHealth:
    """Health of one part of the gateway. `detail` is for operators; `heard` is the age of its last sign in seconds. A
    part that is not `needed` does not affect readiness.
    """

    ok: bool
    detail: str = ""
    heard: float | None = None
    needed: bool = True
