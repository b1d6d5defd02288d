"""Going back to an earlier session of a chat, and beginning one that is a copy of the present one up to a turn.

Nothing that was said is lost by either: the session that is left stays on file and can be gone back to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bot.agent.deps import AgentDeps
from bot.agent.runtime import AgentRuntime
from bot.context import deletions
from bot.contracts.agent import SessionChange, SessionInfo
from bot.contracts.base import Json
from bot.contracts.transcript import MessageEvent, Meta, TranscriptLine
from bot.core import removal, rendering
from bot.features.conversation.sessions import SHORTEST, short

LISTED = 10


class Sessions:
    """The sessions of one chat. After `resume` or `fork` told "done" its runtime holds what is not current any more."""

    def __init__(self, runtime: AgentRuntime, deps: AgentDeps) -> None:
        self._runtime = runtime
        self._chat_key = runtime.chat_key
        self._transcript = deps.history.transcript
        self._deps = deps

    async def listed(self) -> list[SessionInfo]:
        """As `contracts.agent.Agent.sessions`."""
        await self._runtime.fill()
        await self._runtime.flush()
        known = await self._transcript.sessions(self._chat_key)
        outlines = await self._transcript.outlines(self._chat_key, LISTED)
        gone = deletions.read_deletions(await self._deps.history.archive.removals(self._chat_key))
        return [
            SessionInfo(
                short(one.session, known),
                one.current,
                one.messages,
                one.last_ts,
                self._words(one.first, gone),
            )
            for one in outlines
        ]

    async def resume(self, asked: str) -> SessionChange:
        """As `contracts.agent.Agent.resume`."""
        await self._runtime.fill()
        known = await self._transcript.sessions(self._chat_key)
        current = await self._transcript.current(self._chat_key)
        found = [one for one in known if len(asked) >= SHORTEST and one.endswith(asked.upper())]
        if len(found) != 1:
            return SessionChange("ambiguous" if found else "unknown")
        if found[0] == current:
            return SessionChange("here")
        async with self._runtime.left():
            begun = self._begun("resume", {"session": current})
            await self._runtime.view_changes.ledger.resume(found[0], begun)
        return self._done("an earlier session goes on", found[0], current, known)

    async def fork(self, request_id: str | None, back: int) -> SessionChange:
        """As `contracts.agent.Agent.fork`."""
        await self._runtime.fill()
        await self._runtime.flush()
        points = await self._transcript.points(self._chat_key)
        at = len(points) - 1 - back
        if request_id is not None:
            at = next((at for at, one in enumerate(points) if request_id in one.sources), -1)
        if not 0 <= at < len(points):
            return SessionChange("unknown", turns=len(points))
        known = await self._transcript.sessions(self._chat_key)
        current = await self._transcript.current(self._chat_key)
        origin = {"session": current, "requestId": points[at].request_id}
        async with self._runtime.left():
            session = await self._runtime.view_changes.ledger.fork(points[at], self._begun("fork", origin))
        done = self._done("a fork of the session begins", session, current, known)
        return replace(done, turns=len(points) - 1 - at)

    def _begun(self, reason: str, origin: Json) -> Meta:
        """Return the first line of the session that goes on, with the chat's totals and what was chosen for it: these are the chat's,
        not a session's.
        """
        chat_totals = self._runtime.view_changes.chat_totals
        chat_totals.epoch()
        facts = self._runtime.view_changes.ledger.facts
        model, effort = facts.chosen_model or "", facts.chosen_effort or ""
        return Meta(
            reason=reason, from_=origin, totals=chat_totals.facts, chosen_model=model, chosen_effort=effort
        )

    def _done(self, what: str, session: str, left: str | None, known: Sequence[str]) -> SessionChange:
        names = [*known, session]
        self._deps.log.write("session", what, chat_key=self._chat_key, session=session, left=left)
        return SessionChange("done", short(session, names), short(left, names) if left else None)

    def _words(self, first: TranscriptLine | None, gone: deletions.Deletions) -> str:
        """The beginning of what the person said first, unless it was removed."""
        if first is None or not isinstance(first.event, MessageEvent):
            return ""
        if gone.names(first.event, [first.request_id or ""]):
            return removal.REMOVED
        return self._deps.redact(rendering.said(first.event.message))
