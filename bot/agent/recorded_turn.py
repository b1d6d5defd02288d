"""The recorded requests of a turn or a task, with what came of each: its answer, the results of its calls, what they loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from bot.context import blocks
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.history.transcript.requests import REDACTED, RecordedRequest


@dataclass
class Call:
    """One request as it was recorded. `results` and `loaded` stand in the requests after it."""

    record: RecordedRequest
    results: list[Json] = field(default_factory=list)
    loaded: list[Message] = field(default_factory=list)
    """Older turns that its tools loaded."""
    found: list[Json] = field(default_factory=list)
    """Definitions of tools that its tools found."""

    @property
    def exact(self) -> bool:
        """True if these are the bytes that were sent."""
        return self.record.wrong is None

    @cached_property
    def request(self) -> ModelRequest | None:
        """The request; None where its body cannot be had, or is damaged."""
        if self.record.body is None or self.record.wrong not in {None, REDACTED}:
            return None
        body: Any = json.loads(self.record.body)
        return ModelRequest(
            model=body["model"],
            max_tokens=body["max_tokens"],
            system=body.get("system", []),
            messages=body["messages"],
            tools=body.get("tools", []),
            purpose=self.record.purpose,
            summarize=body.get("compaction", {}).get("instructions"),
        )

    @property
    def answer(self) -> Message | None:
        """The model's answer; None if it said nothing, or if that is not on file."""
        content = (self.record.answer or {}).get("content")
        return {"role": "assistant", "content": content} if content else None


@dataclass
class RecordedTurn:
    """The requests of a turn's own conversation with the model, or of a task's, in order. `joined` are messages of people
    that joined the turn while it ran.
    """

    calls: list[Call]
    joined: list[Message] = field(default_factory=list)

    @property
    def older(self) -> int:
        """Number of the messages of the first request that stand before what it was asked."""
        first = self.calls[0].request
        return len(first.messages) - 1 if first is not None else 0


def recorded_turn(records: Iterable[RecordedRequest], said: Iterable[Message] = ()) -> RecordedTurn:
    """Put together what belongs to each request. What people `said` in the turn is taken where a later request has it."""
    calls = [Call(one) for one in records]
    requests = [call.request for call in calls]
    for at, call in enumerate(calls):
        behind = next((one for one in requests[at + 1 :] if one is not None), None)
        if call.answer is None or behind is None:
            continue
        wanted = {use["id"] for use in blocks.tool_uses(call.answer)}
        call.results = [_plain(one) for one in _results(behind) if one["tool_use_id"] in wanted]
        if call.results and (request := requests[at]) is not None:
            call.loaded = _loaded(request, behind, requests[0])
            call.found = [tool for tool in behind.tools if tool not in request.tools]
    shown = [[_bare(one) for one in request.messages] if request is not None else [] for request in requests]
    joined = [one for one in said if one not in shown[0] and any(one in later for later in shown[1:])]
    return RecordedTurn(calls, joined)


def _results(request: ModelRequest) -> list[Json]:
    return [
        block
        for message in request.messages
        for block in message["content"]
        if block.get("type") == "tool_result"
    ]


def _loaded(request: ModelRequest, behind: ModelRequest, first: ModelRequest | None) -> list[Message]:
    """The messages that stand before what the turn was asked, and did not when this was."""
    if first is None:
        return []
    asked = _bare(first.messages[-1])
    before, after = ([_bare(one) for one in each.messages] for each in (request, behind))
    if asked not in before or asked not in after:
        return []
    known = before[: before.index(asked)]
    return [one for one in after[: after.index(asked)] if one not in known]


def _bare(message: Message) -> Message:
    """The message without the breakpoints of the provider's cache."""
    return {**message, "content": [_plain(block) for block in message["content"]]}


def _plain(block: Json) -> Json:
    return {key: value for key, value in block.items() if key != "cache_control"}
