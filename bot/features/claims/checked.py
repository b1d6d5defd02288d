"""Holds back a reply that claims an action which no tool of the turn performed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from bot import errors, text
from bot.contracts.base import Message
from bot.contracts.environment import Log
from bot.contracts.outbound import OutgoingFile, Sent
from bot.core import memory
from bot.features.claims import detection, performed_actions
from bot.features.claims.detection import Claim
from bot.features.claims.performed_actions import PerformedAction, PerformedActions
from bot.tools import context
from bot.tools.ports import Reply
from bot.tools.registry import Registry

SHORT = 800
"""Max characters of a reply that is checked on the event loop. Checking takes milliseconds once the language
is loaded.
"""
SHOWN = 120
"""Max characters of a sentence quoted in a note."""


class CheckedReply:
    """Wraps `tools.ports.Reply`. The first reply with an unfounded claim is rejected; a second one is sent
    with a note.

    On the first unfounded claim, the sending tool gets `errors.ClaimUnfounded`. `person` returns the text
    that the turn answers. `recorded` returns the turn's actions from before a restart.
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
        """See `tools.ports.Reply.send`. In addition, this method raises `errors.ClaimUnfounded`."""
        person = self._person()
        if len(words) <= SHORT and detection.loaded(words, person) and not detection.claims(words, person):
            return await self._inner.send(words, step_id, files)
        looking = asyncio.ensure_future(self._unfounded(words))
        try:
            found = await asyncio.shield(looking)
        except asyncio.CancelledError:
            # The turn was stopped, so the model cannot correct the reply; the reply is sent with a note if needed.
            await self._inner.send(self._marked(words, await looking), step_id, files)
            raise
        if found and self._done.calling and not self._corrected:
            self._corrected = True
            self._note(found, "corrected")
            raise errors.ClaimUnfounded(text.preview(found[0].sentence, SHOWN))
        return await self._inner.send(self._marked(words, found), step_id, files)

    def _marked(self, words: str, found: Sequence[Claim]) -> str:
        """Return the reply, with a note if unfounded claims were `found`."""
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
        """Return the claims in a reply that no action of the turn supports."""
        left = await asyncio.to_thread(unfounded, words, self._person(), tuple(self._done.done))
        if left:
            known = any(one.tool == performed_actions.TASK for one in self._done.done)
            left = _without(left, await self._recorded(), admits=detection.admits(words), inside=known)
        if any(claim.earlier for claim in left) and (before := self._before()) is not None:
            found = _without(left, before, admits=True)
            return [claim for claim in left if not claim.earlier or claim in found]
        return [claim for claim in left if not claim.earlier]

    def _before(self) -> list[PerformedAction] | None:
        """Return the actions of earlier turns that are in the model's context; None if some of these actions
        are unknown.
        """
        try:
            view: Sequence[Message] = context.current().view()
        except errors.ToolError:
            return None
        return None if _forgotten(view) else performed_actions.performed_in(view, self._registry)


def unfounded(words: str, person: str, done: Sequence[PerformedAction]) -> list[Claim]:
    """Return the claims of a reply to `person` that no action in `done` supports."""
    left = _without(detection.claims(words, person), done, admits=detection.admits(words))
    # A claim without a subject may report what a tool found.
    return [claim for claim in left if claim.own] if any(one.worked for one in done) else left


def _without(
    claims: Iterable[Claim], done: Iterable[PerformedAction], *, admits: bool, inside: bool = True
) -> list[Claim]:
    """Return the claims that no action supports. A failed command supports only the claim that it was run.
    If the reply admits a failure, a failed action counts like a successful one.
    """
    borne: set[str] = set()
    for one in done:
        if one.worked or admits:
            borne |= one.bears_out(inside=inside)
        elif "run" in one.effects:
            borne.add("ran")
    return [claim for claim in claims if claim.kind not in borne]


def _forgotten(view: Sequence[Message]) -> bool:
    """Return True if the model's context contains older turns only as a summary or as loaded archive lines."""
    return any(map(memory.stands_for, view))
