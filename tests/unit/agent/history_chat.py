"""One chat of the random histories: its processes, its requests, its turns."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from bot.agent import assistant_text
from bot.agent.view_changes import Tail, ViewChanges
from bot.context import checkpoint, replay
from bot.context.checkpoint import Checkpoint
from bot.context.store import AgentContextStore
from bot.contracts.base import Json, Message
from bot.contracts.journal import FinalTurnState
from bot.contracts.model import ModelRequest
from bot.contracts.transcript import (
    Boundary,
    Injection,
    Mask,
    TranscriptLine,
    TurnEnd,
    messages,
)
from bot.core import blocks, repair, view
from bot.core.continuation import joined
from bot.core.estimate import Estimator
from bot.core.validate import loose_thinking
from bot.testing import anthropic_rules as rules
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import text
from tests.unit.agent.history_parts import (
    GO_ON,
    STOPS,
    TOOLS,
    Lines,
    Provider,
    Running,
    Sayings,
    deps,
)


class Crash(Exception):
    """The process dies."""


class Chat:
    """What a process does for one chat, without disk and tasks."""

    def __init__(self, seed: int, *, quotes: bool = True) -> None:
        self.rng = random.Random(seed)
        self.quotes = quotes
        # A stream of its own: without quotes a seed means what it meant before there were any.
        self.quoting = random.Random(f"quotes {seed}")
        self.ids = itertools.count(1)
        self.says = Sayings(self.rng, self.ids, self.quoting if quotes else None)
        self.provider = Provider()
        self.cap = self.rng.choice([6, 12, 60])
        self.system = [text("You are a cat.")]
        self.model = "one"
        self.earlier: list[list[TranscriptLine]] = []
        self.requests = 0
        self.clock = FakeClock()
        self.log = MemoryLog()
        self.estimator = Estimator()
        self.told: list[Message] = []
        self.damaged = False
        self.declared = -1
        self.load([])

    # ------------------------------------------------------------ processes

    def load(self, lines: Sequence[TranscriptLine], *, damaged: bool = False) -> None:
        """A new process on these lines."""
        self.store = AgentContextStore(self.cap)
        self.damaged = self.damaged or damaged
        base, since = self.base(lines)
        self.ledger = Lines(lines, self.ids, since)
        self.view_changes = ViewChanges(self.store, cast("Any", self.ledger), deps(self))
        self.view_changes.frame = self.ledger.facts.frame
        mended = replay.replay(self.store, lines[since:], base)
        self.declared = -1
        if mended:
            assert self.damaged, "nothing but damage has to be mended"
            self.view_changes.apply("repair", Boundary())
            self.store.reset()
            replay.replay(self.store, self.ledger.lines)
        elif not self.damaged:
            self.as_from_the_beginning(lines)
        self.cut_off = self.store.running is not None

    def base(self, lines: Sequence[TranscriptLine]) -> tuple[Checkpoint | None, int]:
        """What the newest boundary left, and where the lines begin that come behind that."""
        at = next((at for at in reversed(range(len(lines))) if lines[at].type == "boundary"), None)
        if at is None:
            return None, 0
        line = lines[at]
        base = checkpoint.rebuilt(line, messages(lines[:at]))
        assert base is not None or self.damaged, "a boundary names what it leaves"
        assert isinstance(line.event, Boundary)
        assert line.event.kept is not None
        since = line.event.kept.since
        first = next((place for place, one in enumerate(lines[:at]) if one.uuid == since), at)
        return base, 0 if base is None else first

    def as_from_the_beginning(self, lines: Sequence[TranscriptLine]) -> None:
        """All lines fill the same store."""
        whole = AgentContextStore(self.cap)
        assert not replay.replay(whole, lines)
        assert (whole.turns, whole.head, whole.masked) == (
            self.store.turns,
            self.store.head,
            self.store.masked,
        )

    def restart(self) -> None:
        before = self.store
        self.load(self.ledger.lines)
        if not self.damaged:
            assert self.store.view() == before.view()
            assert (self.store.turns, self.store.masked) == (before.turns, before.masked)

    # ------------------------------------------------------------ requests

    def request(self, turn: Running | None, tail: Sequence[Message] = (), **more: Any) -> Json:
        """What would be sent now; the provider takes it as it is."""
        current = [*turn.view, *tail] if turn is not None else []
        loaded = turn.older if turn is not None else []
        history = self.store.view()
        made = view.render(
            model=self.model,
            max_tokens=100,
            system=self.system,
            tools=TOOLS,
            history=history,
            injected=loaded,
            current=current,
        )
        paused = turn is not None and turn.paused
        sent, wrong = repair.sound(replace(made, **more), paused=paused)
        assert wrong is None, wrong
        if turn is not None:
            self.unbroken([*history, *loaded, *turn.view], made)
        self.requests += 1
        try:
            return self.provider.asked(sent)
        except rules.Refused as refused:
            if turn is None or not self.recovered(turn, refused.message):
                raise
            return self.request(turn, [GO_ON] if turn.piece else tail, **more)

    def recovered(self, turn: Running, refused: str) -> bool:
        """Whether the next try is another one (`bot.agent.overflow`)."""
        if self.damaged and "bound to a different conversation" in refused:
            # A turn that is lost is not missed by anybody but what was thought behind it.
            self.view_changes.apply("thinking", Boundary())
            return True
        if turn.paused and turn.changed_in_pause and "prefill" in refused:
            self.unpause(turn)
            turn.paused, turn.piece = False, True
            return True
        return False

    def unpause(self, turn: Running) -> None:
        if turn.entries and (rest := assistant_text.without_pause(turn.entries[-1].message)) is not None:
            turn.note(rest, instead=turn.entries[-1].uuid, stop_reason=STOPS["piece"])

    def unbroken(self, shown: list[Message], made: ModelRequest) -> None:
        """What was sent last is the beginning of it, where no epoch was declared; no thinking stands behind a change."""
        count = self.view_changes.chat_totals.facts["epochs"]
        if count == self.declared:
            before = self.told[:-1] if self.ended_in_a_piece(shown) else self.told
            assert shown[: len(before)] == before, "undeclared"
        assert not list(loose_thinking(self.view_changes.sent, made.messages))
        self.told, self.declared, self.view_changes.sent = shown, count, made.messages

    def ended_in_a_piece(self, shown: list[Message]) -> bool:
        at = len(self.told) - 1
        return 0 <= at < len(shown) and self.told[at]["role"] == shown[at]["role"] == "assistant"

    # ------------------------------------------------------------ a turn

    def turn(self) -> None:
        """A turn of a few steps, or what is left of one that was cut off; it may crash anywhere."""
        self.view_changes.prepare(self.system)
        turn = Running(self)
        self.view_changes.begin_turn(f"R{next(self.ids):09}")
        turn.note(**self.says.person())
        self.go_on(turn)

    def resumed(self) -> None:
        """Go on with the turn that a crash cut off."""
        self.cut_off, cut = False, self.store.running
        if cut is None or not cut.entries:
            return
        turn = Running(self)
        self.view_changes.resume_turn()
        self.view_changes.prepare(self.system)
        last = turn.entries[-1].message
        if calls := blocks.tool_calls(last["content"]):
            turn.note({"role": "user", "content": [self.says.result(call) for call in calls]})
        elif last["role"] == "assistant":
            turn.paused, turn.piece = (
                cut.last is not None and cut.last.stop_reason == STOPS[kind] for kind in ("pause", "piece")
            )
            turn.changed_before = True  # perhaps: a change before the crash
            if not turn.paused and not turn.piece:
                self.end(turn, "done")
                return
        self.go_on(turn)

    def go_on(self, turn: Running) -> None:
        rng = self.rng
        status: FinalTurnState = "failed"
        for _ in range(rng.choice([1, 1, 2, 3, 5])):
            if rng.random() < 0.12:
                self.change_in_the_middle(turn)
            if not turn.view or rng.random() < 0.03:
                raise Crash
            if not self.step(turn):
                status = rng.choice(["done", "done", "done", "stopped", "withdrawn"])
                break
        self.end(turn, status)

    def step(self, turn: Running) -> bool:
        """Ask once and do what the answer says; whether the turn goes on."""
        rng, tail = self.rng, [GO_ON] if turn.piece else []
        body = self.request(turn, tail)
        kind = (
            "text"
            if rng.random() < 0.4
            else rng.choice(["calls", "calls", "calls", "server", "pause", "piece"])
        )
        kind = "piece" if kind == "pause" and turn.piece else kind
        content = self.provider.answers(
            body, [*self.found(turn), *self.says.answer(kind)], paused=kind == "pause"
        )
        turn.paused = False
        if turn.piece:
            content = [block for block in content if block["type"] not in blocks.THINKING]
        content = blocks.sayable(content, paused=kind == "pause")
        self.keep(turn, content, kind)
        calls = blocks.tool_calls(content)
        turn.piece, turn.paused = kind == "piece" and bool(content), kind == "pause" and bool(content)
        if rng.random() < 0.05:
            raise Crash
        self.ledger.safe = len(self.ledger.lines)
        if calls:
            turn.note({"role": "user", "content": [self.says.result(call) for call in calls]})
            if rng.random() < 0.2:
                turn.note(**self.says.person(), sources=(f"S{next(self.ids)}",))
        return bool(calls) or turn.piece or turn.paused

    def found(self, turn: Running) -> list[Json]:
        """What the provider has found since it paused: the answer goes on with that."""
        calls = turn.entries[-1].message["content"] if turn.paused else ()
        return [
            {"type": "web_search_tool_result", "tool_use_id": call["id"], "content": []}
            for call in calls
            if call["type"] == "server_tool_use"
            and call["id"] not in {one.get("tool_use_id") for one in calls}
        ]

    def keep(self, turn: Running, content: list[Json], kind: str) -> None:
        facts: Json = {"stop_reason": STOPS.get(kind, "end_turn")}
        if turn.piece:
            piece = turn.entries[-1]
            content = joined(piece.message["content"], content)
            facts["instead"] = piece.uuid
        if content:
            turn.note({"role": "assistant", "content": content}, **facts)
        if turn.piece:
            self.view_changes.apply("continuation", Tail())

    def end(self, turn: Running, status: FinalTurnState) -> None:
        self.unpause(turn)
        if turn.entries and blocks.tool_calls(turn.entries[-1].message["content"]):
            turn.note(blocks.interrupted_results(turn.entries[-1].message, "interrupted"))
        loaded = bool(turn.older) and status != "withdrawn"
        self.view_changes.end_turn(TurnEnd(status=status))
        if not loaded:
            self.view_changes.chat_totals.epoch()  # a turn that is withdrawn leaves the view as one whose messages were loaded
        if status != "withdrawn" and (over := self.store.over_cap()):
            self.view_changes.apply("message_cap", Boundary(dropped=tuple(over)))
        self.ledger.safe = len(self.ledger.lines)

    def change_in_the_middle(self, turn: Running) -> None:
        """What may change the view while a turn runs."""
        rng, change = self.rng, self.rng.randrange(7)
        if change == 0:
            self.view_changes.mask_old("overflow", above=0)
        elif change == 1 and (half := self.store.oldest_half()):
            self.view_changes.apply("overflow", Boundary(dropped=tuple(half)))
        elif change == 2 and self.store.head is not None:
            self.view_changes.apply("overflow", Boundary(head=None))
        elif change == 3:
            if shorter := blocks.shortened_results(turn.view, 500):
                self.view_changes.apply("overflow", Mask(results=shorter))
        elif change == 4 and turn.older:
            self.view_changes.apply("overflow", Injection(kept=rng.randrange(len(turn.older))))
        elif change == 5:
            self.view_changes.apply("thinking", Boundary())
        else:
            older = [{"role": "user", "content": [text(f"older {at}")]} for at in range(rng.choice([1, 3]))]
            times = tuple(sorted(rng.randrange(100) for _ in older))
            self.view_changes.apply(
                "injection", Injection(before=turn.entries[0].uuid, messages=tuple(older), ts=times)
            )
