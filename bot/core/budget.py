"""Token limits of a request: soft limit, hard limit and the shares of its parts."""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 13_000
"""Tokens below the edge of the window at which it is time to act: an estimate is not a count."""
SOFT_TOKENS = 40_000


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one model's requests, in tokens. `window` is None if it is not known: then only `soft`
    holds, and a request that does not fit after all is refused by the provider, which says how much does.
    """

    window: int | None
    max_tokens: int
    """Room for the answer: no more than the model gives."""
    soft: int = SOFT_TOKENS
    """From here on it costs more than it is worth (`context.compaction.softTokens`)."""
    most_output: int | None = None
    """The most that the model gives, if that is known."""

    @property
    def hard(self) -> int | None:
        """From here on a request may not fit. In a small window the margin is a tenth of it, and a fourth is left
        for the prompt in any case.
        """
        if self.window is None:
            return None
        return max(self.window - self.max_tokens - self._margin, self.window // 4)

    def fork(self, most: int) -> int:
        """Room for the answer of a fork, which is as long as it is whatever turns may answer (`llm.maxTokens`): behind a
        prompt within `hard` the margin has room for it.
        """
        room = most if self.window is None else max(self.max_tokens, self._margin)
        return min(most, room, self.most_output or most)

    @property
    def _margin(self) -> int:
        return min(MARGIN, (self.window or MARGIN * 10) // 10)

    @property
    def limit(self) -> int:
        """The nearer of both."""
        return self.soft if self.hard is None else min(self.soft, self.hard)

    def share(self, part: float, most: int) -> int:
        """A part of the window, at most so much."""
        return most if self.window is None else min(most, int(self.window * part))
