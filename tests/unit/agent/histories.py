"""Random histories without disk, pool and tasks: what a chat is shown, by the functions that show it, thousands of times.

The store, its view, the epochs, masks, compactions, repairs and replays are the real ones; their lines are kept in a list.
The provider's rules judge every request. Whatever happens, no request is refused or mended, none changes at its front
without a declared epoch, and a new process fills the same store, from the newest boundary as from all lines.
"""

from __future__ import annotations

from bot.context import deletions
from bot.context.store import summed_up
from bot.contracts.base import Message
from bot.contracts.transcript import UNCHANGED, Boundary, Unchanged
from bot.core import compaction, memory
from bot.core.found_tools import PutBack
from bot.testing import anthropic_rules as rules
from bot.testing.model import text
from tests.unit.agent.history_chat import Chat, Crash
from tests.unit.agent.history_parts import QUOTABLE, SUMMARY, words_of

AGAIN = PutBack([("a pointer", {})], names={"files": {"a.md": {"path": "a.md"}}})


class History(Chat):
    """What happens in one chat; everything follows from the seed."""

    def compact(self, *, by_the_provider: bool) -> None:
        border = compaction.border(
            [turn.named for turn in self.store.turns],
            size=lambda messages: 10.0 * len(messages),
            keep=self.rng.choice([0, 40, 150]),
        )
        if not border:
            return
        block = None
        if (
            by_the_provider
            and self.view_changes.frame is not None
            and self.view_changes.frame.model == self.model
        ):
            self.view_changes.prepare(self.system)
            try:
                body = self.request(None, summarize="Shorter.")
            except rules.Refused:
                if self.damaged:
                    return
                raise
            block = self.provider.compactions.sign(SUMMARY, body)
        head = memory.head(SUMMARY, nonce="0a1b2c3d", block=block, put_back=self.rng.choice([None, AGAIN]))
        self.view_changes.apply("size", Boundary(dropped=tuple(border), head=head))
        if self.rng.random() < 0.2:
            self.undo()

    def undo(self) -> None:
        if self.store.turns:
            turn = self.store.turns[-1]
            if self.store.head is not None and summed_up(turn, self.ledger.lines, None):
                return
            self.view_changes.apply("undo", Boundary(dropped=tuple(entry.uuid for entry in turn.entries)))

    def remove(self) -> None:
        if not self.store.turns:
            return
        turn = self.rng.choice(self.store.turns).request_id
        ids = frozenset({turn})
        wanted = self.rng.choice(
            [
                deletions.Deletions(ids, frozenset(), frozenset(), {}),
                deletions.Deletions(frozenset(), ids, frozenset(), {}),
            ]
        )
        uuids, since = deletions.ids_to_redact(self.ledger.lines, wanted)
        if uuids:
            head: Message | Unchanged | None = UNCHANGED
            if self.store.head is not None and deletions.summed_up(self.ledger.lines, since):
                head = self.rng.choice([None, memory.head(SUMMARY, nonce="0a1b2c3d")])
            self.view_changes.apply("deletion", Boundary(blank=tuple(uuids), head=head))

    def unquote(self) -> None:
        """A message that others quote is removed: its words go where they are quoted, and nothing else does. Later ones may
        quote them again.
        """
        gone = self.quoting.choice(QUOTABLE)
        wanted = deletions.Deletions(frozenset(), frozenset(), frozenset(), {}, ids=frozenset({gone}))
        ids, since = deletions.quoted(self.ledger.lines, wanted)
        if not ids:
            return
        head: Message | Unchanged | None = UNCHANGED
        if self.store.head is not None and deletions.summed_up(self.ledger.lines, since):
            head = self.quoting.choice([None, memory.head(SUMMARY, nonce="0a1b2c3d")])
        before = self.said()
        self.view_changes.apply("deletion", Boundary(unquoted=tuple(ids), head=head))
        assert deletions.quoted(self.ledger.lines, wanted) == ([], 0)
        assert self.said() == [deletions.unquoted(message, ids) for message in before]
        assert words_of(gone) not in str(self.said())

    def said(self) -> list[Message]:
        """The kept messages of people, and the results of tools."""
        return [message for message in self.store.messages() if message["role"] == "user"]

    def elsewhere(self) -> None:
        """A new session, an earlier one, or a copy of this one up to the end of a turn."""
        lines = list(self.ledger.lines)
        self.earlier.append(lines)
        ends = [at for at, line in enumerate(lines) if line.type == "turn_end"]
        where = self.rng.randrange(3)
        if where == 0 and ends:
            self.load(lines[: self.rng.choice(ends) + 1])
        elif where == 1:
            self.load(self.rng.choice(self.earlier))
        else:
            self.load([])

    def damage(self) -> None:
        """A line that cannot be read any more: what stands around it is mended, and only then is a request asked for."""
        lines = list(self.ledger.lines)
        if lines:
            del lines[self.rng.randrange(len(lines))]
            self.load(lines, damaged=True)

    def other_frame(self) -> None:
        if self.rng.random() < 0.5:
            self.system = [text(self.rng.choice(["You are a cat.", "You are a dog."]))]
        else:
            self.model = self.rng.choice(["one", "two"])
            self.restart()

    def crash(self) -> None:
        """What was not on disk is lost; the turn goes on with what was."""
        lines = self.ledger.lines
        kept = self.rng.randint(self.ledger.safe, len(lines)) if len(lines) > self.ledger.safe else len(lines)
        self.load(lines[:kept])

    def live(self, steps: int) -> None:
        """So many things happen."""
        for _ in range(steps):
            try:
                if self.cut_off:
                    self.resumed()
                else:
                    self.something()
            except Crash:
                self.crash()
        self.restart()

    def something(self) -> None:
        if self.quotes and self.quoting.random() < 0.15:
            self.unquote()
        roll = self.rng.random()
        if roll < 0.5:
            self.turn()
        elif roll < 0.62:
            self.compact(by_the_provider=self.rng.random() < 0.6)
        elif roll < 0.7:
            self.restart()
        elif roll < 0.76:
            self.other_frame()
        elif roll < 0.82:
            self.remove()
        elif roll < 0.88:
            self.undo()
        elif roll < 0.93:
            self.elsewhere()
        elif roll < 0.98:
            self.view_changes.asked_at = None
        else:
            self.damage()


def lived(seed: int, steps: int = 12, *, quotes: bool = True) -> History:
    """The history of a seed; without `quotes` nobody quotes anything in it."""
    history = History(seed, quotes=quotes)
    history.live(steps)
    return history
