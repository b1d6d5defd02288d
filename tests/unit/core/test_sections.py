"""A prompt within its budget: the required whole or shorter or a loud refusal, the optional where they fit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.core.prompt import PromptTooLarge, Section, assemble
from tests.shares import examples

RULES = Section("rules", ["r" * 100], required=True)
TREE = Section("tree", ["t" * 90, "t" * 50, "t" * 20, "t" * 5])
TOOLS = Section("tools", ["x" * 80, "x" * 40, "x" * 10], required=True)
GIT = Section("git", ["g" * 30])


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
        PromptTooLarge, match=r"`tools` of the prompt takes 12 of the 8 that are left"
    ) as caught:
        assemble([RULES, TOOLS, GIT], 108)
    assert "instruction files" in str(caught.value)
    assert "rules" not in caught.value.person


SECTIONS = st.lists(
    st.builds(
        Section,
        st.text("abc", min_size=1, max_size=3),
        st.lists(st.text("x你👍", max_size=60), max_size=4),
        st.booleans(),
    ),
    max_size=9,
)


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(SECTIONS, st.integers(0, 400))
def test_it_fits_keeps_what_is_required_and_is_the_same_each_time(
    sections: list[Section], budget: int
) -> None:
    required = [one for one in sections if one.required and any(one.forms)]
    try:
        made = assemble(sections, budget)
    except PromptTooLarge:
        assert required
        return
    assert len(made.text) <= max(budget, 0)
    assert made == assemble(sections, budget)
    assert len(made.parts) + len(made.dropped) == sum(any(one.forms) for one in sections)
    kept = [name for name, _ in made.parts]
    assert all(one.name in kept for one in required)
    roomy = assemble(sections, 10_000)
    assert (roomy.dropped, roomy.shortened) == ((), ())
