"""What the random histories are made of: lines in a list, a provider that judges, and what everybody says."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from bot.agent.deps import Limits
from bot.agent.ledger import ParentChain
from bot.context.store import AgentContextStore
from bot.contracts.base import Json, Message
from bot.contracts.inbound import Quoted
from bot.contracts.model import ModelRequest
from bot.contracts.tools import OMISSION, Omission, ToolCall
from bot.contracts.transcript import (
    Event,
    LastingFacts,
    MessageEvent,
    TranscriptLine,
)
from bot.core import quotes, removal
from bot.core.repair import Entry
from bot.llm.body import body_of, headers_of
from bot.llm.prices import PriceTable
from bot.system_role import told
from bot.testing import anthropic_cache as cache
from bot.testing import anthropic_rules as rules
from bot.testing.anthropic_compaction import Compactions
from bot.testing.model import text

TOOLS = tuple({"name": name, "input_schema": {"type": "object"}} for name in ("look", "note"))
SUMMARY = "## What happened\n- 聊天\n## Facts\n- x\n## Decisions\n## Preferences\n## Open tasks\n(none)"
STOPS = {"pause": "pause_turn", "piece": "max_tokens"}
QUOTABLE = ("q1", "q2", "q3")
"""The ids of messages that people quote."""
GO_ON = {"role": "user", "content": [text("Go on.")]}


def words_of(quoted: str) -> str:
    """What stands in one of these messages, and nowhere else."""
    return f"words of {quoted}."


class Lines:
    """`Ledger` on a list, of which the lines from `since` on were loaded. `safe` says how many of them are on disk."""

    def __init__(self, lines: Sequence[TranscriptLine], ids: itertools.count[int], since: int) -> None:
        self.lines = list(lines)
        self.trail = ParentChain()
        self.safe = len(self.lines)
        self._ids = ids
        for line in self.lines[since:]:
            self.trail.follow(line)
        self.trail.close()

    @property
    def facts(self) -> LastingFacts:
        return self.trail.facts

    @property
    def running(self) -> str | None:
        return self.trail.turn

    def add(self, event: Event, request_id: str | None = None) -> TranscriptLine:
        number = next(self._ids)
        line = TranscriptLine(uuid=f"{number:09}", ts=number, request_id=request_id, event=event)
        self.lines.append(line)
        self.trail.follow(line)
        return line


class Provider:
    """Refuses what the provider would refuse."""

    def __init__(self) -> None:
        self.compactions = Compactions()
        self._binding = cache.Binding()
        self._leave = rules.Leave(
            types={"thinking", "compaction", "server_tool_use", "web_search_tool_result"}, system_role=True
        )

    def asked(self, request: ModelRequest) -> Json:
        """The body of a request that it takes. Raises `rules.Refused`."""
        body = body_of(replace(request, messages=told(request.messages)))
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
    """The running turn (`bot.agent.active_turn.ActiveTurn`, without anybody to answer)."""

    def __init__(self, chat: Any) -> None:
        self.piece = False
        self.changed_before = False
        self._paused_at: int | None = None
        self._chat = chat
        self._store: AgentContextStore = chat.store

    @property
    def paused(self) -> bool:
        return self._paused_at is not None

    @paused.setter
    def paused(self, paused: bool) -> None:
        self._paused_at = self._epochs() if paused else None

    @property
    def changed_in_pause(self) -> bool:
        return self.changed_before or self._paused_at != self._epochs()

    def _epochs(self) -> int:
        return int(self._chat.view_changes.chat_totals.facts["epochs"])

    @property
    def entries(self) -> tuple[Entry, ...]:
        return self._store.running.entries if self._store.running is not None else ()

    @property
    def view(self) -> list[Message]:
        return self._store.current()

    @property
    def older(self) -> list[Message]:
        return self._store.older()

    def note(self, message: Message, **facts: Any) -> None:
        self._chat.view_changes.tell(MessageEvent(role=message["role"], message=message, **facts))


def deps(chat: Any) -> Any:
    """`AgentDeps`, as far as epochs ask for it."""
    ages = SimpleNamespace(ages=True)
    registry = SimpleNamespace(definitions=TOOLS, get=lambda name: ages if name == "look" else None)
    return SimpleNamespace(
        registry=registry,
        models=SimpleNamespace(
            name=chat.model, estimator=chat.estimator, prices=PriceTable(), sent=lambda: ""
        ),
        limits=Limits(mask_threshold=chat.rng.choice([0, 400]), keep_observations=3),
        clock=chat.clock,
        log=chat.log,
        redact=str,
        declared=lambda: TOOLS,
    )


class Sayings:
    """What people, the model and tools say."""

    def __init__(
        self, rng: random.Random, ids: itertools.count[int], quoting: random.Random | None = None
    ) -> None:
        self._rng = rng
        self._ids = ids
        self._quoting = quoting
        self._calls = itertools.count(1)

    def person(self) -> dict[str, Any]:
        """The message of a person, with the ids of what it quotes without its words (`bot.agent.user_message`)."""
        first, rng = text(f"<turn_context>{next(self._ids)}"), self._quoting
        if rng is None or rng.random() < 0.5:
            return {"message": {"role": "user", "content": [first, text(self.words())]}}
        ids = rng.sample(QUOTABLE, rng.choice([1, 2]))
        hidden = sorted(one for one in ids if rng.random() < 0.3)
        quoted = [
            Quoted(user_id="U2", message_id=one, text=removal.REMOVED if one in hidden else words_of(one))
            for one in ids
        ]
        content = [first, *quotes.blocks(quoted, str, ""), text(self.words())]
        return {"message": {"role": "user", "content": content}, "unquoted": tuple(hidden)}

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

    def result(self, call: ToolCall) -> Json:
        count = self._rng.choice([1, 1, 30, 300])
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "line\n" * count}
        # The provider would refuse what a result says of itself beside its words.
        return result | {OMISSION: Omission("0" * 26, 7, 9, 5, 10).packed()} if count > 1 else result
