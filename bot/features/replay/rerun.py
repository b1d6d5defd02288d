"""Sends the recorded requests of a turn or task again, to another model or with another prompt.

A request's outcome (answer, tool results, loaded messages) is read from the requests after it. A rerun runs no tool and
sends no message. A tool call with recorded arguments gets the recorded result. For any other call, the model reads that no
result was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from bot import errors, tags
from bot.contracts.base import Json, Message
from bot.contracts.environment import Redact
from bot.contracts.model import Model, ModelRequest
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import blocks
from bot.core.recorded_requests import REDACTED, RecordedRequest
from bot.llm.wrapper import reply_of, spent
from bot.tools.builtin.chat_send import ChatSend, promises_more


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
            summarize=body.get("compaction", {}).get("instructions"),
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
    """Recorded requests of a turn or task, in order. `joined` are messages that people sent while the turn was running."""

    calls: list[Call]
    joined: list[Message] = field(default_factory=list)
    outcomes: dict[tuple[str, str], list[Outcome]] = field(default_factory=dict)
    """Recorded outcomes of each tool call, by tool and arguments."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The part that a tool call added to the turn: the result, the older messages it loaded, and the tools it found."""

    result: Json
    loaded: list[Message] = field(default_factory=list)
    found: list[Json] = field(default_factory=list)


def recorded_turn(records: Iterable[RecordedRequest], said: Iterable[Message] = ()) -> RecordedTurn:
    """Build the turn from its requests. A message in `said` (from people) has joined it if only later requests have it."""
    turn = RecordedTurn([Call(one) for one in records])
    requests = [call.request for call in turn.calls]
    for at, (call, request) in enumerate(zip(turn.calls, requests, strict=True)):
        behind = next((one for one in requests[at + 1 :] if one is not None), None)
        if call.answer is None or request is None or behind is None:
            continue
        results = {
            block["tool_use_id"]: _plain(block)
            for message in behind.messages
            for block in message["content"]
            if block.get("type") == "tool_result"
        }
        loaded = _loaded(request, behind, requests[0])
        found = [tool for tool in behind.tools if tool not in request.tools]
        for use in blocks.tool_calls(call.answer["content"]):
            if use.id in results:
                outcome = Outcome(results[use.id], loaded if use.name == LOADS else [], found)
                loaded = [] if use.name == LOADS else loaded
                turn.outcomes.setdefault(_key(use), []).append(outcome)
    shown = [json.dumps(request.messages) if request is not None else "" for request in requests]
    for one in said:
        nonce = next((tag.nonce for tag in tags.of(one) if tag is not None), "")
        if nonce not in shown[0] and any(nonce in later for later in shown[1:]):
            turn.joined.append(one)
    return turn


def _loaded(request: ModelRequest, behind: ModelRequest, first: ModelRequest | None) -> list[Message]:
    """Return the older messages that the later request `behind` has before the question, but `request` has not."""
    if first is None:
        return []
    asked = _bare(first.messages[-1])
    before, after = ([_bare(one) for one in each.messages] for each in (request, behind))
    if asked not in before or asked not in after:
        return []
    known = before[: before.index(asked)]
    return [one for one in after[: after.index(asked)] if one not in known]


def _bare(message: Message) -> Message:
    return {**message, "content": [_plain(block) for block in message["content"]]}


def _plain(block: Json) -> Json:
    return {key: value for key, value in block.items() if key != "cache_control"}


MAX_STEPS = 50
NOT_RECORDED = "Not recorded: this is a replay in which no tool runs, and the turn did not make this call. Go on without it."
TAKEN = "Taken as delivered: this is a replay in which nothing is sent."
LOADS = "chat_load_history"  # name of the tool that also adds older messages before the turn
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
    """Return the turn's recorded result in the form of a rerun."""
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
    """Run the turn again from its first request. `name` is another model. `static` replaces the part of the system prompt
    that all chats share. Its first request already has the messages that joined later. Raises `errors.ModelError`.
    """
    first = turn.calls[0].request
    if first is None:
        raise errors.RequestInvalid(
            f"the first request of this turn cannot be asked again: {turn.calls[0].record.wrong}"
        )
    request, came = _changed(first, name, static), RerunResult()
    outcomes = {call: list(some) for call, some in turn.outcomes.items()}
    said, before = list[Message](), list(request.messages[:-1])
    own = [*request.messages[-1:], *turn.joined]
    if request.system != first.system or request.model != first.model:
        before, own = blocks.without_thinking(before), blocks.without_thinking(own)
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
        done = [_outcome(call, outcomes, came.unknown, cut=call.id in reply.cut) for call in calls]
        own.append({"role": "user", "content": [one.result for one in done]})
        sends = all(call.name == ChatSend.name for call in calls)
        if (
            sends
            and not any(one.result.get("is_error") for one in done)
            and not promises_more(calls[-1].input)
        ):
            break
        have = {tool["name"] for tool in request.tools}
        more = {tool["name"]: tool for one in done for tool in one.found if tool["name"] not in have}
        request = replace(request, tools=(*request.tools, *more.values()))
        if loaded := [message for one in done for message in one.loaded]:
            # Newer models reject thinking blocks whose position in the conversation has changed.
            before, own = [*before, *loaded], blocks.without_thinking(own)
    came.answer = _answer(said)
    return came


def _outcome(
    call: ToolCall, outcomes: dict[tuple[str, str], list[Outcome]], unknown: list[str], *, cut: bool
) -> Outcome:
    """Return the recorded outcome of a tool call. If there is none, add the tool's name to `unknown`."""
    if not cut and (found := outcomes.get(_key(call))):
        outcome = found.pop(0)
        return replace(outcome, result={**outcome.result, "tool_use_id": call.id})
    if not cut and call.name == ChatSend.name:
        return Outcome(ToolResult(call.id, TAKEN).block)
    unknown.append(call.name)
    return Outcome(ToolResult(call.id, NOT_RECORDED, failed=True).block)


def _changed(first: ModelRequest, name: str | None, static: str | None) -> ModelRequest:
    request = replace(first, purpose="replay")
    if static is not None:
        block = {"type": "text", "text": static, "cache_control": {"type": "ephemeral"}}
        request = replace(request, system=(block, *first.system[1:]))
    if name is not None:
        request = replace(request, model=name)
    return request


def _answer(said: Sequence[Message]) -> str:
    """Return the answer that the person received: the messages sent by tool, or the last text if there were none."""
    sent = [
        str(call.input.get("text", ""))
        for message in said
        for call in blocks.tool_calls(message["content"])
        if call.name == ChatSend.name and isinstance(call.input, dict)
    ]
    return "\n\n".join(sent) if sent else blocks.plain_text(said[-1]["content"]) if said else ""


def _key(call: ToolCall) -> tuple[str, str]:
    return call.name, json.dumps(call.input, sort_keys=True)
