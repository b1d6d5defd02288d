"""Token estimates grow with the text, and approach the provider's counts after a few answers."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.base import Json
from bot.contracts.model import ModelRequest, Usage
from bot.llm import blocks
from bot.llm.models import RATIOS, Estimator, Learned
from tests.shares import examples

WORDS = st.text(min_size=1, max_size=200)
SEEDED = settings(derandomize=True, deadline=None, max_examples=examples(60))


def text(words: str) -> Json:
    return {"type": "text", "text": words}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def asked(*messages: Any, model: str = "claude-sonnet-5-5", **more: Any) -> ModelRequest:
    return ModelRequest(model=model, max_tokens=100, system=more.pop("system", ()), messages=messages, **more)


def test_an_image_in_a_tools_result_is_an_image_and_no_text() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400_000}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text("x" * 33), image]}
    assert blocks.block_tokens(result) == pytest.approx(4 + 12 + (4 + 10) + (4 + blocks.IMAGE_TOKENS))


@SEEDED
@given(st.lists(WORDS, min_size=1, max_size=5), WORDS)
def test_more_of_anything_never_costs_less(parts: list[str], more: str) -> None:
    before = blocks.tokens([user(*map(text, parts))])
    assert 0 < before < blocks.tokens([user(*map(text, [*parts, more]))])
    assert blocks.text_tokens(more + more) == pytest.approx(2 * blocks.text_tokens(more)) or "`" in more


@SEEDED
@given(st.floats(0.3, 3.5), st.floats(0.0, 0.15), st.randoms())
def test_the_ratio_of_a_model_is_found_within_a_few_answers_and_kept(
    true: float, noise: float, rng: random.Random
) -> None:
    counting = Estimator()
    for number in range(25):
        request = asked(user(text(f"{number} " + "word " * rng.randint(200, 3_000))), model="new")
        actual = Estimator().request(request) * true * rng.uniform(1 - noise, 1 + noise)
        read = round(actual * rng.random())
        counting.observe(request, Usage(round(actual) - read, 5, read // 2, read - read // 2))
    assert counting.ratio("new") == pytest.approx(true, rel=noise + 0.03)
    assert counting.ratio("another") == 1.0


@SEEDED
@given(st.lists(st.integers(-5, 10**9), max_size=30))
def test_whatever_is_reported_the_ratio_stays_within_bounds(reported: list[int]) -> None:
    counting = Estimator()
    request = asked(user(text("x" * 3_300)))
    for tokens in reported:
        counting.observe(request, Usage(input_tokens=tokens))
        low, high = RATIOS
        assert low <= counting.ratio(request.model) <= high


def test_one_odd_answer_hardly_moves_what_many_have_taught() -> None:
    counting, request = Estimator(), asked(user(text("x" * 33_000)))
    for _ in range(20):
        counting.observe(request, Usage(input_tokens=11_000))
    before = counting.ratio(request.model)
    assert before == pytest.approx(1.1, rel=0.01)
    counting.observe(request, Usage(input_tokens=39_000))
    assert counting.ratio(request.model) <= before * 1.06
    counting.observe(request, Usage(input_tokens=400))
    counting.observe(asked(user(text("hi"))), Usage(input_tokens=30))
    counting.observe(request, Usage())
    assert counting.ratio(request.model) <= before * 1.06


def test_what_was_learnt_is_there_after_a_restart() -> None:
    kept, request = Learned(), asked(user(text("你好" * 1_000)))
    first = Estimator(kept)
    for _ in range(12):
        first.observe(request, Usage(input_tokens=2_600))
    again = Estimator(kept)
    assert again.ratio(request.model) == pytest.approx(first.ratio(request.model), abs=1e-4)
    again.observe(request, Usage(input_tokens=7_000))
    assert again.ratio(request.model) < 1.45, "an outlier weighs no more than before the restart"


@pytest.mark.parametrize("damaged", [0.0, 99.0, -1.0])
def test_a_kept_ratio_that_cannot_be_is_not_used(damaged: float) -> None:
    kept = Learned()
    kept.set("m", "tokenRatio", damaged)
    assert Estimator(kept).ratio("m") == 1.0
