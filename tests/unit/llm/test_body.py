"""The bytes of a request are those of the provider's library, however large a text is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bot.contracts.base import Json
from bot.contracts.model import ModelRequest
from bot.llm import body


def request(words: str, tools: tuple[Json, ...] = ()) -> ModelRequest:
    """One that has a text wherever a request may have one."""
    said = {"type": "text", "text": words}
    nested: Json = {"deep": words}
    for _ in range(12):
        nested = {"in": [nested, {}, []]}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [said, {"type": "text", "text": ""}]}
    call = {"type": "tool_use", "id": "t", "name": "look", "input": nested}
    return ModelRequest(
        model="m",
        max_tokens=10,
        system=[said],
        messages=[
            {"role": "user", "content": words},
            {"role": "assistant", "content": [said, call]},
            {"role": "user", "content": [result]},
            {"role": "user", "content": []},
        ],
        tools=tools,
        summarize=words,
    )


@pytest.mark.parametrize("sign", ["a", "鯨", "🚢é", '\n"\\', "\u2028\x00"])
@pytest.mark.parametrize("tools", [(), ({"name": "look", "description": "é"},)])
def test_they_are_those_of_the_whole_dumped_at_once(sign: str, tools: tuple[Json, ...]) -> None:
    asked = request(sign * 300_000, tools)
    whole = json.dumps(body.body_of(asked), ensure_ascii=False, separators=(",", ":")).encode()
    assert body.wire(asked) == whole


def test_no_text_is_dumped_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another thread, it keeps the interpreter from the event loop meanwhile."""
    dumped: list[int] = []

    class Counting(json.JSONEncoder):
        def encode(self, o: object) -> str:
            made = super().encode(o)
            dumped.append(len(made))
            return made

    monkeypatch.setattr(body, "ENCODER", Counting(ensure_ascii=False, separators=(",", ":")))
    long = "x" * 5_000_000
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": long}]}
    messages: list[Json] = [{"role": "user", "content": [result]}, {"role": "user", "content": long}]
    assert len(body.wire(ModelRequest(model="m", max_tokens=1, system=(), messages=messages))) > 10_000_000
    assert max(dumped) < 300_000


def test_what_is_no_json_is_refused() -> None:
    for wrong in ({"text": object()}, {"text": float("nan")}, {"text": "\ud800"}):
        with pytest.raises((ValueError, TypeError)):
            body.wire(ModelRequest(model="m", max_tokens=1, system=(), messages=[{"content": [wrong]}]))


def test_a_body_is_made_once_and_that_of_another_request_anew() -> None:
    asked = ModelRequest("m", 1, (), [{"role": "user", "content": [{"type": "text", "text": "你好"}]}])
    whole = body.wire(asked)
    assert body.wire(asked) is whole
    other = replace(asked, max_tokens=2)
    assert body.wire(other) != whole
    assert other != asked
