"""Repetitions: passages of a message that another text repeats, word by word."""

from __future__ import annotations

import re
from collections.abc import Iterator

RUN = 5
"""Words in a row that are a passage."""
UNSPACED = 8
"""Characters in a row that are one in a writing without spaces."""
SHORTEST = 12
"""Weight of a whole message that is one, as letters; of a writing without spaces each counts as two."""
MOST_WORDS = 2_000
"""Words of a message that are looked at."""
_TELLING = re.compile(r"\S*\d\S*\d\S*")
"""A word with two digits or more, as codes, dates and addresses have."""
_EDGES = ".,;:!?()[]{}<>\"'“”‘’«»、。，！？：；（）「」*_`~"


def without(answer: str, message: str, gone: str) -> str:
    """The answer with `gone` in place of what it repeats of a message. May take long for long texts."""
    spans = sorted(_spans(answer, message))
    if not spans:
        return answer
    parts, end = list[str](), 0
    for start, stop in spans:
        if start >= end:
            parts += [answer[end:start], gone]
        end = max(end, stop)
    return re.sub(rf"{re.escape(gone)}(?:\s+{re.escape(gone)})+", gone, "".join([*parts, answer[end:]]))


def _spans(answer: str, message: str) -> Iterator[tuple[int, int]]:
    folded = " ".join(answer.casefold().split())
    for passage in dict.fromkeys(_passages(message)):
        if " ".join(passage.casefold().split()) not in folded:
            continue
        pattern = r"\s+".join(map(re.escape, passage.split()))
        yield from (found.span() for found in re.finditer(pattern, answer, re.IGNORECASE))


def _passages(message: str) -> Iterator[str]:
    words = message.split()[:MOST_WORDS]
    whole = " ".join(words)
    if sum(2 if sign > "\u2e7f" else 1 for sign in whole if sign.isalnum()) >= SHORTEST:
        yield whole
    for at in range(len(words) - RUN + 1):
        yield " ".join(words[at : at + RUN])
    for word in (one.strip(_EDGES) for one in words):
        if len(word) >= 4 and _TELLING.fullmatch(word):
            yield word
        if word[:1] > "\u2e7f":
            yield from (word[at : at + UNSPACED] for at in range(len(word) - UNSPACED + 1))
