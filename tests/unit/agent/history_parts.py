"""What the random histories are made of: lines in a list, a provider that judges, and what everybody says."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

from bot.agent.ledger import ParentChain
from bot.agent.view_changes import ViewChange
from bot.context import blocks, checkpoint, replay
from bot.context.store import Entry
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.llm.body import body_of, headers_of
from bot.testing import anthropic_cache as cache
from bot.testing import anthropic_rules as rules
from bot.testing.anthropic_compaction import Compactions
from bot.testing.model import text

TOOLS = tuple({"name": name, "input_schema": {"type": "object"}} for name in ("look", "note"))
SUMMARY = "## What happened\n- 聊天\n## Facts\n- x\n## Decisions\n## Preferences\n## Open tasks\n(none)"
STOPS = {"pause": "pause_turn", "piece": "max_tokens"}
GO_ON = {"role": "user", "content": [text("Go on.")]}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the transcript."""

    uuid: str
    type: str
    ts: int
    request_id: str | None
    message: Message | None
    data: Json | None


class Lines:
    """`Ledger` on a list, of which the lines from `since` on were loaded. `safe` says how many of them are on disk."""

    def __init__(self, lines: Sequence[Line], ids: itertools.count[int], since: int) -> None:
        self.lines = list(lines)
        self.trail = ParentChain()
        self.safe = len(self.lines)
        self._ids = ids
        for line in self.lines[since:]:
            self.trail.follow(cast("Any", line))
        self.trail.close()

    def add(
        self, kind: str, request_id: str | None, *, message: Message | None = None, data: Json | None = None
    ) -> str:
        number = next(self._ids)
        line = Line(f"{number:09}", kind, number, request_id, message, data)
        self.lines.append(line)
        self.trail.follow(cast("Any", line))
        return line.uuid

    def message(self, request_id: str, message: Message, data: Json | None = None) -> str:
        return self.add(str(message["role"]), request_id, message=message, data=data)

    def mark(self, kind: str, request_id: str | None, data: Json | None = None) -> None:
        self.add(kind, request_id, data=data)

    def boundary(self, request_id: str | None, data: Json, kept: Json) -> None:
        kept = kept | {"since": self.trail.turn} | self.trail.facts
        self.add("boundary", request_id, data=data | {checkpoint.KEY: kept})


class Provider:
    """Refuses what the provider would refuse."""

    def __init__(self) -> None:
        self.compactions = Compactions()
        self._binding = cache.Binding()
        self._leave = rules.Leave(
            types={"thinking", "compaction", "server_tool_use", "web_search_tool_result"}
        )

    def asked(self, request: ModelRequest) -> Json:
        """The body of a request that it takes. Raises `rules.Refused`."""
        body = body_of(request)
        self.compactions.check(body, headers_of(request).get("anthropic-beta", ""))
        rules.check(body, replace(self._leave, prefill=request.summarize is not None))
        cache.check_breakpoints(body)
        self._binding.check(body)
        return body

    def answers(self, body: Json, content: list[Json], *, paused: bool) -> list[Json]:
        self._binding.sign(body, content)
        if paused:
            self._leave.resumable.append([dict(block) for block in content])
        return content


class Running:
    """The running turn (`bot.agent.active.ActiveTurn`, without anybody to answer)."""

    def __init__(self, chat: Any, request_id: str) -> None:
        self.request = cast("Any", SimpleNamespace(request_id=request_id))
        self.sources: tuple[str, ...] = (request_id,)
        self.entries: list[Entry] = []
        self.loaded: list[tuple[int, Message]] = []
        self.injected = 0
        self.piece = False
        self.paused = False
        self.changed_in_pause = False
        self._chat = chat

    @property
    def view(self) -> list[Message]:
        return [blocks.masked(entry.message, self._chat.store.masked) for entry in self.entries]

    def shown(self) -> list[Message]:
        return [*(message for _, message in self.loaded), *self.view]

    def changed(self, change: ViewChange) -> None:
        self.changed_in_pause = self.paused
        if change.line == "turn_end":
            self.loaded = []
        elif change.line == "injection":
            self.take(change.data)
        self.entries = list(replay.behind(self.entries, change.line, change.data))

    def take(self, data: Json) -> None:
        self.loaded = replay.loaded(self.loaded, data)
        self.injected += len(data.get("messages", ()))

    def note(self, message: Message, data: Json | None = None) -> None:
        self.sources += tuple((data or {}).get("sources", ()))
        uuid = self._chat.ledger.message(self.request.request_id, message, data)
        self.entries.append(Entry(uuid, message))


def deps(chat: Any) -> Any:
    """`AgentDeps`, as far as epochs ask for it."""
    ages = SimpleNamespace(ages=True)
    registry = SimpleNamespace(definitions=TOOLS, get=lambda name: ages if name == "look" else None)
    return SimpleNamespace(
        registry=registry, model_name=chat.model, estimator=chat.estimator, clock=chat.clock, log=chat.log,
        redact=str, mask_threshold=chat.rng.choice([0, 400]), keep_observations=3,
        declared=lambda: TOOLS,
    )  # fmt: skip


class Sayings:
    """What people, the model and tools say."""

    def __init__(self, rng: random.Random, ids: itertools.count[int]) -> None:
        self._rng = rng
        self._ids = ids
        self._calls = itertools.count(1)

    def person(self) -> Message:
        return {"role": "user", "content": [text(f"<turn_context>{next(self._ids)}"), text(self.words())]}

    def words(self) -> str:
        return self._rng.choice(["hi", "你好 👩‍👩‍👧", "مرحبا", "tell me more", "x" * 400])

    def answer(self, kind: str) -> list[Json]:
        rng = self._rng
        found: list[Json] = []
        if rng.random() < 0.6:
            found.append({"type": "thinking", "thinking": "hm", "signature": "s"})
        if kind in {"text", "piece"}:
            return [*found, text(self.words())] if rng.random() < 0.95 else found
        if kind in {"server", "pause"}:
            call = f"srvtoolu_{next(self._calls)}"
            found.append({"type": "server_tool_use", "id": call, "name": "web_search", "input": {}})
            if kind == "server":
                found.append({"type": "web_search_tool_result", "tool_use_id": call, "content": []})
                found.append(text(self.words()))
            return found
        for _ in range(rng.choice([1, 1, 2, 5])):
            name = rng.choice(["look", "look", "note"])
            found.append({"type": "tool_use", "id": f"toolu_{next(self._calls)}", "name": name, "input": {}})
        return found

    def result(self, call: Json) -> Json:
        words = "line\n" * self._rng.choice([1, 1, 30, 300])
        return {"type": "tool_result", "tool_use_id": call["id"], "content": words}
