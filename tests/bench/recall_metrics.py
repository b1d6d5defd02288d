"""Quality measures of a ranking. All functions are pure; they take the ranked ids (best first) and the ids
that answer the question.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

AT = (1, 5, 10, 25)
DEPTH = AT[-1]
"""Max hits per question; a later hit counts as not found."""


def recall(ranked: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Return the share of the evidence that is among the first `k` hits."""
    return sum(1 for one in ranked[:k] if one in evidence) / len(evidence)


def reciprocal(ranked: Sequence[str], evidence: Collection[str]) -> float:
    """Return the reciprocal rank: one divided by the position of the first evidence, 0 if there is none."""
    return next((1 / place for place, one in enumerate(ranked, 1) if one in evidence), 0.0)


def ndcg(ranked: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Return the discounted gain of the first `k` hits, divided by the gain of the best possible order."""
    gain = sum(1 / math.log2(place + 1) for place, one in enumerate(ranked[:k], 1) if one in evidence)
    return gain / sum(1 / math.log2(place + 1) for place in range(1, min(k, len(evidence)) + 1))


def parted(higher: Sequence[float], lower: Sequence[float]) -> float:
    """Return the share of pairs in which the value of `higher` is above the value of `lower`; a tie counts half."""
    pairs = len(higher) * len(lower)
    above = sum((a > b) + (a == b) / 2 for a in higher for b in lower)
    return above / pairs if pairs else 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    kind: str
    evidence: frozenset[str]
    ranked: tuple[str, ...]
    ms: float
    best: float = 0.0
    """Score of the first hit."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Averages over the questions that have an answer. The times cover all questions, in milliseconds."""

    questions: int
    recall: tuple[float, ...]
    mrr: float
    ndcg: float
    p50: float
    p95: float

    @classmethod
    def of(cls, asked: Iterable[Asked]) -> Scores:
        every = list(asked)
        some = [one for one in every if one.evidence]
        times = sorted(one.ms for one in every)
        return cls(
            len(some),
            tuple(_mean([recall(one.ranked, one.evidence, k) for one in some]) for k in AT),
            _mean([reciprocal(one.ranked, one.evidence) for one in some]),
            _mean([ndcg(one.ranked, one.evidence, 10) for one in some]),
            _rank(times, 0.5),
            _rank(times, 0.95),
        )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _rank(ranked: Sequence[float], share: float) -> float:
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)] if ranked else 0.0
