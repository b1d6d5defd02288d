"""The same disorder while the journal refuses to write, all of it or some of it, for a while: still one answer each."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from bot import errors
from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.inbound import Inbound
from bot.testing.journal import WRITES, FaultyJournal
from tests.shares import examples
from tests.unit.gateway.conftest import Bench, refusing
from tests.unit.gateway.test_disorder import Disorder

EXAMPLES = int(os.environ.get("EXAMPLES", examples(15)))
REFUSED = (
    WRITES,
    WRITES - {"receive"},
    frozenset({"finish", "end_turn"}),
    frozenset({"amend"}),
    frozenset({"begin_turn", "join_turn", "end_turn", "finish"}),
    frozenset({"put_outbox", "update_outbox"}),
    frozenset({"update_outbox"}),
    frozenset({"receive"}),
)


class FullDisk(Disorder):
    """What the journal refuses to take in, the platform brings again. A kill comes only once it has room again: what is
    promised of the time before says so (docs/promises.md). The second channel connects late.
    """

    def __init__(self) -> None:
        super().__init__()
        self.late = True
        self.wrap = FaultyJournal
        self.twice: set[str] = set()

    async def _opened(self, bench: Bench) -> None:
        self.late = True
        begun: set[str] = set()
        run = self.agent.run

        async def counted(request: TurnRequest) -> TurnOutcome:
            if request.request_id in begun:
                self.twice.add(request.request_id)
            begun.add(request.request_id)
            return await run(request)

        self.agent.run = counted  # type: ignore[method-assign]
        await bench.open("tele")

    @rule(refused=st.sampled_from(REFUSED))
    def fill(self, refused: frozenset[str]) -> None:
        self.journal.mend()
        refusing(self.bench, *sorted(refused))

    @rule()
    def make_room(self) -> None:
        self.journal.mend()
        self.do(self.journal.flush())

    @property
    def journal(self) -> FaultyJournal:
        journal: Any = self.bench.journal
        assert isinstance(journal, FaultyJournal)
        return journal

    @precondition(lambda self: self.late)
    @rule()
    def connect_another(self) -> None:
        self.late = False
        self.do(self.bench.open("local"))

    def bring(self, event: Inbound) -> None:
        self.offer([event])

    def offer(self, events: list[Inbound]) -> None:
        async def bring() -> list[bool | BaseException]:
            takes = (self.bench.intake.accept(event) for event in events)
            return await asyncio.gather(*takes, return_exceptions=True)

        for event, taken in zip(events, self.do(bring()), strict=True):
            assert isinstance(taken, bool | errors.StorageError)
            if taken is True:
                self.took(event)

    @rule()
    def kill(self) -> None:
        """The process dies and comes back."""
        self.make_room()
        super().kill()

    @rule()
    def let_go(self) -> None:
        self.make_room()
        super().let_go()

    def verify(self) -> None:
        super().verify()
        assert not self.twice, "begun twice in one process"
        seen: set[tuple[str, str]] = set()
        for one in self.sent:
            for part in (part for part in one.text.split() if "=" in part):
                name, words = part.split(":")[1].split("=")
                if len(self.items.get(name, ())) == 1:
                    assert (name, words) not in seen, f"{name} was answered twice as {words}"
                    seen.add((name, words))


TestFullDisk = FullDisk.TestCase
TestFullDisk.settings = settings(
    derandomize=True, deadline=None, max_examples=EXAMPLES, stateful_step_count=25, database=None
)
