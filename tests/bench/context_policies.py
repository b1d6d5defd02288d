"""Other ways to keep a chat's history, for comparison. Each is simulated over the same chat, with the same
cache rules and the same price list.

A request is counted in blocks: tools, system prompt, the person's messages, tool calls, results and answers.
The trace gives the size of each block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.context_bill import Account, Bill, Block
from tests.bench.context_trace import Turn

CALL = 40
"""Size of a tool call in tokens."""
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
    """A history that only grows. Subclasses change what is kept or sent."""

    name = "append only"

    def __init__(self, tools: int, system: int) -> None:
        self.account = Account()
        self._tools = tools
        self._system = system
        self._messages: list[Message] = []
        self._now = 0.0
        self._requests = 0

    def replay(self, turns: Sequence[Turn]) -> Bill:
        """Simulate all turns; return the bill of the chat."""
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
        """Return the blocks before the messages."""
        return [("tools", self._tools), ("system", self._system)]

    def shown(self) -> list[Block]:
        """Return the blocks of the history that are sent."""
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
        """If the prompt exceeds `above` tokens, let the same model write a summary that replaces all but the
        newest messages.
        """
        if self._tools + self._system + sum(message.tokens for message in self._messages) <= above:
            return
        self._send([*self.shown(), (("summarize", turn, 0), 300)], SUMMARY, turn)
        kept, tokens = len(self._messages), 0
        while kept and tokens < KEPT:
            kept -= 1
            tokens += self._messages[kept].tokens
        self._messages = [Message(("summary", turn, 0), SUMMARY), *self._messages[kept:]]


class Window(Policy):
    """Keeps the newest sixty messages. The system prompt changes with each request, because it contains the
    time and the person.
    """

    name = "60-message window, system per request"

    def frame(self) -> list[Block]:
        return [("tools", self._tools), (("system", self._requests), self._system)]

    def before(self, turn: int) -> None:
        self._messages = self._messages[-WINDOW:]


class MaskEveryTurn(Policy):
    """Masks all tool results but the newest four, at every request."""

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
    """Changes nothing until the prompt is too large; then a summary replaces the older messages."""

    name = "append only, compact at 150k"

    def before(self, turn: int) -> None:
        self._compact(FULL, turn)


RIVALS = (Window, MaskEveryTurn, AppendOnly)
