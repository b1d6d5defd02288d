"""A turn or a task asked once more, of another model or with another prompt, and what came of it beside what is recorded.

Nothing happens in it. No tool runs and nothing is sent: a call that the turn made with the same arguments has the result
that is recorded, any other is told that it has none.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bot import errors
from bot.agent.assistant_text import only_sent
from bot.agent.recorded_turn import Call, RecordedTurn
from bot.context import blocks, repair
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.model import Model, ModelRequest
from bot.llm.log import spent
from bot.llm.wrapper import reply_of
from bot.tools.builtin.chat_send import ChatSend, promises_more

MAX_STEPS = 50
NOT_RECORDED = "Not recorded: this is a replay in which no tool runs, and the turn did not make this call. Go on without it."
TAKEN = "Taken as delivered: this is a replay in which nothing is sent."
LOADS = "chat_load_history"
"""The tool whose result is more than its words: what it loads appears before the turn."""
GOES_ON = frozenset({"max_tokens", "pause_turn", "model_context_window_exceeded"})
_TOKENS = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")


@dataclass(slots=True)
class RerunResult:
    """The result of a turn: the answer that the person got, the end and cost of each model call, and the tool calls that have no
    recorded result.
    """

    answer: str = ""
    calls: list[Json] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def totals(self) -> Json:
        """Tokens and US dollars; `costUsd` is None where the price of a call is unknown."""
        told = [call.get("usage") or {} for call in self.calls]
        costs = [call.get("costUsd") for call in self.calls]
        known = [cost for cost in costs if cost is not None]
        return {"calls": len(self.calls)} | {
            **{name: sum(int(usage.get(name, 0)) for usage in told) for name in _TOKENS},
            "costUsd": round(sum(known), 6) if len(known) == len(costs) else None,
        }


def recorded(turn: RecordedTurn) -> RerunResult:
    """Return the recorded result of the turn."""
    told = [call.record.answer for call in turn.calls if call.record.answer is not None]
    said: list[Message] = []
    goes_on = False
    for one in told:
        # An answer that went on behind a limit is one answer.
        before = said.pop()["content"] if goes_on else []
        said.append({"role": "assistant", "content": [*before, *one["content"]]})
        goes_on = one.get("stopReason") in GOES_ON and not blocks.tool_uses(said[-1])
    kept = [{key: one.get(key) for key in ("stopReason", "usage", "costUsd")} for one in told]
    return RerunResult(_answer([one for one in said if one["content"]]), kept)


async def rerun(
    turn: RecordedTurn, model: Model, *, name: str | None, static: str | None, redact: Redact = str
) -> RerunResult:
    """Ask again, from the first request of the turn on. `name` is another model, `static` takes the place of the part of the
    system prompt that all chats share. What joined the turn while it ran stands there from the beginning.

    Raises `errors.ModelError`.
    """
    first = turn.calls[0].request
    if first is None:
        raise errors.RequestInvalid(
            f"the first request of this turn cannot be asked again: {turn.calls[0].record.wrong}"
        )
    request, known, came = _changed(first, name, static), _Recorded(turn.calls), RerunResult()
    older, said = turn.older, list[Message]()
    before, own = list(request.messages[:older]), [*request.messages[older:], *turn.joined]
    if request.system != first.system or request.model != first.model:
        before, own = blocks.without_thinking(before), blocks.without_thinking(own)
    for _ in range(MAX_STEPS):
        reply = await reply_of(model.stream(repair.sound(replace(request, messages=(*before, *own)))[0]))
        came.calls.append({"stopReason": reply.stop_reason} | spent(reply))
        content = blocks.sayable(blocks.redacted(reply.content, redact))
        if not content:
            break
        said.append({"role": "assistant", "content": content})
        own.append(said[-1])
        calls = blocks.tool_uses(said[-1])
        if not calls:
            break
        results = [known.result(call, came.unknown, cut=call["id"] in reply.cut) for call in calls]
        own.append({"role": "user", "content": results})
        if only_sent(own) and not promises_more(calls[-1]["input"]):
            break
        have = {tool["name"] for tool in request.tools}
        more = (one for one in known.found if one["name"] not in have)
        request = replace(request, tools=(*request.tools, *more))
        if known.loaded:
            # What was thought behind another position would be refused.
            before, own = [*before, *known.loaded], blocks.without_thinking(own)
        known.loaded, known.found = [], []
    came.answer = _answer(said)
    return came


def _changed(first: ModelRequest, name: str | None, static: str | None) -> ModelRequest:
    request = replace(first, purpose="replay")
    if static is not None:
        block = {"type": "text", "text": static, "cache_control": {"type": "ephemeral"}}
        request = replace(request, system=(block, *first.system[1:]))
    if name is not None:
        request = replace(request, model=name)
    return request


def _answer(said: Sequence[Message]) -> str:
    """Return the answer that the person got: what was sent, else the last words."""
    sent = [
        str(call["input"].get("text", ""))
        for message in said
        for call in blocks.tool_uses(message)
        if call["name"] == ChatSend.name and isinstance(call.get("input"), dict)
    ]
    return "\n\n".join(sent) if sent else blocks.plain_text(said[-1]["content"]) if said else ""


class _Recorded:
    """The results of a turn, by tool and arguments. `loaded` and `found` are what they have brought and no request has shown yet."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self.loaded: list[Message] = []
        self.found: list[Json] = []
        self._results: dict[tuple[str, str], deque[tuple[Json, list[Message], list[Json]]]] = {}
        for call in calls:
            given = {block["tool_use_id"]: block for block in call.results}
            loaded = list(call.loaded)
            for use in blocks.tool_uses(call.answer) if call.answer is not None else ():
                if use["id"] in given:
                    brought, loaded = (loaded, []) if use["name"] == LOADS else ([], loaded)
                    kept = (given[use["id"]], brought, call.found)
                    self._results.setdefault(_key(use), deque()).append(kept)

    def result(self, call: Json, unknown: list[str], *, cut: bool) -> Json:
        """The result that a call has; it is noted in `unknown` where none is recorded."""
        found = self._results.get(_key(call)) if not cut else None
        if found:
            block, brought, tools = found.popleft()
            self.loaded += brought
            self.found += tools
            return {**block, "tool_use_id": call["id"]}
        result = {"type": "tool_result", "tool_use_id": call["id"]}
        if call["name"] == ChatSend.name and not cut:
            return result | {"content": TAKEN}
        unknown.append(call["name"])
        return result | {"content": NOT_RECORDED, "is_error": True}


def _key(call: Json) -> tuple[str, str]:
    return call["name"], json.dumps(call.get("input"), sort_keys=True)
