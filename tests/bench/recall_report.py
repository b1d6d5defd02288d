"""Measures how well old turns are found: `python -m tests.bench.recall_report [--json FILE…] [--full]
[--kinds]`.

Without a file, the report uses generated conversations: topics that the search weights were tuned on, and
held-out topics. With files, it uses the conversations and questions in the files (docs/recall.md describes
the format). Each figure is printed beside the figure of plain FTS5.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tests.bench import recall_corpus, recall_form
from tests.bench.figures import number
from tests.bench.recall_form import Conversation, Question
from tests.bench.recall_metrics import AT, DEPTH, Asked, Scores, parted
from tests.bench.recall_ours import Searched
from tests.bench.recall_plain import PlainBm25

LANGUAGES = {"en": "English", "zh": "Chinese", "ja": "Japanese"}
SEEDS = {"tuned": 1, "held": 7}
"""Random seeds by family. The held-out family has another seed, so that neither its topics nor its dates
were seen during tuning.
"""
_POOLED_SEED = 3


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of the corpora. `people` is the number of people per language; None means enough for more than
    500 questions. `pooled` is the number of sessions of the pooled chat.
    """

    people: int | None = None
    pooled: int = 0


QUICK = Size(people=1)
ORDINARY = Size()
FULL = Size(pooled=recall_corpus.POOLED)


class Search(Protocol):
    def search(self, question: Question, limit: int) -> list[tuple[str, float]]:
        """Return the ids of turns with their scores, best first."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Compared:
    """Results of the same questions. `ours` is Shipmate's search, `phrased` the same search with all
    wordings at once. `plain` is plain BM25, `spaced` plain BM25 with each CJK character as a word.
    """

    ours: list[Asked] = field(default_factory=list)
    phrased: list[Asked] = field(default_factory=list)
    plain: list[Asked] = field(default_factory=list)
    spaced: list[Asked] = field(default_factory=list)


def corpora(size: Size) -> Iterator[tuple[str, list[Conversation]]]:
    """Yield the generated conversations, each set with its title in the report."""
    for family in recall_corpus.FAMILIES:
        for language, name in LANGUAGES.items():
            people = recall_corpus.people(family, language, SEEDS[family], size.people)
            yield f"{family}, {name}", people
    if size.pooled:
        for language in ("en", "zh"):
            title = f"pooled, {size.pooled:,} sessions, {LANGUAGES[language]}"
            yield title, [recall_corpus.pooled(language, _POOLED_SEED, size.pooled)]


def compare(conversations: Iterable[Conversation]) -> Compared:
    """Ask each search the same questions about all conversations."""
    found = Compared()
    for one in conversations:
        once = [replace(question, phrasings=()) for question in one.questions]
        found.ours.extend(_asked(once, Searched(one)))
        if once != list(one.questions):
            found.phrased.extend(_asked(one.questions, Searched(one)))
        found.plain.extend(_asked(one.questions, PlainBm25(one)))
        found.spaced.extend(_asked(one.questions, PlainBm25(one, spaced=True)))
    return found


def _asked(questions: Iterable[Question], search: Search) -> Iterator[Asked]:
    try:
        for question in questions:
            began = time.perf_counter()
            found = search.search(question, DEPTH)
            ms = (time.perf_counter() - began) * 1000
            best = found[0][1] if found else 0.0
            yield Asked(question.kind, question.evidence, tuple(one for one, _ in found), ms, best)
    finally:
        search.close()


def measured(size: Size, say: Callable[[str], None], *, kinds: bool = False) -> dict[str, Any]:
    """Measure the generated conversations; print each result when it is found, and return the figures."""
    return told(corpora(size), say, kinds=kinds)


def told(
    sets: Iterable[tuple[str, list[Conversation]]], say: Callable[[str], None], *, kinds: bool = False
) -> dict[str, Any]:
    """Print a table for each set of conversations; return the figures."""
    names = "".join(f"{f'recall@{k}':>11}" for k in AT)
    say(f"{'recall of old turns':<34}{names}{'MRR':>8}{'nDCG@10':>9}{'p50 ms':>9}{'p95 ms':>9}")
    found = {}
    for title, conversations in sets:
        compared = compare(conversations)
        ours, plain, spaced = map(Scores.of, (compared.ours, compared.plain, compared.spaced))
        lines = sum(len(session) for one in conversations for session in one.sessions)
        say(f"  {title}: {ours.questions} questions with an answer, {lines:,} lines")
        say(_row("shipmate", ours))
        say(_row("FTS5 porter BM25", plain))
        if spaced.recall != plain.recall:
            say(_row("FTS5, CJK spaced", spaced))
        better = max(plain, spaced, key=lambda scores: scores.recall)
        say(_ratios(ours, better))
        if compared.phrased:
            phrased = Scores.of(compared.phrased)
            say(_row("shipmate, all phrasings", phrased))
            say(_ratios(phrased, better))
        if kinds:
            _say_kinds(compared, say)
        unsaid = [asked.best for asked in compared.ours if not asked.evidence]
        if unsaid:
            told_apart = parted([asked.best for asked in compared.ours if asked.evidence], unsaid)
            say(
                f"    {len(unsaid)} questions without an answer, told apart by their best score: {told_apart:.2f}"
            )
        found[title] = {"shipmate": _figures(ours), "plain": _figures(plain), "spaced": _figures(spaced)}
        if compared.phrased:
            found[title]["phrased"] = _figures(Scores.of(compared.phrased))
    return found


def _say_kinds(compared: Compared, say: Callable[[str], None]) -> None:
    for kind in sorted({asked.kind for asked in compared.ours if asked.evidence}):
        ours = Scores.of(asked for asked in compared.ours if asked.kind == kind)
        plain = Scores.of(asked for asked in compared.plain if asked.kind == kind)
        say(_row(f"  {kind}", ours))
        say(_row("    plain", plain))


def _row(name: str, scores: Scores) -> str:
    cells = "".join(f"{value:>11.3f}" for value in scores.recall)
    times = "".join(f"{number(value):>9}" for value in (scores.p50, scores.p95))
    return f"    {name:<30}{cells}{scores.mrr:>8.3f}{scores.ndcg:>9.3f}{times}"


def _ratios(ours: Scores, plain: Scores) -> str:
    pairs = [*zip(ours.recall, plain.recall, strict=True), (ours.mrr, plain.mrr), (ours.ndcg, plain.ndcg)]
    cells = [f"{a / b:.2f}" if b else "-" for a, b in pairs]
    return (
        f"    {'ratio':<30}" + "".join(f"{cell:>11}" for cell in cells[:-2]) + f"{cells[-2]:>8}{cells[-1]:>9}"
    )


def _figures(scores: Scores) -> dict[str, float]:
    recalls = {f"recall@{k}": value for k, value in zip(AT, scores.recall, strict=True)}
    return {**recalls, "mrr": scores.mrr, "ndcg@10": scores.ndcg, "p50Ms": scores.p50, "p95Ms": scores.p95}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.recall_report", description="How well old turns are found."
    )
    parser.add_argument("--json", nargs="+", type=Path, metavar="FILE", help="conversations with questions")
    parser.add_argument("--full", action="store_true", help="10,000 sessions in one chat, too")
    parser.add_argument("--kinds", action="store_true", help="each kind of question by itself, too")
    wanted = parser.parse_args(arguments)
    try:
        if wanted.json:
            told([(path.name, recall_form.load(path)) for path in wanted.json], _say, kinds=wanted.kinds)
        else:
            measured(FULL if wanted.full else ORDINARY, _say, kinds=wanted.kinds)
    except (recall_form.FormError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
