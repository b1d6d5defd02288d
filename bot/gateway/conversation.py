"""A conversation decides, for each event of its chat, who is next, what is one turn, and what an edit or a stop reaches.

Pure: no I/O, no tasks, no clock. `Conversation.apply` takes an event and returns the effects that its caller carries out
in order; `next_turn` takes the next turn out of the queue. How many turns run over all chats is the matter of `TurnQueue`.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from bot import errors
from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound, SeenFile
from bot.contracts.journal import STOPPED, WITHDRAWN, InboxEnd, InboxRecord
from bot.core.chat import QueueMode
from bot.core.message_versions import (
    can_coalesce,
    can_join_running_turn,
    is_follow_up,
    plain,
    reaches,
    same_message,
    stops,
    stops_below,
    whole,
)
from bot.gateway.message_versions import merged, outdated

HANDLED = InboxEnd("handled")
OUTDATED = InboxEnd("handled", "outdated")
CAME_TOO_LATE = InboxEnd("handled", "came too late")
UNKNOWN_MESSAGE = InboxEnd("handled", "came before its message")
MOST_RESTARTS = 2
"""Model calls of one turn that are given up so that a further message is part of the question."""
ALBUM_SECONDS = 1.0
"""Seconds after an item of an album in which the next one comes, where they come one by one."""
PASTE_SECONDS = 2.5
"""Seconds after a full message in which the rest of its text comes."""
LONGEST_BURST = 5
"""A burst is this many times the quiet that ends it at most: then its turn begins although its person still writes."""


def merged_into(message: Inbound) -> InboxEnd:
    """The end of an edit that is part of what a message says."""
    return InboxEnd("merged", merged_into=message.request_id)


# ------------------------------------------------------------ turns


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """The messages that one turn answers: one and the rest of its burst. `begun`: it did begin, before a restart; `stopped`: and
    was being stopped then.
    """

    first: Inbound
    rest: tuple[Inbound, ...] = ()
    begun: bool = False
    stopped: bool = False

    @property
    def all(self) -> tuple[Inbound, ...]:
        return (self.first, *self.rest)


class TurnPhase(IntEnum):
    """The progress of a turn; it only goes forward."""

    PENDING = 0
    """It began before a restart, and is the next one of its chat."""
    STARTED = 1
    """It reads its thread and its files, or carries out a command."""
    RUNNING = 2
    """The agent has it."""
    FINISHED = 3
    """It has said its last word; what is left is to record its end."""


@dataclass(slots=True, eq=False)
class Turn:
    """The turn of a chat, which is one until its end is on file. `joined` is what it took up while it ran."""

    plan: TurnPlan
    phase: TurnPhase = TurnPhase.STARTED
    joined: list[Inbound] = field(default_factory=list)
    withdrawn: set[str] = field(default_factory=set)
    stopped: bool = False
    end: InboxEnd | None = None
    """The end of its first message."""
    suspended: bool = False
    waits_for: Literal["approval", "question"] | None = None
    """It waits for this while it is suspended; None once that is decided."""
    seen: dict[str, tuple[SeenFile, ...]] = field(default_factory=dict)
    """The outcome of the files of its messages, by requestId."""
    below: list[str] = field(default_factory=list)
    unshown: set[str] = field(default_factory=set)
    """Artifacts of files of which its people were told that the model cannot be shown them."""
    """Sentences for its person, below its next answer."""
    acted: bool = False
    """People have seen something of its answer, or a tool with effects has run."""
    written: Sequence[str] = ()
    """The ids in the outbox of what it has answered so far."""
    restarts: int = 0
    """The number of times that its question was put anew."""

    @property
    def first(self) -> Inbound:
        return self.plan.first

    @property
    def all(self) -> tuple[Inbound, ...]:
        """Every message that it answers."""
        return (*self.plan.all, *self.joined)

    @property
    def left(self) -> tuple[Inbound, ...]:
        """Those of them that were not withdrawn."""
        return tuple(one for one in self.all if one.request_id not in self.withdrawn)

    @property
    def may_restart_model_call(self) -> bool:
        """True while the agent has it, nobody has seen anything of its answer, and nothing was done for it."""
        free = not (self.acted or self.stopped or self.suspended or self.plan.begun)
        return self.phase is TurnPhase.RUNNING and free and self.restarts < MOST_RESTARTS

    @property
    def over(self) -> bool:
        """True where nothing can stop it any more."""
        return self.phase is TurnPhase.FINISHED

    def reach(self, phase: TurnPhase) -> None:
        """Come further. Raises `errors.IllegalTransition` for a phase that it has reached already."""
        if phase <= self.phase:
            raise errors.IllegalTransition(f"a turn cannot become {phase.name} when it is {self.phase.name}")
        self.phase = phase

    def suspend(self, waits_for: Literal["approval", "question"]) -> None:
        """Wait for its person. Raises `errors.IllegalTransition` where the agent does not have it, or it waits already."""
        if self.phase is not TurnPhase.RUNNING or self.suspended:
            state = "suspended" if self.suspended else self.phase.name
            raise errors.IllegalTransition(f"a turn that is {state} cannot be suspended")
        self.suspended, self.waits_for = True, waits_for

    def decide(self) -> None:
        """It waits for nothing more: what it waited for is answered, or off."""
        self.waits_for = None

    def resume(self) -> None:
        """Go on, also where it is over meanwhile. Raises `errors.IllegalTransition` where it was not suspended."""
        if not self.suspended:
            raise errors.IllegalTransition("a turn that is not suspended cannot be resumed")
        self.suspended, self.waits_for = False, None

    def finish(self, end: InboxEnd) -> list[Effect]:
        """End, and each of its messages with it, at last the first one. Raises `errors.IllegalTransition` for a second end."""
        if self.end is not None:
            raise errors.IllegalTransition(f"a turn that has ended as {self.end.state} cannot end again")
        self.phase, self.end = TurnPhase.FINISHED, end
        others = [(one, WITHDRAWN if one.request_id in self.withdrawn else end) for one in self.all[1:]]
        return [*(Close(*one) for one in others), Close(self.first, end)]

    def about(self, change: Inbound) -> Inbound | None:
        """The newest message, or edit, of this turn that a change is about."""
        return next((one for one in reversed(self.all) if same_message(one, change)), None)

    def withdraw(self, change: Inbound) -> bool:
        """A message of this turn is gone; True where nothing is left of it."""
        self.withdrawn |= {one.request_id for one in self.all if same_message(one, change)}
        return self.withdrawn >= {one.request_id for one in self.all}


# ------------------------------------------------------------ events


@dataclass(frozen=True, slots=True)
class Message:
    """Something that wants a turn: a message, a command that touches the conversation, a job that is due. `taken_in` is
    set where an earlier process took it in, or it waited in the journal alone (epoch seconds).
    """

    inbound: Inbound
    taken_in: float | None = None


@dataclass(frozen=True, slots=True)
class TurnResumed:
    """A turn that began before a restart. It is the next one of its chat, and goes on alone."""

    plan: TurnPlan


@dataclass(frozen=True, slots=True)
class Edit:
    """New words of a message; `records` is what is on file about that message."""

    inbound: Inbound
    records: Sequence[InboxRecord] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """A message is gone; `records` as in `Edit`."""

    inbound: Inbound
    records: Sequence[InboxRecord] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """A person stops what they have asked for. Each conversation that the stop may reach is told of it."""

    inbound: Inbound
    scope: Literal["place", "threads"] = "place"
    """`place`: the conversation in which it was said. `threads`: one of the threads below that."""
    turn: bool = True
    """True where the running turn of a place ends too."""
    since: int | None = None
    """Milliseconds since the epoch at which the stop was heard, where that was earlier: it reaches nothing said later."""


@dataclass(frozen=True, slots=True)
class Woken:
    """The time of a `WakeAt` has come: an album whose items came one by one may be whole."""


@dataclass(frozen=True, slots=True)
class AgentStarted:
    """The agent has the running turn: from now on what its person adds steers or interrupts it. What steers and waits
    already is part of the question.
    """


@dataclass(frozen=True, slots=True)
class Suspended:
    """The running turn waits for a person."""

    waits_for: Literal["approval", "question"]


@dataclass(frozen=True, slots=True)
class Resumed:
    """The running turn waits no longer."""


@dataclass(frozen=True, slots=True)
class OutputStarted:
    """The running turn shows something of its answer from now on, or runs a tool with effects."""


@dataclass(frozen=True, slots=True)
class AgentFinished:
    """The agent is done with the running turn: nothing can stop it any more."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The running turn has ended. It stays the turn of its chat until that is on file (`TurnClosed`)."""

    end: InboxEnd


@dataclass(frozen=True, slots=True)
class TurnClosed:
    """The end of the running turn is on file. An edit that comes later came too late for it."""


Event = (
    Message
    | TurnResumed
    | Edit
    | Delete
    | Stop
    | Woken
    | AgentStarted
    | OutputStarted
    | Suspended
    | Resumed
    | AgentFinished
    | TurnEnded
    | TurnClosed
)


# ------------------------------------------------------------ effects


@dataclass(frozen=True, slots=True)
class Close:
    """An inbound needs nothing more: record its end."""

    inbound: Inbound
    end: InboxEnd


@dataclass(frozen=True, slots=True)
class Amend:
    """A waiting message says what this edit made of it: record that before its turn begins."""

    inbound: Inbound
    edit: Inbound


@dataclass(frozen=True, slots=True)
class StopTurn:
    """End a turn, unless it is over by then."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class RestartModelCall:
    """The person of a turn has added something before anybody saw an answer: the model is asked anew, with all of it."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class CancelWait:
    """The person of a suspended turn has said something else: its approval is off."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Answer:
    """The person of a suspended turn has answered its question."""

    turn: Turn
    inbound: Inbound


@dataclass(frozen=True, slots=True)
class WakeAt:
    """A burst may be over at this time (monotonic seconds): tell the chat (`Woken`), and ask for the next turn again."""

    at: float


@dataclass(frozen=True, slots=True)
class LookUp:
    """Ask the journal what became of a message: it was edited or deleted, and neither waits here nor is being answered."""

    change: Inbound
    records: Sequence[InboxRecord] = ()
    """What the event brought along of the journal."""


Effect = Close | Amend | StopTurn | RestartModelCall | CancelWait | Answer | WakeAt | LookUp


# ------------------------------------------------------------ the chat


@dataclass(slots=True)
class _Waiting:
    inbound: Inbound
    number: int
    burst: int


@dataclass(slots=True)
class _Burst:
    """Messages that one person writes in a row. `past`: they were written before this process could wait for their end. `parts`:
    it is an album or a long text whose other parts still come, and joins no turn before it is whole. `goes_on`: it is such a text,
    which the next message may end.
    """

    number: int
    began: float
    until: float
    past: bool
    parts: bool = False
    goes_on: bool = False


class Conversation:
    """One chat with work. People take turns in it, each one's own messages keep their order, one turn runs at a time.

    With a `debounce` of more than 0 seconds a person's turn begins once they have been quiet for so long.
    """

    def __init__(self, mode: QueueMode, debounce: float = 0.0) -> None:
        self._mode = mode
        self._debounce = debounce
        self._people: dict[UserRef, deque[_Waiting]] = {}
        self._bursts: dict[UserRef, _Burst] = {}
        self._numbers = itertools.count(1)
        self._pending: deque[Turn] = deque()
        self._running: Turn | None = None
        self._changes: Counter[UserRef] = Counter()

    # ------------------------------------------------------------ what can be seen

    @property
    def turn(self) -> Turn | None:
        """The turn that runs, or is the next one because it had begun before a restart."""
        return self._running or (self._pending[0] if self._pending else None)

    @property
    def running(self) -> Turn | None:
        """The turn that runs."""
        return self._running

    @property
    def idle(self) -> bool:
        """True where nothing waits or runs."""
        return not (self._running or self._pending or self._people)

    @property
    def waiting(self) -> int:
        """The number of inbound that wait, a turn that goes on counted as one."""
        return len(self._pending) + sum(map(len, self._people.values()))

    def waits(self, who: UserRef) -> bool:
        """True where something of a person waits."""
        return who in self._people or any(turn.first.person == who for turn in self._pending)

    def queued(self, change: Inbound) -> Inbound | None:
        """The waiting message, or edit, that a change is about."""
        waiting = self._waiting_for(change)
        return waiting.inbound if waiting is not None else None

    @property
    def request_ids(self) -> Iterator[str]:
        """The requestIds of all that waits or runs."""
        for turn in (*self._pending, *filter(None, [self._running])):
            yield from (one.request_id for one in turn.all)
        for queue in self._people.values():
            yield from (waiting.inbound.request_id for waiting in queue)

    def unread(self) -> bool:
        """True where the person of the running turn has said more, which that will take up."""
        turn = self._running
        if turn is None or not self._mode.steers:
            return False
        return any(plain(waiting.inbound) for waiting in self._people.get(turn.first.person, ()))

    def _commanded(self, turn: Turn) -> bool:
        """True where the person of a turn has a command waiting, which must not wait as long as they do."""
        return any(waiting.inbound.command is not None for waiting in self._people.get(turn.first.person, ()))

    def ready(self, now: float, *, begun_only: bool = False) -> list[UserRef]:
        """The people who could get a turn now, in their order. `begun_only`: nothing new may begin."""
        if self._running is not None:
            return []
        if self._pending:
            return [self._pending[0].first.person]
        if begun_only:
            return []
        return [who for who, queue in self._people.items() if not self._held(who, queue[0], now)]

    def reached_by(self, stop: Inbound, since: int | None = None) -> bool:
        """True where the turn of this chat is of the place that a stop names."""
        turn = self.turn
        if turn is None or not _before(stop, since, turn.first):
            return False
        return any(reaches(stop, one) for one in turn.all)

    def changes(self) -> Mapping[UserRef, int]:
        """The number of inbound of each person that wait, more or less than when this was asked last."""
        if not self._changes:
            return {}
        changes, self._changes = self._changes, Counter()
        return {who: count for who, count in changes.items() if count}

    # ------------------------------------------------------------ what happens

    def apply(self, event: Event, now: float) -> list[Effect]:
        """Take an event; what is to be carried out, in order. `now` is in monotonic seconds.

        Raises `errors.IllegalTransition` for an event of a turn that the chat does not have in that state.
        """
        effects: list[Effect] = []
        match event:
            case Message():
                effects = self._message(event, now)
            case Edit():
                effects = self._edit(event, now)
            case Delete():
                effects = self._delete(event)
            case Stop():
                effects = self._stop(event)
            case Woken():
                effects = self._woken(now)
            case TurnResumed(plan):
                self._pending.append(Turn(plan, TurnPhase.PENDING, stopped=plan.stopped))
                self._changes[plan.first.person] += len(plan.all)
            case _ if self._running is None:
                raise errors.IllegalTransition(f"{event} in a chat where no turn runs")
            case _:
                effects = self._of_turn(event, self._running)
        return effects

    def _of_turn(
        self,
        event: AgentStarted | OutputStarted | Suspended | Resumed | AgentFinished | TurnEnded | TurnClosed,
        turn: Turn,
    ) -> list[Effect]:
        match event:
            case AgentStarted():
                turn.reach(TurnPhase.RUNNING)
                return [RestartModelCall(turn)] if self._joining(turn) and not turn.stopped else []
            case OutputStarted():
                turn.acted = True
            case Suspended(waits_for):
                if (waits_for == "approval" and self.unread()) or self._commanded(turn):
                    return [CancelWait(turn)]
                turn.suspend(waits_for)
            case Resumed():
                turn.resume()
            case AgentFinished():
                turn.reach(TurnPhase.FINISHED)
            case TurnEnded(end):
                return turn.finish(end)
            case TurnClosed():
                self._close(turn)
        return []

    def next_turn(self, now: float, who: UserRef, *, begun_only: bool = False) -> TurnPlan | None:
        """Begin the next turn of a person; None where they are not `ready`."""
        if who not in self.ready(now, begun_only=begun_only):
            return None
        if self._pending:
            self._running = self._pending.popleft()
            self._running.reach(TurnPhase.STARTED)
            self._changes[who] -= len(self._running.plan.all)
        else:
            self._running = Turn(self._plan(who))
        return self._running.plan

    def take_more(self) -> list[Inbound]:
        """Make what its person has said since the running turn began a part of the turn, and return it.

        Before the agent has the turn, a mode that collects allows it; after that, a mode that steers.
        """
        turn = self._running
        if turn is None or turn.stopped or turn.over:
            return []
        asked = turn.phase is TurnPhase.RUNNING
        wanted, may = (
            (can_join_running_turn, self._mode.steers) if asked else (can_coalesce, self._mode.collects)
        )
        if not may or (turn.plan.begun and not asked):
            return []
        more = self._take_next(turn.first.person, lambda other: wanted(other, turn.first))
        turn.joined += more
        return more

    # ------------------------------------------------------------ inside: messages

    def _message(self, event: Message, now: float) -> list[Effect]:
        inbound = event.inbound
        who = inbound.person
        number = next(self._numbers)
        burst = self._burst(inbound, number, now=now, past=event.taken_in)
        self._people.setdefault(who, deque()).append(_Waiting(inbound, number, burst))
        self._changes[who] += 1
        effects: list[Effect] = []
        going_on = self._bursts.get(who)
        if going_on is not None and going_on.number == burst and not going_on.past:
            effects.append(WakeAt(going_on.until))
        if (
            event.taken_in is None
            and self._running is not None
            and not (_is_part(inbound) and burst != number)  # its first part has done what the whole does
        ):
            if is_follow_up(inbound, self._running.first):
                effects += self._added(self._running, inbound)
            elif inbound.command is not None and who == self._running.first.person:
                effects += self._commands(self._running)
        return effects

    def _added(self, turn: Turn, inbound: Inbound) -> list[Effect]:
        """The effects of a message on the turn of its person."""
        effects: list[Effect] = []
        if turn.waits_for == "approval":
            turn.decide()
            effects.append(CancelWait(turn))
        elif turn.waits_for == "question" and (inbound.text.strip() or not inbound.brought):
            # What others said somewhere answers nothing here; it waits for the turn.
            turn.decide()
            return [Answer(turn, inbound)]
        if self._mode.interrupts and turn.phase is TurnPhase.RUNNING:
            effects += _stopping(turn)
        # What is being said answers words that an edit has changed.
        edited = inbound.kind == "edit" and turn.phase is TurnPhase.RUNNING and not turn.stopped
        if (edited or turn.may_restart_model_call) and inbound in self._joining(turn):
            turn.restarts += not edited
            effects.append(RestartModelCall(turn))
        return effects

    def _commands(self, turn: Turn) -> list[Effect]:
        """The effects of a command on the turn of its person: it runs behind that, which waits for them no longer."""
        if turn.waits_for is None:
            return []
        turn.decide()
        return [CancelWait(turn)]

    def _woken(self, now: float) -> list[Effect]:
        whole = [who for who, burst in self._bursts.items() if burst.parts and now >= burst.until]
        for who in whole:
            self._bursts[who].parts = False
        turn = self._running
        if turn is None or turn.first.person not in whole or not turn.may_restart_model_call:
            return []
        if not any(map(_is_part, self._joining(turn))):
            return []
        turn.restarts += 1
        return [RestartModelCall(turn)]

    def _joining(self, turn: Turn) -> list[Inbound]:
        """Messages that the turn would take up, once the agent has it."""
        if not self._mode.steers:
            return []
        return self._next(turn.first.person, lambda other: can_join_running_turn(other, turn.first))

    def _quiet_after(self, inbound: Inbound) -> float:
        """Seconds for which its person has to be quiet after a message, before their turn begins."""
        if not plain(inbound):
            return 0.0
        if inbound.goes_on:
            return max(self._debounce, PASTE_SECONDS)
        return max(self._debounce, ALBUM_SECONDS) if inbound.of_album else self._debounce

    def _burst(self, inbound: Inbound, number: int, *, now: float, past: float | None) -> int:
        """The number of the burst that a message belongs to. One that is not waited after ends the burst before it, and is the last
        of that where it is the rest of a long text.
        """
        who, quiet = inbound.person, self._quiet_after(inbound)
        at = now if past is None else past
        burst = self._bursts.get(who)
        over = burst is None or burst.past != (past is not None) or at >= burst.until
        if not quiet:
            self._bursts.pop(who, None)
            return number if burst is None or over or not (burst.goes_on and plain(inbound)) else burst.number
        if burst is None or over:
            burst = self._bursts[who] = _Burst(number, at, 0.0, past is not None)
        longest = burst.began + LONGEST_BURST * quiet
        burst.until = max(burst.until, at + quiet if inbound.goes_on else min(at + quiet, longest))
        burst.parts, burst.goes_on = _is_part(inbound) and past is None, inbound.goes_on
        return burst.number

    def _held(self, who: UserRef, first: _Waiting, now: float) -> bool:
        """True where a person may still be writing the burst that they have waiting first."""
        burst = self._bursts.get(who)
        return burst is not None and not burst.past and first.burst == burst.number and now < burst.until

    # ------------------------------------------------------------ inside: edits and deletions

    def _edit(self, event: Edit, now: float) -> list[Effect]:
        edit = event.inbound
        if outdated(edit, event.records):
            return [Close(edit, OUTDATED)]
        waiting = self._waiting_for(edit)
        if waiting is not None:
            fresh = waiting.inbound = merged(waiting.inbound, edit)
            return [Amend(fresh, edit), Close(edit, merged_into(fresh))]
        if self.turn is not None and (message := self.turn.about(edit)) is not None:
            # Taken up by the turn, or one of its own after it, as any message that comes while a turn runs.
            return self._message(Message(whole(message, edit)), now)
        return [LookUp(edit, event.records)]

    def _waiting_for(self, change: Inbound) -> _Waiting | None:
        queue = self._people.get(change.person, ())
        return next((one for one in queue if same_message(one.inbound, change)), None)

    def _delete(self, event: Delete) -> list[Effect]:
        deletion = event.inbound
        gone = self._take(lambda other: same_message(other, deletion))
        turn = self.turn
        if turn is not None and turn.about(deletion) is not None:
            stopping = _stopping(turn) if turn.withdraw(deletion) else []
        elif gone:
            stopping = []
        else:
            return [LookUp(deletion, event.records)]
        return [*(Close(one, WITHDRAWN) for one in gone), *stopping, Close(deletion, HANDLED)]

    # ------------------------------------------------------------ inside: stops and ends

    def _stop(self, event: Stop) -> list[Effect]:
        stop, turn = event.inbound, self.turn
        reached = stops if event.scope == "place" else stops_below

        def wanted(other: Inbound) -> bool:
            return reached(stop, other) and _before(stop, event.since, other)

        # Out of the queue first, so that none of it begins.
        gone = self._take(wanted)
        of_place = event.scope == "place"
        ends = (
            event.turn
            and turn is not None
            and (self.reached_by(stop, event.since) if of_place else wanted(turn.first))
        )
        stopping = _stopping(turn) if turn is not None and ends else []
        return [*stopping, *(Close(one, STOPPED) for one in gone)]

    def _close(self, turn: Turn) -> None:
        if turn.end is None:
            raise errors.IllegalTransition("a turn is closed that has not ended")
        self._running = None
        who = turn.first.person
        if who in self._people:
            # Behind the others of the chat, those included who came while this turn ran.
            self._people[who] = self._people.pop(who)

    # ------------------------------------------------------------ inside: the queue

    def _plan(self, who: UserRef) -> TurnPlan:
        """The next turn of a person."""
        queue = self._people[who]
        first = queue.popleft()
        rest: list[Inbound] = []
        while queue and self._together(first, queue[0]):
            rest.append(queue.popleft().inbound)
        self._less(who, 1 + len(rest))
        return TurnPlan(first.inbound, tuple(rest))

    def _together(self, first: _Waiting, other: _Waiting) -> bool:
        merged = self._mode.collects or other.burst == first.burst
        return merged and can_coalesce(other.inbound, first.inbound)

    def _take(self, wanted: Callable[[Inbound], bool]) -> list[Inbound]:
        """Take every wanted inbound out of the queue."""
        taken: list[Inbound] = []
        for who, queue in list(self._people.items()):
            gone = [waiting for waiting in queue if wanted(waiting.inbound)]
            for waiting in gone:
                queue.remove(waiting)
            taken += (waiting.inbound for waiting in gone)
            self._less(who, len(gone))
        return taken

    def _take_next(self, who: UserRef, wanted: Callable[[Inbound], bool]) -> list[Inbound]:
        """Take what `_next` says."""
        taken = self._next(who, wanted)
        for _ in taken:
            self._people[who].popleft()
        self._less(who, len(taken))
        return taken

    def _next(self, who: UserRef, wanted: Callable[[Inbound], bool]) -> list[Inbound]:
        """Messages that one person has waiting, up to the first that is not wanted, that is part of an album which is not whole yet,
        or that came after what somebody else has waiting: they come first.
        """
        burst = self._bursts.get(who)
        coming = burst.number if burst is not None and burst.parts else None
        others = [queue[0].number for other, queue in self._people.items() if other != who]
        before = [one for one in self._people.get(who, ()) if not others or one.number < min(others)]
        taken = itertools.takewhile(lambda one: one.burst != coming and wanted(one.inbound), before)
        return [one.inbound for one in taken]

    def _less(self, who: UserRef, count: int) -> None:
        """So many inbound of a person wait no more."""
        if count:
            self._changes[who] -= count
            if not self._people[who]:
                del self._people[who]
                self._bursts.pop(who, None)


def _is_part(inbound: Inbound) -> bool:
    """True where further messages belong to it, which come by themselves."""
    return inbound.of_album or inbound.goes_on


def _stopping(turn: Turn) -> list[Effect]:
    """Stop a turn, unless it has said its last word."""
    if turn.over:
        return []
    turn.stopped = True
    return [StopTurn(turn)]


def _before(stop: Inbound, since: int | None, other: Inbound) -> bool:
    """True where an inbound came before a stop, and was said before it where that may have been brought late."""
    return other.request_id < stop.request_id and (since is None or other.ts <= since)
