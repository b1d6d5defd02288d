"""How a line looks to somebody who wants an answer: a statement, not a question; a number where one is asked for."""

from __future__ import annotations

import re

from bot.history import analysis
from bot.history.ranking import Weights

LONGEST = 4_000
"""Characters of a line, and of a question, that are looked at."""
_TINY = 4  # tokens
_SHORT = 60  # characters of lines whose tokens are counted
_QUESTION = 90
# In English also where the person is left out: "Finally bought a boat", "Back from Rome".
_FIRST_PERSON = re.compile(
    r"\b(?:i|i'm|i've|me|my|mine|we|us|our)\b|[我咱俺私僕]|うち"
    r"|^(?:(?:just|finally|only|again|well|so|and|then)[\s,]{1,3}){0,3}(?!\w*thing\b|morning|evening)(?:[a-z]{2,20}(?:ed|ing)|made|went|got|had|saw|bought|"
    r"took|came|ate|ran|met|gave|found|spent|won|lost|left|began|wrote|drove|flew|back|done)\b",
    re.IGNORECASE,
)
_ENDED = re.compile(r"[.!。！;；]\s*\S")
_NUMBER = re.compile(r"\d|[一二两三四五六七八九十百千]")
_ASKS_NUMBER = re.compile(
    r"\bhow (?:much|many|long|fast|old|heavy|warm|far|often|big|tall)\b|\b(?:what time|when|which day|number|price|costs?|"
    r"code|version|port|deadline|date|address|amount|size)\b"
    r"|多少|几点|幾點|几个|号码|號碼|什么时间|什么时候|什麼時候|哪天|哪年|日期|代码|代碼|版本|端口|价格|價格"
    r"|いくら|何時|何人|何個|番号|いつ|日付",
    re.IGNORECASE,
)


class Look:
    """What lines are worth to one question beside the words that they share with it. Pure; never fails."""

    def __init__(self, query: str, said_by: str | None, weights: Weights) -> None:
        self._number = _ASKS_NUMBER.search(query[:LONGEST]) is not None
        self._said_by = said_by or "user"
        self._weights = weights

    def worth(self, text: str, role: str) -> float:
        """As a share of the best score; below zero for what hardly answers anything."""
        text = text[:LONGEST].strip()
        weights = self._weights
        worth = weights.speaker if role == self._said_by else 0.0
        if _FIRST_PERSON.search(text):
            worth += weights.first_person
        if self._number and _NUMBER.search(text):
            worth += weights.number
        if _is_tiny(text):
            worth -= weights.tiny
        if _only_asks(text):
            worth -= weights.asks
        return worth


def _is_tiny(text: str) -> bool:
    """Said in passing: "all right", 好的."""
    return len(text) < _SHORT and not analysis.has_tokens(text, _TINY)


def _only_asks(text: str) -> bool:
    return text.endswith(("?", "？")) and len(text) < _QUESTION and not _ENDED.search(text)
