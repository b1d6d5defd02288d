"""Any text in any room: head and tail as they were, the note exact, the whole within its room."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bot import text as texts
from bot.tools import result_limits
from tests.shares import examples

ID = "01J8Z3NDEKTSV4RRFFQ69G5FAV"
FAMILY = "👩\u200d👩\u200d👧\u200d👦"
PARTS = ["a", "é", "字", "\n", FAMILY, "🇩🇪", "e\u0301", "שלום ", " ", "word " * 9, "1234567890\n"]
TEXTS = st.builds(
    lambda parts, times: "".join(parts) * times,
    st.lists(st.sampled_from(PARTS) | st.text(max_size=4), min_size=1, max_size=30),
    st.sampled_from([1, 3, 60]),
)


def note(content: str) -> int:
    """What the note alone weighs."""
    return result_limits.weight(next(line for line in content.split("\n") if "omitted; " in line))


@settings(derandomize=True, deadline=None, max_examples=examples(400))
@given(words=TEXTS, room=st.integers(0, 40_000), kept=st.booleans())
def test_head_and_tail_are_those_of_the_text_and_the_note_counts_the_rest(
    words: str, room: int, kept: bool
) -> None:
    if result_limits.weight(words) <= room:
        return
    content, left_out = result_limits.excerpt(words, room, ID if kept else None).shown
    assert result_limits.weight(content) <= max(room, note(content))
    if not kept:
        assert "are lost" in content
        assert result_limits.shown_by(content, left_out) is None
        return
    found = result_limits.shown_by(content, left_out)
    assert found is not None
    assert str(found) == content
    assert found.artifact == ID
    assert words.startswith(found.head)
    assert words.endswith(found.tail)
    assert len(found.head) + found.characters + len(found.tail) == len(words)
    gone = words[len(found.head) : len(words) - len(found.tail)]
    assert (found.lines, found.characters) == (gone.count("\n"), len(gone))
    for cut in (len(found.head), len(words) - len(found.tail)):
        assert texts.border(words, cut) == cut


@settings(derandomize=True, deadline=None, max_examples=examples(200))
@given(words=TEXTS, rooms=st.tuples(st.integers(2_000, 40_000), st.integers(0, 30_000)))
def test_what_is_cut_again_is_the_same_text_with_less_of_it(words: str, rooms: tuple[int, int]) -> None:
    if result_limits.weight(words) <= rooms[0]:
        return
    first = result_limits.shown_by(*result_limits.excerpt(words, rooms[0], ID).shown)
    assert first is not None
    second = first.within(rooms[1])
    assert result_limits.shown_by(*second.shown) == second
    assert result_limits.weight(str(second)) <= max(rooms[1], note(str(second)))
    assert first.head.startswith(second.head)
    assert first.tail.endswith(second.tail)
    assert len(second.head) + second.characters + len(second.tail) == len(words)


def test_the_note_says_what_is_missing_and_how_to_get_it() -> None:
    found = result_limits.excerpt("one\n" * 10_000, 6_000, ID)
    assert (
        f"\n[… {found.lines} lines, {found.characters} characters omitted; whole result: artifact {ID}, "
        "read it with read_artifact]\n"
    ) in str(found)
    assert str(result_limits.excerpt("x" * 900, 10, ID)).startswith("[… 0 lines, 900 characters omitted;")


def test_a_quoted_note_is_not_taken_for_the_real_one() -> None:
    fake = (
        f"[… 1 lines, 2 characters omitted; whole result: artifact {'0' * 26}, read it with read_artifact]\n"
    )
    found = result_limits.shown_by(
        *result_limits.excerpt(fake * 3 + "y" * 50_000 + fake * 3, result_limits.ROOM, ID).shown
    )
    assert found is not None
    assert found.artifact == ID
    assert found.head.startswith(fake * 3)
    assert result_limits.shown_by(fake, None) is None
