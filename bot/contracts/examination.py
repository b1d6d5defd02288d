"""Results of checks, as `shipmate doctor` shows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

Verdict = Literal["ok", "warn", "later", "wrong"]
"""`later`: may pass when tried again; `wrong`: needs to be fixed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: the part checked, the result, and what to do if it is not `ok`."""

    part: str
    verdict: Verdict
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """A platform's answer about a channel's credentials. `time` is the platform's clock (epoch seconds), if it tells."""

    findings: tuple[Finding, ...]
    time: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Identifies a person on a platform by a secret code that they send to the bot. Both functions get the channel's settings and the
    code, and raise `errors.ChannelError`.
    """

    invite: Callable[[Any, str], Awaitable[str]]
    """Instructions for sending the code."""
    look: Callable[[Any, str], Awaitable[str | None]]
    """The id of who has sent the code; None for nobody yet. Consumes no events of the gateway."""
