"""An agent that says which messages it answers, for tests that compare what was said with what was answered."""

from __future__ import annotations

import asyncio
from typing import Any

from bot.contracts import Inbound, TurnOutcome, TurnRequest


def quoted(inbound: Inbound) -> str:
    return f"{inbound.kind}:{inbound.message_id}={'+'.join(inbound.text.split())}"


def names(inbound: Inbound) -> tuple[str, ...]:
    """The ids of a message, or of all items of an album."""
    return tuple(inbound.items) or tuple(filter(None, [inbound.message_id]))


class Scripted:
    """`contracts.Agent` that says which messages it answers, takes up what it may, and knows what it has answered."""

    def __init__(self, ended: set[str], cut: dict[str, list[str]]) -> None:
        self.ended = ended
        self.cut = cut
        self.gate = asyncio.Event()
        self.gate.set()
        self.running: dict[str, asyncio.Task[TurnOutcome]] = {}
        self.stopping: set[str] = set()

    async def run(self, request: TurnRequest) -> TurnOutcome:
        assert request.chat_key not in self.running
        if request.request_id in self.ended:
            return TurnOutcome("done")
        task = self.running[request.chat_key] = asyncio.ensure_future(self._run(request))
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

    async def _run(self, request: TurnRequest) -> TurnOutcome:
        assert request.inbound is not None
        assert request.reply is not None
        first = [request.inbound, *request.also]
        sources = self.cut[request.chat_key] = [one.request_id for one in first]
        await self.gate.wait()
        more = request.take_more() if request.take_more is not None else []
        sources += [one.request_id for one in more]
        # What was delivered before a kill is not said again; what joined since then wants an answer.
        answered = more if request.delivered else [*first, *more]
        if answered:
            await request.reply.send(" ".join(map(quoted, answered)))
        self._end(request)
        return TurnOutcome("done", delivered=1)

    def _end(self, request: TurnRequest) -> None:
        self.ended.add(request.request_id)
        del self.cut[request.chat_key]

    async def cut_off(self, chat_key: str) -> tuple[str, ...]:
        return tuple(self.cut.get(chat_key, ()))

    async def stop(self, chat_key: str) -> bool:
        if chat_key not in self.running:
            return False
        self.stopping.add(chat_key)
        return self.running[chat_key].cancel()

    async def reset(self, chat_key: str) -> int:
        return 0

    async def stats(self, chat_key: str) -> dict[str, Any]:
        return {}

    async def history(self, chat_key: str) -> str:
        return ""

    async def undo(self, chat_key: str) -> str | None:
        return None

    async def forget(self, chat_key: str) -> None: ...

    async def sessions(self, chat_key: str) -> list[dict[str, Any]]:
        return []

    async def resume(self, chat_key: str, session: str) -> dict[str, Any]:
        return {"how": "unknown"}

    async def fork(self, chat_key: str, *, request_id: str | None = None, back: int = 0) -> dict[str, Any]:
        return {"how": "unknown", "turns": 0}

    async def compact(self, chat_key: str, focus: str = "") -> dict[str, Any]:
        return {"how": "nothing"}

    async def describe(self, chat_key: str) -> dict[str, Any]:
        return {"model": "scripted", "messages": 1, "maxMessages": 60}
