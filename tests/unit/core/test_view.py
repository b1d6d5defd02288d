"""What leaves is valid, marked for the cache, and the same bytes for the same history."""

from __future__ import annotations

from typing import Any

import pytest

from bot import errors
from bot.contracts.base import Json, Message
from bot.core import view
from bot.core.validate import validate

CALL: Json = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
RESULT: Json = {"type": "tool_result", "tool_use_id": "t1", "content": "seen"}


def say(role: str, *content: Json) -> Message:
    return {"role": role, "content": list(content)}


def words(text: str) -> Json:
    return {"type": "text", "text": text}


def render(*current: Message, history: list[Message] | None = None, **more: Any) -> Any:
    given: dict[str, Any] = {"system": [words("s")], "tools": (), "injected": []} | more
    return view.render(model="m", max_tokens=9, history=history or [], current=list(current), **given)


def marks(request: Any) -> list[tuple[int, int]]:
    return [
        (at, number)
        for at, message in enumerate(request.messages)
        for number, block in enumerate(message["content"])
        if "cache_control" in block
    ]


def test_breakpoints_stand_at_the_end_of_the_history_and_of_the_request() -> None:
    history = [say("user", words("a")), say("assistant", words("b"), words("c"))]
    request = render(say("user", words("ctx"), words("now")), history=history)
    assert marks(request) == [(1, 1), (2, 1)]
    assert "cache_control" not in history[1]["content"][1], "the store itself is never marked"


def test_a_breakpoint_never_stands_on_a_thinking_block() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    request = render(say("user", words("a")), say("assistant", CALL, thinking), say("user", RESULT))
    assert marks(request) == [(2, 0)]
    history = [say("user", words("a")), say("assistant", words("b"), thinking)]
    assert marks(render(say("user", words("now")), history=history))[0] == (1, 0)


def test_injected_turns_stand_before_the_current_message_and_leave_the_history_alone() -> None:
    history = [say("user", words("a")), say("assistant", words("b"))]
    plain = render(say("user", words("now")), history=history)
    loaded = render(say("user", words("now")), history=history, injected=[say("user", words("old"))])
    assert loaded.messages[:2] == plain.messages[:2]
    assert loaded.messages[2] == say("user", words("old"))
    assert loaded.messages[3] == plain.messages[2]


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([say("assistant", words("a"))], "first message"),
        ([say("user")], "no content"),
        ([say("user", words(" \n"))], "empty text"),
        ([say("system", words("a"))], "first message"),
        ([say("user", words("a")), say("tool", words("a"))], "unknown role"),
        ([say("user", words("a")), say("assistant", CALL)], "without tool_result"),
        ([say("user", words("a")), say("assistant", CALL), say("user", words("b"))], "without tool_result"),
        (
            [say("user", words("a")), say("assistant", CALL), say("assistant", words("b"))],
            "without tool_result",
        ),
        ([say("user", RESULT)], "without its tool_use"),
        (
            [say("user", words("a")), say("assistant", CALL), say("user", RESULT), say("user", RESULT)],
            "its tool_use",
        ),
        (
            [say("user", words("a")), say("assistant", CALL), say("user", RESULT, RESULT)],
            "without its tool_use",
        ),
        ([say("user", words("a")), say("assistant", CALL, CALL), say("user", RESULT)], "twice"),
        ([say("user", words("a")), say("assistant", CALL), say("user", words("b"), RESULT)], "first"),
    ],
)
def test_what_the_provider_would_refuse_never_leaves(messages: list[Message], reason: str) -> None:
    with pytest.raises(errors.RequestInvalid, match=reason):
        validate(render(*messages))


def test_a_valid_tool_round_and_two_user_messages_in_a_row_pass() -> None:
    validate(
        render(say("user", words("a")), say("assistant", CALL), say("user", RESULT), say("user", words("b")))
    )


def test_a_fifth_breakpoint_is_refused() -> None:
    marked = {**words("s"), "cache_control": {"type": "ephemeral"}}
    history = [say("user", words("a")), say("assistant", words("b"))]
    with pytest.raises(errors.RequestInvalid, match="5 cache breakpoints"):
        validate(
            render(
                say("user", words("c")),
                history=history,
                system=[marked],
                tools=[{**marked, "name": name} for name in "ab"],
            )
        )
