"""The port through which rooms tell operators of trouble."""

from __future__ import annotations

from typing import Protocol

from bot.words import Sentence


class OperatorNotices(Protocol):
    """Tells operators of trouble (`bot.gateway.operations.OperatorAlerts`). Never blocks, never raises."""

    def tell(self, subject: str, words: Sentence) -> object:
        """Tell operators, at most once an hour for each subject."""
        ...


class NoOperators:
    """`OperatorNotices` where there is nobody to tell."""

    def tell(self, subject: str, words: Sentence) -> None:
        """Nobody hears of it: the log has it."""
