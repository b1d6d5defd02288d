"""The ranking by itself: what each share is for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from bot.features.search.ranking import (
    CENTRES,
    DEFAULT,
    LENGTHS,
    PLACE_BITS,
    ROW_BITS,
    CorpusStats,
    LineScores,
    Postings,
    Weights,
    feedback,
    fused,
    length_class,
    rarity,
)

STATS = CorpusStats(lines=1_000, tokens=8_000, sessions=50)
OWN = replace(DEFAULT, neighbour=0.0, session=0.0)
"""Nothing but what a line itself has."""


def line(session: int, place: int) -> int:
    return session << PLACE_BITS | place


def row(session: int, place: int, tokens: int = 8) -> int:
    return line(session, place) << ROW_BITS | length_class(tokens)


def rank(
    postings: Sequence[Postings], stats: CorpusStats, weights: Weights, most: int = 1_000
) -> list[tuple[int, float]]:
    tally = LineScores(stats, weights)
    for posting in postings:
        tally.add(posting)
    return tally.best(most)


def order(*postings: Postings, stats: CorpusStats = STATS, weights: Weights = DEFAULT) -> list[int]:
    return [found for found, score in rank(postings, stats, weights) if score]


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    rare, common = Postings(1.0, 2, [row(1, 0)]), Postings(1.0, 500, [row(2, 0)])
    assert order(rare, common, weights=OWN) == [line(1, 0), line(2, 0)]
    assert rarity(2, 1_000) > rarity(500, 1_000) > 0
    assert rarity(2_000, 1_000) > 0


def test_a_short_line_counts_more_than_a_long_one() -> None:
    posting = Postings(1.0, 2, [row(1, 0, 5), row(2, 0, 200)])
    assert order(posting, weights=OWN) == [line(1, 0), line(2, 0)]


def test_what_is_said_again_and_again_does_not_keep_away_what_is_said_once() -> None:
    again = [row(session, 0, 5) for session in range(300)]
    once = row(400, 0, 60)
    posting = Postings(1.0, 301, [*again, once])
    assert line(400, 0) in order_of(posting, 50)
    assert line(400, 0) not in order_of(posting, 50, weights=replace(OWN, alike=50))
    assert len(order_of(posting, 50)) == 50, "what is alike fills up what is left"
    assert order_of(posting, 400)[-1] == line(400, 0), "nothing is lost where all of it is wanted"


def order_of(posting: Postings, most: int, weights: Weights = OWN) -> list[int]:
    return [found for found, score in rank([posting], STATS, weights, most=most) if score]


def test_the_line_beside_a_hit_is_found_and_the_one_of_another_session_is_not() -> None:
    found = dict(rank([Postings(1.0, 2, [row(1, 0)])], STATS, replace(DEFAULT, session=0.0)))
    assert set(found) == {line(1, 0), line(1, 1)}
    assert found[line(1, 1)] == pytest.approx(DEFAULT.neighbour * found[line(1, 0)])


def test_of_equal_lines_the_one_in_a_session_about_it_is_first() -> None:
    rows = [row(9, 0), *(row(3, place) for place in (0, 20, 40))]
    assert order(Postings(1.0, 4, rows), weights=OWN)[0] == line(9, 0)
    of_session = order(Postings(1.0, 4, rows), weights=replace(OWN, session=0.4))
    assert of_session[:3] == [line(3, 40), line(3, 20), line(3, 0)]


def test_of_equal_lines_the_newer_is_first_and_that_decides_nothing_else() -> None:
    assert order(Postings(1.0, 2, [row(1, 0), row(2, 0)]))[:2] == [line(2, 0), line(1, 0)]
    better, newer = Postings(1.0, 2, [row(1, 0)]), Postings(0.8, 2, [row(2, 0)])
    assert order(better, newer)[0] == line(1, 0)


def test_the_time_that_was_asked_for_counts() -> None:
    posting = Postings(1.0, 2, [row(1, 0), row(2, 0)])
    asked = replace(STATS, session_ranges=((1, 1),))
    assert order(posting, stats=asked)[0] == line(1, 0)


def test_nothing_found_is_an_empty_list() -> None:
    assert order() == []
    assert order(Postings(1.0, 0, []), stats=CorpusStats(0, 0, 0)) == []


def test_feedback_names_what_the_best_lines_share_and_others_lack() -> None:
    found = [(["oslo", "ticket", "ok"], 2.0), (["oslo", "train", "ok"], 1.0)]
    counts = {"oslo": 3, "train": 3, "ok": 900, "ticket": 3}
    more = feedback(found, counts, STATS, known=["ticket"])
    assert [token for token, _ in more] == ["oslo", "train", "ok"]
    assert more[0][1] == pytest.approx(DEFAULT.feedback)
    assert feedback(found, {"oslo": 1}, STATS, known=[]) == []


def test_classes_of_length_cover_every_length() -> None:
    assert [length_class(tokens) for tokens in (0, 1, 2, 7, 256, 10**6)] == [0, 0, 1, 5, 15, 15]
    assert [length_class(tokens) for tokens in LENGTHS] == list(range(16))


class Plain:
    """What `LineScores` says, as it is written in its documents: every line by itself."""

    def __init__(self, stats: CorpusStats, weights: Weights) -> None:
        self.stats, self.weights = stats, weights
        self.own: dict[int, float] = {}
        self.named: set[int] = set()
        self.sessions: list[tuple[float, Counter[int]]] = []

    def add(self, posting: Postings) -> None:
        k1, b = self.weights.k1, self.weights.b
        average = self.stats.tokens / self.stats.lines
        worth = posting.weight * rarity(posting.count, self.stats.lines) * (k1 + 1)
        for one in posting.rows:
            norm = k1 * (1 - b + b * LENGTHS[one & 15] / max(1.0, average))
            self.own.setdefault(one >> ROW_BITS, 0.0)
            self.own[one >> ROW_BITS] += worth / (1 + norm)
        of_session = Counter(one >> ROW_BITS + PLACE_BITS for one in posting.rows)
        self.sessions.append((posting.weight * rarity(len(of_session), self.stats.sessions), of_session))

    def consider(self, rows: Sequence[int]) -> None:
        for one in rows:
            self.own.setdefault(one >> ROW_BITS, 0.0)

    def foremost(self, most: int) -> list[int]:
        order = sorted(self.own, key=self.own.__getitem__, reverse=True)
        alike = self.weights.alike
        if most <= alike or len(order) <= most:
            return order[:most]
        front: list[int] = []
        others: list[int] = []
        for one in order[: most * 10]:
            same = [other for other in front if self.own[other] == self.own[one]]
            (front if len(same) < alike else others).append(one)
            if len(front) == most:
                break
        return (front + others)[:most]

    def whole(self, one: int) -> float:
        k, of_session = self.weights.session_k, 0.0
        for worth, counts in self.sessions:
            count = counts[one >> PLACE_BITS]
            of_session += worth * (k + 1) * count / (count + k)
        score = self.own.get(one, 0.0) + self.weights.session * of_session
        for step, share in (
            (-1, self.weights.neighbour),
            (1, self.weights.neighbour),
        ):
            if one >> PLACE_BITS == one + step >> PLACE_BITS:
                score += share * self.own.get(one + step, 0.0)
        return score

    def best(self, most: int) -> list[tuple[int, float]]:
        lines = self.foremost(most)
        near = {one + step for one in lines[:CENTRES] for step in range(-1, 2) if one >> 8 == one + step >> 8}
        scores = {one: self.whole(one) for one in near.union(lines)}
        if not scores:
            return []
        best = max(scores.values())
        for one in scores:
            scores[one] += best * self.weights.named * (one in self.named)
            if any(first <= one >> PLACE_BITS <= last for first, last in self.stats.session_ranges):
                scores[one] += best * self.weights.moment
        return sorted(scores.items(), key=lambda item: (item[1], item[0]), reverse=True)[:most]


@pytest.mark.parametrize("seed", range(12))
def test_a_tally_says_what_every_line_says_by_itself(seed: int) -> None:
    rnd = random.Random(seed)
    sessions = rnd.choice([3, 40, 400])
    stats = CorpusStats(
        2_000,
        16_000,
        sessions,
        session_ranges=((2, 4),) if rnd.random() < 0.5 else (),
    )
    weights = replace(DEFAULT, alike=rnd.choice([2, 16]))
    all_rows = [
        row(session, place, rnd.choice([2, 8, 8, 40]))
        for session in range(1, sessions)
        for place in range(256)
    ]
    tally, plain = LineScores(stats, weights), Plain(stats, weights)
    for number in range(rnd.randrange(1, 6)):
        rows = sorted(rnd.sample(all_rows, min(len(all_rows), rnd.choice([3, 60, 500]))))
        posting = Postings(rnd.choice([1.0, 0.5]), len(rows), rows)
        if number == 1:
            timely = [one for one in all_rows if 2 <= one >> ROW_BITS + PLACE_BITS <= 4][:50]
            tally.consider(timely)
            plain.consider(timely)
        if number == 2:
            spoken = rnd.sample(all_rows, 300)
            tally.prefer(spoken)
            plain.named = {one >> ROW_BITS for one in spoken}
        tally.add(posting)
        plain.add(posting)
        for most in (1, 6, 30, 200):
            found, expected = tally.best(most), plain.best(most)
            assert [one for one, _ in found] == [one for one, _ in expected]
            assert [score for _, score in found] == pytest.approx([score for _, score in expected])


def test_fusion_puts_first_what_both_rankings_like() -> None:
    scores = fused([[1, 2, 3, 4], [2, 4, 1, 3]])
    assert sorted(scores, key=scores.__getitem__, reverse=True) == [2, 1, 4, 3]
    assert fused([]) == {}
    assert scores[2] == pytest.approx(1 / 11 + 1 / 12)
