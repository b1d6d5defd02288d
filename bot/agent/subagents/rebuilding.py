"""The requests of a task made again, from the lines beside its transcript (`bot.agent.subagents.record`) and, for a fork,
those of the turn that it went on from. The digest that each was sent with tells whether the bytes are the same. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bot.agent import rebuilding, request_log
from bot.agent.rebuilding import Call, Part, Rebuilt
from bot.context import blocks
from bot.context.deletions import Deletions
from bot.contracts.base import Json, Message
from bot.contracts.transcript import Injection
from bot.history.tasks import HEAD

Shown = Callable[[str], tuple[list[Message], bool] | None]
"""What the turn of a task showed once a line was written (`bot.agent.rebuilding.shown_at`)."""
NO_TURN = "what its turn had come to when it was forked is not on file any more"


def rebuild(told: Sequence[Json], shown_at: Shown, part: Part, gone: Deletions) -> Rebuilt:
    """The calls of a task, by its lines. What was removed since is not shown again: those requests differ."""
    found, head = Rebuilt(), told[0][HEAD]
    prefix, hidden = list[Message](), False
    if (after := head.get("after")) is not None:
        shown = shown_at(after)
        if shown is None:
            found.calls = [
                Call(line[request_log.KEY], wrong=[NO_TURN]) for line in told if request_log.KEY in line
            ]
            return found
        prefix, hidden = [*shown[0], head["placed"]], shown[1]
    task = _Task(prefix, part, gone, found)
    for line in told:
        task.take(line)
    rebuilding.judge(found, removed=hidden or task.hidden)
    return found


class _Task:
    """A task while its lines are carried out."""

    def __init__(self, prefix: Sequence[Message], part: Part, gone: Deletions, found: Rebuilt) -> None:
        self.hidden = False
        """True if something that it had loaded was removed since."""
        self._prefix = prefix
        self._part = part
        self._gone = gone
        self._found = found
        self._own: list[Message] = []
        self._loaded: list[Message] = []
        self._call: Call | None = None

    def take(self, line: Json) -> None:
        """Carry out one line."""
        said: list[Message] = line.get("said", [])
        if "said" in line:
            self._own = [*self._own[: line["kept"]], *said]
        for data in line.get("loaded", ()):
            self._load(data)
        if request_log.KEY in line:
            # What the same line says of messages stands in this request.
            self._call = rebuilding.made(
                line[request_log.KEY], self._part, self._prefix, self._loaded, self._own
            )
            self._found.calls.append(self._call)
        elif self._call is not None:
            self._came(self._call, said)
            self._call.facts = line.get(request_log.ANSWERED, self._call.facts)

    def _load(self, data: Json) -> None:
        told = Injection(
            messages=tuple(data["messages"]), keys=tuple((ts, *rest) for ts, *rest in data["keys"])
        )
        shown = rebuilding.hidden_older(told, self._gone)
        self.hidden |= shown != told.messages
        self._loaded += shown
        if self._call is not None:
            self._call.injected += shown

    @staticmethod
    def _came(call: Call, said: Sequence[Message]) -> None:
        """What came of a call: its answer, and what that called. Older messages are said again where they changed."""
        answers = [message for message in said if message["role"] == "assistant"]
        if call.answer is None and answers:
            call.answer = answers[-1]
        own = {use["id"] for use in blocks.tool_uses(call.answer)} if call.answer is not None else set()
        call.results += [
            block
            for message in said
            for block in message["content"]
            if block.get("type") == "tool_result" and block["tool_use_id"] in own
        ]
