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
from bot.agent.rebuilding import Call, Rebuilt
from bot.agent.request_log import spent
from bot.context import blocks, found, repair
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.model import Model, ModelReply, ModelRequest
from bot.tools.builtin.chat_send import ChatSend

MAX_STEPS = 50
NOT_RECORDED = "Not recorded: this is a replay in which no tool runs, and the turn did not make this call. Go on without it."
TAKEN = "Taken as delivered: this is a replay in which nothing is sent."
LOADS = "chat_load_history"
"""The tool whose result is more than its words: what it loads appears before the turn."""
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


def recorded(turn: Rebuilt) -> RerunResult:
    """Return the recorded result of the turn."""
    told = [call.facts for call in turn.calls if call.facts is not None]
    said = [call.answer for call in turn.calls if call.answer is not None]
    kept = [{key: one.get(key) for key in ("stopReason", "usage", "costUsd")} for one in told]
    return RerunResult(_answer(said), kept)


async def rerun(
    turn: Rebuilt, model: Model, *, name: str | None, static: str | None, redact: Redact = str
) -> RerunResult:
    """Ask again, from the first request of the turn on. `name` is another model, `static` takes the place of the part of the
    system prompt that all chats share. What joined the turn while it ran stands there from the beginning.

    Raises `errors.ModelError`.
    """
    first = turn.calls[0].request
    if first is None:
        raise errors.RequestInvalid("the first request of this turn cannot be made again")
    request, known, came = _changed(first, name, static), _Recorded(turn.calls), RerunResult()
    older, said = turn.calls[0].older, list[Message]()
    before, own = list(request.messages[:older]), [*request.messages[older:], *turn.joined]
    if request.system != first.system or request.model != first.model:
        before, own = blocks.without_thinking(before), blocks.without_thinking(own)
    for _ in range(MAX_STEPS):
        reply = await _asked(model, repair.sound(replace(request, messages=(*before, *own)))[0])
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
        shown, tools = found.declared([{"role": "user", "content": results}])
        own += shown
        have = {tool["name"] for tool in request.tools}
        request = replace(request, tools=(*request.tools, *(one for one in tools if one["name"] not in have)))
        if known.loaded:
            # What was thought behind another position would be refused.
            before, own = [*before, *found.declared(known.loaded)[0]], blocks.without_thinking(own)
            known.loaded = []
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


async def _asked(model: Model, request: ModelRequest) -> ModelReply:
    reply: ModelReply | None = None
    async for event in model.stream(request):
        if isinstance(event, ModelReply):
            reply = event
    if reply is None:
        raise errors.StreamBroken("the model's stream ended without a reply")
    return reply


def _answer(said: Sequence[Message]) -> str:
    """What the person got: what was sent, else the last words."""
    sent = [
        str(call["input"].get("text", ""))
        for message in said
        for call in blocks.tool_uses(message)
        if call["name"] == ChatSend.name and isinstance(call.get("input"), dict)
    ]
    return "\n\n".join(sent) if sent else blocks.plain_text(said[-1]["content"]) if said else ""


class _Recorded:
    """The results of a turn, by tool and arguments. `loaded` is what one of them has brought and nobody has seen yet."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self.loaded: list[Message] = []
        self._results: dict[tuple[str, str], deque[tuple[Json, list[Message]]]] = {}
        for call in calls:
            given = {block["tool_use_id"]: block for block in call.results}
            injected = list(call.injected)
            for use in blocks.tool_uses(call.answer) if call.answer is not None else ():
                if use["id"] in given:
                    brought, injected = (injected, []) if use["name"] == LOADS else ([], injected)
                    self._results.setdefault(_key(use), deque()).append((given[use["id"]], brought))

    def result(self, call: Json, unknown: list[str], *, cut: bool) -> Json:
        """The result that a call has; it is noted in `unknown` where none is recorded."""
        found = self._results.get(_key(call)) if not cut else None
        if found:
            block, brought = found.popleft()
            self.loaded += brought
            return {**block, "tool_use_id": call["id"]}
        result = {"type": "tool_result", "tool_use_id": call["id"]}
        if call["name"] == ChatSend.name and not cut:
            return result | {"content": TAKEN}
        unknown.append(call["name"])
        return result | {"content": NOT_RECORDED, "is_error": True}


def _key(call: Json) -> tuple[str, str]:
    return call["name"], json.dumps(call.get("input"), sort_keys=True)
