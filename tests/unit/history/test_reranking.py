"""The seam for vectors, on a deterministic fake; and what fusion makes of two opinions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import ChatKey
from bot.history import jsonl
from bot.history.file_names import encode
from bot.history.search import ranking
from bot.history.search.ranking import Embedded
from bot.history.search.recall import Recall
from bot.system import SystemDisk

KEY, NOW = ChatKey.parse("web:chat:1"), 1_800_000_000_000


class Concepts:
    """An `Embedder` whose vectors count words of the same meaning together."""

    GROUPS = (("car", "vehicle", "wagen"), ("red", "crimson", "roten"), ("rent", "hire", "mieten"))

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [
            [float(sum(text.lower().count(word) for word in group)) for group in self.GROUPS]
            for text in texts
        ]


def folder(root: Path, texts: Sequence[str]) -> Path:
    given = {"channel": "web", "chatId": "1", "chatKey": str(KEY), "role": "user"}
    lines = [
        ArchiveLine.model_validate({**given, "ts": NOW - 10**9 + number * 10**7, "text": text})
        for number, text in enumerate(texts)
    ]
    raw = b"".join(jsonl.dumps(line.model_dump(by_alias=True)) for line in lines)
    (root / f"{encode(KEY)}.jsonl").write_bytes(raw)
    return root


def found(root: Path, query: str, reranker: Embedded | None) -> list[str]:
    recall = Recall.opened(None, root, SystemDisk(), reranker=reranker)
    try:
        recall.catch_up()
        return [hit.line.text for hit in recall.search([KEY], query, NOW)]
    finally:
        recall.close()


def test_vectors_move_a_line_of_the_same_meaning_to_the_front(tmp_path: Path) -> None:
    meant = "können wir einen roten Wagen mieten, or do they only lend it against rent"
    root = folder(tmp_path, ["rent is due, rent again", meant, "the rent of the flat", "rent rent rent"])
    by_words = found(root, "rent a red car", None)
    by_both = found(root, "rent a red car", Embedded(Concepts()))
    assert set(by_words) == set(by_both)
    assert by_both.index(meant) < by_words.index(meant)


def test_what_has_no_vector_is_like_nothing() -> None:
    alike, unlike = Embedded(Concepts()).scores("rent a red car", ["hire a crimson vehicle", ""])
    assert (round(alike, 6), unlike) == (1.0, 0.0)


def test_fusion_puts_first_what_both_opinions_like() -> None:
    scores = ranking.fused([[1, 2, 3, 4], [2, 4, 1, 3]])
    assert sorted(scores, key=scores.__getitem__, reverse=True) == [2, 1, 4, 3]
    assert ranking.fused([]) == {}
    assert scores[2] == pytest.approx(1 / 11 + 1 / 12)


def test_fused_scores_fall_from_the_first_hit_to_the_last(tmp_path: Path) -> None:
    texts = [f"rent {'car ' * (number % 3)}number{number}" for number in range(80)]
    recall = Recall.opened(None, folder(tmp_path, texts), SystemDisk(), reranker=Embedded(Concepts()))
    try:
        recall.catch_up()
        hits = recall.search([KEY], "rent a vehicle", NOW, limit=80)
    finally:
        recall.close()
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)
    assert len(hits) > 50
    assert any("car" in hit.line.text for hit in hits[:2]), (
        "the first of the vectors stands beside the first of the words"
    )
