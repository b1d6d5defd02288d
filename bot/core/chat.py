"""Computes the state of one chat from the chat's events, and the effects (work for other modules) that are due next.

This module does no I/O, reads no clock and starts no tasks. An event that starts work carries the id of its process
(`boot`). Work that an earlier process started was interrupted, so it is due again.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Literal, NamedTuple

from bot import errors
from bot.contracts.approvals import Verdict
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import UNSEEN, UNSEEN_BY_MODEL, Attachment, Inbound, SeenFile
from bot.core import events
from bot.core.context import AgentContextStore, RunningTurn
from bot.core.event_log import Position
from bot.core.events import Event
from bot.core.outgoing import OutboxRow, Question
from bot.core.removal import Gone

MOST_ATTEMPTS = 5
"""Max starts of a turn without progress. Without this limit, a turn that crashes the process would be started forever."""
MOST_RESTARTS = 2
"""Max times that a turn cancels a model call to include a newer message of the person."""
ALBUM_SECONDS = 1.0
"""Timeout in seconds for the next item of an album. After the timeout, the album counts as complete."""
PASTE_SECONDS = 2.5
"""Timeout in seconds for the next part of a long text that the person's app split into several messages."""
MOST_EARLY = 10
"""Max edits and deletions that are kept because they arrived before their message."""
MOST_FILES = 50
"""Max kept platform ids of messages that delivered a file. A search for a message whose delivery is unknown skips these ids."""
MOST_MISSED = 5
"""Max undelivered answers that the next answer reports. The newest are kept."""
MOST_EDITS = 20
"""Max edits of answered messages that the next turn shows the model. The newest are kept."""
KNOWN = 500
"""Max messages that a chat remembers. The newest are kept. Edits and deletions of older messages are not recognised."""
OWN_TIME = range(5, 86_400)
"""Range of plausible delays in seconds between a message's timestamp and its arrival. If the delay is in this range, the measured
wait of the person begins at the timestamp, otherwise at the arrival. A smaller delay may be a clock error.
"""

# ------------------------------------------------------------ relations between two messages


def plain(inbound: Inbound) -> bool:
    """Return True if this is a person's message to the model: no command, no signal and no due job."""
    return inbound.kind == "message" and inbound.command is None and inbound.due is None


def _is_follow_up(other: Inbound, running: Inbound) -> bool:
    """Return True if `other` is a message or edit by the person of the running turn. Due jobs and regenerated answers
    always have turns of their own.
    """
    if other.due or running.due or other.renews or running.renews:
        return False
    return other.kind in {"message", "edit"} and other.command is None and other.person == running.person


def _can_coalesce(other: Inbound, first: Inbound) -> bool:
    return plain(other) and plain(first) and _is_follow_up(other, first)


def _can_join(other: Inbound, running: Inbound) -> bool:
    """Return True if a waiting message or edit may join a running turn. A message with unreadable files gets a turn of its own,
    whose answer reports these files.
    """
    files = other.attachments
    if files and (other.kind != "message" or not all(one.may_be_read for one in files)):
        return False
    return _is_follow_up(other, running) and bool(files or other.has_text)


def same_message(one: Inbound, other: Inbound) -> bool:
    """Return True if both events concern the same message of the same author."""
    same = one.message_id is not None and one.message_id == other.message_id
    return same and one.chat_key == other.chat_key and one.person == other.person


def revised(message: Inbound, edit: Inbound) -> Inbound:
    changed = {name: getattr(edit, name) for name in ("text", "command", "attachments", "links", "mentioned")}
    # An edit does not repeat the message that the person replied to. So if the edit quotes nothing, keep that message.
    quoted = edit.quoted or tuple(one for one in message.quoted if not one.brought)
    return message.model_copy(update={**changed, "quoted": quoted})


# ------------------------------------------------------------ a turn


QueueMode = Literal["steer", "followup", "collect", "interrupt"]
"""Rule for messages that arrive during a turn. `steer`: they join the turn. `interrupt`: they stop the turn. `collect` and
`interrupt`: all waiting messages of one person become one turn.
"""
_COLLECTS = frozenset[QueueMode]({"collect", "interrupt"})


class Phase(Enum):
    """State of a turn."""

    STARTING = auto()
    """The turn reads its files and prompt; the model has not been called yet."""
    RUNNING = auto()
    """The turn calls the model and runs tools."""
    SUSPENDED = auto()
    """The turn waits for a person's decision."""
    STOPPING = auto()
    """Somebody stopped the turn. The turn ends when its running work is cancelled."""
    ENDING = auto()
    """The turn's final message is in the outbox; the turn can no longer be stopped."""
    ENDED = auto()


STOPPABLE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.SUSPENDED})


class Wait:
    """Stopwatch that measures how long a person waits for the first words of the answer. The time is divided by activity:
    `queue`, `approval`, `model`, `tools`, `delivery`, or "" for any other activity. Times are epoch seconds.
    """

    __slots__ = ("_at", "_doing", "_since", "_spent")

    def __init__(self, said: float, arrived: float) -> None:
        late = int(max(0.0, arrived - said)) in OWN_TIME
        self._since = self._at = said if late else arrived
        self._doing = "queue"
        self._spent = Counter[str]()

    def goes_on(self, doing: str, at: float) -> None:
        self._spent[self._doing] += round(max(0.0, at - self._at) * 1000)
        self._at, self._doing = max(self._at, at), doing

    def over(self, at: float) -> events.Waited:
        self.goes_on("", at)
        ms = round(max(0.0, at - self._since) * 1000)
        parts = {part: spent for part, spent in self._spent.items() if part and spent}
        # Equal rounded times are counted together, so round the time to two digits.
        return events.Waited(ms, ms if ms < 100 else round(ms, 2 - len(str(ms))), parts)


@dataclass(slots=True, eq=False)
class Turn:
    """One run of the agent that answers the messages `members`. `id` is the request id of the first message."""

    id: str
    members: list[Inbound]
    since: int
    """Number of the oldest event that is needed to rebuild the turn."""
    boot: str = ""
    phase: Phase = Phase.STARTING
    attempts: int = 0
    """Number of starts since the turn's last progress, without starts after a clean shutdown or a person's decision."""
    call: str | None = None
    """Id of the model call in flight. The turn ignores the answer to any other call."""
    tools: dict[str, str] = field(default_factory=dict)
    """Running tool calls: maps each call id to the boot id of the process that runs the call."""
    tasks: dict[str, str] = field(default_factory=dict)
    """Ids of subagent tasks that have not reported yet, keyed by the id of the tool call that started the task."""
    acted: bool = False
    """True once people have seen part of the answer, or once a tool with side effects has started."""
    restarts: int = 0
    withdrawn: set[str] = field(default_factory=set)
    edits: set[str] = field(default_factory=set)
    """Ids of edits that this turn has shown the model, because their messages were already answered."""
    rows: dict[str, events.RowEnded | None] = field(default_factory=dict)
    """Outbox rows (messages to send) of the turn, each with the event that ended the row; None while the row is open."""
    seen: dict[str, tuple[SeenFile, ...]] = field(default_factory=dict)
    """Results of reading attached files, keyed by the request id of the message."""
    unread: list[tuple[Sequence[Attachment], Sequence[SeenFile]]] = field(default_factory=list)
    """Attached files that could not be read. The turn's next answer reports them."""
    unshown: set[str] = field(default_factory=set)
    """Artifact ids of files that the provider refused to show the model."""
    model: str = ""
    """Name of the model that the turn called last."""

    @property
    def first(self) -> Inbound:
        return self.members[0]

    @property
    def left(self) -> list[Inbound]:
        """Return the messages of the turn that their authors have not deleted."""
        return [one for one in self.members if one.request_id not in self.withdrawn]


@dataclass(frozen=True, slots=True)
class Stopped:
    """Outcome of a stop command. `commands` names the waiting commands that the stop dropped. `anything` is True if the stop
    ended any work. `goes_on` is the first message of a turn that the requester must not stop, because another person began it.
    """

    commands: tuple[str, ...] = ()
    anything: bool = False
    goes_on: Inbound | None = None


@dataclass(slots=True)
class Waiting:
    """An accepted message that waits for a turn, or a command or signal that needs none. `seq` and `at` are the number and
    time of the message's event. `since` is the number of the oldest event that is needed to rebuild the message.
    """

    inbound: Inbound
    seq: int
    at: float
    since: int
    burst: int = 0
    """Number of the message's burst. A burst is a sequence of messages that one person writes in quick succession."""
    until: float = 0.0
    """Time (epoch seconds) until which the burst waits for more messages; 0.0 if the message closes the burst."""
    stopped: Stopped | None = None
    """Outcome of a stop command."""


# ------------------------------------------------------------ effects


class StartTurn(NamedTuple):
    """Effect: start a turn that answers these messages, or continue the interrupted turn."""

    members: tuple[Inbound, ...]


class AskAnew(NamedTuple):
    """Effect: cancel this model call, and call the model again with the person's new messages or edits."""

    turn: str
    call: str


class StopTurn(NamedTuple):
    """Effect: end this turn with the state `stopped`."""

    turn: str


class Handle(NamedTuple):
    """Effect: run a command or signal (such as a reaction) that needs no turn."""

    inbound: Inbound


class Deliver(NamedTuple):
    """Effect on the message of an outbox row: `send` it; `find` out from the platform whether it was delivered; `end` a
    live message (a message that is edited while a turn runs); or `revise` a sent message, so that it shows the outcome
    of its `question`.
    """

    do: Literal["send", "find", "end", "revise"]
    row: OutboxRow
    question: Question | None = None


class Expire(NamedTuple):
    """Effect: close this question, because the time to answer it is over."""

    question: Question


class WakeAt(NamedTuple):
    """Effect: look for due effects again at this time (epoch seconds)."""

    at: float


Effect = StartTurn | AskAnew | StopTurn | Handle | Deliver | Expire | WakeAt


class Chat:
    """State of one chat: waiting messages, the running turn, the outbox and open questions."""

    def __init__(
        self, key: ChatKey, mode: QueueMode = "steer", debounce: float = 0.0, max_messages: int = 60
    ) -> None:
        self.key = key
        self.seq = 0
        self.context = AgentContextStore(max_messages)
        self.turn: Turn | None = None
        self.task: events.Ordered | None = None
        """The event that ordered the subagent task of this chat; None for a chat of people. The turn that ordered the task
        runs the task, so `due` returns no effects for this chat.
        """
        self.outbox: dict[str, OutboxRow] = {}
        """Outgoing messages that are not delivered yet or that may still be edited, in queue order."""
        self.beside: dict[str, Waiting] = {}
        """Commands and signals that need no turn and are not handled yet, keyed by request id."""
        self.questions: dict[str, Question] = {}
        """Questions that have no verdict yet, or whose message in the chat does not show the verdict yet."""
        self.files_sent: list[str] = []
        """Platform ids of the newest sent file messages. They are kept because a file message does not name its outbox row."""
        self.missed: list[OutboxRow] = []
        """Undelivered answers that the next answer reports."""
        self._mode = mode
        self._debounce = debounce
        self._people: dict[UserRef, list[Waiting]] = {}
        self._now = 0.0
        """Time at which `due` was called last."""
        self._known: dict[str, Inbound] = {}
        """Latest version of each remembered message, keyed by request id."""
        self._early: list[Waiting] = []
        """Edits and deletions that arrived before their message."""
        self._edits: dict[str, Waiting] = {}
        """Edits of answered messages that the model has not seen, keyed by the request id of the message."""
        self._waits: dict[str, Wait] = {}
        """Stopwatches of the people who have not seen words of their answer yet, keyed by turn id."""
        self._spans: list[tuple[int, int]] = []
        """First and last event numbers of each ended turn that does not lie entirely before `position`."""

    # ------------------------------------------------------------ public state

    @property
    def open_since(self) -> int | None:
        """Return the number of the oldest event that unfinished work needs; None if no work is unfinished."""
        needed = [] if self.turn is None else [self.turn.since]
        needed += [one.since for one in self.beside.values()] if self.beside else ()
        needed += [one.since for queue in self._people.values() for one in queue] if self._people else ()
        needed += [one.seq for one in self.outbox.values()] if self.outbox else ()
        needed += [one.seq for one in self.questions.values()] if self.questions else ()
        return min(needed, default=None)

    @property
    def waiting(self) -> list[Inbound]:
        found = sorted((one for queue in self._people.values() for one in queue), key=lambda one: one.seq)
        return [one.inbound for one in found]

    @property
    def said(self) -> Sequence[Inbound]:
        """Return the remembered messages in their latest version, oldest first."""
        return tuple(self._known.values())

    @property
    def position(self) -> Position:
        """Return the position in the event log from which this chat's state can be rebuilt."""
        needed = [] if (base := self.context.base) is None else [base]
        needed += [one.seq for one in (*self._early, *self._edits.values())]
        base, opened = min(needed, default=self.seq), self.open_since
        first = found = base if opened is None else min(base, opened)
        for since, end in reversed(self._spans):
            # A turn can only be rebuilt from its first event, so do not begin inside a turn.
            first = since if since < first <= end else first
        return Position(base if first == found else first, opened)

    @property
    def untold_edits(self) -> list[Inbound]:
        return [one.inbound for one in self._edits.values()]

    @property
    def untold(self) -> list[Inbound]:
        """Return the messages of the running turn that the model has not seen yet. Return [] while a tool call has no
        result, because the API allows no message between a tool call and its result.
        """
        running = self.context.running
        if self.turn is None or (running is not None and running.open_calls):
            return []
        told = self.context.sources()
        return [one for one in self.turn.left if one.request_id not in told]

    def deleted(self, inbound: Inbound) -> bool:
        early = (one.inbound for one in self._early)
        return any(one.kind == "delete" and one.message_id == inbound.message_id for one in early)

    def asks(self, person: UserRef) -> bool:
        """Return True if a tool of the running turn waits for this person's answer."""
        turn = self.turn
        return turn is not None and turn.first.person == person and bool(self._asked_by_tools(turn))

    def _asked_by_tools(self, turn: Turn) -> list[Question]:
        found = [one for one in self.questions.values() if one.turn == turn.id and one.of_tool]
        return [one for one in found if one.verdict is None]

    def joinable(self) -> list[Inbound]:
        """Return the waiting messages that may join the running turn now."""
        turn = self.turn
        if turn is None or turn.phase in {Phase.STOPPING, Phase.ENDING}:
            return []
        if turn.phase is Phase.STARTING:
            return self._next(turn, _can_coalesce) if self._mode != "followup" else []
        return self._next(turn, _can_join) if self._mode == "steer" else []

    def waited(self, row: OutboxRow, now: float) -> events.Waited | None:
        """Return the event that records how long the person waited; None if this row does not show the first words of the answer.
        `now` is the time at which the row became visible to the person.
        """
        wait = self._waits.get(row.turn or "")
        answers = (row.form in {"reply", "preview"} or row.ends) and row.question is None
        return wait.over(now) if wait is not None and answers else None

    # ------------------------------------------------------------ applying events (never raises, whatever their order)

    def apply(self, event: Event) -> None:
        """Update the state with an event. Ignore an event that the state does not allow."""
        self.seq = max(self.seq, event.seq)
        turn = self.turn if self.turn is not None and self.turn.id == event.turn else None
        stale = isinstance(event.data, events.Answered) and (turn is None or turn.call != event.data.call)
        if not stale:
            self.context.apply(event)
            self._fold(event, turn)
        if (turn := self.turn) is not None and (wait := self._waits.get(turn.id)) is not None:
            if turn.phase is Phase.SUSPENDED:
                doing = "approval"
            elif None in turn.rows.values():
                doing = "delivery"
            else:
                doing = "tools" if turn.tools else "model" if turn.call is not None else ""
            wait.goes_on(doing, event.at)

    def _fold(self, event: Event, turn: Turn | None) -> None:  # noqa: C901, PLR0912, PLR0915 - one `match` of the kinds
        """Apply an event. `turn` is the running turn if the event belongs to it."""
        match data := event.data:
            case events.Received():
                self._received(event, data)
            case events.Ordered():
                self.task = data
                self._wait(Waiting(data.inbound, event.seq, event.at, event.seq))
            case events.Edited():
                self._edited(event, data.inbound)
            case events.Deleted():
                self._deleted(event, data.inbound)
            case events.Stop():
                self._stop(event, data)
            case events.Closed():
                self.beside.pop(data.request, None)
                self._take(lambda other: other.request_id == data.request)
            case events.Waited():
                self._waits.pop(event.turn or "", None)
            case events.Cut(dropped="all"):
                self._edits.clear()
            case events.Removed():
                gone = {*data.requests, *data.messages}
                self._keep_edits(
                    lambda name, edit: gone.isdisjoint(
                        {name, edit.inbound.request_id, edit.inbound.message_id}
                    )
                )
                self.missed = [one for one in self.missed if one.turn not in data.turns]
            case events.Expired():
                self._early = [one for one in self._early if one.seq >= data.before]
                self._keep_edits(lambda _, edit: edit.seq >= data.before)
            case events.QuestionAsked():
                asked = Question(data.question, data.asked, event.at, event.turn, event.seq)
                self.questions[data.question] = asked
                if turn is not None and turn.phase in {Phase.STARTING, Phase.RUNNING}:
                    turn.phase, turn.attempts = Phase.SUSPENDED, 0
            case events.Decided() if (question := self.questions.get(data.question)) is not None:
                self._decide(question, data.verdict, event.at)
            case events.Revised():
                for question in list(self.questions.values()):
                    if question.copies.pop(data.row, None) is not None:
                        self._forget(question)
            case events.Queued():
                self._queued(event, data, turn)
            case events.Deferred():
                self._row(data.row, not_before=data.until, delayed=True, state="queued")
            case events.Sending():
                self._row(data.row, state="sending", boot=data.boot, replaces=data.replaces)
                row = self.outbox.get(data.row)
                if row is not None and row.form == "reply" and row.last and row.turn is not None:
                    self._outdate(row.turn, row)
            case events.Returned():
                self._row(data.row, state="queued", replaces=None)
            case events.Uncertain():
                self._row(data.row, boot="")
            case events.Shown():
                self._row(data.row, message_id=data.message_id)
            case events.RowEnded():
                self._row_ended(data)
            case events.TurnStarted():
                self._turn_started(event, data)
            case _ if turn is None:
                pass
            case events.TurnLeft() if turn.phase is not Phase.SUSPENDED:
                turn.attempts = max(0, turn.attempts - 1)
            case events.Joined():
                taken = self._taken(data.members)
                turn.members += [one.inbound for one in taken]
                turn.since = min([turn.since, *(one.since for one in taken)])
                if turn.call is not None:
                    turn.call = None
                    turn.restarts += all(one.inbound.kind != "edit" for one in taken)
            case events.FilesRead():
                for said in (one for one in turn.left if one.request_id == data.request):
                    turn.seen[data.request] = data.files
                    turn.unread.append((said.attachments[: len(data.files)], data.files))
            case events.Told():
                turn.edits.update(data.edits)
                turn.phase = Phase.RUNNING if turn.phase is Phase.STARTING else turn.phase
            case events.Asked():
                turn.call, turn.model = data.call, data.model
            case events.Answered():
                turn.call, turn.model, turn.attempts = None, data.model or turn.model, 0
                self._not_shown(turn, set(data.unshown), UNSEEN_BY_MODEL if data.blind else UNSEEN)
            case events.ToolStarted():
                turn.acted = True
                turn.tools[data.call] = data.boot
                if data.task:
                    turn.tasks[data.call] = data.task
            case events.ToolEnded():
                turn.tools.pop(data.call, None)
                turn.tasks.pop(data.call, None)
                turn.attempts = 0
            case events.TurnEnded():
                self._turn_ended(event, data, turn)

    # ------------------------------------------------------------ what people do

    def _received(self, event: Event, data: events.Received) -> None:
        inbound = data.inbound
        changes = [one for one in self._early if one.inbound.message_id == inbound.message_id]
        self._early = [one for one in self._early if one not in changes]
        for change in changes:
            if change.inbound.kind == "delete":
                return
            inbound = revised(inbound, change.inbound)
        # A message that is repeated to regenerate its answer already contains its edits, so forget the separate edits.
        self._keep_edits(lambda _, edit: not same_message(edit.inbound, inbound))
        self._remember(inbound)
        since = min([event.seq, *(one.seq for one in changes)])
        said = Waiting(inbound, event.seq, event.at, since)
        if data.beside:
            self.beside[inbound.request_id] = said
        else:
            self._wait(said)

    def _wait(self, said: Waiting) -> None:
        inbound, turn = said.inbound, self.turn
        queue, quiet = self._people.setdefault(inbound.person, []), 0.0
        if plain(inbound):
            part = PASTE_SECONDS if inbound.goes_on else ALBUM_SECONDS if inbound.of_album else 0.0
            quiet = max(self._debounce, part)
        last = queue[-1] if queue and said.at < queue[-1].until else None
        # A message without a quiet period closes the burst. Only the last part of a split text still belongs to it.
        belongs = last is not None and (quiet > 0.0 or (last.inbound.goes_on and plain(inbound)))
        said.burst = last.burst if last is not None and belongs else said.seq
        if quiet:
            said.until = max(said.at + quiet, last.until if last is not None else 0.0)
        queue.append(said)
        if turn is None:
            return
        if turn.phase is Phase.SUSPENDED and inbound.person == turn.first.person:
            # The person wrote instead of pressing a button. The message answers a tool's question, and ends any other question.
            asked = self.asks(inbound.person)
            self._decide_all(turn, Verdict("steered", request_id=inbound.request_id), said.at)
            if asked:
                return
        if self._mode == "interrupt" and turn.phase is Phase.RUNNING and _is_follow_up(inbound, turn.first):
            turn.phase = Phase.STOPPING

    def _edited(self, event: Event, edit: Inbound) -> None:
        known = next((one for one in reversed(self._known.values()) if same_message(one, edit)), None)
        said = Waiting(edit, event.seq, event.at, event.seq)
        if known is None:
            self._early = [*self._early, said][-MOST_EARLY:]
            return
        if known.ts > edit.ts:
            return  # a newer edit has already arrived
        self._remember(revised(known, edit).model_copy(update={"ts": edit.ts}))
        turn, queue = self.turn, self._people.get(edit.person, ())
        if waiting := next((one for one in queue if same_message(one.inbound, edit)), None):
            waiting.inbound = revised(waiting.inbound, edit)
            return
        if (
            turn is not None
            and turn.phase is not Phase.ENDING
            and any(same_message(one, edit) for one in turn.members)
        ):
            # The edit waits like a new message: it joins the running turn or starts one.
            self._wait(said)
            return
        # The message was already answered. The next turn shows the model the edit, and features may react to it.
        self._edits.pop(known.request_id, None)
        if plain(known) and edit.text.strip():
            self._edits[known.request_id] = said
        self._edits = dict([*self._edits.items()][-MOST_EDITS:])
        self.beside[edit.request_id] = said

    def _keep_edits(self, keep: Callable[[str, Waiting], bool]) -> None:
        self._edits = {name: one for name, one in self._edits.items() if keep(name, one)}

    def _deleted(self, event: Event, deletion: Inbound) -> None:
        # Hide the message from the model at once. A later event removes its text from the log.
        requests = frozenset(one.request_id for one in self.said if same_message(one, deletion))
        self._keep_edits(lambda name, _: name not in requests)
        self.context.remove(Gone(requests, messages=frozenset({deletion.message_id or ""})), head=False)
        said = self.beside[deletion.request_id] = Waiting(deletion, event.seq, event.at, event.seq)
        if not requests:
            self._early = [*self._early, said][-MOST_EARLY:]
            return
        self._take(lambda other: same_message(other, deletion))
        if (turn := self.turn) is not None:
            turn.withdrawn |= {one.request_id for one in turn.members if same_message(one, deletion)}
            if not turn.left and turn.phase in STOPPABLE:
                turn.phase = Phase.STOPPING

    def _stop(self, event: Event, data: events.Stop) -> None:
        stop, turn = data.inbound, self.turn
        # While no turn runs, an operator's stop drops the waiting messages of every person.
        anybodys = data.everyones and turn is None

        def reached(other: Inbound) -> bool:
            return other.request_id < stop.request_id and (data.since is None or other.ts <= data.since)

        taken = self._take(lambda other: reached(other) and (anybodys or other.person == stop.person))
        commands = tuple(one.inbound.command.name for one in taken if one.inbound.command is not None)
        outcome = Stopped(commands, bool(taken))
        if turn is not None and turn.phase in STOPPABLE and any(map(reached, turn.members)):
            if data.everyones or stop.chat_type == "direct" or stop.person == turn.first.person:
                outcome = replace(outcome, anything=True)
                turn.phase = Phase.STOPPING
            else:
                outcome = replace(outcome, goes_on=turn.first)
        self.beside[stop.request_id] = Waiting(stop, event.seq, event.at, event.seq, stopped=outcome)

    def _remember(self, inbound: Inbound) -> None:
        self._known[inbound.request_id] = inbound
        if len(self._known) > KNOWN:
            del self._known[next(iter(self._known))]

    # ------------------------------------------------------------ the queue

    def _taken(self, names: Sequence[str]) -> list[Waiting]:
        found = self._take(lambda other: other.request_id in names)
        return sorted(found, key=lambda one: names.index(one.inbound.request_id))

    def _take(self, wanted: Callable[[Inbound], bool]) -> list[Waiting]:
        """Remove the `wanted` messages from the queue and return them."""
        taken = [one for queue in self._people.values() for one in queue if wanted(one.inbound)]
        for who in {one.inbound.person for one in taken}:
            self._people[who] = [one for one in self._people[who] if one not in taken]
            if not self._people[who]:
                del self._people[who]
        return taken

    def _next(self, turn: Turn, wanted: Callable[[Inbound, Inbound], bool]) -> list[Inbound]:
        """Return the next waiting messages of the turn's person. The list ends before a message that is not `wanted`,
        belongs to an incomplete album or split text, or arrived after another person's message.
        """
        who, last = turn.first.person, self._coming(turn)
        coming = last.burst if last is not None else None
        others = min(
            (queue[0].seq for other, queue in self._people.items() if other != who), default=math.inf
        )
        taken = itertools.takewhile(
            lambda one: one.seq < others and one.burst != coming and wanted(one.inbound, turn.first),
            self._people.get(who, ()),
        )
        return [one.inbound for one in taken]

    def _together(self, queue: Sequence[Waiting]) -> list[Inbound]:
        """Return the messages from a person's queue that the next turn answers together."""
        first, collects = queue[0], self._mode in _COLLECTS
        others = itertools.takewhile(
            lambda one: (collects or one.burst == first.burst) and _can_coalesce(one.inbound, first.inbound),
            queue[1:],
        )
        return [first.inbound, *(one.inbound for one in others)]

    def _coming(self, turn: Turn) -> Waiting | None:
        """Return the newest waiting message of the turn's person if further parts of the message may arrive."""
        queue = self._people.get(turn.first.person)
        if not queue or self._now >= queue[-1].until:
            return None
        newest = queue[-1].inbound
        return queue[-1] if newest.of_album or newest.goes_on else None

    # ------------------------------------------------------------ the turn

    def _turn_started(self, event: Event, data: events.TurnStarted) -> None:
        turn = self.turn
        if turn is None:
            members = self._taken(data.members)
            if not members:
                return
            first, since = members[0], min([event.seq, *(one.since for one in members)])
            name = event.turn or first.inbound.request_id
            turn = self.turn = Turn(name, [one.inbound for one in members], since)
            said = first.inbound
            if said.command is None and said.due is None and said.addressed != "chat":
                self._waits[turn.id] = Wait(said.ts / 1000 if said.kind == "message" else first.at, first.at)
            self.context.running = RunningTurn(turn.id, event.at, since)
        if event.turn == turn.id:
            for question in self._asked_by_tools(turn) if turn.boot != data.boot else ():
                self._decide(question, Verdict("nobody"), event.at)
            turn.boot, turn.call = data.boot, None
            turn.attempts += turn.phase is not Phase.SUSPENDED

    def _not_shown(self, turn: Turn, artifacts: set[str], why: SeenFile) -> None:
        for one in turn.left if artifacts else ():
            for file, seen in zip(one.attachments, turn.seen.get(one.request_id, ()), strict=False):
                if seen.shown is not None and seen.shown.artifact in artifacts - turn.unshown:
                    turn.unshown.add(seen.shown.artifact)
                    turn.unread.append(((file,), (why,)))

    def _turn_ended(self, event: Event, data: events.TurnEnded, turn: Turn) -> None:
        turn.phase, self.turn = Phase.ENDED, None
        if any(row.turn == turn.id for row in self.outbox.values()):
            if turn.id in self._waits:
                self._waits[turn.id].goes_on("delivery", event.at)
        else:
            self._waits.pop(turn.id, None)
        self._decide_all(turn, Verdict("stopped"), event.at)
        if data.end != "withdrawn":  # the context keeps the edits that the model was shown
            self._keep_edits(lambda _, edit: edit.inbound.request_id not in turn.edits)
        first = self.position.first
        self._spans = [*(one for one in self._spans if one[1] >= first), (turn.since, event.seq)]
        if (who := turn.first.person) in self._people:
            # Other people's waiting messages come before the person's next turn.
            self._people[who] = self._people.pop(who)

    # ------------------------------------------------------------ questions

    def _decide(self, question: Question, verdict: Verdict, at: float) -> None:
        if question.verdict is None:
            question.verdict, question.decided_at, question.decided = verdict, at, self.seq
        # Unsent messages that show the question are no longer needed.
        for row in list(self.outbox.values()):
            if row.question == question.id and row.state == "queued":
                self._end_row(row.id, arrived=False)
        turn = self.turn
        if turn is not None and turn.id == question.turn and turn.phase is Phase.SUSPENDED:
            turn.phase = Phase.RUNNING
            for row in list(question.copies.values()):
                self._outdate(turn.id, row)  # later messages must appear below the question
        self._forget(question)

    def _decide_all(self, turn: Turn, verdict: Verdict, at: float) -> None:
        for question in [one for one in self.questions.values() if one.turn == turn.id]:
            self._decide(question, verdict, at)

    def _forget(self, question: Question) -> None:
        """Drop a decided question once its turn has ended. A turn that is interrupted earlier needs the verdict again."""
        waited_for = self.turn is not None and self.turn.id == question.turn
        shown = not question.copies and None not in question.rows.values()
        if question.verdict is not None and shown and not waited_for:
            self.questions.pop(question.id, None)

    # ------------------------------------------------------------ the outbox

    def _queued(self, event: Event, data: events.Queued, turn: Turn | None) -> None:
        row = self.outbox[data.row] = OutboxRow.of(data, event)
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

    def _outdate(self, turn: str, below: OutboxRow) -> None:
        """Mark the turn's previews above this row as outdated, so that no later message replaces them."""
        for row in list(self.outbox.values()):
            if row.turn == turn and row.form == "preview" and row.place == below.place:
                self._row(row.id, outdated=True)

    def _row_ended(self, data: events.RowEnded) -> None:
        row = self._end_row(data.row, arrived=data.state == "sent", message_id=data.message_id)
        turn = self.turn
        if turn is not None and data.row in turn.rows:
            turn.rows[data.row] = data
            if data.state == "sent":
                turn.unread = []  # the delivered message has reported these files
        if row is not None and row.file is not None and data.message_id:
            self.files_sent = [*self.files_sent, data.message_id][-MOST_FILES:]
        if row is None or data.state != "failed":
            return
        if row.form == "reply" and (row.delayed or data.reason == errors.TargetGone.code):
            self.missed = [*self.missed, row][-MOST_MISSED:]
        if turn is not None and row.turn == turn.id and row.ends and turn.phase is Phase.ENDING:
            # The final message did not reach the chat. The turn goes on and may send another.
            turn.phase = Phase.RUNNING

    def _end_row(self, name: str, *, arrived: bool, message_id: str | None = None) -> OutboxRow | None:
        """Remove a row from the outbox. If the row shows a question and was delivered, keep it with the question."""
        row = self.outbox.pop(name, None)
        if row is None:
            return None
        running = self.turn is not None and self.turn.id == row.turn
        if not running and not any(one.turn == row.turn for one in self.outbox.values()):
            self._waits.pop(row.turn or "", None)
        if (question := self.questions.get(row.question or "")) is not None:
            question.rows[name] = arrived
            if arrived and question.of_tool:
                self._outdate(row.turn or "", row)
            elif arrived and row.file is None:
                question.copies[name] = replace(row, message_id=message_id)
            self._forget(question)
        return row

    def _row(self, name: str, **changed: object) -> None:
        if (row := self.outbox.get(name)) is not None:
            self.outbox[name] = replace(row, **changed)  # type: ignore[arg-type]  # the keys are names of fields

    # ------------------------------------------------------------ due effects

    def due(self, now: float, boot: str, committed: int) -> list[Effect]:
        """Return the effects that are due now. `committed` is the number of the newest event on disk; later events do
        not start turns or commands yet. An effect that is already running may be returned again.
        """
        if self.task is not None:
            return []
        self._now = now
        found: list[Effect] = [*self._due_rows(now, boot)]
        found += [Handle(one.inbound) for one in self.beside.values() if one.seq <= committed]
        for question in self.questions.values():
            if question.verdict is not None:
                if question.decided <= committed:
                    found += [Deliver("revise", row, question) for row in question.copies.values()]
            elif now >= (expires := question.expires_at):
                found.append(Expire(question))
            elif expires < math.inf:
                found.append(WakeAt(expires))
        return [*found, *self._due_turn(boot, committed)]

    def _due_turn(self, boot: str, committed: int) -> Iterator[Effect]:
        if (turn := self.turn) is not None:
            if turn.phase is Phase.STOPPING:
                yield StopTurn(turn.id)
            elif turn.boot != boot:
                yield StartTurn(tuple(turn.members))
            elif turn.call is not None and self._asks_anew(turn):
                yield AskAnew(turn.id, turn.call)
            elif (last := self._coming(turn)) is not None:
                yield WakeAt(last.until)
            return
        wakes = list[float]()
        for queue in self._people.values():
            first, last = queue[0], queue[-1]
            if self._now < last.until and first.burst == last.burst:
                wakes.append(last.until)
            elif first.seq <= committed:
                yield StartTurn(tuple(self._together(queue)))
                return
        if wakes:
            yield WakeAt(min(wakes))

    def _due_rows(self, now: float, boot: str) -> Iterator[Effect]:
        """Yield an effect for the oldest open outbox row of each target (chat or thread). The rows of one target are
        sent in order, one at a time, so a deferred row blocks the later ones.
        """
        seen = set[tuple[tuple[str, str], ...]]()
        answering = {row.turn for row in self.outbox.values() if row.form == "reply"}
        for row in self.outbox.values():
            if row.live and row.message_id is not None:
                # A live message is edited until another message replaces it or the turn ends.
                over = self.turn is None or self.turn.id != row.turn
                if row.outdated or (over and row.turn not in answering):
                    yield Deliver("end", row)
                continue
            if row.place in seen:
                continue
            seen.add(row.place)
            if row.state == "sending":
                if row.boot != boot:
                    # Repeat an interrupted edit, because editing a message twice does no harm.
                    yield Deliver("find" if row.replaces is None else "send", row)
            elif row.not_before is not None and now < row.not_before:
                yield WakeAt(row.not_before)
            else:
                yield Deliver("send", row)

    def _asks_anew(self, turn: Turn) -> bool:
        """Return True if the model must be called again: a message was edited, or a new message arrived before the turn had
        any visible effect.
        """
        more = self.joinable()
        if turn.phase is not Phase.RUNNING or not more:
            return False
        return any(one.kind == "edit" for one in more) or (not turn.acted and turn.restarts < MOST_RESTARTS)


def chat_of_task(asked_in: ChatKey, task: str) -> ChatKey:
    """Return the chat key of a subagent task. `asked_in` is the chat of the turn that started the task."""
    return ChatKey(asked_in.channel, asked_in.chat_id, task, "task")
