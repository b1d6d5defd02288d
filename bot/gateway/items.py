"""What is to be delivered."""

from __future__ import annotations

from dataclasses import dataclass

from bot import errors
from bot.contracts.journal import DeliveryRecord
from bot.contracts.outbound import Outbound


@dataclass(frozen=True, slots=True)
class Item:
    """A message to deliver. `lost`: it was begun, and what became of it is not known. `age` is in seconds. `owed`:
    somebody waits for it, so it is put off rather than given up. `place` is the message id of the preview that it takes
    the place of. `put_off`: its turn may have ended long ago. `attempts` counts its sends of unknown outcome.
    """

    message: Outbound
    owed: bool
    lost: bool = False
    age: float = 0.0
    place: str | None = None
    put_off: bool = False
    attempts: int = 0


class PutOff(errors.DeliveryDeferred):
    """As its parent; `unknown` where the message may be in the chat already, after so many `attempts`."""

    def __init__(self, message: str, *, wait: float, unknown: bool, attempts: int) -> None:
        super().__init__(message, wait=wait)
        self.unknown = unknown
        self.attempts = attempts


def original(one: Outbound | DeliveryRecord) -> str:
    """The id of the row that a row repeats, or its own."""
    return one.repeat_of or one.id
