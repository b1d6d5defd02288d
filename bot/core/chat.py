"""The life of one chat: a fold of its events, and what they ask for next.

Pure: no I/O, no clock, no tasks. `Chat.apply` folds an event, in a running process as at a start; `Chat.due` gives what is to be done
now. What an effect comes to is appended as events again. An event that begins something carries the `boot` of the process that began
it: what this boot began is in flight, what another began was cut off, and is due again. Nothing else exists for what comes after a crash.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from bot import errors
from bot.contracts.approvals import ApprovalRecord, Verdict
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import Attachment, Inbound, SeenFile
from bot.core import events
from bot.core.context import AgentContextStore
from bot.core.event_log import Position
from bot.core.events import Event
from bot.core.file_words import UNSEEN, UNSEEN_BY_MODEL
from bot.core.message_versions import (
    can_coalesce,
    can_join_running_turn,
    has_newer_words,
    is_follow_up,
    plain,
    reaches,
    revised,
    same_message,
    stops,
    whole,
)
from bot.core.outbox_row import OutboxRow
from bot.core.question import Question
from bot.core.removal import Gone

MOST_ATTEMPTS = 5
"""Limit of starts of a turn without recorded progress in between: a turn that kills its process must not kill every next one."""
MOST_RESTARTS = 2
"""Limit of model calls that one turn gives up so that a further message is part of the question."""
ALBUM_SECONDS = 1.0
"""Seconds of quiet after an item of an album that comes one by one before the album counts as whole."""
PASTE_SECONDS = 2.5
"""Seconds after a full message in which the rest of its text comes."""
LONGEST_BURST = 5
"""Limit of a burst, in multiples of the quiet that ends it: its turn then begins although its person still writes."""
MOST_EARLY = 10
"""Limit of messages of which an edit or deletion came first: the platforms bring them within seconds."""
MOST_FILES = 50
"""Limit of files sent that are told from one whose outcome is not known: its platform is asked for the newest."""
MOST_MISSED = 5
"""Limit of answers, newest first, of which the next one says that they did not arrive."""
MOST_EDITS = 20
"""Limit of edits, newest first, that the next turn is told of."""
KNOWN = 500
"""Limit of messages, newest first, whose edits and deletions are recognised after they were answered."""


@dataclass(frozen=True, slots=True)
class QueueMode:
    """`steers`: a running turn takes up what its person adds. `interrupts`: that stops it. `collects`: all that waits of
    one person in one chat is one turn.
    """

    steers: bool = False
    interrupts: bool = False
    collects: bool = False


MODES: Mapping[str, QueueMode] = {
    "steer": QueueMode(steers=True),
    "followup": QueueMode(),
    "collect": QueueMode(collects=True),
    "interrupt": QueueMode(interrupts=True, collects=True),
}


class Phase(Enum):
    """The state of a turn."""

    STARTING = auto()
    """It reads what it begins with."""
    RUNNING = auto()
    """The model has its question."""
    SUSPENDED = auto()
    """It waits for a person."""
    STOPPING = auto()
    """Somebody has stopped it; it ends as soon as what runs has let go."""
    ENDING = auto()
    """Its last words are queued: nothing can stop it any more."""
    ENDED = auto()


@dataclass(slots=True, eq=False)
class Turn:
    """From the messages that it answers to its end. `id` is the request id of the first one."""

    id: str
    members: list[Inbound]
    boot: str = ""
    phase: Phase = Phase.STARTING
    attempts: int = 0
    """Starts since it last got further, but for those that a process left in good order, and those in which it waited for a person."""
    call: str | None = None
    """The call of the model that is awaited; an answer to any other is ignored."""
    tools: dict[str, str] = field(default_factory=dict)
    """Boots of the tool calls that have begun and not ended, by the id of the call."""
    tasks: dict[str, str] = field(default_factory=dict)
    """Tasks that were given out and have not reported, by the id of the call."""
    acted: bool = False
    """People have seen something of its answer, or a tool with effects has begun."""
    restarts: int = 0
    withdrawn: set[str] = field(default_factory=set)
    edits: set[str] = field(default_factory=set)
    """The edits of earlier messages that the model was told of."""
    rows: dict[str, events.RowEnded | None] = field(default_factory=dict)
    """Its messages by row, with their ends; None while one may still go out."""
    seen: dict[str, tuple[SeenFile, ...]] = field(default_factory=dict)
    """The outcome of the files of its messages, by request id."""
    unread: list[tuple[Sequence[Attachment], Sequence[SeenFile]]] = field(default_factory=list)
    """Files of which its people have still to hear, below its next answer, that they were not read."""
    unshown: set[str] = field(default_factory=set)
    """Artifacts of files that the model could not be shown."""
    end: str | None = None

    @property
    def first(self) -> Inbound:
        return self.members[0]

    @property
    def left(self) -> list[Inbound]:
        """The members that were not deleted meanwhile."""
        return [one for one in self.members if one.request_id not in self.withdrawn]

    @property
    def may_restart_model_call(self) -> bool:
        """True while nobody has seen anything of its answer and nothing was done for it."""
        return self.phase is Phase.RUNNING and not self.acted and self.restarts < MOST_RESTARTS

    @property
    def answered(self) -> bool:
        """True once words that end it are queued, and did not fail."""
        return self.phase is Phase.ENDING

    def progress(self) -> None:
        self.attempts = 0

    def about(self, change: Inbound) -> Inbound | None:
        """The newest member that a change is about."""
        return next((one for one in reversed(self.members) if same_message(one, change)), None)


STOPPABLE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED})


@dataclass(frozen=True, slots=True)
class Stopped:
    """The outcome of a stop: the commands that have not run for it, whether it has ended anything, and a message of somebody else whose
    turn it may not end.
    """

    commands: tuple[str, ...] = ()
    anything: bool = False
    goes_on: Inbound | None = None


@dataclass(slots=True)
class Waiting:
    """A message that no turn has yet. `seq` is the number of its event; `burst` that of the burst it belongs to."""

    inbound: Inbound
    seq: int
    burst: int


@dataclass(slots=True)
class Burst:
    """Messages that one person writes in a row, until they have been quiet."""

    number: int
    began: float
    until: float
    parts: bool = False
    """It is an album or a long text that comes in parts, and may not be whole."""
    goes_on: bool = False
    """The rest of a long text is to come."""


# ------------------------------------------------------------ effects


@dataclass(frozen=True, slots=True)
class StartTurn:
    """Run this turn: a new one of these messages, or the one that was cut off."""

    members: tuple[Inbound, ...]
    attempts: int


@dataclass(frozen=True, slots=True)
class AskAnew:
    """Give up the model call that runs: its person has added something before anybody saw an answer."""

    turn: str
    call: str


@dataclass(frozen=True, slots=True)
class StopTurn:
    """End this turn as stopped."""

    turn: str


@dataclass(frozen=True, slots=True)
class Handle:
    """Carry out what needs no turn: a command that passes the queues, a signal."""

    inbound: Inbound


@dataclass(frozen=True, slots=True)
class Send:
    """Send this message."""

    row: OutboxRow


@dataclass(frozen=True, slots=True)
class Find:
    """Find out whether this message arrived: the process that sent it has died, or its platform did not answer."""

    row: OutboxRow


@dataclass(frozen=True, slots=True)
class Expire:
    """End this question: nobody decided in time."""

    question: Question


@dataclass(frozen=True, slots=True)
class Revise:
    """Change this message, which shows a question, into the outcome."""

    row: OutboxRow
    question: Question


@dataclass(frozen=True, slots=True)
class EndLive:
    """Bring this live message to its end: nothing changes it any more, and nothing comes in its place."""

    row: OutboxRow


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Nothing is due before this time (epoch seconds)."""

    at: float


Effect = StartTurn | AskAnew | StopTurn | Handle | Send | Find | Expire | Revise | EndLive | WakeAt


class Chat:
    """One chat: who waits, the turn that runs, what goes out."""

    def __init__(
        self, key: ChatKey, mode: QueueMode = MODES["steer"], debounce: float = 0.0, max_messages: int = 60
    ) -> None:
        self.key = key
        self.seq = 0
        self.context = AgentContextStore(max_messages)
        self.turn: Turn | None = None
        self.task: events.Ordered | None = None
        """The order, where this is the chat of a task: the turn that gave it out runs it, and nothing is due here."""
        self.outbox: dict[str, OutboxRow] = {}
        """Messages that may still go out or change, in the order in which they were queued."""
        self.beside: dict[str, Inbound] = {}
        """Unfinished inbounds that need no turn, by request id."""
        self.stopped: dict[str, Stopped] = {}
        """Outcomes of stops that were not answered yet, by request id."""
        self.questions: dict[str, Question] = {}
        """Those that wait for a verdict, or whose copies do not say yet how they ended."""
        self.files_sent: list[str] = []
        """The platform's ids of the newest messages that are files, which alone do not say whose row they are."""
        self._mode = mode
        self._debounce = debounce
        self._people: dict[UserRef, list[Waiting]] = {}
        self._bursts: dict[UserRef, Burst] = {}
        self._known: OrderedDict[str, Inbound] = OrderedDict()
        """Messages as last told, by request id."""
        self._changes: dict[str, list[tuple[int, Inbound]]] = {}
        """Edits and deletions of messages that have not come yet, with the numbers of their events, by message id."""
        self._edits: dict[str, tuple[int, Inbound]] = {}
        """Edits of messages that were answered, with the numbers of their events, by the request id of the message, until a turn in view
        tells of them.
        """
        self.missed: list[OutboxRow] = []
        """Answers that will not arrive, until the next one tells of them."""
        self._opened: dict[str, int] = {}
        """The number of the event that began what is not at its end, by request id or row."""

    # ------------------------------------------------------------ what can be seen

    @property
    def open_since(self) -> int | None:
        """The number of the oldest event that something unfinished rests on; None where nothing is."""
        return min(self._opened.values(), default=None)

    @property
    def waiting(self) -> list[Inbound]:
        """Inbounds that wait for a turn, in order of arrival."""
        found = sorted((one for queue in self._people.values() for one in queue), key=lambda one: one.seq)
        return [one.inbound for one in found]

    @property
    def said(self) -> Sequence[Inbound]:
        """Messages as last told, oldest first: those that its context rests on, and some before."""
        return tuple(self._known.values())

    def deleted(self, inbound: Inbound) -> bool:
        """True of a message whose deletion has come before it."""
        return any(one.kind == "delete" for _, one in self._changes.get(inbound.message_id or "", ()))

    def asks(self, person: UserRef) -> bool:
        """True where a tool waits for what this person says next."""
        turn = self.turn
        return turn is not None and turn.first.person == person and bool(self._asked_by_tools(turn))

    def _asked_by_tools(self, turn: Turn) -> list[Question]:
        found = [one for one in self.questions.values() if one.turn == turn.id and one.of_tool]
        return [one for one in found if one.verdict is None]

    def joinable(self) -> list[Inbound]:
        """Messages that the running turn may take up now."""
        turn = self.turn
        if turn is None or turn.phase in {Phase.STOPPING, Phase.ENDING, Phase.ENDED}:
            return []
        if turn.phase is Phase.STARTING:
            return self._next(turn, can_coalesce) if self._mode.collects or self._mode.steers else []
        return self._next(turn, can_join_running_turn) if self._mode.steers else []

    # ------------------------------------------------------------ the fold: it never raises, whatever the order

    def apply(self, event: Event) -> None:
        """Take an event in. One that the state does not allow changes nothing."""
        self.seq = max(self.seq, event.seq)
        data, turn = event.data, self.turn
        stale = isinstance(data, events.Answered) and (turn is None or turn.call != data.call)
        if not stale:
            self.context.apply(event)
        fold = _FOLDS.get(type(data))
        if fold is not None:
            fold(self, event, data)

    @property
    def position(self) -> Position:
        """The position from which this chat can be folded."""
        rests_on = [
            self.context.base,
            *(seq for changes in self._changes.values() for seq, _ in changes),
            *(seq for seq, _ in self._edits.values()),
        ]
        return Position(min((one for one in rests_on if one is not None), default=self.seq), self.open_since)

    @property
    def untold_edits(self) -> list[Inbound]:
        """The newest edits of messages that were answered before, which the model has not been told of."""
        return [edit for _, edit in self._edits.values()]

    @property
    def untold(self) -> list[Inbound]:
        """Members of the running turn whose words the model has not been told, and can be: nothing stands between a call and its result."""
        running = self.context.running
        if self.turn is None or (running is not None and running.open_calls):
            return []
        told = self.context.sources()
        return [one for one in self.turn.left if one.request_id not in told]

    def _received(self, event: Event, data: events.Received) -> None:
        inbound = data.inbound
        changes = self._changes.pop(inbound.message_id or "", ())
        for _, change in changes:
            if change.kind == "delete":
                return
            inbound = revised(inbound, change)
        self._remember(inbound)
        self._opened[inbound.request_id] = min([event.seq, *(seq for seq, _ in changes)])
        if data.beside:
            self.beside[inbound.request_id] = inbound
            return
        self._wait(inbound, event)

    def _ordered(self, event: Event, data: events.Ordered) -> None:
        self.task = data
        self._opened[data.inbound.request_id] = event.seq
        self._wait(data.inbound, event)

    def _wait(self, inbound: Inbound, event: Event) -> None:
        who = inbound.person
        burst = self._burst(inbound, event.seq, event.at)
        self._people.setdefault(who, []).append(Waiting(inbound, event.seq, burst))
        turn = self.turn
        if turn is not None and turn.phase is Phase.SUSPENDED and inbound.person == turn.first.person:
            # Its person goes on: what it waits for is off, or this answers it.
            asked = self.asks(inbound.person)
            self._decide_all(turn, Verdict("steered", request_id=inbound.request_id), event.at)
            if asked:
                return
        if (
            turn is not None
            and self._mode.interrupts
            and turn.phase is Phase.RUNNING
            and is_follow_up(inbound, turn.first)
        ):
            turn.phase = Phase.STOPPING

    def _early(self, event: Event, change: Inbound) -> None:
        """Keep a change of a message that has not come yet; of those that never come the oldest go."""
        self._changes.setdefault(change.message_id or "", []).append((event.seq, change))
        while len(self._changes) > MOST_EARLY:
            del self._changes[next(iter(self._changes))]

    def _edited(self, event: Event, data: events.Edited) -> None:
        edit = data.inbound
        known = self._known_as(edit)
        if known is None:
            self._early(event, edit)
            return
        if has_newer_words(known, edit):
            return
        self._remember(revised(known, edit).model_copy(update={"ts": max(known.ts, edit.ts)}))
        waiting = next(
            (one for one in self._people.get(edit.person, ()) if same_message(one.inbound, edit)), None
        )
        if waiting is not None:
            waiting.inbound = revised(waiting.inbound, edit)
        elif (
            self.turn is not None
            and self.turn.phase is not Phase.ENDING
            and (said := self.turn.about(edit)) is not None
        ):
            # Taken up by the turn as anything that its person adds, or by one of its own.
            self._opened[edit.request_id] = event.seq
            self._wait(whole(said, edit), event)
        else:
            # Its message has its answer: the next turn is told of it, and features may have something to say.
            self._edits.pop(known.request_id, None)
            if plain(known) and edit.text.strip():
                self._edits[known.request_id] = event.seq, edit
            while len(self._edits) > MOST_EDITS:
                del self._edits[next(iter(self._edits))]
            self.beside[edit.request_id] = edit
            self._opened[edit.request_id] = event.seq

    def _deleted(self, event: Event, data: events.Deleted) -> None:
        deletion = data.inbound
        # The model does not see it from now on; its words leave the log as soon as they are found there.
        said = [one for one in self._known.values() if same_message(one, deletion)]
        for one in said:
            self._edits.pop(one.request_id, None)
        ids = {deletion.message_id or "", *(name for one in said for name in one.items)}
        self.context.remove(
            Gone(frozenset(one.request_id for one in said), messages=frozenset(ids)), head=False
        )
        self.beside[deletion.request_id] = deletion
        self._opened[deletion.request_id] = event.seq
        if self._known_as(deletion) is None:
            self._early(event, deletion)
            return
        self._take(lambda other: same_message(other, deletion))
        turn = self.turn
        if turn is not None:
            turn.withdrawn |= {one.request_id for one in turn.members if same_message(one, deletion)}
            if not turn.left:
                self._stop_turn(turn)

    def _stop(self, event: Event, data: events.Stop) -> None:
        stop = data.inbound

        def reached(other: Inbound) -> bool:
            return other.request_id < stop.request_id and (data.since is None or other.ts <= data.since)

        turn = self.turn
        # A turn that is about to begin is nobody's yet: where it is an operator's to stop, it does not begin.
        anybodys = data.everyones and turn is None
        taken = self._take(
            lambda other: (stops(stop, other) or (anybodys and reaches(stop, other))) and reached(other)
        )
        outcome = Stopped(tuple(one.command.name for one in taken if one.command is not None), bool(taken))
        if turn is not None and any(reaches(stop, one) and reached(one) for one in turn.members):
            if data.everyones or stop.chat_type == "direct" or stop.person == turn.first.person:
                outcome = replace(outcome, anything=outcome.anything or turn.phase in STOPPABLE)
                self._stop_turn(turn)
            elif turn.phase in STOPPABLE:
                outcome = replace(outcome, goes_on=turn.first)
        self.beside[stop.request_id] = stop
        self.stopped[stop.request_id] = outcome
        self._opened[stop.request_id] = event.seq

    def _closed(self, _: Event, data: events.Closed) -> None:
        self.beside.pop(data.request, None)
        self.stopped.pop(data.request, None)
        self._opened.pop(data.request, None)
        self._take(lambda other: other.request_id == data.request)

    # ------------------------------------------------------------ the turn

    def _turn_started(self, event: Event, data: events.TurnStarted) -> None:
        turn = self.turn
        if turn is None:
            members = self._taken(data.members)
            if not members:
                return
            turn = self.turn = Turn(event.turn or members[0].request_id, members)
            since = [self._opened[one.request_id] for one in members if one.request_id in self._opened]
            self.context.begin(turn.id, event.at, min([event.seq, *since]))
        if event.turn == turn.id:
            for question in self._asked_by_tools(turn) if turn.boot != data.boot else ():
                self._decide(question, Verdict("nobody"), event.at)
            turn.boot, turn.call = data.boot, None
            turn.attempts += turn.phase is not Phase.SUSPENDED

    def _turn_left(self, event: Event, _: events.TurnLeft) -> None:
        if (turn := self._running(event)) is not None and turn.phase is not Phase.SUSPENDED:
            turn.attempts = max(0, turn.attempts - 1)

    def _joined(self, event: Event, data: events.Joined) -> None:
        turn = self._running(event)
        if turn is None:
            return
        taken = self._taken(data.members)
        turn.members += taken
        if turn.call is not None:
            turn.call = None
            turn.restarts += all(one.kind != "edit" for one in taken)

    def _files_read(self, event: Event, data: events.FilesRead) -> None:
        turn = self._running(event)
        said = next((one for one in turn.left if one.request_id == data.request), None) if turn else None
        if turn is not None and said is not None:
            turn.seen[data.request] = data.files
            turn.unread.append((said.attachments[: len(data.files)], data.files))

    def _told(self, event: Event, data: events.Told) -> None:
        turn = self._running(event)
        if turn is None:
            return
        turn.edits.update(data.edits)
        if turn.phase is Phase.STARTING:
            turn.phase = Phase.RUNNING

    def _asked(self, event: Event, data: events.Asked) -> None:
        turn = self._running(event)
        if turn is not None:
            turn.call = data.call

    def _answered(self, event: Event, data: events.Answered) -> None:
        turn = self._running(event)
        if turn is not None and turn.call == data.call:
            turn.call = None
            turn.progress()
            self._not_shown(turn, set(data.unshown), UNSEEN_BY_MODEL if data.blind else UNSEEN)

    def _not_shown(self, turn: Turn, artifacts: set[str], why: SeenFile) -> None:
        for one in turn.left if artifacts else ():
            for file, seen in zip(one.attachments, turn.seen.get(one.request_id, ()), strict=False):
                if seen.shown is not None and seen.shown.artifact in artifacts - turn.unshown:
                    turn.unshown.add(seen.shown.artifact)
                    turn.unread.append(((file,), (why,)))

    def _tool_started(self, event: Event, data: events.ToolStarted) -> None:
        turn = self._running(event)
        if turn is not None:
            turn.tools[data.call] = data.boot
            if data.task:
                turn.tasks[data.call] = data.task
            turn.acted = True

    def _tool_ended(self, event: Event, data: events.ToolEnded) -> None:
        turn = self._running(event)
        if turn is not None:
            turn.tools.pop(data.call, None)
            turn.tasks.pop(data.call, None)
            turn.progress()

    def _turn_ended(self, event: Event, data: events.TurnEnded) -> None:
        turn = self._running(event)
        if turn is None:
            return
        turn.phase, turn.end, self.turn = Phase.ENDED, data.end, None
        self._decide_all(turn, Verdict("stopped"), event.at)
        if data.end != "withdrawn":  # what was told stays in view
            self._edits = {
                name: one for name, one in self._edits.items() if one[1].request_id not in turn.edits
            }
        for one in turn.members:
            self._opened.pop(one.request_id, None)
        if (who := turn.first.person) in self._people:
            # Behind the others of the chat, those included who came while this turn ran.
            self._people[who] = self._people.pop(who)

    def _cut(self, _: Event, data: events.Cut) -> None:
        if data.dropped == "all":
            self._edits.clear()

    def _removed(self, _: Event, data: events.Removed) -> None:
        # The event of an edit has lost its words: nobody is told them.
        gone = {*data.requests, *data.messages}
        self._edits = {
            name: one
            for name, one in self._edits.items()
            if gone.isdisjoint({name, one[1].request_id, one[1].message_id})
        }
        self.missed = [one for one in self.missed if one.turn not in data.turns]

    # ------------------------------------------------------------ questions

    def _question_asked(self, event: Event, data: events.QuestionAsked) -> None:
        turn = self._running(event)
        self.questions[data.question] = Question(
            ApprovalRecord(data.question, data.asked, event.at), event.turn
        )
        self._opened[_of_question(data.question)] = event.seq
        if turn is not None and turn.phase in {Phase.STARTING, Phase.RUNNING}:
            turn.phase = Phase.SUSPENDED
            turn.progress()

    def _decided(self, event: Event, data: events.Decided) -> None:
        question = self.questions.get(data.question)
        if question is not None:
            self._decide(question, data.verdict, event.at)

    def _decide(self, question: Question, verdict: Verdict, at: float) -> None:
        if question.verdict is None:
            question.decided = self.seq
        question.decide(verdict, at)
        # What shows it and was not sent yet is not needed any more.
        for row in [one for one in self.outbox.values() if one.question == question.id]:
            if row.state == "queued":
                self._end_row(row.id, arrived=False)
        turn = self.turn
        if turn is not None and turn.id == question.turn and turn.phase is Phase.SUSPENDED:
            turn.phase = Phase.RUNNING
            for row in list(question.copies.values()):
                self._outdate(turn.id, row)  # what comes now is to stand below it
        self._forget(question)

    def _decide_all(self, turn: Turn, verdict: Verdict, at: float) -> None:
        """Decide what a turn waits for."""
        for question in [one for one in self.questions.values() if one.turn == turn.id]:
            self._decide(question, verdict, at)

    def _revised(self, _: Event, data: events.Revised) -> None:
        for question in list(self.questions.values()):
            if question.copies.pop(data.row, None) is not None:
                self._forget(question)

    def _forget(self, question: Question) -> None:
        # A turn that was cut off finds the verdict that its call had.
        waited_for = self.turn is not None and self.turn.id == question.turn
        if question.over and not waited_for:
            self.questions.pop(question.id, None)
            self._opened.pop(_of_question(question.id), None)

    # ------------------------------------------------------------ what goes out

    def _queued(self, event: Event, data: events.Queued) -> None:
        row = self.outbox[data.row] = OutboxRow.of(data, event)
        self._opened[data.row] = event.seq
        turn = self._running(event)
        if (question := self.questions.get(data.question or "")) is not None:
            question.rows[data.row] = None
            if question.verdict is not None:
                self._end_row(data.row, arrived=False)
            return
        if turn is None:
            return
        if data.form == "reply":
            self.missed = [one for one in self.missed if one.turn == turn.id]
        turn.acted = turn.acted or data.form in {"reply", "preview"}
        if not row.live:
            turn.rows[data.row] = None
        if data.form == "reply" and data.ends and turn.phase in {Phase.STARTING, Phase.RUNNING}:
            turn.phase = Phase.ENDING

    def _deferred(self, _: Event, data: events.Deferred) -> None:
        self._row(data.row, not_before=data.until, delayed=True, state="queued")

    def _sending(self, _: Event, data: events.Sending) -> None:
        self._row(data.row, state="sending", boot=data.boot, replaces=data.replaces)
        row = self.outbox.get(data.row)
        if row is not None and row.form == "reply" and row.last and row.turn is not None:
            self._outdate(row.turn, row)

    def _outdate(self, turn: str, below: OutboxRow) -> None:
        """Nothing comes in the place of the previews of a turn any more that stand above this row."""
        for row in list(self.outbox.values()):
            if row.turn == turn and row.form == "preview" and row.place == below.place:
                self._row(row.id, outdated=True)

    def _returned(self, _: Event, data: events.Returned) -> None:
        self._row(data.row, state="queued", replaces=None)

    def _uncertain(self, _: Event, data: events.Uncertain) -> None:
        self._row(data.row, boot="")

    def _shown(self, _: Event, data: events.Shown) -> None:
        self._row(data.row, message_id=data.message_id)

    def _row_ended(self, _: Event, data: events.RowEnded) -> None:
        row = self._end_row(data.row, arrived=data.state == "sent", message_id=data.message_id)
        turn = self.turn
        if turn is not None and data.row in turn.rows:
            turn.rows[data.row] = data
            if data.state == "sent":
                turn.unread = []  # its words end with them
        if row is not None and row.file is not None and data.message_id:
            self.files_sent = [*self.files_sent, data.message_id][-MOST_FILES:]
        if row is None or data.state == "sent":
            return
        late = data.reason == errors.TargetGone.code or row.delayed
        if row.form == "reply" and data.state == "failed" and late:
            self.missed = [*self.missed, row][-MOST_MISSED:]
        if (
            turn is not None
            and row.turn == turn.id
            and turn.phase is Phase.ENDING
            and data.state == "failed"
            and row.ends
        ):
            turn.phase = Phase.RUNNING  # its words are not in the chat: it may say them in another way

    def _end_row(self, name: str, *, arrived: bool, message_id: str | None = None) -> OutboxRow | None:
        """Take a row out of the outbox; one that shows a question is a copy of it from now on."""
        row = self.outbox.pop(name, None)
        self._opened.pop(name, None)
        question = self.questions.get(row.question or "") if row is not None else None
        if row is not None and question is not None:
            question.rows[name] = arrived
            if arrived and question.of_tool:
                self._outdate(row.turn or "", row)
            elif arrived and row.file is None:
                question.copies[name] = replace(row, message_id=message_id)
            self._forget(question)
        return row

    def _row(self, name: str, **changed: object) -> None:
        row = self.outbox.get(name)
        if row is not None:
            self.outbox[name] = replace(row, **changed)  # type: ignore[arg-type]  # the names are those of fields

    # ------------------------------------------------------------ what is due

    def due(self, now: float, boot: str, committed: int) -> list[Effect]:
        """Return the effects that are due. `committed` is the number of the newest event on disk: what is behind it starts nothing. What is
        in flight already may be named again.
        """
        if self.task is not None:
            return []
        self._bursts = {who: burst for who, burst in self._bursts.items() if now < burst.until}
        found: list[Effect] = [*self._due_rows(now, boot)]
        found += [Handle(one) for name, one in self.beside.items() if self._opened[name] <= committed]
        found += self._due_questions(now, committed)
        turn = self.turn
        if turn is None:
            found += self._due_turn(committed)
        elif turn.phase is Phase.STOPPING:
            found.append(StopTurn(turn.id))
        elif turn.boot != boot:
            found.append(StartTurn(tuple(turn.members), turn.attempts))
        elif turn.call is not None and self._asks_anew(turn):
            found.append(AskAnew(turn.id, turn.call))
        elif (burst := self._bursts.get(turn.first.person)) is not None and burst.parts:
            found.append(WakeAt(burst.until))
        return found

    def _due_turn(self, committed: int) -> Iterator[Effect]:
        wake: float | None = None
        for who, queue in self._people.items():
            first = queue[0]
            burst = self._bursts.get(who)
            if burst is not None and first.burst == burst.number:
                wake = min(wake or burst.until, burst.until)
            elif first.seq <= committed:
                yield StartTurn(tuple(one.inbound for one in self._together(queue)), 0)
                return
        if wake is not None:
            yield WakeAt(wake)

    def _due_rows(self, now: float, boot: str) -> Iterator[Effect]:
        """The oldest open row of each target: one at a time, in order. One that was put off keeps its place among those of its target."""
        seen = set[tuple[tuple[str, str], ...]]()
        answering = {row.turn for row in self.outbox.values() if row.form == "reply"}
        for row in self.outbox.values():
            if row.live and row.message_id is not None:
                # It stands in the chat, and is changed by its turn, until something comes in its place or the turn is over.
                over = self.turn is None or self.turn.id != row.turn
                if row.outdated or (over and row.turn not in answering):
                    yield EndLive(row)
                continue
            if row.place in seen:
                continue
            seen.add(row.place)
            if row.state == "sending":
                if row.boot != boot:
                    # A change that was cut off is made again: that changes nothing.
                    yield Find(row) if row.replaces is None else Send(row)
            elif row.not_before is not None and now < row.not_before:
                yield WakeAt(row.not_before)
            else:
                yield Send(row)

    def _due_questions(self, now: float, committed: int) -> Iterator[Effect]:
        for question in self.questions.values():
            if question.verdict is not None:
                if question.decided <= committed:
                    yield from (Revise(row, question) for row in question.copies.values())
            elif now >= question.record.expires_at:
                yield Expire(question)
            elif question.record.expires_at < math.inf:
                yield WakeAt(question.record.expires_at)

    # ------------------------------------------------------------ inside

    def _asks_anew(self, turn: Turn) -> bool:
        """True where its question has changed: what is being said answers words that an edit has changed, or nobody has seen anything of it."""
        more = self.joinable()
        edited = turn.phase is Phase.RUNNING and any(one.kind == "edit" for one in more)
        return edited or (turn.may_restart_model_call and bool(more))

    def _running(self, event: Event) -> Turn | None:
        return self.turn if self.turn is not None and self.turn.id == event.turn else None

    def _stop_turn(self, turn: Turn) -> None:
        if turn.phase in STOPPABLE:
            turn.phase = Phase.STOPPING

    def _remember(self, inbound: Inbound) -> None:
        self._known[inbound.request_id] = inbound
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)

    def _known_as(self, change: Inbound) -> Inbound | None:
        return next((one for one in reversed(self._known.values()) if same_message(one, change)), None)

    def _taken(self, names: Sequence[str]) -> list[Inbound]:
        """Take messages out of the queue, in the order of their names."""
        found = {
            one.request_id: one for one in self._take(lambda other: other.request_id in names, over=False)
        }
        return [found[name] for name in names if name in found]

    def _take(self, wanted: Callable[[Inbound], bool], *, over: bool = True) -> list[Inbound]:
        """Take every wanted message out of the queue. Those that are `over` need nothing more."""
        taken: list[Inbound] = []
        for who, queue in list(self._people.items()):
            gone = [one.inbound for one in queue if wanted(one.inbound)]
            if not gone:
                continue
            taken += gone
            left = [one for one in queue if one.inbound not in gone]
            if left:
                self._people[who] = left
            else:
                del self._people[who]
                self._bursts.pop(who, None)
        for one in taken if over else ():
            self._opened.pop(one.request_id, None)
        return taken

    def _next(self, turn: Turn, wanted: Callable[[Inbound, Inbound], bool]) -> list[Inbound]:
        """Messages that its person has waiting, up to the first that is not wanted, that is part of an album which is not whole yet, or
        that came after what somebody else has waiting: they come first.
        """
        who = turn.first.person
        burst = self._bursts.get(who)
        coming = burst.number if burst is not None and burst.parts else None
        others = [queue[0].seq for other, queue in self._people.items() if other != who]
        before = [one for one in self._people.get(who, ()) if not others or one.seq < min(others)]
        taken = itertools.takewhile(
            lambda one: one.burst != coming and wanted(one.inbound, turn.first), before
        )
        return [one.inbound for one in taken]

    def _together(self, queue: Sequence[Waiting]) -> list[Waiting]:
        first = queue[0]
        return [
            first,
            *itertools.takewhile(
                lambda one: (
                    (self._mode.collects or one.burst == first.burst)
                    and can_coalesce(one.inbound, first.inbound)
                ),
                queue[1:],
            ),
        ]

    def _burst(self, inbound: Inbound, seq: int, at: float) -> int:
        """The number of the burst that a message belongs to. One that is not waited after ends the burst before it, and is the last of that
        where it is the rest of a long text.
        """
        who, quiet = inbound.person, 0.0
        if plain(inbound):
            part = PASTE_SECONDS if inbound.goes_on else ALBUM_SECONDS if inbound.of_album else 0.0
            quiet = max(self._debounce, part)
        burst = self._bursts.get(who)
        if burst is not None and at >= burst.until:
            burst = None
        if not quiet:
            self._bursts.pop(who, None)
            return seq if burst is None or not (burst.goes_on and plain(inbound)) else burst.number
        if burst is None:
            burst = self._bursts[who] = Burst(seq, at, 0.0)
        longest = at + quiet if inbound.goes_on else burst.began + LONGEST_BURST * quiet
        burst.until = max(burst.until, min(at + quiet, longest))
        burst.parts, burst.goes_on = inbound.of_album or inbound.goes_on, inbound.goes_on
        return burst.number


def chat_of_task(asked_in: ChatKey, task: str) -> ChatKey:
    """The key of a task's chat, below the chat that it was given out in."""
    return ChatKey(asked_in.channel, asked_in.chat_id, task, "task")


def _of_question(name: str) -> str:
    """The key of a question among what is open: the request of a stranger and the question about it have one name."""
    return f"question {name}"


_FOLDS: Mapping[type[events.EventData], Callable[[Chat, Event, object], None]] = {
    kind: getattr(Chat, f"_{kind.kind}") for kind in events.CORE if hasattr(Chat, f"_{kind.kind}")
}
