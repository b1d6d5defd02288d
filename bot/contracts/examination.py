"""Results of an examination, as `shipmate doctor` shows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

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
    """A platform's answer about a channel's credentials. `time` is the platform's own, in epoch seconds, where it says it."""

    findings: tuple[Finding, ...]
    time: float | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """Shows who somebody is on a platform: they send a code to the bot that nobody else knows. Both take the channel's
    settings and the code, and raise an `errors.ChannelError` where the platform refuses or is away.
    """

    invite: Callable[[Any, str], Awaitable[str]]
    """A sentence that says how to send it."""
    look: Callable[[Any, str], Awaitable[str | None]]
    """The id of who has sent it, None for nobody yet. Nothing is taken from a gateway that runs later."""
