"""Sends the recorded requests of a turn or task again, to another model or with another prompt.

The results of a request's tool calls are read from the requests after it. A rerun runs no tool and sends no message. A
tool call with recorded arguments gets the recorded result. For any other call, the model reads that no result was recorded.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bot import errors, tags
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.model import Model, ModelRequest
from bot.contracts.tools import ToolCall, ToolResult
from bot.features.replay import REDACTED, RecordedRequest
from bot.llm import blocks
from bot.llm.wrapper import reply_of, spent
from bot.tools.builtin.chat_send import chat_send, promises_more


@dataclass
class Call:
    record: RecordedRequest

    @property
    def exact(self) -> bool:
        """Return True if the record has exactly the bytes that were sent."""
        return self.record.wrong is None

    @cached_property
    def request(self) -> ModelRequest | None:
        """Return the request; None if the recorded body is missing, damaged or changed by a removal."""
        if self.record.body is None or self.record.wrong not in {None, REDACTED}:
            return None
        body: Any = json.loads(self.record.body)
        return ModelRequest(
            model=body["model"],
            max_tokens=body["max_tokens"],
            system=body.get("system", []),
            messages=tags.without_system_messages(body["messages"]),
            tools=body.get("tools", []),
            purpose=self.record.purpose,
            effort=body.get("output_config", {}).get("effort"),
            thinking=body.get("thinking"),
        )

    @property
    def answer(self) -> Message | None:
        """Return the model's answer; None if it is empty or was not recorded."""
        content = (self.record.answer or {}).get("content")
        return {"role": "assistant", "content": content} if content else None


@dataclass
class RecordedTurn:
    """Recorded requests of a turn or task, in order."""

    calls: list[Call]

    def results(self) -> dict[tuple[str, str], list[Json]]:
        """Return the recorded results of tool calls, keyed by (tool, arguments)."""
        found, results = dict[str, Json](), defaultdict[tuple[str, str], list[Json]](list)
        for message in (one for call in self.calls if call.request for one in call.request.messages):
            for block in message["content"]:
                if block.get("type") == "tool_result":
                    found.setdefault(block["tool_use_id"], _plain(block))
        for answer in (call.answer for call in self.calls if call.answer):
            for use in blocks.tool_calls(answer["content"]):
                if use.id in found:
                    results[_key(use)].append(found[use.id])
        return results


def _plain(block: Json) -> Json:
    return {key: value for key, value in block.items() if key != "cache_control"}


MAX_STEPS = 50
NOT_RECORDED = "Not recorded: this is a replay in which no tool runs, and the turn did not make this call. Go on without it."
TAKEN = "Taken as delivered: this is a replay in which nothing is sent."
GOES_ON = frozenset({"max_tokens", "pause_turn", "model_context_window_exceeded"})
_TOKENS = ("inputTokens", "cacheReadTokens", "cacheWriteTokens", "outputTokens")


@dataclass(slots=True)
class RerunResult:
    """Result of a rerun: the answer, stop reason and cost of each model call, and the tools called without a recorded result."""

    answer: str = ""
    calls: list[Json] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    @property
    def totals(self) -> Json:
        """Return the sums of tokens and costs. `costUsd` is None if the price of any call is unknown."""
        told = [call.get("usage") or {} for call in self.calls]
        costs = [call.get("costUsd") for call in self.calls]
        known = [cost for cost in costs if cost is not None]
        return {"calls": len(self.calls)} | {
            **{name: sum(int(usage.get(name, 0)) for usage in told) for name in _TOKENS},
            "costUsd": round(sum(known), 6) if len(known) == len(costs) else None,
        }


def recorded(turn: RecordedTurn) -> RerunResult:
    """Return what the turn recorded, in the form of a rerun's result."""
    told = [call.record.answer for call in turn.calls if call.record.answer is not None]
    said: list[Message] = []
    goes_on = False
    for one in told:
        # The model continued this answer in a second request, so both parts are one answer.
        before = said.pop()["content"] if goes_on else []
        said.append({"role": "assistant", "content": [*before, *one["content"]]})
        goes_on = one.get("stopReason") in GOES_ON and not blocks.tool_calls(said[-1]["content"])
    kept = [{key: one.get(key) for key in ("stopReason", "usage", "costUsd")} for one in told]
    return RerunResult(_answer([one for one in said if one["content"]]), kept)


async def rerun(
    turn: RecordedTurn, model: Model, *, name: str | None, static: str | None, redact: Redact = str
) -> RerunResult:
    """Run the turn again from its first request. `name` is the model to ask instead. `static` replaces the part of the
    system prompt that all chats share. The first request already has the messages that joined later, the older messages
    that the turn loaded, and the tools that it found. Raises `errors.ModelError`.
    """
    first, came = turn.calls[0].request, RerunResult()
    if first is None:
        raise errors.RequestInvalid(
            f"the first request of this turn cannot be asked again: {turn.calls[0].record.wrong}"
        )
    requests = [call.request for call in turn.calls if call.request is not None]
    system, tools = first.system, {tool["name"]: tool for one in requests for tool in one.tools}
    if static is not None:
        shared = {"type": "text", "text": static, "cache_control": {"type": "ephemeral"}}
        system = (shared, *first.system[1:])
    request = replace(
        first, purpose="replay", model=name or first.model, system=system, tools=tuple(tools.values())
    )
    results = turn.results()
    before, own = _said(first.messages, requests[-1].messages)
    if request.system != first.system or request.model != first.model or len(before) >= len(first.messages):
        # Models reject thinking blocks of another model, and blocks whose position in the conversation has changed.
        before, own = blocks.without_thinking(before), blocks.without_thinking(own)
    said = list[Message]()
    for _ in range(MAX_STEPS):
        reply = await reply_of(model.stream(replace(request, messages=(*before, *own))))
        came.calls.append({"stopReason": reply.stop_reason} | spent(reply))
        content = blocks.sayable(blocks.redacted(reply.content, redact))
        if not content:
            break
        said.append({"role": "assistant", "content": content})
        own.append(said[-1])
        calls = blocks.tool_calls(content)
        if not calls:
            break
        done = [_result(call, results, came.unknown, cut=call.id in reply.cut) for call in calls]
        own.append({"role": "user", "content": done})
        sends = all(call.name == chat_send.name for call in calls)
        if sends and not any(one.get("is_error") for one in done) and not promises_more(calls[-1].input):
            break
    came.answer = _answer(said)
    return came


def _said(first: Sequence[Message], last: Sequence[Message]) -> tuple[list[Message], list[Message]]:
    """Return the messages before the turn's question, and people's messages from the question on. `first` and `last` are
    the messages of the turn's first and last request.
    """
    bare = [[_plain(block) for block in message["content"]] for message in last]
    question = [_plain(block) for block in first[-1]["content"]]
    if question not in bare:
        return list(first[:-1]), list(first[-1:])
    at, own = bare.index(question), [first[-1]]
    for message, content in zip(last[at + 1 :], bare[at + 1 :], strict=True):
        words = [block for block in content if block.get("type") != "tool_result"]
        if message["role"] == "user" and words:
            own.append({**message, "content": words})
    return list(last[:at] if at >= len(first) else first[:-1]), own


def _result(
    call: ToolCall, results: dict[tuple[str, str], list[Json]], unknown: list[str], *, cut: bool
) -> Json:
    """Return the recorded result of a tool call. If there is none, add the tool's name to `unknown`."""
    if not cut and (found := results.get(_key(call))):
        return {**found.pop(0), "tool_use_id": call.id}
    if not cut and call.name == chat_send.name:
        return ToolResult(call.id, TAKEN).block
    unknown.append(call.name)
    return ToolResult(call.id, NOT_RECORDED, failed=True).block


def _answer(said: Sequence[Message]) -> str:
    sent = [
        str(call.input.get("text", ""))
        for message in said
        for call in blocks.tool_calls(message["content"])
        if call.name == chat_send.name and isinstance(call.input, dict)
    ]
    return "\n\n".join(sent) if sent else blocks.plain_text(said[-1]["content"]) if said else ""


def _key(call: ToolCall) -> tuple[str, str]:
    return call.name, json.dumps(call.input, sort_keys=True)
