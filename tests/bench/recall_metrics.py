"""How good a ranking is. Pure: ranked ids and the ids that answer, best first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

AT = (1, 5, 10, 25)
DEPTH = AT[-1]
"""How many hits are asked for; what stands further down counts as not found."""


def recall(ranked: Sequence[str], evidence: Collection[str], k: int) -> float:
    """The share of the evidence among the first `k`."""
    return sum(1 for one in ranked[:k] if one in evidence) / len(evidence)


def reciprocal(ranked: Sequence[str], evidence: Collection[str]) -> float:
    """One over the place of the first piece of evidence; 0 without any."""
    return next((1 / place for place, one in enumerate(ranked, 1) if one in evidence), 0.0)


def ndcg(ranked: Sequence[str], evidence: Collection[str], k: int) -> float:
    """Discounted gain of the first `k`, over that of the best order there is."""
    gain = sum(1 / math.log2(place + 1) for place, one in enumerate(ranked[:k], 1) if one in evidence)
    return gain / sum(1 / math.log2(place + 1) for place in range(1, min(k, len(evidence)) + 1))


def parted(higher: Sequence[float], lower: Sequence[float]) -> float:
    """How often one of `higher` is above one of `lower` (a tie counts half): 1 tells them apart, 0.5 is chance."""
    pairs = len(higher) * len(lower)
    above = sum((a > b) + (a == b) / 2 for a in higher for b in lower)
    return above / pairs if pairs else 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of one question."""

    kind: str
    evidence: frozenset[str]
    ranked: tuple[str, ...]
    ms: float
    best: float = 0.0
    """The score of the first hit."""


@dataclass(frozen=True, slots=True)
class Scores:
    """Means over the questions that have an answer; times are of all of them, in milliseconds."""

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
