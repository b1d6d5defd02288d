"""Other ways to keep a history, for comparison: simulated over the same chat, with the same cache and price list.

What each of them sends is counted in blocks: the frame (system and tools), what the person said, calls, results and
answers, of the sizes that the trace gives them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.context_bill import Account, Bill, Block
from tests.bench.context_trace import Turn

CALL = 40
"""Tokens of a tool call."""
MASK = 20
KEPT_RESULTS = 4
WINDOW = 60
FULL = 150_000
KEPT = 10_000
SUMMARY = 1_500
SECONDS_A_STEP = 4.0


@dataclass(frozen=True, slots=True)
class Message:
    name: tuple[str, int, int]
    tokens: int
    result: bool = False


class Policy:
    """A history that only grows; below, what is done to it instead."""

    name = "append only"

    def __init__(self, tools: int, system: int) -> None:
        self.account = Account()
        self._tools = tools
        self._system = system
        self._messages: list[Message] = []
        self._now = 0.0
        self._requests = 0

    def replay(self, turns: Sequence[Turn]) -> Bill:
        """What the whole chat comes to."""
        for number, turn in enumerate(turns):
            self._now += turn.gap
            self._messages.append(Message(("said", number, 0), turn.said))
            for at, result in enumerate(turn.results):
                self._ask(CALL, number)
                self._messages.append(Message(("call", number, at), CALL))
                self._messages.append(Message(("result", number, at), result, result=True))
            self._ask(turn.answer, number)
            self._messages.append(Message(("answer", number, 0), turn.answer))
        return self.account.bill

    def frame(self) -> list[Block]:
        """What stands before the messages."""
        return [("tools", self._tools), ("system", self._system)]

    def shown(self) -> list[Block]:
        """What is sent of the history."""
        return [(message.name, message.tokens) for message in self._messages]

    def before(self, turn: int) -> None:
        """Change the history before a request."""

    def _ask(self, output: int, turn: int) -> None:
        self._requests += 1
        self.before(turn)
        self._send(self.shown(), output, turn)
        self._now += SECONDS_A_STEP

    def _send(self, shown: list[Block], output: int, turn: int) -> None:
        blocks = [*self.frame(), *shown]
        self.account.send(blocks, (0, 1, len(blocks) - 1), self._now, output, turn)

    def _compact(self, above: int, turn: int) -> None:
        """Where it is too much, a summary takes the place of all but the newest; the same model writes it."""
        if self._tools + self._system + sum(message.tokens for message in self._messages) <= above:
            return
        self._send([*self.shown(), (("summarize", turn, 0), 300)], SUMMARY, turn)
        kept, tokens = len(self._messages), 0
        while kept and tokens < KEPT:
            kept -= 1
            tokens += self._messages[kept].tokens
        self._messages = [Message(("summary", turn, 0), SUMMARY), *self._messages[kept:]]


class Window(Policy):
    """The newest sixty messages, and a system prompt that says when and for whom."""

    name = "60-message window, system per request"

    def frame(self) -> list[Block]:
        return [("tools", self._tools), (("system", self._requests), self._system)]

    def before(self, turn: int) -> None:
        self._messages = self._messages[-WINDOW:]


class MaskEveryTurn(Policy):
    """All but the newest four results are masked, at every request."""

    name = "mask every turn, compact at 150k"

    def before(self, turn: int) -> None:
        self._compact(FULL, turn)

    def shown(self) -> list[Block]:
        results = [at for at, message in enumerate(self._messages) if message.result]
        old = set(results[:-KEPT_RESULTS])
        return [
            (("masked", *message.name), MASK) if at in old else (message.name, message.tokens)
            for at, message in enumerate(self._messages)
        ]


class AppendOnly(Policy):
    """Nothing changes until it is too much; then a summary."""

    name = "append only, compact at 150k"

    def before(self, turn: int) -> None:
        self._compact(FULL, turn)


RIVALS = (Window, MaskEveryTurn, AppendOnly)
