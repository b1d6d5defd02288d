"""Retries: the messages of a turn become one new message, once."""

from __future__ import annotations

from collections.abc import Iterable

from bot.contracts.approvals import Choice, QuestionButtons
from bot.contracts.inbound import Inbound
from bot.core.chat import Turn
from bot.core.chats import Fact
from bot.core.events import Queued, Received, TurnEndState
from bot.core.feature import Done, Runtime
from bot.core.message_versions import plain
from bot.features.retries.past_turn import PastTurns, with_buttons
from bot.words import say

AGAIN: tuple[Choice, ...] = ("again",)
RENEW: tuple[Choice, ...] = ("renew",)
FAILED = frozenset[TurnEndState]({"failed", "withdrawn"})


class Retries:
    """A failed turn is retried once and an edit is answered once: the new message's key is derived from it."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime
        self._begun = set[str]()
        """Keys of messages that this process created."""

    def turn_ends(self, turn: Turn, state: TurnEndState) -> Done:
        """Offer to retry a failed turn."""
        offered = state in FAILED and plain(turn.first)
        return Done(buttons=QuestionButtons(turn.id, AGAIN) if offered else None)

    async def run(self, press: Inbound) -> Done:
        """Retry the turn whose button was pressed, with its person's rights; only that person and operators
        may press.
        """
        turn = (await self._past(press)).turns.get(press.args)
        if turn is None or turn.end not in FAILED or turn.first is None or not plain(turn.first):
            return Done(say("retry.unknown"))
        if not self._may(press, turn.first):
            return Done(say("retry.not_yours"))
        if (whole := turn.whole()) is None:
            return Done(say("retry.unknown"))
        key = f"{press.channel}:again:{turn.id}"
        if await self._is_begun(key):
            return Done(say("retry.begun"))
        bare = (with_buttons(one, QuestionButtons(turn.id, ())) for one in turn.notices)
        return Done(say("retry.trying"), self._facts(whole, key, bare))

    async def offer(self, edit: Inbound) -> Done:
        """Offer to answer an edited question again, below its answer."""
        turn = (await self._past(edit)).about(edit)
        if turn is None or turn.end != "answered" or turn.answer is None or not edit.has_text:
            return Done()
        shown = with_buttons(turn.answer, QuestionButtons(edit.request_id, RENEW))
        return Done(facts=(Fact(edit.chat_key, shown),))

    async def renew(self, press: Inbound) -> Done:
        """Answer an edited question again, replacing its answer; rights as for `run`."""
        past = await self._past(press)
        edit = past.edits.get(press.args)
        turn = past.about(edit) if edit is not None else None
        if turn is None or turn.first is None or not plain(turn.first):
            return Done(say("retry.unknown"))
        if not self._may(press, turn.first):
            return Done(say("retry.renew_not_yours"))
        key = f"{press.channel}:renew:{press.args}"
        if await self._is_begun(key):
            return Done(say("retry.renewed"))
        whole = turn.whole()
        if turn.answer is None or whole is None:
            return Done(say("retry.unknown"))
        bare = with_buttons(turn.answer, QuestionButtons(press.args, ()))
        whole = whole.model_copy(update={"renews": bare.replaces})
        return Done(say("retry.renewing"), self._facts(whole, key, (bare,)))

    async def _past(self, inbound: Inbound) -> PastTurns:
        return PastTurns(await self._run.event_log.read(inbound.chat_key))

    def _may(self, press: Inbound, asked: Inbound) -> bool:
        theirs = press.person == asked.person or self._run.access.is_operator(press.person)
        return theirs and self._run.access.judge(asked).allowed

    async def _is_begun(self, key: str) -> bool:
        """Return True for a repeated press, which the first one has answered or is answering."""
        if await self._run.event_log.known((key,)) or key in self._begun:
            return True
        self._begun.add(key)
        return False

    def _facts(self, whole: Inbound, key: str, shown: Iterable[Queued]) -> list[Fact]:
        """Return the facts: edits of buttons, and the new message."""
        name, now = self._run.ids.ulid(), int(self._run.clock.now() * 1000)
        inbound = whole.model_copy(update={"request_id": name, "ts": now, "keys": (key,)})
        asked = Fact(inbound.chat_key, Received(inbound), person=inbound.user_id, id=name)
        return [*(Fact(inbound.chat_key, one) for one in shown), asked]
