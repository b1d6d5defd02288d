"""Results of checks, which `shipmate doctor` prints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["ok", "warn", "later", "wrong"]
"""Result of a check. `later`: the check may pass when it is repeated. `wrong`: the operator must fix the setting."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: the part that was checked, the result, and what to do if the result is not `ok`."""

    part: str
    verdict: Verdict
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """The platform's answer about a channel's credentials. `time` is the platform's clock in epoch seconds,
    if the platform reports it.
    """

    findings: tuple[Finding, ...]
    time: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Identifies a person on a platform by a secret code that the person sends to the bot. Both functions
    take the channel's settings and the code, and raise `errors.ChannelError`.
    """

    invite: Callable[[Any, str], Awaitable[str]]
    """Function that returns instructions for sending the code."""
    look: Callable[[Any, str], Awaitable[str | None]]
    """Function that returns the id of the person who has sent the code; None if nobody has sent it yet. It
    must consume no events of the gateway.
    """
