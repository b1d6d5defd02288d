"""Another opinion of what answers a question, beside that of words: a seam for vectors and models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Reranker(Protocol):
    """Another opinion of what answers a question, such as a model's or that of vectors (`Embedded`)."""

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """One for each text, the best one highest."""
        ...


class Embedder(Protocol):
    """Texts as vectors of one length."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]: ...


class Embedded:
    """A `Reranker` by the angle between vectors."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        asked, *others = self._embedder.embed([query, *texts])
        return [_cosine(asked, other) for other in others]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    size = sum(a * a for a in one) * sum(b * b for b in other)
    return product / size**0.5 if size else 0.0
