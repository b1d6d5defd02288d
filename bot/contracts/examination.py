"""Results of an examination, as `shipmate doctor` shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "later", "wrong"]
"""`later` is for what another try may find well, `wrong` for what somebody has to mend."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: the part that was looked at, what was found, and what to do about it where it is not `ok`."""

    part: str
    verdict: Verdict
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """What a platform says of a channel's credentials. `time` is the platform's own, in epoch seconds, where it says it."""

    findings: tuple[Finding, ...]
    time: float | None = None
