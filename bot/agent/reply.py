"""The reply of the running turn."""

from __future__ import annotations

from bot import errors
from bot.agent.ledger import Ledger
from bot.contracts import Reply, Sent


class TrackedReply:
    """`contracts.Reply` that remembers what became of the last message, and shows none that is not on file.

    `settled`: the person has an answer, or will have it, or may have it; none is to be sent on top. `attempted`: a
    message was begun of which it is not known that it surely did not arrive.
    """

    def __init__(self, inner: Reply, ledger: Ledger) -> None:
        self._inner = inner
        self._ledger = ledger
        self.ids: list[str] = []
        self.delivered = 0
        self.settled = False
        self.attempted = False

    async def send(self, words: str) -> list[Sent]:
        # Before the outbox has it: a message that is in there without the call that made it would go out after a
        # crash, and the model, asked again, would send it once more.
        await self._ledger.flush()
        self.attempted = True
        try:
            sent = await self._inner.send(words)
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
