"""The ranking by itself: what each share is for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bot.history.ranking import (
    DEFAULT,
    LENGTHS,
    PLACE_BITS,
    ROW_BITS,
    Field,
    Posting,
    Weights,
    feedback,
    length_class,
    rank,
    rarity,
)

FIELD = Field(lines=1_000, tokens=8_000, sessions=50)
OWN = replace(DEFAULT, neighbour=0.0, further=0.0, session=0.0, recency=0.0)
"""Nothing but what a line itself has."""


def line(session: int, place: int) -> int:
    return session << PLACE_BITS | place


def row(session: int, place: int, tokens: int = 8, role: int = 0) -> int:
    return line(session, place) << ROW_BITS | role << 4 | length_class(tokens)


def order(*postings: Posting, field: Field = FIELD, weights: Weights = DEFAULT) -> list[int]:
    return [found for found, _ in rank(postings, field, weights)]


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    rare, common = Posting(1.0, 2, [row(1, 0)]), Posting(1.0, 500, [row(2, 0)])
    assert order(rare, common, weights=OWN) == [line(1, 0), line(2, 0)]
    assert rarity(2, 1_000) > rarity(500, 1_000) > 0
    assert rarity(2_000, 1_000) > 0


def test_a_short_line_counts_more_than_a_long_one() -> None:
    posting = Posting(1.0, 2, [row(1, 0, 5), row(2, 0, 200)])
    assert order(posting, weights=OWN) == [line(1, 0), line(2, 0)]


def test_what_is_said_again_and_again_does_not_keep_away_what_is_said_once() -> None:
    again = [row(session, 0, 5) for session in range(300)]
    once = row(400, 0, 60)
    posting = Posting(1.0, 301, [*again, once])
    assert line(400, 0) in order_of(posting, 50)
    assert line(400, 0) not in order_of(posting, 50, weights=replace(OWN, alike=50))
    assert len(order_of(posting, 50)) == 50, "what is alike fills up what is left"
    assert order_of(posting, 400)[-1] == line(400, 0), "nothing is lost where all of it is wanted"


def order_of(posting: Posting, most: int, weights: Weights = OWN) -> list[int]:
    return [found for found, _ in rank([posting], FIELD, weights, most=most)]


def test_the_line_beside_a_hit_is_found_and_the_one_of_another_session_is_not() -> None:
    found = dict(rank([Posting(1.0, 2, [row(1, 0)])], FIELD, replace(DEFAULT, session=0.0, recency=0.0)))
    assert set(found) == {line(1, 0), line(1, 1), line(1, 2)}
    assert found[line(1, 1)] == pytest.approx(DEFAULT.neighbour * found[line(1, 0)])
    assert found[line(1, 2)] == pytest.approx(DEFAULT.further * found[line(1, 0)])


def test_of_equal_lines_the_one_in_a_session_about_it_is_first() -> None:
    rows = [row(9, 0), *(row(3, place) for place in (0, 20, 40))]
    assert order(Posting(1.0, 4, rows), weights=replace(OWN, recency=DEFAULT.recency))[0] == line(9, 0)
    assert order(Posting(1.0, 4, rows), weights=replace(OWN, session=0.4))[-1] == line(9, 0)


def test_of_equal_lines_the_newer_is_first_and_that_decides_nothing_else() -> None:
    assert order(Posting(1.0, 2, [row(1, 0), row(2, 0)]))[:2] == [line(2, 0), line(1, 0)]
    better, newer = Posting(1.0, 2, [row(1, 0)]), Posting(0.8, 2, [row(2, 0)])
    assert order(better, newer, weights=replace(OWN, recency=DEFAULT.recency))[0] == line(1, 0)


def test_the_time_that_was_asked_for_counts() -> None:
    posting = Posting(1.0, 2, [row(1, 0), row(2, 0)])
    asked = replace(FIELD, moments=((1, 1),))
    assert order(posting, field=asked)[0] == line(1, 0)


def test_nothing_found_is_an_empty_list() -> None:
    assert order() == []
    assert order(Posting(1.0, 0, []), field=Field(0, 0, 0)) == []


def test_feedback_names_what_the_best_lines_share_and_others_lack() -> None:
    found = [(["oslo", "ticket", "ok"], 2.0), (["oslo", "train", "ok"], 1.0)]
    counts = {"oslo": 3, "train": 3, "ok": 900, "ticket": 3}
    more = feedback(found, counts, FIELD, known=["ticket"])
    assert [token for token, _ in more] == ["oslo", "train", "ok"]
    assert more[0][1] == pytest.approx(DEFAULT.feedback)
    assert feedback(found, {"oslo": 1}, FIELD, known=[]) == []


def test_classes_of_length_cover_every_length() -> None:
    assert [length_class(tokens) for tokens in (0, 1, 2, 7, 256, 10**6)] == [0, 0, 1, 5, 15, 15]
    assert [length_class(tokens) for tokens in LENGTHS] == list(range(16))
