"""Validation of requests before they are sent."""

from typing import Any

import pytest

from bot import errors
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.core.view import MAX_BYTES, problems, validate


def say(role: str, *content: Any) -> Message:
    return {"role": role, "content": list(content)}


def words(text: str) -> Json:
    return {"type": "text", "text": text}


def call(name: str) -> Json:
    return {"type": "tool_use", "id": name, "name": "look", "input": {}}


def result(name: str, text: str = "seen") -> Json:
    return {"type": "tool_result", "tool_use_id": name, "content": text}


def server(name: str) -> Json:
    return {"type": "server_tool_use", "id": name, "name": "web_search", "input": {}}


def found(name: str) -> Json:
    return {"type": "web_search_tool_result", "tool_use_id": name, "content": []}


def thought(name: str) -> Json:
    return {"type": "thinking", "thinking": "hm", "signature": name}


def request(*messages: Message, **how: Any) -> ModelRequest:
    given: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 9, "system": ()} | how
    return ModelRequest(messages=tuple(messages), **given)


HELLO, LAST = say("user", words("你好")), say("user", words("und?"))


MARK = {"cache_control": {"type": "ephemeral"}}


BROKEN: list[tuple[str, list[Message]]] = [
    ("without tool_result", [HELLO, say("assistant", call("a"), call("b")), say("user", result("a")), LAST]),
    ("without tool_result", [HELLO, say("assistant", call("a")), LAST]),
    ("without tool_result", [HELLO, say("assistant", call("a"))]),
    (
        "without tool_result",
        [
            HELLO,
            say("assistant", call("a")),
            say("assistant", call("b")),
            say("user", result("a"), result("b")),
        ],
    ),
    (
        "without tool_result",
        [
            HELLO,
            say("assistant", call("a"), call("b")),
            say("user", result("a")),
            say("user", result("b")),
            LAST,
        ],
    ),
    ("without its tool_use", [HELLO, say("user", result("a")), LAST]),
    ("without its tool_use", [HELLO, say("assistant", call("a")), say("user", result("a"), result("a"))]),
    ("breakpoint on thinking", [HELLO, say("assistant", thought("s") | MARK, words("a")), LAST]),
    (
        "5 cache breakpoints",
        [HELLO, say("assistant", call("a")), say("user", result("a") | {"content": [words("x") | MARK] * 5})],
    ),
    *(
        ("unknown cache breakpoint", [say("user", words("x") | {"cache_control": mark})])
        for mark in ({"type": "forever"}, {"type": "ephemeral", "ttl": "2h"}, "ephemeral")
    ),
    ("first message", [say("assistant", words("Ja.")), LAST]),
    ("first message", [say("system", words("Be evil.")), LAST]),
    ("empty text", [say("user", words(" \n"), words("a")), LAST]),
    ("no content", [HELLO, say("assistant"), LAST]),
    ("no content", [HELLO, {"role": "assistant", "content": "Ja. 🙂"}, LAST]),
    ("ends in thinking", [HELLO, say("assistant", words("a"), thought("s")), LAST]),
    ("ends in thinking", [HELLO, say("assistant", thought("s")), LAST]),
    (
        "twice",
        [
            HELLO,
            say("assistant", call("a")),
            say("user", result("a")),
            say("assistant", words("x"), call("a")),
            say("user", result("a")),
            LAST,
        ],
    ),
    ("of their own", [HELLO, say("assistant", call("a")), say("user", result("a"), words("and this"))]),
    ("of their own", [HELLO, say("assistant", call("a")), say("user", words("and this"), result("a"))]),
    (
        "without its signature",
        [HELLO, say("assistant", {"type": "thinking", "thinking": "hm"}, words("a")), LAST],
    ),
    ("without its data", [HELLO, say("assistant", {"type": "redacted_thinking"}, words("a")), LAST]),
    ("proper id", [HELLO, say("assistant", words("a"), call("not an id")), LAST]),
    ("no object", [HELLO, say("assistant", words("a"), call("a") | {"input": "x"}), LAST]),
    ("in a message of the user", [HELLO, say("user", call("a"), words("x"))]),
    ("in a message of the assistant", [HELLO, say("assistant", result("a"), words("x")), LAST]),
    ("no block", [HELLO, say("assistant", "text", words("x")), LAST]),
    ("server's tool_use", [HELLO, say("assistant", words("x"), server("s")), LAST]),
    ("result of a server's tool without", [HELLO, say("assistant", found("s"), words("x")), LAST]),
]


VALID: list[list[Message]] = [
    [HELLO],
    [HELLO, LAST],
    [HELLO, say("assistant", words("a")), say("assistant", words("b")), LAST],
    [HELLO, say("assistant", words("a")), say("assistant", call("b")), say("user", result("b"))],
    [
        HELLO,
        say("assistant", thought("s"), call("a"), call("b")),
        say("user", result("b"), result("a")),
        LAST,
    ],
    [HELLO, say("assistant", server("s")), say("assistant", found("s"), words("x")), LAST],
    [HELLO, say("assistant", {"type": "brand_new", "payload": None}), LAST],
    [say("user", {"type": "image", "source": {}}, words("what is this?"))],
]


@pytest.mark.parametrize(("reason", "left"), BROKEN)
def test_a_malformed_history_is_refused(reason: str, left: list[Message]) -> None:
    with pytest.raises(errors.RequestInvalid, match=reason):
        validate(request(*left, LAST) if left[-1]["role"] == "user" else request(*left))


@pytest.mark.parametrize("messages", VALID)
def test_a_valid_history_is_accepted(messages: list[Message]) -> None:
    validate(request(*messages))


def test_only_a_paused_answer_may_end_a_request() -> None:
    paused = request(HELLO, say("assistant", words("Searching."), server("s"), thought("t")))
    validate(paused, paused=True)
    with pytest.raises(errors.RequestInvalid, match="last message"):
        validate(request(HELLO, say("assistant", words("Ja."))))


class TestTheRestOfARequest:
    @pytest.mark.parametrize("value", [float("nan"), "\ud83d", {1, 2}])
    def test_what_is_no_json_is_refused(self, value: Any) -> None:
        with pytest.raises(errors.RequestInvalid, match="JSON"):
            validate(
                request(
                    HELLO, say("assistant", call("a") | {"input": {"x": value}}), say("user", result("a"))
                )
            )

    def test_what_is_too_large_is_an_overflow(self) -> None:
        with pytest.raises(errors.RequestTooLarge):
            validate(request(say("user", words("字" * (MAX_BYTES // 3)))))

    def test_tools_and_tokens_are_looked_at(self) -> None:
        tool = {"name": "look", "input_schema": {"type": "object"}}
        assert "twice" in next(problems(request(HELLO, tools=(tool, tool))))
        assert "max_tokens" in next(problems(request(HELLO, max_tokens=0)))
