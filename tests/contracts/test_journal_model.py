"""The journal in SQLite does what the one in memory does, whatever is asked of it in whatever order."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, get_args

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bot import errors
from bot.contracts.approvals import Ended, Scope, Verdict
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.inbound import LISTENING, Inbound, Listening
from bot.contracts.journal import FinalState, FinalTurnState, InboxEnd, Job, Journal, Locale, StepRecord
from bot.journal.database import FileDatabase
from bot.journal.sqlite import SqlJournal
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.memory_journal import MemoryJournal
from tests.contracts.journal_approvals import approval
from tests.contracts.journal_rig import inbound, outbound
from tests.shares import examples

FEW = st.integers(1, 5)
TWO = st.integers(1, 2)
NAMES = st.sampled_from(["a", "乙", "ג"])
WORDS = st.sampled_from(["", "a", "你好 👩‍👩‍👧", "שלום\u202e", "x\ud800\x00"])
CHATS = st.sampled_from([*map(ChatKey.parse, ["telegram:chat:5", "slack:chat:C1:thread:1.5"])])
NEAR = (*map(ChatKey.parse, ("telegram:chat:5", "telegram:chat:5:topic:7")),)
STATES: Any = st.sampled_from(["ready", "sending", "sent", "unknown", "failed", "lost"])

ENDS = st.builds(
    InboxEnd, st.sampled_from(get_args(FinalState)), st.none() | WORDS, merged_into=st.none() | NAMES
)
VERDICTS = st.builds(
    Verdict,
    st.sampled_from(get_args(Ended)),
    st.none() | st.just(UserRef("web", "5")),
    st.sampled_from(get_args(Scope)),
)

Call = Callable[[Journal], Awaitable[Any]]


def _receive(journal: Journal, number: int, other: int) -> Awaitable[Any]:
    return journal.receive(inbound(number, keys=(f"several {number} {other}",)))


def _begin_turn(journal: Journal, number: int, other: int) -> Awaitable[Any]:
    name = inbound(number).request_id
    return journal.begin_turn(name, NEAR[0], [name, inbound(other).request_id])


def _end_turn(journal: Journal, number: int, other: int) -> Awaitable[Any]:
    ends = {inbound(one).request_id: InboxEnd("answered") for one in (number, other)}
    return journal.end_turn(inbound(number).request_id, "done", ends)


def _finish(journal: Journal, number: int, other: int) -> Awaitable[Any]:
    return journal.finish(inbound(other).request_id, InboxEnd("handled"), [outbound(number, other)])


def _put(journal: Journal, number: int, other: int) -> Awaitable[Any]:
    state: Any = ("ready", "sending")[other % 2]
    return journal.put_outbox([outbound(number, other, state=state)])


def _send(journal: Journal, number: int, other: int) -> Awaitable[Any]:
    begun = outbound(number).begin()
    return journal.update_outbox(begun.arrive(str(other)) if other % 2 else begun)


def _spoil(journal: Journal, number: int, other: int) -> Awaitable[Any]:
    """Nothing takes this, so all that goes with it is carried out anew, one after the other."""
    wrong: Any = "lost"
    return journal.put_outbox([outbound(5 + number, other, state=wrong)])


MOVES: dict[str, Callable[[Journal, int, int], Awaitable[Any]]] = {
    "receive": _receive,
    "begin a turn": _begin_turn,
    "end a turn": _end_turn,
    "finish": _finish,
    "put": _put,
    "send": _send,
    "spoil": _spoil,
}


def _moving(move: str, number: int, other: int) -> Call:
    return lambda journal: MOVES[move](journal, number, other)


class FarDatabase(FileDatabase):
    """One whose answers are read behind each batch, as a server's are."""

    far = True


class JournalAgainstMemory(RuleBasedStateMachine):
    kind: type[FileDatabase] = FileDatabase

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = FakeClock()
        self.runner = asyncio.Runner()
        self.model = MemoryJournal(self.clock)
        self.journal = self.opened()
        self.received = {1, 2}  # by `several_at_once`

    def opened(self) -> SqlJournal:
        log = MemoryLog()
        base = self.kind(Path(self.folder.name) / "journal.db", clock=self.clock, log=log)
        return SqlJournal(base, clock=self.clock, log=log)

    def most_keys(self, number: int) -> int:
        again = number in self.received
        self.received.add(number)
        return 1 if again else 8

    def teardown(self) -> None:
        self.runner.run(self.journal.close())
        self.runner.close()
        self.folder.cleanup()

    def both(self, *calls: Call) -> None:
        """The same at once on both: the same answers."""

        async def ask(journal: Journal) -> list[Any]:
            begun = [call(journal) for call in calls]
            answers = await asyncio.gather(*begun, return_exceptions=True)
            return ["refused" if isinstance(one, errors.ShipmateError) else one for one in answers]

        assert self.runner.run(ask(self.journal)) == self.runner.run(ask(self.model))

    @rule(
        numbers=st.lists(FEW, min_size=1, max_size=3),
        chat=CHATS,
        keys=st.lists(NAMES),
        words=WORDS,
        changes=st.none() | st.just("") | NAMES,
    )
    def receive(
        self, numbers: list[int], chat: ChatKey, keys: list[str], words: str, changes: str | None
    ) -> None:
        # An id is given once. One that comes again here has a single key: it is known, or the row is refused.
        said = [_said(number, chat, keys[: self.most_keys(number)], words) for number in numbers]
        edit = {"kind": "message" if changes is None else "edit", "changes": changes or None}
        self.both(*(_receiving(one.model_copy(update=edit)) for one in said))

    @rule(number=FEW, chat=CHATS, words=WORDS)
    def amend(self, number: int, chat: ChatKey, words: str) -> None:
        async def amended(journal: Journal) -> bool | None:
            record = await journal.inbound(inbound(number).request_id)
            key = chat if record is None else record.inbound.chat_key
            return await journal.amend(_said(number, key, [], words))

        self.both(amended)

    @rule(number=FEW, end=ENDS)
    def finish(self, number: int, end: InboxEnd) -> None:
        self.both(lambda journal: journal.finish(inbound(number).request_id, end))

    @rule(number=FEW, more=st.lists(FEW, max_size=3), chat=CHATS, begins=st.booleans())
    def take_up(self, number: int, more: list[int], chat: ChatKey, begins: bool) -> None:
        name, members = inbound(number).request_id, [inbound(one).request_id for one in more]
        if begins:
            self.both(lambda journal: journal.begin_turn(name, chat, [name, *members]))
        else:
            self.both(lambda journal: journal.join_turn(name, members))

    @rule(number=FEW, move=st.sampled_from(["suspend_turn", "resume_turn", "stop_turn"]))
    def move_turn(self, number: int, move: str) -> None:
        name = inbound(number).request_id
        self.both(lambda journal: getattr(journal, move)(name))

    @rule(
        number=FEW,
        state=st.sampled_from(get_args(FinalTurnState)),
        members=st.dictionaries(FEW, ENDS, max_size=3),
    )
    def end_turn(self, number: int, state: FinalTurnState, members: dict[int, InboxEnd]) -> None:
        ends = {inbound(one).request_id: end for one, end in members.items()}
        self.both(lambda journal: journal.end_turn(inbound(number).request_id, state, ends))

    @rule(
        number=TWO,
        moves=st.lists(st.tuples(st.sampled_from(sorted(MOVES)), TWO), min_size=3, max_size=8),
    )
    def several_at_once(self, number: int, moves: list[tuple[str, int]]) -> None:
        self.both(*(_moving(move, number, other) for move, other in moves))

    @rule(request=FEW, name=NAMES, kind=st.sampled_from(["model", "tool", "dance"]), words=WORDS)
    def begin_step(self, request: int, name: str, kind: Any, words: str) -> None:
        step = StepRecord(inbound(request).request_id, name, kind, "t", self.clock.now())
        whole = dataclasses.replace(step, ended_at=self.clock.now(), result={"text": words})
        self.both(lambda journal: journal.begin_step(whole if words else step))

    @rule(request=FEW, name=NAMES, words=WORDS)
    def end_step(self, request: int, name: str, words: str) -> None:
        self.both(lambda journal: journal.end_step(inbound(request).request_id, name, {"text": words}))

    @rule(
        numbers=st.lists(FEW, max_size=3), chat=CHATS, kind=st.sampled_from(["reply", "notice"]), words=WORDS
    )
    def intend(self, numbers: list[int], chat: ChatKey, kind: Any, words: str) -> None:
        messages = [
            outbound(number, request=number, chat_key=chat, kind=kind, text=words) for number in numbers
        ]
        self.both(lambda journal: journal.put_outbox(messages))

    @rule(number=FEW, state=STATES, message_id=st.none() | NAMES)
    def mark(self, number: int, state: Any, message_id: str | None) -> None:
        self.both(
            lambda journal: journal.update_outbox(
                dataclasses.replace(outbound(number), state=state, message_id=message_id)
            )
        )

    @rule(name=NAMES, call=NAMES, fingerprint=NAMES, chat=CHATS)
    def ask_people(self, name: str, call: str, fingerprint: str, chat: ChatKey) -> None:
        self.both(lambda journal: journal.ask(name, approval(call, fingerprint, chat)))

    @rule(name=NAMES, verdicts=st.lists(VERDICTS, min_size=1, max_size=2))
    def resolve(self, name: str, verdicts: list[Verdict]) -> None:
        named = [dataclasses.replace(verdict, request_id=f"by {name}") for verdict in verdicts]
        self.both(*(_asking("resolve", name, verdict) for verdict in named))

    @rule(name=NAMES, words=WORDS, gone=st.booleans())
    def target(self, name: str, words: str, gone: bool) -> None:
        if gone:
            self.both(lambda journal: journal.close_target("telegram", name, words))
        else:
            self.both(lambda journal: journal.open_target("telegram", name))

    @rule(name=NAMES, words=WORDS)
    def put_job(self, name: str, words: str) -> None:
        self.both(lambda journal: journal.put_job(Job(name, ChatKey.parse("web:chat:1"), {"says": words})))

    @rule(name=NAMES, zone=WORDS)
    def put_locale(self, name: str, zone: str) -> None:
        self.both(lambda journal: journal.put_locale(UserRef("web", name), Locale("zh", zone=zone)))

    @rule(name=NAMES, listening=st.sampled_from(LISTENING))
    def listen(self, name: str, listening: Listening) -> None:
        self.both(lambda journal: journal.listen(ChatKey("web", name), listening))

    @rule(name=NAMES)
    def remove_job(self, name: str) -> None:
        self.both(lambda journal: journal.remove_job(name))

    @rule(
        name=NAMES, holders=st.lists(NAMES, min_size=1, max_size=3), seconds=st.sampled_from([0.0, 5.0, 60.0])
    )
    def lease(self, name: str, holders: list[str], seconds: float) -> None:
        self.both(*(_leasing(name, holder, seconds) for holder in holders))

    @rule(name=NAMES)
    def once(self, name: str) -> None:
        self.both(*[lambda journal: journal.once(name, self.clock.now(), 30)] * 2)

    @rule(seconds=st.sampled_from([-40.0, 1.0, 10.0, 100.0]))
    def set_clock(self, seconds: float) -> None:
        self.clock.jump(seconds)

    @rule(age=st.sampled_from([0.0, 50.0]), longer=st.none() | st.just(100.0))
    def sweep(self, age: float, longer: float | None) -> None:
        now = self.clock.now()
        failed = None if longer is None else now - longer
        self.both(lambda journal: journal.sweep(now - age, failed=failed))

    @rule()
    def restart(self) -> None:
        self.runner.run(self.journal.close())
        self.journal = self.opened()

    @invariant()
    def they_know_the_same(self) -> None:
        names = [inbound(number).request_id for number in range(1, 6)]
        self.both(
            *(
                _asking(journal_call)
                for journal_call in (
                    "unfinished",
                    "undelivered",
                    "closed_targets",
                    "jobs",
                    "locales",
                    "listening",
                )
            ),
            lambda journal: journal.newest(),
            _asking("open_approvals"),
            _asking("decided_since", self.clock.now() - 60),
            *(_asking("approval", name) for name in ("a", "乙", "ג")),
            *(_asking("decided_by", f"by {name}") for name in ("a", "乙", "ג")),
            *(_asking("lasting", name) for name in ("a", "乙", "ג", None)),
            *(_asking(call, name) for call in ("inbound", "turn", "steps", "deliveries") for name in names),
            *(_asking("about", "telegram:chat:5", name) for name in ("m1", "m2")),
            *(_asking("delivered_as", "telegram:chat:5", name) for name in (None, "a", "乙")),
            *(_asking("delivered_near", chat, "5", {"chat_id": "5"}, None) for chat in NEAR),
            *(_asking("claimed_ids", outbound(1, chat_key=chat)) for chat in NEAR),
        )


def _said(number: int, chat: ChatKey, keys: list[str], words: str) -> Inbound:
    return inbound(number, chat_key=chat, keys=tuple(keys), text=words, message_id=f"m{number % 3}")


def _receiving(one: Inbound) -> Call:
    return lambda journal: journal.receive(one)


def _leasing(name: str, holder: str, seconds: float) -> Call:
    return lambda journal: journal.lease(name, holder, seconds)


def _asking(call: str, *given: object) -> Call:
    def ask(journal: Journal) -> Coroutine[Any, Any, Any]:
        answer: Coroutine[Any, Any, Any] = getattr(journal, call)(*given)
        return answer

    return ask


class FarJournalAgainstMemory(JournalAgainstMemory):
    kind = FarDatabase


TestJournalAgainstMemory = JournalAgainstMemory.TestCase
TestFarJournalAgainstMemory = FarJournalAgainstMemory.TestCase
TestJournalAgainstMemory.settings = TestFarJournalAgainstMemory.settings = settings(
    derandomize=True, deadline=None, max_examples=examples(25), stateful_step_count=30
)
