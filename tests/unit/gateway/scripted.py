"""An agent that says which messages it answers, for tests that compare what was said with what was answered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from bot import errors
from bot.contracts.agent import (
    ChatStats,
    CompactResult,
    LastTurn,
    ModelInfo,
    SessionChange,
    SessionInfo,
    TurnOutcome,
    TurnRequest,
)
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound


def quoted(inbound: Inbound) -> str:
    return f"{inbound.kind}:{inbound.message_id}={'+'.join(inbound.text.split())}"


def names(inbound: Inbound) -> tuple[str, ...]:
    """The ids of a message, or of all items of an album."""
    return tuple(inbound.items) or tuple(filter(None, [inbound.message_id]))


class Scripted:
    """`contracts.agent.Agent` that says which messages it answers, takes up what it may, and knows what it has answered: as the
    real one, by what it has on file (`cut`, `asked`: the messages of an answer, and what was said before it).
    """

    def __init__(
        self,
        ended: set[str],
        cut: dict[ChatKey, list[str]],
        asked: dict[str, list[tuple[set[str], set[str]]]],
    ) -> None:
        self.ended = ended
        self.cut = cut
        self.asked = asked
        self.gate = asyncio.Event()
        self.gate.set()
        self.running: dict[ChatKey, asyncio.Task[TurnOutcome]] = {}
        self.stopping: set[ChatKey] = set()
        self.restarts: dict[ChatKey, asyncio.Event] = {}

    async def run(self, request: TurnRequest) -> TurnOutcome:
        assert request.chat_key not in self.running
        if request.request_id in self.ended:
            return TurnOutcome("done")
        if request.stopped:
            self.ended |= {request.request_id, *self.cut.pop(request.chat_key, ())}
            return TurnOutcome("stopped")
        task = self.running[request.chat_key] = asyncio.ensure_future(self.converse(request))
        try:
            return await task
        except asyncio.CancelledError:
            if request.chat_key in self.stopping:
                self._end(request)
                return TurnOutcome("stopped")
            raise
        finally:
            self.stopping.discard(request.chat_key)
            del self.running[request.chat_key]

    async def converse(self, request: TurnRequest) -> TurnOutcome:
        assert request.inbound is not None
        assert request.reply is not None
        first = [request.inbound, *request.also]
        known = self.cut.get(request.chat_key, [])
        # What had joined it before a kill is part of it still.
        sources = self.cut[request.chat_key] = known if request.request_id in known else []
        sources += [one.request_id for one in first if one.request_id not in sources]
        more: list[Inbound] = []
        while not self.gate.is_set():
            added = self.restarts[request.chat_key] = asyncio.Event()
            either = [asyncio.ensure_future(one.wait()) for one in (self.gate, added)]
            try:
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for waiting in either:
                    waiting.cancel()
            if added.is_set():
                more += request.arrivals.take_more()
                await request.arrivals.joined()
        more += request.arrivals.take_more()
        sources += [one.request_id for one in more]
        # What was said before a kill is not said again; what joined since then wants an answer.
        begun = {one.id for one in request.begun if not one.failed}
        said = self.asked.setdefault(request.request_id, [])
        if said and begun <= said[-1][1]:
            said.pop()
        done = {one for ids, _ in said for one in ids}
        answered = [one for one in [*first, *more] if one.request_id not in done]
        if answered:
            said.append(({one.request_id for one in answered}, begun))
            # What waits goes out by itself.
            with contextlib.suppress(errors.DeliveryUncertain, errors.DeliveryDeferred):
                await request.reply.send(" ".join(map(quoted, answered)))
        self._end(request)
        return TurnOutcome("done", delivered=1)

    def _end(self, request: TurnRequest) -> None:
        # What joined has ended with it.
        self.ended |= {request.request_id, *self.cut.pop(request.chat_key)}

    async def cut_off(self, chat_key: ChatKey) -> tuple[str, ...]:
        return tuple(self.cut.get(chat_key, ()))

    async def stop(self, chat_key: ChatKey) -> bool:
        if chat_key not in self.running:
            return False
        self.stopping.add(chat_key)
        return self.running[chat_key].cancel()

    async def restart_model_call(self, chat_key: ChatKey) -> bool:
        if chat_key in self.restarts:
            self.restarts[chat_key].set()
        return chat_key in self.running

    async def reset(self, chat_key: ChatKey) -> int:
        return 0

    async def stats(self, chat_key: ChatKey) -> ChatStats:
        return ChatStats()

    async def history(self, chat_key: ChatKey) -> str:
        return ""

    async def undo(self, chat_key: ChatKey) -> str | None:
        return None

    async def forget(self, chat_key: ChatKey) -> None: ...

    async def sessions(self, chat_key: ChatKey) -> list[SessionInfo]:
        return []

    async def resume(self, chat_key: ChatKey, session: str) -> SessionChange:
        return SessionChange("unknown")

    async def fork(self, chat_key: ChatKey, *, request_id: str | None = None, back: int = 0) -> SessionChange:
        return SessionChange("unknown")

    async def compact(self, chat_key: ChatKey, focus: str = "") -> CompactResult:
        return CompactResult("nothing")

    async def describe(self, chat_key: ChatKey) -> ModelInfo:
        return ModelInfo(
            "scripted",
            chosen=False,
            default="scripted",
            window=None,
            price=None,
            messages=1,
            max_messages=60,
        )

    async def quoting(self, chat_key: ChatKey, turns: Sequence[str], message_id: str) -> list[str]:
        return list(turns)

    async def last_turn(self, chat_key: ChatKey) -> LastTurn | None:
        return None

    async def choose_model(self, chat_key: ChatKey, model: str | None, request_id: str) -> ModelInfo:
        return await self.describe(chat_key)
