"""A prompt within its budget: the required whole or shorter or a loud refusal, the optional where they fit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.core.prompt import PromptTooLarge, Section, assemble
from tests.shares import examples

RULES = Section("rules", 1, "r" * 100, required=True)
TREE = Section("tree", 5, "t" * 90, alternatives=("t" * 50, "t" * 20, "t" * 5))
TOOLS = Section("tools", 6, "x" * 80, required=True, alternatives=("x" * 40, "x" * 10))
GIT = Section("git", 4, "g" * 30)


def names(budget: float, *sections: Section) -> list[str]:
    return [name for name, _ in assemble(sections, budget).parts]


def test_what_is_optional_takes_what_is_left_whole_or_shorter_or_not_at_all() -> None:
    assert assemble([RULES, TREE], 192).shortened == ()
    assert assemble([RULES, TREE], 191).text.endswith("r\n\n" + "t" * 50)
    assert assemble([RULES, TREE], 122).text.endswith("r\n\n" + "t" * 20)
    made = assemble([RULES, TREE], 106)
    assert (made.text, made.dropped) == ("r" * 100, ("tree",))
    assert names(150, RULES, GIT, TREE) == ["rules", "git", "tree"]
    assert names(135, RULES, GIT, TREE) == ["rules", "git"]


def test_what_is_required_and_does_not_fit_is_refused_in_an_operators_words() -> None:
    with pytest.raises(
        PromptTooLarge, match=r"take 114, more than the budget of 100 \(rules 102, tools 12\)"
    ) as caught:
        assemble([RULES, TOOLS, GIT], 98)
    assert "instruction files" in str(caught.value)
    assert "rules" not in caught.value.person


SECTIONS = st.lists(
    st.builds(
        Section,
        st.text("abc", min_size=1, max_size=3),
        st.sampled_from([1, 2, 2.5, 3, 3.5, 4, 5, 6]),
        st.text("x你👍", max_size=60),
        st.booleans(),
        st.lists(st.text("y好", max_size=40), max_size=3).map(tuple),
    ),
    max_size=9,
)


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(SECTIONS, st.integers(0, 400))
def test_it_fits_keeps_what_is_required_and_is_the_same_each_time(
    sections: list[Section], budget: int
) -> None:
    required = [one for one in sections if one.required and one.text]
    try:
        made = assemble(sections, budget)
    except PromptTooLarge:
        shortest = [min([one.text, *filter(None, one.alternatives)], key=len) for one in required]
        assert len("\n\n".join(shortest)) > budget
        return
    assert len(made.text) <= max(budget, 0)
    assert made == assemble(sections, budget)
    assert len(made.parts) + len(made.dropped) == sum(1 for one in sections if one.text)
    kept = [name for name, _ in made.parts]
    assert all(kept.count(one.name) >= 1 for one in required)
    order = {(one.name, words): one.priority for one in sections for words in (one.text, *one.alternatives)}
    assert sorted(kept) == sorted(name for name, words in made.parts if (name, words) in order)
    roomy = assemble(sections, 10_000)
    assert (roomy.dropped, roomy.shortened) == ((), ())
