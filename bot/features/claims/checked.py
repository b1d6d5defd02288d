"""Holds back an answer that claims deeds which no tool of its turn did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from bot import errors, text
from bot.contracts.agent import Reply
from bot.contracts.base import Message
from bot.contracts.environment import Log
from bot.contracts.outbound import OutgoingFile, Sent
from bot.core import memory
from bot.features.claims import detection, performed_actions
from bot.features.claims.detection import Claim
from bot.features.claims.performed_actions import PerformedAction, PerformedActions
from bot.tools import context
from bot.tools.registry import Registry

SHORT = 800
"""Characters that are read where everything else runs; that takes some milliseconds at the most, once the language is loaded."""
SHOWN = 120
"""Characters of a sentence that are repeated in a note."""


class CheckedReply:
    """`contracts.agent.Reply` that lets nothing out which says that something was done when no tool did it.

    The first time the model is told instead (`errors.ClaimUnfounded`), where it is a tool that sends and so can be told;
    after that such a message goes out with a note. `person` gives the words that the turn answers, `recorded` the actions of the turn
    before a crash cut it off.
    """

    def __init__(
        self,
        inner: Reply,
        done: PerformedActions,
        *,
        person: Callable[[], str],
        recorded: Callable[[], Awaitable[list[PerformedAction]]],
        registry: Registry,
        log: Log,
    ) -> None:
        self._inner = inner
        self._done = done
        self._person = person
        self._recorded = recorded
        self._registry = registry
        self._log = log
        self._corrected = False

    @property
    def written(self) -> Sequence[str]:
        return self._inner.written

    def preview(self, words: Callable[[], str]) -> None:
        self._inner.preview(words)

    async def send(
        self, words: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        """Deliver, as `contracts.agent.Reply.send`. Raises also `errors.ClaimUnfounded`."""
        person = self._person()
        if len(words) <= SHORT and detection.loaded(words, person) and not detection.claims(words, person):
            return await self._inner.send(words, step_id, files)
        looking = asyncio.ensure_future(self._unfounded(words))
        try:
            found = await asyncio.shield(looking)
        except asyncio.CancelledError:
            # What has come this far goes out, as from any reply; nobody is there any more who could correct it.
            await self._inner.send(self._marked(words, await looking), step_id, files)
            raise
        if found and self._done.calling and not self._corrected:
            self._corrected = True
            self._note(found, "corrected")
            raise errors.ClaimUnfounded(text.preview(found[0].sentence, SHOWN))
        return await self._inner.send(self._marked(words, found), step_id, files)

    def _marked(self, words: str, found: Sequence[Claim]) -> str:
        """A reply, with a note below it where something was `found`."""
        if not found:
            return words
        self._note(found, "marked")
        first = found[0]
        return f"{words}\n\n{first.language.note.format(claim=text.preview(first.sentence, SHOWN))}"

    def _note(self, found: Sequence[Claim], action: str) -> None:
        self._log.write(
            "claim",
            "a reply says that something was done which no tool did",
            level="warn",
            claims=[claim.kind for claim in found],
            language=found[0].language.name,
            action=action,
        )

    async def _unfounded(self, words: str) -> list[Claim]:
        """The claims that nothing bears out."""
        left = await asyncio.to_thread(unfounded, words, self._person(), tuple(self._done.done))
        if left:
            known = any(one.tool == performed_actions.TASK for one in self._done.done)
            left = _without(left, await self._recorded(), admits=detection.admits(words), inside=known)
        if any(claim.earlier for claim in left) and (before := self._before()) is not None:
            found = _without(left, before, admits=True)
            return [claim for claim in left if not claim.earlier or claim in found]
        return [claim for claim in left if not claim.earlier]

    def _before(self) -> list[PerformedAction] | None:
        """Return the actions of turns that are in view; None if some of them can no longer be known."""
        try:
            view: Sequence[Message] = context.current().view()
        except errors.ToolError:
            return None
        return None if _forgotten(view) else performed_actions.performed_in(view, self._registry)


def unfounded(words: str, person: str, done: Sequence[PerformedAction]) -> list[Claim]:
    """Return the claims of a reply to `person` that no action in `done` supports."""
    left = _without(detection.claims(words, person), done, admits=detection.admits(words))
    # What does not say who did it may be what a tool has found.
    return [claim for claim in left if claim.own] if any(one.worked for one in done) else left


def _without(
    claims: Iterable[Claim], done: Iterable[PerformedAction], *, admits: bool, inside: bool = True
) -> list[Claim]:
    """The claims that none of this bears out. What failed bears out that it was tried, and more in a reply that says so."""
    borne: set[str] = set()
    for one in done:
        if one.worked or admits:
            borne |= one.bears_out(inside=inside)
        elif "run" in one.effects:
            borne.add("ran")
    return [claim for claim in claims if claim.kind not in borne]


def _forgotten(view: Sequence[Message]) -> bool:
    """True if older turns are there as a summary only, or as what an archive told of them."""
    return any(map(memory.stands_for, view))
