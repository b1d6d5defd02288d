"""Which section holds where several files speak."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bot.core.prompt import resolve
from tests.shares import examples


def texts(*files: str) -> list[str]:
    return resolve(files)


OVERRIDE = "<!-- shipmate: override -->"


def test_an_override_takes_the_place_of_its_own_section_and_of_nothing_else() -> None:
    far = "Intro about tone\n# Tone\nKind.\n## Jokes\nMany.\n# Money\nNever."
    near = f"# TONE  ##\n{OVERRIDE}\nBrief. 简短。"
    assert texts(far, near) == ["Intro about tone\n# Money\nNever.", "# TONE  ##\nBrief. 简短。"]


def test_an_override_reaches_every_farther_file_and_no_nearer_one() -> None:
    section = "# Tone\nKind."
    assert texts(section, section, f"# Tone\n\n{OVERRIDE}\nBrief.", section) == [
        "",
        "",
        "# Tone\n\nBrief.",
        section,
    ]


def test_headings_and_directives_in_code_are_code() -> None:
    far = f"# Tone\nKind.\n```sh\n# Money\n{OVERRIDE}\n````\n~~~\n# Tone\n~~~"
    near = f"# Money\nNow.\n```\n# Tone\n{OVERRIDE}\n```"
    assert texts(far, near) == [far, near]


def test_a_directive_counts_only_right_below_its_heading() -> None:
    far = "# Tone\nKind."
    for near in (
        f"{OVERRIDE}\n# Tone\nBrief.",
        f"# Tone\nBrief.\n{OVERRIDE}",
        "# Tone\n<!-- shipmate: other -->",
    ):
        assert texts(far, near) == [far, near]


LINES = st.sampled_from(["# A", "## B", "### A", "#", OVERRIDE, "words 词", "", "```", "~~~~", "#hashtag"])


@settings(derandomize=True, deadline=None, max_examples=examples(300))
@given(st.lists(st.lists(LINES, max_size=8).map("\n".join), max_size=4))
def test_lines_go_or_stay_and_none_is_made_up_or_moved(files: list[str]) -> None:
    for before, after in zip(files, texts(*files), strict=True):
        left = iter(before.strip().splitlines())
        assert all(line in left for line in after.splitlines())
    if files:
        assert texts(files[0]) == texts(*texts(files[0])) or OVERRIDE in files[0]
