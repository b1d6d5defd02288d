"""Resumes an earlier conversation of a chat, and forks the current conversation at a past turn.

Nothing is lost: the conversation that was current stays in the log and can be resumed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bot import text
from bot.contracts.base import Message
from bot.contracts.inbound import Inbound
from bot.core import events, rendering
from bot.core.chat import Chat
from bot.core.chats import Fact
from bot.core.context import AgentContextStore, KeptTurn
from bot.core.events import Event
from bot.core.feature import Done, Runtime
from bot.core.turn_lookup import TurnLookup
from bot.words import paragraph, say, times

LISTED = 10
SHORTEST = 4
"""Min letters of a short id. More letters are used if two ids have the same ending."""
ULID = 26
MOST_BACK = 6
"""Max digits of a number of turns; a longer argument is an id."""


@dataclass(frozen=True, slots=True)
class View:
    """The state of a conversation as the model sees it: the turns, the summary (`head`) that replaces older
    turns, and the masked results.
    """

    turns: tuple[str, ...] = ()
    head: Message | None = None
    masked: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, context: AgentContextStore) -> View:
        """Return the view of a chat's context."""
        return cls(tuple(turn.id for turn in context.turns), context.head, dict(context.masked))


@dataclass(slots=True)
class Session:
    """A conversation. `points` are its ended turns, each with the view after that turn; `last` is in epoch seconds."""

    id: str
    view: View = field(default_factory=View)
    points: list[tuple[KeptTurn, View]] = field(default_factory=list)
    last: float = 0.0


class Sessions:
    """The conversations of a chat, computed from the chat's events."""

    def __init__(self) -> None:
        self.all: dict[str, Session] = {}
        self.current = Session("")

    def apply(self, event: Event, chat: Chat) -> None:
        """Apply one event, given the state of the chat after the event."""
        context, before = chat.context, self.current
        match data := event.data:
            case _ if not before.id:
                self._begin(event.id)
            case events.Cut(reason="new"):
                self._begin(event.id)
            case events.SessionMoved():
                self._begin(data.session)
                if data.forked_at:
                    ids = [turn.id for turn, _ in before.points]
                    self.current.points = before.points[: ids.index(data.forked_at) + 1]
                    self.current.last = event.at
            case events.TurnEnded() if context.turns and context.turns[-1].id == event.turn:
                before.points.append((context.turns[-1], View.of(context)))
                before.last = event.at
            case events.Cut(reason="undo"):
                before.points = before.points[:-1]
            case events.Cut() | events.Masked() | events.Removed() | events.Expired():
                pass
            case _:
                return
        self.current.view = View.of(context)

    def _begin(self, name: str) -> None:
        self.current = self.all.setdefault(name, Session(name))

    @property
    def listed(self) -> list[Session]:
        """Return the conversations that contain messages, newest first."""
        return sorted((one for one in self.all.values() if one.points), key=lambda one: -one.last)

    def short(self, name: str) -> str:
        """Return the shortest ending of an id that no other conversation's id has."""
        return short(name, self.all)


class SessionCommands:
    """Runs `/resume` and `/fork`."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime
        self._turns = TurnLookup(runtime.chats, runtime.event_log)

    async def resume(self, inbound: Inbound) -> Done:
        """Run `/resume`: resume an earlier conversation, or list the conversations."""
        sessions = Sessions()
        past = await self._run.chats.whole(inbound.chat_key, sessions.apply)
        asked = next(iter(inbound.args.split()), "")
        if not asked:
            return Done(self._list(inbound, sessions))
        prefix, shown = self._run.manifests[inbound.channel].command_prefix, text.preview(asked, 40)
        found = [one for one in sessions.all.values() if one.points and one.id.endswith(asked.upper())]
        found = found if len(asked) >= SHORTEST else []
        if len(found) != 1:
            return Done(
                say("sessions.ambiguous", id=shown)
                if found
                else say("sessions.unknown", id=shown, prefix=prefix)
            )
        if found[0] is sessions.current:
            return Done(say("sessions.here", id=shown))
        back = sessions.short(found[0].id)
        words = paragraph(say("sessions.back", id=back, prefix=prefix), *self._way_back(sessions, prefix))
        return Done(words, (await self._moved(inbound, past, sessions, found[0].id, found[0].view),))

    async def fork(self, inbound: Inbound) -> Done:
        """Run `/fork`: fork the current conversation at a past turn."""
        asked = next(iter(inbound.args.split()), "")
        prefix = self._run.manifests[inbound.channel].command_prefix
        sessions = Sessions()
        past = await self._run.chats.whole(inbound.chat_key, sessions.apply)
        points, back = sessions.current.points, 0
        at = len(points) - 1
        if asked.isdecimal() and len(asked) <= MOST_BACK:
            back = int(asked)
            at -= back
        elif wanted := asked or inbound.answers:
            ref = await self._turns.found(inbound, wanted)
            if ref is None:
                return Done(say("sessions.fork_unknown", asked=text.preview(wanted, 40)))
            at = next((at for at, (turn, _) in enumerate(points) if turn.id == ref.id), -1)
            if at < 0:
                return Done(say("sessions.fork_elsewhere", prefix=prefix))
        if not points:
            return Done(say("sessions.fork_nothing"))
        if at < 0:
            return Done(say("sessions.fork_short", count=len(points), back=back))
        left, (turn, view) = len(points) - 1 - at, points[at]
        words = say("sessions.forked_without", count=left) if left else say("sessions.forked")
        name = self._run.ids.ulid()
        moved = await self._moved(inbound, past, sessions, name, view, forked_at=turn.id)
        return Done(paragraph(words, *self._way_back(sessions, prefix)), (moved,))

    async def _moved(
        self, inbound: Inbound, past: Chat, sessions: Sessions, name: str, view: View, *, forked_at: str = ""
    ) -> Fact:
        """Return the fact that switches the chat to this view. The turns of the view are loaded into the chat first."""
        left = sessions.current.id
        what = "a fork of the session begins" if forked_at else "an earlier session goes on"
        self._run.log.write("session", what, chat_key=inbound.chat_key, session=name, left=left)
        here = (await self._run.chats.get(inbound.chat_key)).context
        kept = {turn.id: turn for turn in past.context.turns}
        known = (past.context.left or {}) | kept
        here.recall({one: turn for one, turn in known.items() if one in view.turns})
        return Fact(
            inbound.chat_key, events.SessionMoved(name, view.turns, view.head, view.masked, forked_at)
        )

    def _list(self, inbound: Inbound, sessions: Sessions) -> str:
        if not sessions.listed:
            return say("sessions.none")
        now = self._run.clock.now()
        lines = []
        for one in sessions.listed[:LISTED]:
            words = self._run.redact(rendering.said(one.points[0][0].entries[0].message))
            line = say(
                "sessions.line",
                id=sessions.short(one.id),
                time=times.recent(one.last, now),
                count=sum(len(turn.entries) for turn, _ in one.points),
                here=say("sessions.current") if one is sessions.current else "",
                words=say("sessions.words", words=words) if words else "",
            )
            lines.append(line)
        end = say("sessions.list_end", prefix=self._run.manifests[inbound.channel].command_prefix)
        return "\n".join([say("sessions.list"), *lines, end])

    @staticmethod
    def _way_back(sessions: Sessions, prefix: str) -> list[str]:
        """Return a sentence that says how to return to the previous conversation; nothing if that
        conversation has no turns.
        """
        left = sessions.current
        return [say("sessions.return", id=sessions.short(left.id), prefix=prefix)] if left.points else []


def short(name: str, known: Collection[str]) -> str:
    """Return the shortest ending of an id that no other known id has."""
    others = [one for one in known if one != name]
    for length in range(SHORTEST, ULID):
        if not any(one.endswith(name[-length:]) for one in others):
            return name[-length:]
    return name
