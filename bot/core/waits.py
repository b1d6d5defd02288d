"""Measures how long a person waits for the answer of a turn, by activity."""

from __future__ import annotations

from collections import Counter

from bot.core.events import Waited
from bot.telemetry.usage import two_digits

OWN_TIME = range(5, 86_400)
"""Seconds that a message may be older than its arrival for the time on the message to count. Clocks of two
machines differ by seconds and some platforms leave out fractions; a much older time is wrong.
"""


class Wait:
    """Stopwatch from a person's message to the first words of the answer. `since` is in epoch seconds. It
    is told with each event what the turn does from then on: `queue`, `approval`, `model`, `tools`,
    `delivery`, or "" for anything else.
    """

    __slots__ = ("_at", "_doing", "_spent", "since")

    def __init__(self, said: float, arrived: float) -> None:
        late = int(max(0.0, arrived - said)) in OWN_TIME
        self.since = self._at = said if late else arrived
        self._doing = "queue"
        self._spent = Counter[str]()

    def goes_on(self, doing: str, at: float) -> None:
        """Count the time since the last call as spent on what that call named."""
        self._spent[self._doing] += round(max(0.0, at - self._at) * 1000)
        self._at, self._doing = max(self._at, at), doing

    def over(self, at: float) -> Waited:
        """Return the event of an answer that the person sees now."""
        self.goes_on("", at)
        ms = round(max(0.0, at - self.since) * 1000)
        return Waited(
            ms, two_digits(ms), {part: spent for part, spent in self._spent.items() if part and spent}
        )
