"""Token limits of a request: soft limit, hard limit and the shares of its parts."""

from __future__ import annotations

from dataclasses import dataclass

MARGIN = 13_000
"""Tokens kept free below the window's edge, since sizes are estimates."""
SOFT_TOKENS = 40_000


@dataclass(frozen=True, slots=True)
class Budget:
    """Token limits of one model's requests. `window` is None if unknown: then only `soft` applies, and the
    provider rejects a request that is too large with the size it accepts.
    """

    window: int | None
    max_tokens: int
    """Max tokens of the answer."""
    soft: int = SOFT_TOKENS
    """Soft limit: above it a request costs more than it is worth (`context.compaction.softTokens`)."""
    most_output: int | None = None
    """Max output tokens of the model, if known."""

    @property
    def hard(self) -> int | None:
        """Hard limit: above it a request may not fit. The margin is at most a tenth of the window, and a
        quarter of the window is always left for the prompt.
        """
        if self.window is None:
            return None
        return max(self.window - self.max_tokens - self._margin, self.window // 4)

    def fork(self, most: int) -> int:
        """Return the output limit of a fork. It is independent of `llm.maxTokens` of turns, because a prompt
        below `hard` leaves the margin for it.
        """
        room = most if self.window is None else max(self.max_tokens, self._margin)
        return min(most, room, self.most_output or most)

    @property
    def _margin(self) -> int:
        return min(MARGIN, (self.window or MARGIN * 10) // 10)

    @property
    def limit(self) -> int:
        """The smaller of both limits."""
        return self.soft if self.hard is None else min(self.soft, self.hard)

    def share(self, part: float, most: int) -> int:
        """Return `part` of the window, at most `most` tokens."""
        return most if self.window is None else min(most, int(self.window * part))
