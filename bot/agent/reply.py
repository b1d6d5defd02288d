"""`TrackedReply`: what the running turn says to its person, and what a turn that goes on has said before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from bot import errors
from bot.agent.ledger import Ledger
from bot.agent.steps import written
from bot.context.store import RunningTurn
from bot.contracts.agent import Arrivals, PriorReply, Reply, TurnRequest, is_silent
from bot.contracts.base import Message
from bot.contracts.journal import StepRecord
from bot.contracts.outbound import OutgoingFile, Sent
from bot.core import blocks
from bot.tools.builtin.chat_send import ChatSend

LONGEST = 240.0
"""Seconds that a turn waits for the delivery of a message; what is left of it then goes out by itself."""
SOON = 60.0


class TrackedReply:
    """`contracts.agent.Reply` that remembers what became of the last message, and shows none that is not on file.

    `settled`: the person has an answer, or will have it, or may have it; none is to be sent on top. `attempted`: a
    message was begun of which it is not known that it surely did not arrive. `begun` is one that waits for the file.
    `call` is the tool call that sent the last message; None where that was none, or is not known.
    """

    def __init__(self, inner: Reply, ledger: Ledger, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._inner = inner
        self._ledger = ledger
        self._before: tuple[str, ...] = ()
        self._noted = set[str]()
        self._already_delivered = set[str]()
        self.delivered = 0
        self.settled = False
        self.attempted = False
        self.begun = ""
        self.call: str | None = None

    @classmethod
    def of(cls, request: TurnRequest, ledger: Ledger) -> TrackedReply | None:
        """That of a turn; None where no chat waits for one."""
        return cls(request.reply, ledger, request.arrivals) if request.reply is not None else None

    @property
    def written(self) -> Sequence[str]:
        return self._inner.written

    def preview(self, words: Callable[[], str]) -> None:
        self._inner.preview(words)

    def noted(self) -> tuple[str, ...]:
        """Return the ids in the outbox of what was sent since the last call, for the transcript."""
        return self._since(self._noted)

    def steps(self) -> tuple[str, ...]:
        """The same for the steps in the journal."""
        return self._since(self._already_delivered)

    def resume(
        self, begun: Sequence[PriorReply], cut_off: RunningTurn, recorded: Sequence[StepRecord]
    ) -> None:
        """After a crash, with what the outbox, the transcript and the journal have of the turn."""
        self._before = tuple(one.id for one in begun)
        self._noted.update(cut_off.written)
        self._already_delivered.update(cut_off.written, written(recorded))
        self.attempted = not all(one.failed for one in begun)
        self.delivered = int(any(one.ids for one in begun))
        # What the person added after the last answer still wants one. What no line accounts for was said while the
        # transcript refused to be written: the model does not know of it, and may have more to say.
        known = {one.id for one in begun} if _may_say(cut_off.entries[-1].message) else set(cut_off.written)
        since = [one for one in begun if one.id not in cut_off.before]
        self.settled = bool(since) and since[-1].id in known and not since[-1].failed
        self.call = since[-1].step_id if since else None

    def reopen(self) -> None:
        """Something that the person has added still wants an answer."""
        self.settled = False

    def _since(self, known: set[str]) -> tuple[str, ...]:
        new = tuple(one for one in (*self._before, *self._inner.written) if one not in known)
        known.update(new)
        return new

    async def send(
        self, words: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        if is_silent(words):
            if not self._arrivals.quiet:
                raise errors.ToolError("They spoke to you. Send them an answer.")
            self.settled, self.call = True, step_id
            return []
        # Before the outbox has it: a message that is in there without the call that made it would go out after a
        # crash, and the model, asked again, would send it once more.
        self.begun, self.call = words, step_id
        await self._ledger.queued()
        self.begun, self.attempted = "", True
        try:
            async with asyncio.timeout(LONGEST):
                sent = await self._inner.send(words, step_id, files)
        except asyncio.CancelledError:
            self.settled = True  # it goes out by itself
            raise
        except TimeoutError:
            self.settled = True
            raise errors.DeliveryDeferred("the platform takes its time with it", wait=SOON) from None
        except errors.FilesMissing:
            self.delivered += 1
            self.settled = True
            raise
        except (errors.DeliveryUncertain, errors.DeliveryDeferred):
            # It may be in the chat, or will be: sending the answer again as plain text could show it twice.
            self.settled = True
            raise
        except errors.DeliveryFailed as error:
            self.settled = False
            self.attempted = isinstance(error, errors.DeliveryPartial)
            self.delivered += isinstance(error, errors.DeliveryPartial)
            raise
        self.delivered += 1
        self.settled = True
        return sent


def _may_say(message: Message) -> bool:
    """True if what was said last may have been sent: an answer, or a call that sends."""
    calls = blocks.tool_calls(message["content"])
    return message["role"] == "assistant" and (not calls or any(one.name == ChatSend.name for one in calls))
