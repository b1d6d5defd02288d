"""The reply of the running turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bot import errors
from bot.agent.ledger import Ledger
from bot.context.replay import CutOff
from bot.contracts import Reply, Sent, TurnRequest

LONGEST = 240.0
"""Seconds that a turn waits for the delivery of a message; what is left of it then goes out by itself."""
SOON = 60.0


class TrackedReply:
    """`contracts.Reply` that remembers what became of the last message, and shows none that is not on file.

    `settled`: the person has an answer, or will have it, or may have it; none is to be sent on top. `attempted`: a
    message was begun of which it is not known that it surely did not arrive. `begun` is one that waits for the file.
    """

    def __init__(
        self, inner: Reply, ledger: Ledger, written: Callable[[], Awaitable[int]] | None = None
    ) -> None:
        self._inner = inner
        self._ledger = ledger
        self._written = written
        self.ids: list[str] = []
        self.delivered = 0
        self.settled = False
        self.attempted = False
        self.begun = ""

    @classmethod
    def of(cls, request: TurnRequest, ledger: Ledger) -> TrackedReply | None:
        """That of a turn; None where no chat waits for one."""
        return cls(request.reply, ledger, request.written) if request.reply is not None else None

    async def joined(self) -> dict[str, Any]:
        """What belongs to the turn has grown, and the last message answers only what came before. Gives what has to be
        on file of that, for `resume`.
        """
        told: dict[str, Any] = {"sent": list(self.ids)} if self.ids else {}
        return told if (written := await self._count()) is None else {**told, "written": written}

    async def resume(self, delivered: Sequence[str], cut_off: CutOff) -> int:
        """After a crash, where messages were `delivered`, by their ids; how many they are."""
        self.ids = list(delivered)
        self.delivered = 1
        # What the person added after the last answer still wants one.
        written = await self._count() if cut_off.written is not None else None
        answered = written is None or cut_off.written is None or written > cut_off.written
        self.settled = answered and "sources" not in cut_off.facts
        return len(self.ids)

    async def _count(self) -> int | None:
        try:
            return await self._written() if self._written is not None else None
        except errors.StorageError:
            return None  # without it, what came last counts as answered once anything was

    async def send(self, words: str) -> list[Sent]:
        # Before the outbox has it: a message that is in there without the call that made it would go out after a
        # crash, and the model, asked again, would send it once more.
        self.begun = words
        await self._ledger.flush()
        self.begun, self.attempted = "", True
        try:
            async with asyncio.timeout(LONGEST):
                sent = await self._inner.send(words)
        except asyncio.CancelledError:
            self.settled = True  # it goes out by itself
            raise
        except TimeoutError:
            self.settled = True
            raise errors.DeliveryDeferred("the platform takes its time with it", wait=SOON) from None
        except (errors.DeliveryUncertain, errors.DeliveryDeferred):
            # It may be in the chat, or will be: sending the answer again as plain text could show it twice.
            self.settled = True
            raise
        except errors.DeliveryFailed as error:
            self.settled = False
            self.attempted = isinstance(error, errors.DeliveryPartial)
            self.delivered += isinstance(error, errors.DeliveryPartial)
            raise
        self.ids += [part.message_id for part in sent]
        self.delivered += 1
        self.settled = True
        return sent
