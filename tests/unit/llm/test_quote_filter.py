from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.base import Json
from bot.llm.classify import WITHHELD, withhold_quotes
from tests.unit.llm.asking import ask, user


@pytest.mark.parametrize(
    "said",
    [
        "my cat is called Mimi and she is ill",
        "我的密码是1234",
        "Passwort: hunter2",
        "كلمة السر",
    ],
)
@pytest.mark.parametrize(
    "wrap",
    [
        user,
        lambda said: {"role": "user", "content": said},
        lambda said: {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "n", "input": {"a": [said]}}],
        },
        lambda said: {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": said}]}
            ],
        },
    ],
    ids=["text", "plain", "call", "result"],
)
def test_what_was_said_is_withheld_wherever_it_stands(said: str, wrap: object) -> None:
    assert callable(wrap)
    message: Json = wrap(said)
    line = withhold_quotes(f"The provider answered 400: cannot read “{said}” there", ask(message))
    assert line == f"The provider answered 400: {WITHHELD}"


def test_words_that_say_nothing_of_the_conversation_stay() -> None:
    line = "The provider answered 400: messages.3: `tool_use` ids were found without results: toolu_1"
    message = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}],
    }
    assert withhold_quotes(line, ask(user("Hello there, how are you?"), message)) == line
    assert withhold_quotes("The stream broke off", ask()) == "The stream broke off"


def test_secrets_go_wherever_they_stand() -> None:
    assert withhold_quotes("key sk-ant-secret: no", ask(), ("sk-ant-secret",)) == "key …: no"


@settings(derandomize=True, deadline=None)
@given(said=st.text(min_size=24, max_size=200), at=st.integers(0, 150), lead=st.text(max_size=40))
def test_no_run_of_twenty_characters_gets_through(said: str, at: int, lead: str) -> None:
    piece = said[min(at, len(said) - 20) :][:20]
    line = withhold_quotes(f"The provider answered 400: {lead}{piece} and so on", ask(user(said)))
    assert line.endswith(WITHHELD)
