"""Finds the actions that a text claims its author just performed. In doubt it reports no claim: quotes,
drafts, code, past events, conditions, plans, denials and questions are not claims. The phrases of each
language are in a file in this folder.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import regex

Kind = Literal["sent", "mailed", "saved", "deleted", "ran", "scheduled", "acted"]
"""Kinds of claims. `sent` may refer to this chat, `mailed` refers to another recipient, and `acted` covers
any other effect (installed, booked, paid …).
"""
Pattern = regex.Pattern[str]
COMMAND = "⌘"
"""Placeholder for inline code that is not a file name."""
NAME = r"(?:[\w./~-]*\w\.(?:cfg|conf|cpp|css|csv|docx?|env|go|html?|ini|ics|java|jsx?|json|jsonl|lock|log|md|pdf|php|png|jpe?g|pptx?|py|rb|rs|sh|sql|svg|toml|tsx?|txt|xlsx?|xml|ya?ml|zip)\b)"
"""Regular expression of a file name."""
_WORD = re.compile(r"<(\w+)>")
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
    draft: Pattern
    """Pattern that introduces a draft: a text by or for somebody else."""
    composing: Pattern
    """Pattern of requests to write a draft."""
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
    """Load a language file; compiling its patterns takes a tenth of a second. Patterns ignore case. In
    patterns, `<WORD>` is replaced by an entry of the table [words], by NAME or by COMMAND.
    """
    if name not in _LOADED:
        raw = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
        words = {"name": NAME, "command": COMMAND}
        for word, pattern in raw.pop("words").items():
            words[word] = _filled(pattern, words)
        rest = {
            key: _compiled(value, words)
            for key, value in raw.items()
            if key not in {"name", "note", "sayings", "deed"}
        }
        sayings = tuple(
            ClaimPattern(one["kind"], _compiled(one["pattern"], words), one.get("own", True))
            for one in raw["sayings"]
        )
        # Every reply is searched. Searching only lower case is four times faster.
        deed = re.compile(_filled(raw["deed"], words))
        _LOADED[name] = Language(name=raw["name"], note=raw["note"], sayings=sayings, deed=deed, **rest)
    return _LOADED[name]


def _compiled(value: Any, words: dict[str, str]) -> Any:
    """Compile a pattern, or a table of named patterns."""
    if isinstance(value, dict):
        return {key: _compiled(pattern, words) for key, pattern in value.items()}
    return regex.compile(_filled(value, words), regex.IGNORECASE)


def _filled(pattern: str, words: dict[str, str]) -> str:
    return _WORD.sub(lambda found: words[found[1]], pattern)


HEAD, TAIL = 4_000, 2_000
"""Max characters checked at the beginning and at the end of a text. The middle of a long text never reports
what the bot just did.
"""
SENTENCE = 400
"""Max characters checked per sentence."""
_FENCED = regex.compile(
    r"^[ \t]*(```+|~~~+)[^\n]*\n.*?(?:^[ \t]*\1[ \t]*$|\Z)", regex.MULTILINE | regex.DOTALL
)
_CODE = regex.compile(r"(`+)([^`\n]+)\1")
_FILE = regex.compile(rf"[\w./~-]+/[\w./~-]*|{NAME}", regex.IGNORECASE)
_QUOTED = regex.compile(
    r"“[^”\n]*”|„[^“”\n]*[“”]|«[^»\n]*»|「[^」\n]*」|『[^』\n]*』|《[^》\n]*》|(?<!\w)\"[^\"\n]*\"(?!\w)|(?<![\w'’])'[^'\n]{4,}'(?!\w)"
)
_LINK = regex.compile(r"https?://\S+")
_MARKS = regex.compile(r"[*_~]{1,3}(?=\S)|(?<=\S)[*_~]{1,3}")
_ITEM = regex.compile(r"^\s*(?:[-+*•]|\d{1,3}[.)]|#{1,6})\s+")
_SENTENCES = regex.compile(r"(?<=[.!?…])\s+|(?<=[。！？；;])|\n+")
_CLAUSES = regex.compile(r"[,，、;；:：–—]| but | however | aber | jedoch ")
LATIN = ("english", "german")
"""Languages assumed for a text whose language cannot be recognised."""
_UNMARKED = str.maketrans({"*": None, "_": None, "~": None, "`": " "})
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_HAN = regex.compile(r"\p{Han}")
_ASKS = regex.compile(r"[?？]\W*$")
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
    words, person = _ends(words), _ends(person)
    if not _names_deed(words):
        return []
    for sentence, shown in sentences(words):
        for language in languages(sentence):
            for claim in _claimed(sentence, shown, language, person):
                found.setdefault(claim.kind, claim)
    return list(found.values())


def _names_deed(words: str) -> bool:
    """Return False if no sentence can contain a claim. One search of the whole text is much cheaper than one
    search per sentence.
    """
    if _names(words) != LATIN:
        return True
    bare = words.translate(_UNMARKED)
    return any(language.names_deed(bare) for language in languages(words))


def admits(words: str) -> bool:
    """Return True if a reply says that something failed."""
    return any(language.admits.search(words) for language in languages(words))


def loaded(*texts: str) -> bool:
    """Return True if the languages of these texts are loaded already, so that checking is fast."""
    return all(name in _LOADED for words in texts for name in _names(_ends(words)))


def _ends(words: str) -> str:
    return words if len(words) <= HEAD + TAIL else f"{words[:HEAD]}\n{words[-TAIL:]}"


def languages(words: str) -> tuple[Language, ...]:
    """Return the possible languages of a text. Each language is loaded on first use."""
    return tuple(map(_language, _names(words)))


def _names(words: str) -> tuple[str, ...]:
    if words.isascii():
        return LATIN
    if _KANA.search(words):
        return ("japanese",)
    return ("chinese",) if _HAN.search(words) else LATIN


def sentences(words: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence written by the author of a text, once normalised and once as written."""
    plain = _FENCED.sub("\n", words)
    for line in plain.split("\n"):
        if line.lstrip().startswith((">", "|", "    ")):
            continue
        bare = _ITEM.sub("", line)
        read = _MARKS.sub("", _QUOTED.sub("□", _LINK.sub("□", _CODE.sub(_named, bare)))).strip()
        if any(language.draft.search(read) for language in languages(read)):
            return  # a quoted text follows
        for sentence in filter(None, map(str.strip, _SENTENCES.split(read))):
            yield sentence[:SENTENCE], sentence


def _named(code: regex.Match[str]) -> str:
    """Return inline code unchanged if it is a file name; otherwise return `COMMAND`."""
    return str(code[2]) if _FILE.fullmatch(code[2].strip()) else COMMAND


def _claimed(sentence: str, shown: str, language: Language, person: str) -> Iterator[Claim]:
    if not language.names_deed(sentence) or _ASKS.search(sentence):
        return
    for saying in language.sayings:
        match = saying.pattern.search(sentence)
        if match is None or language.before.search(sentence[: match.end()]):
            continue
        if language.around.search(_clause(sentence, match.start(), match.end())) or _asked_otherwise(
            saying, person
        ):
            continue
        earlier = bool(language.earlier.search(sentence)) or _any(person, "reviewing")
        yield Claim(saying.kind, shown, language, saying.own, earlier)


def _clause(sentence: str, start: int, end: int) -> str:
    """Return the clause around a position."""
    borders = [0, *(mark.end() for mark in _CLAUSES.finditer(sentence)), len(sentence)]
    first = max(border for border in borders if border <= start)
    last = min((border for border in borders if border >= end), default=len(sentence))
    return sentence[first:last]


def _asked_otherwise(saying: ClaimPattern, person: str) -> bool:
    """Return True if the person asked for something other than an action: an answer, a draft, or a report."""
    if not saying.own:
        if not _order(saying.kind, person):
            return True
        asks = bool(_PERSONS.search(person)) and not _any(person, "requests")
        if asks or any(language.done[saying.kind].search(person) for language in languages(person)):
            return True
    return bool(person) and _any(person, "composing") and not _order(saying.kind, person)


def _order(kind: Kind, person: str) -> bool:
    return any(language.orders[kind].search(person) for language in languages(person))


def _any(person: str, what: str) -> bool:
    return any(getattr(language, what).search(person) for language in languages(person))
