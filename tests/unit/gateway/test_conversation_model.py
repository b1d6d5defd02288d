"""`Conversation` against a plain model of a chat: a list of what was said, and what became of each of it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from bot.contracts.identity import UserRef
from bot.contracts.inbound import Inbound
from bot.contracts.journal import ANSWERED, InboxRecord
from bot.core.chat import MODES
from bot.gateway.conversation import (
    ALBUM_SECONDS,
    LONGEST_BURST,
    MOST_RESTARTS,
    AgentFinished,
    AgentStarted,
    Amend,
    CancelWait,
    Close,
    Conversation,
    Delete,
    Edit,
    Effect,
    Event,
    LookUp,
    Message,
    OutputStarted,
    RestartModelCall,
    Resumed,
    Stop,
    StopTurn,
    Suspended,
    TurnClosed,
    TurnEnded,
    TurnPlan,
    TurnResumed,
    WakeAt,
    Woken,
)
from tests.shares import examples

PEOPLE = ("a", "b", "c")
EXAMPLES = int(os.environ.get("EXAMPLES", examples(200)))
Kind = Literal["message", "album", "command", "job", "edit"]
"""`album`: one item of an album whose others come as messages of their own."""


@dataclass(eq=False)
class Said:
    """One thing that was said, and what became of it."""

    name: str
    who: str
    kind: Kind
    words: str
    about: str
    at: float
    ts: int
    burst: int = 0
    state: Literal["waits", "in turn", "closed"] = "waits"
    outcome: str = ""

    @property
    def plain(self) -> bool:
        return self.kind in {"message", "album"}


@dataclass
class Chat:
    """All that was said in a chat, oldest first; what of it is the turn; and who had the turns."""

    mode: str
    quiet: float
    said: list[Said] = field(default_factory=list)
    turn: list[Said] = field(default_factory=list)
    begun: bool = False
    phase: str = ""
    stopped: bool = False
    waits_for: str = ""
    suspended: bool = False
    acted: bool = False
    restarts: int = 0
    people: list[str] = field(default_factory=list)
    lasts: dict[str, tuple[int, float, float]] = field(default_factory=dict)
    coming: set[str] = field(default_factory=set)
    """Whose burst is an album that is not whole yet."""

    def waiting(self, who: str = "") -> list[Said]:
        return [one for one in self.said if one.state == "waits" and who in {"", one.who}]

    def wait(self, one: Said) -> None:
        """Stand in the queue; of a burst that its person still writes, or of a new one."""
        if one.who not in self.people:
            self.people.append(one.who)
        quiet = max(self.quiet, ALBUM_SECONDS) if one.kind == "album" else self.quiet if one.plain else 0.0
        burst, began, until = self.lasts.pop(one.who, (0, 0.0, -1.0))
        if not quiet or one.at >= until:
            burst, began, until = len(self.said) + 1, one.at, 0.0
        one.burst = burst
        self.coming.discard(one.who)
        if quiet:
            until = max(until, min(one.at + quiet, began + LONGEST_BURST * quiet))
            self.lasts[one.who] = (burst, began, until)
        if one.kind == "album":
            self.coming.add(one.who)
        self.said.append(one)

    def tidy(self) -> None:
        """Who has nothing waiting is in no order, and writes no burst."""
        self.people = [who for who in self.people if self.waiting(who)]
        self.lasts = {who: last for who, last in self.lasts.items() if self.waiting(who)}
        self.coming &= set(self.lasts)

    def ready(self, now: float) -> list[str]:
        def writes(who: str) -> bool:
            burst, _, until = self.lasts.get(who, (0, 0.0, 0.0))
            return self.waiting(who)[0].burst == burst and now < until

        return [] if self.turn else [who for who in self.people if not writes(who)]

    def begin(self, who: str) -> list[Said]:
        """The next of a person, with the rest of their burst, or of all that is collected."""
        first, *others = self.waiting(who)
        self.turn = [first]
        for other in others:
            merged = self.mode in {"collect", "interrupt"} or other.burst == first.burst
            if not (merged and first.plain and other.plain):
                break
            self.turn.append(other)
        self.started()
        return self.turn

    def started(self) -> None:
        for one in self.turn:
            one.state = "in turn"
        self.phase, self.stopped, self.waits_for, self.begun = "started", False, "", False
        self.suspended, self.acted, self.restarts = False, False, 0
        self.tidy()

    def next(self) -> list[Said]:
        """What the turn would take up: nothing behind what others have waited with for longer."""
        if not self.turn or self.stopped or self.phase == "over":
            return []
        first, more = self.turn[0], list[Said]()
        for one in self.waiting():
            asked, steers = self.phase == "asked", self.mode == "steer"
            if one.who != first.who or (one.who in self.coming and one.burst == self.lasts[one.who][0]):
                break
            added = first.kind != "job" and (one.plain or one.kind == "edit") and steers
            collects = self.mode in {"collect", "interrupt"} and not self.begun
            if not (added if asked else collects and first.plain and one.plain):
                break
            more.append(one)
        return more

    def take(self) -> list[Said]:
        more = self.next()
        for one in more:
            one.state = "in turn"
        self.turn += more
        self.tidy()
        return more


class Conversing(RuleBasedStateMachine):
    """Whatever is said in a chat, in whatever order, it and the model do the same; and each inbound is closed once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.number = 0
        self.file: dict[str, Inbound] = {}
        self.closed: dict[str, str] = {}
        self.answered: list[str] = []
        self.newest: dict[str, int] = {}

    @initialize(mode=st.sampled_from(sorted(MODES)), quiet=st.sampled_from([0.0, 2.0]))
    def open(self, mode: str, quiet: float) -> None:
        self.plain = Chat(mode, quiet)
        self.chat = Conversation(MODES[mode], quiet)

    # ------------------------------------------------------------ what is compared

    def inbound(self, who: str, name: str, **more: Any) -> Inbound:
        fields: dict[str, Any] = {
            "channel": "tele",
            "chat_id": "c",
            "chat_key": "tele:chat:c",
            "chat_type": "group",
            "user_id": who,
            "keys": (name,),
            "ts": self.number,
            "target": {"chat": "c"},
            "text": name,
            "message_id": name,
            "request_id": name,
        }
        made = self.file[name] = Inbound.model_validate(fields | more)
        return made

    def apply(self, event: Event, expected: list[str]) -> None:
        effects = self.chat.apply(event, self.now)
        assert [shown(one) for one in effects if not isinstance(one, WakeAt)] == expected
        for effect in effects:
            if isinstance(effect, Close):
                name = effect.inbound.request_id
                assert name not in self.closed, f"{name} was closed twice"
                self.closed[name] = effect.end.state
            if isinstance(effect, LookUp):
                self.closed[effect.change.request_id] = "recorded"
        self.alike()

    def alike(self) -> None:
        turn = self.chat.running
        assert [(one.request_id, one.text) for one in (turn.all if turn is not None else ())] == [
            (one.name, one.words) for one in self.plain.turn
        ]
        assert turn is None or turn.stopped == self.plain.stopped
        waiting = {one.name for one in self.plain.waiting()}
        assert set(self.chat.request_ids) == waiting | {one.name for one in self.plain.turn}
        assert self.chat.waiting == len(waiting)
        assert [who.user_id for who in self.chat.ready(self.now)] == self.plain.ready(self.now)

    def name(self) -> str:
        self.number += 1
        return f"{self.number:04}"  # in order, as requestIds are

    # ------------------------------------------------------------ what is said

    @rule(
        who=st.sampled_from(PEOPLE),
        kind=st.sampled_from(["message", "message", "message", "album", "album", "command", "job"]),
    )
    def say(self, who: str, kind: Kind) -> None:
        name = self.name()
        more: dict[str, dict[str, Any]] = {
            "album": {"of_album": True},
            "command": {"command": {"name": "new"}},
            "job": {"due": {"job": "J", "at": 0.0}, "message_id": None},
        }
        inbound = self.inbound(who, name, **more.get(kind, {}))
        expected = self.comes(Said(name, who, kind, name, name, self.now, self.number))
        self.apply(Message(inbound), expected)

    def comes(self, one: Said) -> list[str]:
        """Something is said; what that does to the turn."""
        plain, expected, answers = self.plain, list[str](), False
        if one.kind == "album" and one.at < plain.lasts.get(one.who, (0, 0.0, -1.0))[2]:
            plain.wait(one)
            return []  # its first item has done what an album does
        if plain.turn and one.who == plain.turn[0].who and (one.plain or one.kind == "edit"):
            first = plain.turn[0]
            if first.kind != "job":
                if plain.waits_for == "approval":
                    expected.append(f"cancel {first.name}")
                if plain.waits_for == "question":
                    expected.append(f"answer {one.name}")
                    answers = True
                elif plain.mode == "interrupt" and plain.phase == "asked":
                    expected.append(f"stop {first.name}")
                    plain.stopped = True
                plain.waits_for = ""
        if plain.turn and one.who == plain.turn[0].who and one.kind == "command" and plain.waits_for:
            expected.append(f"cancel {plain.turn[0].name}")
            plain.waits_for = ""
        plain.wait(one)
        mine = plain.turn and plain.phase == "asked" and one.who == plain.turn[0].who
        free = not (plain.acted or plain.suspended or plain.begun) and plain.restarts < MOST_RESTARTS
        if mine and free and not answers and one in plain.next():
            plain.restarts += 1
            expected.append(f"ask anew for {plain.turn[0].name}")
        return expected

    @rule()
    def woken(self) -> None:
        plain, expected = self.plain, list[str]()
        whole = {who for who in plain.coming if self.now >= plain.lasts[who][2]}
        plain.coming -= whole
        free = not (plain.acted or plain.suspended or plain.begun) and plain.restarts < MOST_RESTARTS
        mine = plain.turn and plain.turn[0].who in whole and plain.phase == "asked"
        if mine and free and any(one.kind == "album" for one in plain.next()):
            plain.restarts += 1
            expected.append(f"ask anew for {plain.turn[0].name}")
        self.apply(Woken(), expected)

    def written(self) -> list[str]:
        return [one.about for one in self.plain.said if one.plain or one.kind == "command"]

    @precondition(lambda self: self.written())
    @rule(data=st.data(), theirs=st.booleans(), late=st.integers(0, 3))
    def edit(self, data: st.DataObject, theirs: bool, late: int) -> None:
        about, name = data.draw(st.sampled_from(self.written())), self.name()
        author = self.file[about].user_id
        who = author if theirs else "x"
        ts = max(self.number - late, int(about))
        edit = self.inbound(who, name, kind="edit", message_id=about, ts=ts, text=f"{about} {name}")
        changes = [one for one in self.file.values() if one.message_id == about and one.user_id == who]
        records = [InboxRecord(inbound=one, received_at=0, changed_at=0) for one in changes]
        newer = any(
            one.kind == "delete" or (one.kind == "edit" and one.ts > ts) for one in changes if one is not edit
        )
        waits = [one for one in self.plain.waiting() if one.about == about and one.who == who]
        inside = [one for one in self.plain.turn if one.about == about and one.who == who]
        if newer:
            expected = [f"close {name}: outdated"]
        elif waits:
            waits[0].words = edit.text
            waits[0].kind = "message" if waits[0].kind == "command" else waits[0].kind
            expected = [f"amend {waits[0].name}", f"close {name}: merged into {waits[0].name}"]
        elif inside:
            expected = self.comes(Said(name, who, "edit", edit.text, about, self.now, ts))
        else:
            expected = [f"look up {name}"]
        self.apply(Edit(edit, records), expected)

    @precondition(lambda self: self.written())
    @rule(data=st.data(), theirs=st.booleans())
    def delete(self, data: st.DataObject, theirs: bool) -> None:
        about, name = data.draw(st.sampled_from(self.written())), self.name()
        who = self.file[about].user_id if theirs else "x"
        plain, expected = self.plain, list[str]()
        for one in plain.waiting():
            if (one.about, one.who) == (about, who):
                one.state, one.outcome = "closed", "withdrawn"
                expected.append(f"close {one.name}: withdrawn")
        inside = [one for one in plain.turn if (one.about, one.who) == (about, who)]
        for one in inside:
            one.outcome = "withdrawn"
        if inside and all(one.outcome for one in plain.turn) and plain.phase != "over":
            expected.append(f"stop {plain.turn[0].name}")
            plain.stopped = True
        plain.tidy()
        expected = [*expected, f"close {name}: handled"] if expected or inside else [f"look up {name}"]
        deletion = self.inbound(who, name, kind="delete", message_id=about, text="")
        self.apply(Delete(deletion), expected)

    @rule(who=st.sampled_from(PEOPLE), may=st.booleans())
    def stop(self, who: str, may: bool) -> None:
        plain, expected = self.plain, list[str]()
        if may and plain.turn and plain.phase != "over":
            plain.stopped = True
            expected.append(f"stop {plain.turn[0].name}")
        for one in plain.waiting(who):
            one.state = "closed"
            expected.append(f"close {one.name}: stopped")
        plain.tidy()
        self.apply(Stop(self.inbound(who, self.name(), kind="stop", message_id=None), turn=may), expected)
        self.file.popitem()
        assert not plain.waiting(who)

    # ------------------------------------------------------------ turns

    @rule(data=st.data(), any_of=st.booleans())
    def begin(self, data: st.DataObject, any_of: bool) -> None:
        ready = self.plain.ready(self.now)
        who = data.draw(st.sampled_from(ready)) if any_of and ready else (ready or ["a"])[0]
        plan = self.chat.next_turn(self.now, UserRef("tele", who))
        if not ready:
            assert plan is None
            return
        assert plan is not None
        expected = self.plain.begin(who)
        assert [one.request_id for one in plan.all] == [one.name for one in expected]
        self.goes_out(plan.all)
        self.alike()

    def goes_out(self, inbounds: tuple[Inbound, ...] | list[Inbound]) -> None:
        """What a turn answers is nobody's but once, no older than before it, and says its last words."""
        for inbound in inbounds:
            assert inbound.request_id not in self.closed
            mine = [name for name in self.answered if self.file[name].user_id == inbound.user_id]
            assert all(int(name) < int(inbound.request_id) for name in mine), "out of order, or twice"
            self.answered.append(inbound.request_id)

    @precondition(lambda self: self.plain.turn)
    @rule()
    def take(self) -> None:
        more = self.chat.take_more()
        assert [one.request_id for one in more] == [one.name for one in self.plain.take()]
        self.goes_out(more)
        self.alike()

    def phase(name: str) -> Callable[[Any], bool]:  # type: ignore[misc]  # noqa: N805 - a helper of the rules
        return lambda self: bool(self.plain.turn) and self.plain.phase == name

    @precondition(phase("started"))
    @rule()
    def asked(self) -> None:
        self.plain.phase = "asked"
        self.apply(AgentStarted(), [f"ask anew for {self.plain.turn[0].name}"] if self.plain.next() else [])

    @precondition(lambda self: self.plain.turn)
    @rule()
    def acted(self) -> None:
        self.plain.acted = True
        self.apply(OutputStarted(), [])

    @precondition(lambda self: self.plain.phase == "asked" and self.plain.turn and not self.plain.suspended)
    @rule(waits_for=st.sampled_from(["approval", "question"]))
    def suspended(self, waits_for: Literal["approval", "question"]) -> None:
        first = self.plain.turn[0]
        unread = any(one.plain for one in self.plain.waiting(first.who)) and self.plain.mode == "steer"
        commanded = any(one.kind == "command" for one in self.plain.waiting(first.who))
        off = (waits_for == "approval" and unread) or commanded
        if not off:
            self.plain.waits_for, self.plain.suspended = waits_for, True
        self.apply(Suspended(waits_for), [f"cancel {first.name}"] if off else [])

    @precondition(lambda self: self.plain.turn and self.plain.suspended)
    @rule()
    def resumed(self) -> None:
        self.plain.waits_for, self.plain.suspended = "", False
        self.apply(Resumed(), [])

    @precondition(lambda self: self.plain.turn)
    @rule(quickly=st.booleans())
    def end(self, quickly: bool) -> None:
        turn, expected = self.plain.turn, list[str]()
        self.plain.waits_for = ""
        if self.plain.phase != "over" and not quickly:
            self.plain.phase = "over"
            if self.plain.suspended:
                self.plain.suspended = False
                self.apply(Resumed(), [])
            self.apply(AgentFinished(), [])
            return
        for one in turn[1:]:
            expected.append(f"close {one.name}: {one.outcome or 'answered'}")
        self.plain.phase = "over"
        self.apply(TurnEnded(ANSWERED), [*expected, f"close {turn[0].name}: answered"])
        for one in turn:
            one.state = "closed"
        self.plain.turn, self.plain.stopped = [], False
        if turn[0].who in self.plain.people:
            self.plain.people.remove(turn[0].who)
            self.plain.people.append(turn[0].who)
        self.apply(TurnClosed(), [])

    # ------------------------------------------------------------ time, and restarts

    @rule(seconds=st.sampled_from([0.5, 1.5, 2.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.alike()

    @rule()
    def restart(self) -> None:
        """The process dies and comes back: what had begun goes on first, and all that waits stands as it stood."""
        plain = self.plain
        self.chat = Conversation(MODES[plain.mode], plain.quiet)
        words = {one.name: one.words for one in plain.said}
        waits = [one for one in plain.said if one.state == "waits"]
        turn = [one for one in plain.turn if one.name not in self.closed]
        for one in plain.turn:
            if one.name not in self.closed and one.outcome:
                self.closed[one.name], one.state = one.outcome, "closed"
        turn = [one for one in turn if one.name not in self.closed]
        file = {
            name: one.model_copy(update={"text": words.get(name, one.text)})
            for name, one in self.file.items()
        }
        for one in waits:
            inbound = file[one.name]
            if one.kind == "message" and inbound.command is not None:
                inbound = inbound.model_copy(update={"command": None})
            self.chat.apply(Message(inbound, taken_in=one.at), self.now)
        if turn:
            first, *rest = (file[one.name] for one in turn)
            if turn[0].kind == "message" and first.command is not None:
                first = first.model_copy(update={"command": None})
            self.chat.apply(TurnResumed(TurnPlan(first, tuple(rest), begun=True)), self.now)
        # The model: all is said anew, what had begun before all else.
        fresh = Chat(plain.mode, plain.quiet)
        fresh.said = [one for one in plain.said if one.state == "closed"]
        for one in waits:
            fresh.wait(one)
        fresh.lasts, fresh.coming = {}, set()
        self.plain = fresh
        if turn:
            plan = self.chat.next_turn(self.now, self.chat.ready(self.now)[0])
            assert plan is not None
            assert plan.begun
            fresh.turn = turn
            fresh.said += turn
            fresh.started()
            fresh.begun = True
        self.alike()

    def teardown(self) -> None:
        if not hasattr(self, "plain"):
            return
        while self.plain.turn or self.plain.people:
            self.now += 20
            if not self.plain.turn:
                plan = self.chat.next_turn(self.now, self.chat.ready(self.now)[0])
                assert plan is not None
                self.plain.begin(plan.first.user_id)
                self.goes_out(plan.all)
            self.end(quickly=True)
        assert self.chat.idle
        assert sorted(self.closed) == sorted(self.file), "each inbound is closed once"


def shown(effect: Effect) -> str:  # noqa: PLR0911 - one line a kind
    match effect:
        case Close(inbound, end):
            into = f" into {end.merged_into}" if end.merged_into is not None else ""
            return f"close {inbound.request_id}: {end.detail or end.state}{into}"
        case Amend(inbound, _):
            return f"amend {inbound.request_id}"
        case StopTurn(turn):
            return f"stop {turn.first.request_id}"
        case RestartModelCall(turn):
            return f"ask anew for {turn.first.request_id}"
        case CancelWait(turn):
            return f"cancel {turn.first.request_id}"
        case LookUp(change, _):
            return f"look up {change.request_id}"
    return f"answer {effect.inbound.request_id}" if hasattr(effect, "inbound") else "wake"


TestConversing = Conversing.TestCase
TestConversing.settings = settings(
    derandomize=True, deadline=None, max_examples=EXAMPLES, stateful_step_count=40, database=None
)
