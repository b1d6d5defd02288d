"""A request has at most four cache breakpoints. The next request repeats everything before them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.base import Json, Message
from bot.core.view import placed
from bot.testing import anthropic_cache as cache
from bot.testing.clock import FakeClock
from tests.shares import examples

SYSTEM: list[Json] = [
    {"type": "text", "text": words * 300, "cache_control": {"type": "ephemeral"}}
    for words in ("static ", "chat ")
]


def user(count: int = 1) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": f"u{at}"} for at in range(count)]}


def assistant(count: int = 1) -> Message:
    return {"role": "assistant", "content": [{"type": "text", "text": f"a{at}"} for at in range(count)]}


def marks(messages: tuple[Message, ...]) -> list[int]:
    return [
        at
        for at, message in enumerate(messages)
        if any("cache_control" in block for block in message["content"])
    ]


def test_a_long_step_marks_where_the_request_before_it_ended() -> None:
    system, messages = placed(SYSTEM, [user(), assistant(), user(), assistant(12), user(12)], 2)
    assert marks(messages) == [1, 2, 4]
    assert ["cache_control" in block for block in system] == [True, False], "the static part keeps its own"


@settings(derandomize=True, deadline=None, max_examples=examples(60))
@given(st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=4), min_size=1, max_size=6))
def test_every_request_reads_all_that_the_one_before_it_has_sent(turns: list[list[int]]) -> None:
    prompts = cache.PromptCache(FakeClock(), lambda _: 64)
    history: list[Message] = []
    sent = 0
    for number, steps in enumerate(turns):
        current: list[Message] = [{"role": "user", "content": [{"type": "text", "text": f"turn {number}"}]}]
        for step, count in enumerate([*steps, 0]):
            system, messages = placed(SYSTEM, [*history, *current], len(history))
            body: Json = {"model": "claude-sonnet-5-5", "system": list(system), "messages": list(messages)}
            cache.check_breakpoints(body)
            usage, keep = prompts.look(body, cache.count_characters)
            keep()
            assert usage["cache_read_input_tokens"] >= sent
            sent = cache.tokens_of(body, cache.count_characters)
            if count:
                ids = [f"t{number}.{step}.{at}" for at in range(count)]
                calls = [{"type": "tool_use", "id": one, "name": "look", "input": {}} for one in ids]
                current.append({"role": "assistant", "content": calls})
                results = [{"type": "tool_result", "tool_use_id": one, "content": "seen"} for one in ids]
                current.append({"role": "user", "content": results})
        current.append(assistant(steps[0]))
        history += current
