"""Finds the actions that a text claims its author just performed. In doubt it reports no claim: quotes,
drafts, code, past events, conditions, plans, denials and questions are not claims. The phrases of each
language are in a file in this folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import regex

from bot.core import phrases
from bot.core.phrases import LATIN, Pattern, compiled

Kind = Literal["sent", "mailed", "saved", "deleted", "ran", "scheduled", "acted"]
"""Kinds of claims. `sent` may refer to this chat, `mailed` refers to another recipient, and `acted` covers
any other effect (installed, booked, paid …).
"""
_LOADED: dict[str, Language] = {}


@dataclass(frozen=True, slots=True)
class ClaimPattern:
    """A phrase pattern for one kind of claim. `own` means that the phrase itself names the author as the one
    who acted; otherwise the phrase may report somebody else's action.
    """

    kind: Kind
    pattern: Pattern
    own: bool = True


@dataclass(frozen=True, slots=True)
class Language:
    """The phrases of one language. `before` is searched from the start of the sentence to the end of the
    claim, `around` in the clause of the claim. A match of either means that there is no claim. `earlier`
    recognises actions of earlier turns, `admits` recognises reported failures.
    """

    name: str
    deed: re.Pattern[str]
    """Pattern of verbs in lower case. Every claim contains at least one of these verbs."""
    sayings: tuple[ClaimPattern, ...]
    before: Pattern
    around: Pattern
    earlier: Pattern
    admits: Pattern
    requests: Pattern
    """Pattern of requests that are phrased as questions."""
    reviewing: Pattern
    """Pattern of questions whether something was done."""
    orders: dict[Kind, Pattern]
    """Patterns of requests, by the kind of claim that would answer each request."""
    done: dict[Kind, Pattern]
    """Patterns of statements that somebody else performed an action of this kind."""
    note: str
    """Note added below a reply; `{claim}` is replaced by the sentence with the claim."""

    def names_deed(self, words: str) -> bool:
        """Return True if the text contains a verb used in claims. Other texts are not examined further."""
        return self.deed.search(words.lower()) is not None


def _language(name: str) -> Language:
    """Load a language file; compiling its patterns takes a tenth of a second."""
    if name not in _LOADED:
        raw = phrases.load(Path(__file__).parent, name)
        rest: dict[str, Any] = {
            key: {of: compiled(one) for of, one in value.items()}
            if isinstance(value, dict)
            else compiled(value)
            for key, value in raw.items()
            if key not in {"name", "note", "sayings", "deed"}
        }
        sayings = tuple(
            ClaimPattern(one["kind"], compiled(one["pattern"]), one.get("own", True))
            for one in raw["sayings"]
        )
        # Every reply is searched. Searching only lower case is four times faster.
        deed = re.compile(raw["deed"])
        _LOADED[name] = Language(name=raw["name"], note=raw["note"], sayings=sayings, deed=deed, **rest)
    return _LOADED[name]


_UNMARKED = str.maketrans({"*": None, "_": None, "~": None, "`": " "})
_PERSONS = regex.compile(
    r"^\W*(?:what|when|where|who|why|how|which|wann|was|wer|wo|warum|wie|welche\w*|什么|何|いつ|誰|どこ|なぜ|谁|哪|怎么)\b|[?？]\s*$",
    regex.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim found in a text. `earlier` means that the action was done before, perhaps in an earlier turn.
    For `own`, see `ClaimPattern`.
    """

    kind: Kind
    sentence: str
    language: Language
    own: bool
    earlier: bool


def claims(words: str, person: str = "") -> list[Claim]:
    """Return the claims in a reply to the text of a `person`, at most one per kind."""
    found: dict[Kind, Claim] = {}
    words, person = phrases.ends(words), phrases.ends(person)
    if not _names_deed(words):
        return []
    for sentence, shown in phrases.sentences(words):
        for language in languages(sentence):
            for claim in _claimed(sentence, shown, language, person):
                found.setdefault(claim.kind, claim)
    return list(found.values())


def _names_deed(words: str) -> bool:
    """Return False if no sentence can contain a claim. One search of the whole text is much cheaper than one
    search per sentence.
    """
    if phrases.languages(words) != LATIN:
        return True
    bare = words.translate(_UNMARKED)
    return any(language.names_deed(bare) for language in languages(words))


def admits(words: str) -> bool:
    """Return True if a reply says that something failed."""
    return any(language.admits.search(words) for language in languages(words))


def loaded(*texts: str) -> bool:
    """Return True if the languages of these texts are loaded already, so that checking is fast."""
    return all(name in _LOADED for words in texts for name in phrases.languages(phrases.ends(words)))


def languages(words: str) -> tuple[Language, ...]:
    """Return the possible languages of a text. Each language is loaded on first use."""
    return tuple(map(_language, phrases.languages(words)))


def _claimed(sentence: str, shown: str, language: Language, person: str) -> Iterator[Claim]:
    if not language.names_deed(sentence) or phrases.asks(sentence):
        return
    for saying in language.sayings:
        match = saying.pattern.search(sentence)
        if match is None or language.before.search(sentence[: match.end()]):
            continue
        if language.around.search(phrases.clause(sentence, match.start(), match.end())) or _asked_otherwise(
            saying, person
        ):
            continue
        earlier = bool(language.earlier.search(sentence)) or _any(person, "reviewing")
        yield Claim(saying.kind, shown, language, saying.own, earlier)


def _asked_otherwise(saying: ClaimPattern, person: str) -> bool:
    """Return True if the person asked for something other than an action: an answer, a draft, or a report."""
    if not saying.own:
        if not _order(saying.kind, person):
            return True
        asks = bool(_PERSONS.search(person)) and not _any(person, "requests")
        if asks or any(language.done[saying.kind].search(person) for language in languages(person)):
            return True
    return bool(person) and phrases.composing(person) and not _order(saying.kind, person)


def _order(kind: Kind, person: str) -> bool:
    return any(language.orders[kind].search(person) for language in languages(person))


def _any(person: str, what: str) -> bool:
    return any(getattr(language, what).search(person) for language in languages(person))
