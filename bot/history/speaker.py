"""Tells whose words a question asks for: "what did I say" and "what did you recommend" want different lines."""

from __future__ import annotations

import re

_LONGEST = 4_000
_YOU = re.compile(
    r"\byou(?:'ve|'d)?\s(?:\w+\s){0,2}?(?:recommend|suggest|t[eo]ll?d?\b|sa(?:y|id)\b|advis|propos|mention|expla|g[ia]ve|"
    r"wr[io]te|answer|show|promis|offer)"
    r"|\byour\s(?:\w+\s)?(?:recommend|suggest|advice|answer|reply|propos|expla|idea|tip)"
    r"|[你您](?:[给給帮幫对對跟]我|[^我，,。?？]){0,6}?(?:推荐|推薦|建议|建議|说|說|告诉|告訴|回答|提到|提过|讲|講|解释|解釋|列)"
    r"|(?:あなた|きみ|君)[^私、。?？]{0,8}(?:言|勧|すす|提案|教え|答え)|(?:勧め|すすめ|提案し|教え)て(?:くれ|もら)",
    re.IGNORECASE,
)
_ME = re.compile(r"\b(?:i|me|my|mine|myself|we|us|our|ours)\b|[我咱俺私僕]|自分|うち", re.IGNORECASE)


def speaker_meant(query: str) -> str | None:
    """`user` or `assistant`, whoever's words a question is about; None where it does not say. Never fails."""
    text = query[:_LONGEST].replace("\u2019", "'")
    if _YOU.search(text):
        return "assistant"
    return "user" if _ME.search(text) else None
