"""What is shown of work: every event counts, in any number and order, and the figures agree with each other."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.contracts.tasks import TaskEvent, TaskTotals
from bot.gateway.live.progress_view import ALONE_SECONDS, BAR, MOST, TOGETHER_SECONDS, ProgressState
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
        event("tool", "alpha", 4, tool="web_fetch", seconds=3.0),
        event("tool", "beta", 5, tool="web_fetch", seconds=1.0),
        event("tool", "beta", 6, tool="read_file", seconds=0.5),
        event("ended", "alpha", 10),
        event("model", "beta", 12, totals=TaskTotals(model_calls=3), most_calls=30),
        event("failed", "gamma", 20, error="The page *could not* be fetched."),
    )
    assert made.busy
    shown = made.shown(START + 30)
    assert shown.words.splitlines() == [
        "**Working: 1 of 4, 1 failed** · 0:30",
        "██████████░░░░░░░░░░ 50 %",
        "✓ Look at alpha · 0:10",
        "▸ Look at beta · 0:30 · step 3 of at most 30",
        "✗ Look at gamma · 0:20 · The page \\*could not\\* be fetched.",
        "○ Look at delta · waits",
        "0:15 each, 4.0 a minute, about 0:30 left",
        "Tools: web\\_fetch 2 × 2.0 s, read\\_file 1 × 0.5 s",
    ]
    assert shown.title == "Working: 1 of 4, 1 failed · 0:30"
    assert [(card.title, card.state) for card in shown.cards] == [
        ("Look at alpha", "complete"),
        ("Look at beta", "in_progress"),
        ("Look at gamma", "error"),
        ("Look at delta", "pending"),
    ]
    assert shown.cards[2].detail == "0:20 · The page *could not* be fetched."
    assert "Tools: web_fetch 2" in render.render(shown.words).text, "no markup where none is meant"


def test_a_summary_counts_what_was_stopped_and_stands_still() -> None:
    made = board(event("queued", "alpha"), event("started", "alpha", 1), event("ended", "alpha", 61))
    made.record(event("queued", "beta"))
    made.close(START + 100)
    assert not made.busy
    for later in (100, 1_000):
        lines = made.shown(START + later).words.splitlines()
        assert lines[0] == "**Done: 1 of 2, 1 stopped** · 1:40"
        assert lines[2:] == ["✓ Look at alpha · 1:00", "■ Look at beta", "1:00 each, 0.6 a minute"]


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


def test_tool_calls_of_the_turn_itself_count_too() -> None:
    made = ProgressState()
    made.began("toolu_1", "run_shell", START)
    made.began("toolu_2", "web_fetch", START)
    made.ended("toolu_2", START + 5, failed=True)
    made.ended("toolu_2", START + 9, failed=False)
    made.ended("toolu_9", START + 9, failed=False)
    lines = made.shown(START + 65).words.splitlines()
    assert lines[0] == "**Working: 0 of 2, 1 failed** · 1:05"
    assert lines[2:4] == ["▸ run\\_shell · 1:05", "✗ web\\_fetch · 0:05"]


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
    assert made.figures(START + 2).done == 37
    assert len(shown.words) < 4_000


KINDS = st.sampled_from(["queued", "started", "model", "tool", "ended", "failed"])
EVENTS = st.lists(st.tuples(KINDS, st.sampled_from("abcdefg"), st.floats(0, 5_000)), max_size=60)


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(EVENTS, st.floats(0, 10_000), st.booleans())
def test_the_figures_agree_whatever_happens(
    events: list[tuple[str, str, float]], now: float, close: bool
) -> None:
    made = board(*(event(kind, task, at, tool="web_fetch", seconds=1.0) for kind, task, at in events))
    if close:
        made.close(START + now)
    figures = made.figures(START + now)
    parts = (figures.done, figures.failed, figures.stopped, figures.running, figures.waiting)
    assert sum(parts) == figures.total == len({task for _, task, _ in events})
    assert made.busy == bool(figures.running + figures.waiting)
    ends: dict[str, str] = {}
    for kind, task, _ in events:
        if kind in {"ended", "failed"}:
            ends.setdefault(task, kind)
    assert figures.done == sum(kind == "ended" for kind in ends.values()), (
        "none is lost, and the first end counts"
    )
    assert figures.failed == sum(kind == "failed" for kind in ends.values())
    for value in (figures.elapsed, figures.average, figures.rate, figures.left):
        assert value is None or value >= 0
    if figures.total:
        bar = made.shown(START + now).words.splitlines()[1].partition(" ")[0]
        assert len(bar) == BAR
        assert (bar.count("█") == BAR) == (not made.busy)


@pytest.mark.parametrize("label", ["a\nb", "*" * 200, "<!channel> [x](y)", "你好" * 100, "👩‍👩‍👧" * 80])
def test_a_label_stays_a_line_of_plain_words(label: str) -> None:
    made = board(dataclasses.replace(event("queued"), label=label))
    words = made.shown(START + 1).words
    assert len(words.splitlines()) == 3
    assert not [entity for entity in render.render(words).entities if entity.type == "text_link"]
    assert len(made.shown(START).cards[0].title) <= 60


def test_one_tool_alone_is_a_line_at_work_and_at_its_end() -> None:
    made = ProgressState()
    made.began("call-1", "run_shell", START)
    assert made.shown(START + 9).words == "▸ run\\_shell · 0:09"
    made.ended("call-1", START + 12, failed=False)
    shown = made.shown(START + 30)
    assert (shown.words, shown.title) == ("✓ run\\_shell · 0:12", "run_shell · 0:12")
    assert [(card.title, card.state) for card in shown.cards] == [("run_shell", "complete")]
