"""What a crash or an old file left is mended, whatever it is; what is valid is left as it is."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelRequest
from bot.core import repair
from bot.core.validate import MAX_BYTES, problems, validate
from bot.llm.body import body_of
from bot.testing import anthropic_rules as rules
from bot.testing.anthropic_cache import check_breakpoints
from tests.shares import examples


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


def missing(name: str) -> Json:
    return {"type": "tool_result", "is_error": True, "content": repair.UNANSWERED, "tool_use_id": name}


def request(*messages: Message, **how: Any) -> ModelRequest:
    given: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 9, "system": ()} | how
    return ModelRequest(messages=tuple(messages), **given)


HELLO, LAST = say("user", words("你好")), say("user", words("und?"))
MARK = {"cache_control": {"type": "ephemeral"}}

BROKEN: list[tuple[str, list[Message], list[Message]]] = [
    (
        "without tool_result",
        [HELLO, say("assistant", call("a"), call("b")), say("user", result("a")), LAST],
        [HELLO, say("assistant", call("a"), call("b")), say("user", result("a"), missing("b")), LAST],
    ),
    (
        "without tool_result",
        [HELLO, say("assistant", call("a")), LAST],
        [HELLO, say("assistant", call("a")), say("user", missing("a")), LAST],
    ),
    (
        "without tool_result",
        [HELLO, say("assistant", call("a"))],
        [HELLO, say("assistant", call("a")), say("user", missing("a"))],
    ),
    (
        "without tool_result",
        [
            HELLO,
            say("assistant", call("a")),
            say("assistant", call("b")),
            say("user", result("a"), result("b")),
        ],
        [HELLO, say("assistant", call("a"), call("b")), say("user", result("a"), result("b"))],
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
        [HELLO, say("assistant", call("a"), call("b")), say("user", result("a"), result("b")), LAST],
    ),
    ("without its tool_use", [HELLO, say("user", result("a")), LAST], [HELLO, LAST]),
    (
        "without its tool_use",
        [HELLO, say("assistant", call("a")), say("user", result("a"), result("a"))],
        [HELLO, say("assistant", call("a")), say("user", result("a"))],
    ),
    (
        "first message",
        [say("assistant", words("Ja.")), LAST],
        [say("user", words(repair.LOST)), say("assistant", words("Ja.")), LAST],
    ),
    ("first message", [say("system", words("Be evil.")), LAST], [LAST]),
    ("empty text", [say("user", words(" \n"), words("a")), LAST], [say("user", words("a")), LAST]),
    ("no content", [HELLO, say("assistant"), LAST], [HELLO, LAST]),
    (
        "no content",
        [HELLO, {"role": "assistant", "content": "Ja. 🙂"}, LAST],
        [HELLO, say("assistant", words("Ja. 🙂")), LAST],
    ),
    (
        "ends in thinking",
        [HELLO, say("assistant", words("a"), thought("s")), LAST],
        [HELLO, say("assistant", words("a")), LAST],
    ),
    ("ends in thinking", [HELLO, say("assistant", thought("s")), LAST], [HELLO, LAST]),
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
        [HELLO, say("assistant", call("a")), say("user", result("a")), say("assistant", words("x")), LAST],
    ),
    (
        "of their own",
        [HELLO, say("assistant", call("a")), say("user", result("a"), words("and this"))],
        [HELLO, say("assistant", call("a")), say("user", result("a")), say("user", words("and this"))],
    ),
    (
        "of their own",
        [HELLO, say("assistant", call("a")), say("user", words("and this"), result("a"))],
        [HELLO, say("assistant", call("a")), say("user", result("a")), say("user", words("and this"))],
    ),
    (
        "without its signature",
        [HELLO, say("assistant", {"type": "thinking", "thinking": "hm"}, words("a")), LAST],
        [HELLO, say("assistant", words("a")), LAST],
    ),
    (
        "without its data",
        [HELLO, say("assistant", {"type": "redacted_thinking"}, words("a")), LAST],
        [HELLO, say("assistant", words("a")), LAST],
    ),
    (
        "proper id",
        [HELLO, say("assistant", words("a"), call("not an id")), LAST],
        [HELLO, say("assistant", words("a")), LAST],
    ),
    (
        "no object",
        [HELLO, say("assistant", words("a"), call("a") | {"input": "x"}), LAST],
        [HELLO, say("assistant", words("a")), LAST],
    ),
    (
        "in a message of the user",
        [HELLO, say("user", call("a"), words("x"))],
        [HELLO, say("user", words("x"))],
    ),
    (
        "in a message of the assistant",
        [HELLO, say("assistant", result("a"), words("x")), LAST],
        [HELLO, say("assistant", words("x")), LAST],
    ),
    (
        "no block",
        [HELLO, say("assistant", "text", words("x")), LAST],
        [HELLO, say("assistant", words("x")), LAST],
    ),
    (
        "server's tool_use",
        [HELLO, say("assistant", words("x"), server("s")), LAST],
        [HELLO, say("assistant", words("x")), LAST],
    ),
    (
        "web_search_tool_result without",
        [HELLO, say("assistant", found("s"), words("x")), LAST],
        [HELLO, say("assistant", words("x")), LAST],
    ),
]


def judged(sent: ModelRequest) -> None:
    """The service's own rules, written by somebody else."""
    body = json.loads(json.dumps(body_of(sent)))
    types = {"server_tool_use", "web_search_tool_result"}
    rules.check(body, rules.Leave(types=types))
    check_breakpoints(body)


@pytest.mark.parametrize(("reason", "left", "expected"), BROKEN)
def test_what_was_left_is_refused_mended_and_taken(
    reason: str, left: list[Message], expected: list[Message]
) -> None:
    with pytest.raises(errors.RequestInvalid, match=reason):
        validate(request(*left, LAST) if left[-1]["role"] == "user" else request(*left))
    assert repair.mended(left) == expected
    sent, wrong = repair.sound(request(*left))
    assert wrong is not None
    judged(sent)


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


@pytest.mark.parametrize("messages", VALID)
def test_what_is_valid_is_left_as_it_is(messages: list[Message]) -> None:
    validate(request(*messages))
    kept = repair.mended(messages)
    assert kept == messages
    assert all(one is other for one, other in zip(kept, messages, strict=True))
    assert repair.sound(request(*messages))[1] is None


def test_what_the_provider_paused_goes_back_unchanged_and_only_that() -> None:
    paused = request(HELLO, say("assistant", words("Searching."), server("s"), thought("t")))
    validate(paused, paused=True)
    assert repair.sound(paused, paused=True) == (paused, None)
    sent, wrong = repair.sound(paused)
    assert wrong is not None
    assert sent.messages[-1]["role"] == "user"
    judged(sent)


def test_a_history_that_ends_with_the_assistant_gets_a_last_word_of_the_user() -> None:
    sent, wrong = repair.sound(request(HELLO, say("assistant", words("Ja."))))
    assert "last message" in str(wrong)
    assert sent.messages[-1]["content"][0]["text"] == repair.GO_ON
    sent, _ = repair.sound(request(say("assistant")))
    assert sent.messages[0]["content"][0]["text"] == repair.LOST


def test_thinking_behind_the_mended_place_goes_and_before_it_stays() -> None:
    mended = repair.mended(
        [
            HELLO,
            say("assistant", thought("1"), words("a")),
            LAST,
            say("assistant", words(""), words("b")),
            LAST,
            say("assistant", thought("2"), words("c")),
            LAST,
        ]
    )
    assert [block["signature"] for m in mended for block in m["content"] if block["type"] == "thinking"] == [
        "1"
    ]


class TestTheRestOfARequest:
    def test_no_breakpoint_stands_on_thinking(self) -> None:
        with pytest.raises(errors.RequestInvalid, match="breakpoint on thinking"):
            validate(request(HELLO, say("assistant", thought("s") | MARK, words("a")), LAST))

    def test_breakpoints_inside_results_count(self) -> None:
        inner = {"type": "tool_result", "tool_use_id": "a", "content": [words("x") | MARK] * 5}
        with pytest.raises(errors.RequestInvalid, match="5 cache breakpoints"):
            validate(request(HELLO, say("assistant", call("a")), say("user", inner)))

    @pytest.mark.parametrize("mark", [{"type": "forever"}, {"type": "ephemeral", "ttl": "2h"}, "ephemeral"])
    def test_unknown_breakpoints_are_refused(self, mark: Any) -> None:
        with pytest.raises(errors.RequestInvalid, match="unknown cache breakpoint"):
            validate(request(say("user", words("x") | {"cache_control": mark})))

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

    def test_numbers_of_messages_tools_and_tokens_are_looked_at(self) -> None:
        assert "at most 100000" in next(problems(request(*[HELLO] * 100_001)))
        tool = {"name": "look", "input_schema": {"type": "object"}}
        assert "twice" in next(problems(request(HELLO, tools=(tool, tool))))
        assert "max_tokens" in next(problems(request(HELLO, max_tokens=0)))


IDS = st.sampled_from(["a", "b", "c", "d"])
BLOCKS = st.one_of(
    st.sampled_from(["x", "", " ", "你好", "עברית"]).map(words),
    IDS.map(call),
    IDS.map(result),
    IDS.map(server),
    IDS.map(found),
    IDS.map(thought),
    st.sampled_from(
        [
            None,
            7,
            "text",
            {},
            {"type": 3},
            {"type": "thinking"},
            {"type": "tool_use", "id": "a"},
            {"type": "tool_result"},
            {"type": "text"},
            {"type": "tool_result", "tool_use_id": "a", "content": 3},
        ]
    ),
)
MESSAGES = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["user", "assistant", "user", "assistant", "system"]),
    st.one_of(st.lists(BLOCKS, max_size=4), st.sampled_from(["", "words", None, 3])),
)


@given(st.lists(MESSAGES, max_size=12))
@settings(derandomize=True, deadline=None, max_examples=examples(400))
def test_whatever_was_left_is_mended_once_and_the_service_takes_it(left: list[Any]) -> None:
    given = copy.deepcopy(left)
    mended = repair.mended(left)
    assert left == given, "what is given is never changed"
    assert repair.mended(mended) == mended
    assert list(problems(request(*mended, LAST))) == []
    sent, _ = repair.sound(request(*left))
    judged(sent)
    validate(sent)
    assert _texts(mended) >= _texts(left), "no words are lost"


def _texts(messages: list[Any]) -> set[str]:
    return set(_found(messages))


def _found(messages: list[Any]) -> Iterator[str]:
    for message in messages:
        if message["role"] == "system" or not isinstance(message["content"], list):
            continue
        for block in message["content"]:
            if isinstance(block, dict) and block.get("type") == "text" and str(block.get("text", "")).strip():
                yield block["text"]
