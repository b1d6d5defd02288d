"""What is to be delivered."""

from __future__ import annotations

from dataclasses import dataclass

from bot import errors
from bot.contracts import Outbound


@dataclass(frozen=True, slots=True)
class Item:
    """A message to deliver. `lost`: it was begun, and the answer died with the process. `age` is in seconds. `owed`:
    somebody waits for it, so it is put off rather than given up, and repeated where nobody can tell what became of it.
    `place` is the message id of the preview that it takes the place of. `put_off`: its turn may have ended long ago.
    """

    message: Outbound
    owed: bool
    lost: bool = False
    age: float = 0.0
    place: str | None = None
    put_off: bool = False


class PutOff(errors.DeliveryDeferred):
    """As its parent; `unknown` where the message may be in the chat already."""

    def __init__(self, message: str, *, wait: float, unknown: bool) -> None:
        super().__init__(message, wait=wait)
        self.unknown = unknown


def original(outbound_id: str) -> str:
    """The row that a row repeats, or its own."""
    return outbound_id.partition("-")[0]
