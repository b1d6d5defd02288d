"""Literal text: which words of a chat it may be part of, so that not every line has to be read for it.

A run is what stands between spaces and characters of scripts without spaces, in small letters. Literal text without
these is part of a run, or of a pair of characters, in every line that has it; of each run is known under which token
its lines are found. Where that is not certain, a line is marked with `ANYTHING`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from bot.history.search import analysis

ANYTHING = "=any"
"""The token of lines that may hold any literal text."""
LONGEST = 200
"""Characters of a run that is kept."""
_SHORTEST = 2  # characters of a run that is looked for: shorter ones are in every other word
_MEMO = 20_000
_RUN = re.compile(rf"[^\s{analysis.PAIRED}]+")
_PAIRED = re.compile(rf"[{analysis.PAIRED}]+")
# What joins the character before it in the form that tokens are made of.
_JOINING = re.compile("[\u1100-\u11ff\u3099\u309a\uff9e\uff9f]")


class _Memo(dict[str, str]):
    """Of a run as it was written, the token under which its lines are found; "" where it has none."""

    def __missing__(self, run: str) -> str:
        found = max(analysis.tokens(run), key=len, default="")
        if len(self) >= _MEMO:
            self.clear()
        self[run] = found
        return found


_memo = _Memo()


@dataclass(frozen=True, slots=True)
class LiteralQuery:
    """Index query for literal text: lines that have a run with `part` in it ("" for none) and all of these tokens."""

    part: str
    tokens: tuple[str, ...]


def runs(text: str, tokens: AbstractSet[str], known: set[str]) -> tuple[list[tuple[str, str]], bool]:
    """The runs of a text that are not `known`, each with a token that is among those of the text ("" where it has none),
    and whether these tell of all literal text that is in it. What can be kept is known then.
    """
    whole = len(text) <= analysis.LONGEST_TEXT
    if text.isascii():
        # Made of the same pieces as the tokens: those that are known need no second look.
        here = set(text.split()) - known
    else:
        whole = whole and unicodedata.is_normalized("NFC", text) and not _JOINING.search(text)
        here = set(_RUN.findall(text))
    found = []
    for run in here:
        token = _memo[run] if len(run) <= LONGEST else ""
        if len(run) > LONGEST or (token and token not in tokens):
            whole = False
        elif run not in known:
            known.add(run)
            found.append((run.casefold(), token))
    return found, whole


def sought(keyword: str) -> LiteralQuery | None:
    """Return the index query for literal text; None if nothing in it narrows the search."""
    keyword = keyword.casefold()
    part = max(_RUN.findall(keyword), key=len, default="")
    tokens: list[str] = []
    for run in _PAIRED.findall(keyword):
        if unicodedata.normalize("NFKC", run) == run and not _JOINING.search(run):
            tokens += [run] if len(run) == 1 else [run[at : at + 2] for at in range(len(run) - 1)]
    if len(part) < _SHORTEST or (len(part) == _SHORTEST and tokens):
        part = ""
    return LiteralQuery(part, tuple(dict.fromkeys(tokens))[:8]) if part or tokens else None
