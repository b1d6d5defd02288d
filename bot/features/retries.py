"""Retries: the button [Try again] below a failure notice, and [Answer again] below an answer to a message that was edited later."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bot.contracts.approvals import Choice, QuestionButtons
from bot.contracts.messages import Inbound
from bot.core import events
from bot.core.chat import plain, revised, same_message
from bot.core.chats import Fact
from bot.core.events import Cut, Event, Queued, Received, TurnEndState
from bot.core.feature import Command, Done, Feature, Hooks, Runtime
from bot.words import say


@dataclass(slots=True)
class PastTurn:
    """A past turn. `members` maps request ids to the messages that the turn answered (None if deleted). `shown` has, by row id,
    each message that the turn sent, and the message's platform id.
    """

    id: str
    members: dict[str, Inbound | None] = field(default_factory=dict)
    first: Inbound | None = None
    end: str | None = None
    shown: dict[str, tuple[Queued, str]] = field(default_factory=dict)

    def whole(self) -> Inbound | None:
        """Return the turn's messages merged into one message; None if all were deleted."""
        parts = [one for one in self.members.values() if one is not None and plain(one)]
        if not parts or self.first is None:
            return None
        merged = {
            "text": "\n".join(one.text for one in parts if one.text),
            "attachments": tuple(file for one in parts for file in one.attachments),
            "quoted": tuple(quoted for one in parts for quoted in one.quoted),
            "links": tuple(link for one in parts for link in one.links),
            "mentioned": dict(pair for one in parts for pair in one.mentioned.items()),
        }
        return self.first.model_copy(update=merged)

    @property
    def answer(self) -> tuple[Queued, str] | None:
        """Return the turn's text reply and its platform id; None if the turn has no text reply or several."""
        replies = self._texts("reply")
        return replies[0] if len(replies) == 1 else None

    @property
    def text(self) -> str | None:
        """Return the platform id of the turn's newest text, which may be an unfinished preview; None if there is no text."""
        texts = self._texts("reply", "preview")
        return texts[-1][1] if texts else None

    def _texts(self, *forms: str) -> list[tuple[Queued, str]]:
        return [one for one in self.shown.values() if one[0].form in forms and one[0].file is None]

    @property
    def notices(self) -> list[tuple[Queued, str]]:
        """Return the turn's messages with buttons. Leave out questions, because a decision removes their buttons."""
        rows = (one for one in self.shown.values() if one[0].question is None)
        return [one for one in rows if one[0].buttons is not None and one[0].buttons.choices]


class PastTurns:
    """Past turns of a chat, rebuilt from its events. `edits` has people's edits of messages, keyed by the edit's request id."""

    def __init__(self, found: Iterable[Event]) -> None:  # noqa: C901 - one `match` over event kinds
        said = dict[str, Inbound | None]()
        self.edits: dict[str, Inbound] = {}
        self.turns: dict[str, PastTurn] = {}
        queued = dict[str, Queued]()

        def versions(change: Inbound) -> dict[str, Inbound]:
            return {name: one for name, one in said.items() if one is not None and same_message(one, change)}

        for event in found:
            turn = self.turns.setdefault(event.turn, PastTurn(event.turn)) if event.turn is not None else None
            match event.data:
                case events.Received(inbound):
                    said[inbound.request_id] = inbound
                case events.Edited(edit):
                    self.edits[edit.request_id] = edit
                    older = {name: one for name, one in versions(edit).items() if one.ts <= edit.ts}
                    said |= {name: revised(one, edit) for name, one in older.items()}
                case events.Deleted(deletion):
                    said |= dict.fromkeys(versions(deletion))
                case events.TurnStarted(members) | events.Joined(members) if turn is not None:
                    turn.members |= dict.fromkeys(members)
                    turn.first = turn.first or said.get(turn.id)
                case events.TurnEnded(end) if turn is not None:
                    turn.end = end
                case events.Queued(row):
                    queued[row] = event.data
                case events.RowEnded(row, "sent", str(message_id)) if turn is not None and row in queued:
                    turn.shown[row] = (queued[row], message_id)
        for turn in self.turns.values():
            turn.members = {name: said.get(name) for name in turn.members}

    @property
    def newest(self) -> PastTurn | None:
        """Return the latest turn that answers a message of a person."""
        turns = reversed(self.turns.values())
        return next((turn for turn in turns if turn.first and plain(turn.first)), None)

    def about(self, edit: Inbound) -> PastTurn | None:
        """Return the latest turn that answered the message which `edit` changes; None if no turn answered it."""
        found = (
            turn
            for turn in reversed(self.turns.values())
            if any(one is not None and same_message(one, edit) for one in turn.members.values())
        )
        return next(found, None)


def with_buttons(shown: tuple[Queued, str], buttons: QuestionButtons) -> Queued:
    """Return an edit of a sent message that replaces its buttons and keeps its text."""
    row, message_id = shown
    name = f"{row.row}/{buttons.question_id}/{'-'.join(buttons.choices)}"
    same = replace(row, row=name, replaces=message_id, buttons=buttons)
    return replace(same, call=None, ends=False, repeat_of=None, part_of=None)


AGAIN: tuple[Choice, ...] = ("again",)
RENEW: tuple[Choice, ...] = ("renew",)
ANSWERED = frozenset[TurnEndState]({"answered", "stopped"})


@dataclass(eq=False)
class Retries:
    """Retries failed turns, and answers edited messages again. No retry runs twice, because the log accepts each key only once."""

    runtime: Runtime
    _begun: set[str] = field(default_factory=set)
    """Keys of the messages that this process has created for retries."""

    async def run(self, press: Inbound) -> Done:
        """Run `/retry`: try a failed turn again, or answer the latest turn again if no turn is running. The new turn
        has the rights of the person whose message it answers. That person and operators may use the command.
        """
        past = PastTurns(await self.runtime.event_log.read(press.chat_key))
        turn = past.turns.get(press.args)
        if turn is None or turn.end is None or turn.first is None or not plain(turn.first):
            return Done(say("retry.unknown"))
        if not self._may(press, turn.first):
            return Done(say("retry.not_yours"))
        key = f"{press.channel}:again:{turn.id}"
        if turn.end not in ANSWERED:
            bare = [with_buttons(one, QuestionButtons(turn.id, ())) for one in turn.notices]
            return await self._begin(turn, key, say("retry.trying"), bare)
        chat = await self.runtime.chats.get(press.chat_key)
        if past.newest is not turn or chat.turn is not None:
            return Done(say("retry.not_last"))
        return await self._anew(turn, key, say("retry.renewing"))

    async def offer(self, edit: Inbound) -> Done:
        """Offer to answer an edited message again. If the edit itself asks for a new answer, answer at once."""
        turn = PastTurns(await self.runtime.event_log.read(edit.chat_key)).about(edit)
        if edit.renews is not None:
            if turn is None or turn.first is None or not self._may(edit, turn.first):
                return Done(say("retry.unknown"))
            return await self._anew(turn, f"{edit.channel}:renew:{edit.request_id}", "")
        if turn is None or turn.end != "answered" or turn.answer is None or not edit.has_text:
            return Done()
        shown = with_buttons(turn.answer, QuestionButtons(edit.request_id, RENEW))
        return Done(facts=(Fact(edit.chat_key, shown),))

    async def renew(self, press: Inbound) -> Done:
        """Run `/renew`: replace the answer to an edited message. The author of the message and operators may use the command."""
        past = PastTurns(await self.runtime.event_log.read(press.chat_key))
        edit = past.edits.get(press.args)
        turn = past.about(edit) if edit is not None else None
        if turn is None or turn.first is None or turn.answer is None or not plain(turn.first):
            return Done(say("retry.unknown"))
        if not self._may(press, turn.first):
            return Done(say("retry.renew_not_yours"))
        bare = with_buttons(turn.answer, QuestionButtons(press.args, ()))
        key = f"{press.channel}:renew:{press.args}"
        return await self._begin(turn, key, say("retry.renewing"), [bare], renews=bare.replaces)

    async def _anew(self, turn: PastTurn, key: str, words: str) -> Done:
        """Answer a turn again, replacing its answer. Remove the old turn from the model's context."""
        bare = [with_buttons(one, QuestionButtons(turn.id, ())) for one in turn.notices]
        done = await self._begin(turn, key, words, bare, renews=turn.text)
        if turn.first is None or not done.facts:
            return done
        chat = await self.runtime.chats.get(turn.first.chat_key)
        kept = chat.context.turns[-1] if chat.context.turns else None
        if chat.turn is not None or kept is None or kept.id != turn.id:
            return done
        gone = Cut(tuple(entry.seq for entry in kept.entries), chat.context.head, "undo")
        return replace(done, facts=(Fact(chat.key, gone), *done.facts))

    async def _begin(
        self, turn: PastTurn, key: str, words: str, shown: Sequence[Queued], *, renews: str | None = None
    ) -> Done:
        """Return the events of a retry: edits that remove buttons, and the new message. A second press returns no events."""
        whole = turn.whole()
        if whole is None:
            return Done(say("retry.unknown"))
        if key in self._begun or await self.runtime.event_log.known((key,)):
            return Done(say("retry.renewed" if ":renew:" in key else "retry.begun"))
        self._begun.add(key)
        name, now = self.runtime.ids.ulid(), int(self.runtime.clock.now() * 1000)
        new = {"request_id": name, "ts": now, "keys": (key,), "renews": renews or whole.renews}
        inbound = whole.model_copy(update=new)
        asked = Fact(inbound.chat_key, Received(inbound), person=inbound.user_id, id=name)
        return Done(words, (*(Fact(inbound.chat_key, one) for one in shown), asked))

    def _may(self, press: Inbound, asked: Inbound) -> bool:
        theirs = press.person == asked.person or self.runtime.access.is_operator(press.person)
        return theirs and self.runtime.access.judge(asked).allowed


def _build(runtime: Runtime) -> Hooks:
    retries = Retries(runtime)
    return Hooks(
        commands={"retry": Command(retries.run), "renew": Command(retries.renew)},
        signals={"edit": Command(retries.offer)},
        # A failed turn's message has the button [Try again].
        turn_ends={
            "failed": lambda turn, _: Done(
                buttons=QuestionButtons(turn.id, AGAIN) if plain(turn.first) else None
            )
        },
    )


FEATURE = Feature("retries", _build)
