"""The progress display counts every event, in any order and number, and its figures agree with each other."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.core.tasks import TaskEvent
from bot.features.live import ALONE_SECONDS, MOST, TOGETHER_SECONDS, ProgressState
from channels.telegram import render
from tests.shares import examples

START = 1_800_000_000.0


def event(kind: str, task: str = "one", at: float = 0.0, **more: object) -> TaskEvent:
    first = TaskEvent("queued", task, "01REQ", START + at, f"Look at {task}")
    return dataclasses.replace(first, kind=kind, **more)  # type: ignore[arg-type]


def board(*events: TaskEvent) -> ProgressState:
    made = ProgressState()
    for one in events:
        made.record(one)
    return made


def test_a_board_says_how_things_stand() -> None:
    made = board(
        *(event("queued", name) for name in ("alpha", "beta", "gamma", "delta")),
        *(event("started", name) for name in ("alpha", "beta", "gamma")),
        event("ended", "alpha", 10),
        event("model", "beta", 12, calls=3, most_calls=30),
        event("failed", "gamma", 20, error="The page *could not* be fetched."),
    )
    assert made.busy
    shown = made.shown(START + 30)
    assert shown.words.splitlines() == [
        "**Working: 1 of 4, 1 failed** · 30 s",
        "✓ Look at alpha · 10 s",
        "▸ Look at beta · 30 s · step 3 of at most 30",
        "✗ Look at gamma · 20 s · The page \\*could not\\* be fetched.",
        "○ Look at delta · waiting",
    ]
    assert shown.title == "Working: 1 of 4, 1 failed"
    assert [(card.title, card.state) for card in shown.cards] == [
        ("Look at alpha", "complete"),
        ("Look at beta", "in_progress"),
        ("Look at gamma", "error"),
        ("Look at delta", "pending"),
    ]
    assert shown.cards[2].detail == "20 s · The page *could not* be fetched."


def test_only_what_takes_long_or_stands_beside_something_else_is_worth_showing() -> None:
    made = board(event("queued"), event("started"))
    assert not made.is_visible(START + ALONE_SECONDS - 0.1)
    assert made.is_visible(START + ALONE_SECONDS)
    made.record(event("queued", "two", 1))
    assert not made.is_visible(START + TOGETHER_SECONDS - 0.1)
    assert made.is_visible(START + TOGETHER_SECONDS)
    made.record(event("ended", "one", 2))
    made.record(event("ended", "two", 2))
    assert not made.is_visible(START + 100)
    assert not ProgressState().is_visible(START)


def test_of_many_those_that_run_or_failed_are_named_before_those_that_are_done() -> None:
    made = ProgressState()
    for number in range(40):
        made.record(event("queued", f"n{number:02}"))
        made.record(event("started", f"n{number:02}"))
        if number not in {3, 17}:
            made.record(event("failed" if number == 5 else "ended", f"n{number:02}", 1))
    shown = made.shown(START + 2)
    assert len(shown.cards) == MOST
    assert "and 28 more" in shown.words
    for name in ("n03", "n17", "n05"):
        assert f"Look at {name} " in shown.words
    names = re.findall(r"Look at (n\d\d)", shown.words)
    assert names == sorted(names), "in the order in which they came"
    assert made.counts["done"] == 37
    assert len(shown.words) < 4_000


KINDS = st.sampled_from(["queued", "started", "model", "tool", "ended", "failed"])
EVENTS = st.lists(st.tuples(KINDS, st.sampled_from("abcdefg"), st.floats(0, 5_000)), max_size=60)


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(EVENTS, st.floats(0, 10_000), st.booleans())
def test_the_figures_agree_whatever_happens(
    events: list[tuple[str, str, float]], now: float, close: bool
) -> None:
    made = board(*(event(kind, task, at) for kind, task, at in events))
    if close:
        made.close(START + now)
    counts = made.counts
    assert counts.total() == len({task for _, task, _ in events})
    assert made.busy == bool(counts["running"] + counts["waiting"])
    ends: dict[str, str] = {}
    for kind, task, _ in events:
        if kind in {"ended", "failed"}:
            ends.setdefault(task, kind)
    first = [*ends.values()]
    assert counts["done"] == first.count("ended"), "none is lost, and the first end counts"
    assert counts["failed"] == first.count("failed")
    assert made.shown(START + now).words


@pytest.mark.parametrize("label", ["a\nb", "*" * 200, "<!channel> [x](y)", "你好" * 100, "👩‍👩‍👧" * 80])
def test_a_label_stays_a_line_of_plain_words(label: str) -> None:
    made = board(dataclasses.replace(event("queued"), label=label))
    words = made.shown(START + 1).words
    assert len(words.splitlines()) == 1
    assert not [entity for entity in render.render(words).entities if entity.type == "text_link"]
    assert len(made.shown(START).cards[0].title) <= 60
