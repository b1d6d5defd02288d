"""Finds the effects that a text claims its speaker had just now. In doubt it finds none: words of others, drafts, code,
the past, conditions, plans, denials and questions claim nothing. The phrases of each language stand in a file beside this
module.
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
"""The kind of a claim. `sent` may mean this very chat, `mailed` means somewhere else; `acted` is anything else that has an
effect on the world (installed, booked, paid …).
"""
Pattern = regex.Pattern[str]
COMMAND = "⌘"
"""Stands for code inside of a line that is not the name of a file."""
NAME = r"(?:[\w./~-]*\w\.(?:cfg|conf|cpp|css|csv|docx?|env|go|html?|ini|ics|java|jsx?|json|jsonl|lock|log|md|pdf|php|png|jpe?g|pptx?|py|rb|rs|sh|sql|svg|toml|tsx?|txt|xlsx?|xml|ya?ml|zip)\b)"
"""The name of a file."""
_WORD = re.compile(r"<(\w+)>")
_LOADED: dict[str, Language] = {}


@dataclass(frozen=True, slots=True)
class ClaimPattern:
    """One way to claim something. `own`: it says by itself that the speaker did it; what does not could be news of
    somebody else's doing.
    """

    kind: Kind
    pattern: Pattern
    own: bool = True


@dataclass(frozen=True, slots=True)
class Language:
    """`before` is looked for in a sentence up to the end of a claim, `around` in the claim's own clause: what follows is no
    claim then. `earlier` says that it was done before this turn, `admits` that something did not work.
    """

    name: str
    deed: re.Pattern[str]
    """Some word of each saying, in small letters."""
    sayings: tuple[ClaimPattern, ...]
    before: Pattern
    around: Pattern
    earlier: Pattern
    admits: Pattern
    draft: Pattern
    """Leads into a text that is somebody else's, or meant for somebody else."""
    composing: Pattern
    """Asks for such a text."""
    requests: Pattern
    """Asks for something to be done, though it may look like a question."""
    reviewing: Pattern
    """Asks whether something was done."""
    orders: dict[Kind, Pattern]
    """Asks for what a claim of this kind would be the answer to."""
    done: dict[Kind, Pattern]
    """Says that somebody has done such a thing."""
    note: str
    """The note below a reply; `{claim}` is the sentence in question."""

    def names_deed(self, words: str) -> bool:
        """True if there is some word of a saying: what has none is not read further."""
        return self.deed.search(words.lower()) is not None


def _language(name: str) -> Language:
    """The language of a file; compiling its phrases takes a tenth of a second. Its patterns match in any case; `<WORD>` in them
    is one of its [words], NAME or COMMAND.
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
        # Every reply is searched for it: small letters cost a quarter of either case.
        deed = re.compile(_filled(raw["deed"], words))
        _LOADED[name] = Language(name=raw["name"], note=raw["note"], sayings=sayings, deed=deed, **rest)
    return _LOADED[name]


def _compiled(value: Any, words: dict[str, str]) -> Any:
    """A pattern, or a table of patterns by their names."""
    if isinstance(value, dict):
        return {key: _compiled(pattern, words) for key, pattern in value.items()}
    return regex.compile(_filled(value, words), regex.IGNORECASE)


def _filled(pattern: str, words: dict[str, str]) -> str:
    return _WORD.sub(lambda found: words[found[1]], pattern)


HEAD, TAIL = 4_000, 2_000
"""Characters of the beginning and of the end of a text that are read: what lies between is no report."""
SENTENCE = 400
"""Characters of a sentence that are read."""
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
"""The languages of a text without any sign of another one."""
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
    """`earlier`: it is said to have been done before, perhaps in an older turn. `own` as in `ClaimPattern`."""

    kind: Kind
    sentence: str
    language: Language
    own: bool
    earlier: bool


def claims(words: str, person: str = "") -> list[Claim]:
    """Return the claims in a reply to the words of a `person`, each kind once."""
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
    """False if no sentence can claim anything. One look at all of a text: most have no such word, and a look at each sentence costs
    several times as much.
    """
    if _names(words) != LATIN:
        return True
    bare = words.translate(_UNMARKED)
    return any(language.names_deed(bare) for language in languages(words))


def admits(words: str) -> bool:
    """True if a reply says that something went wrong."""
    return any(language.admits.search(words) for language in languages(words))


def loaded(*texts: str) -> bool:
    """True if the languages of all texts are loaded; else a look at them takes a tenth of a second longer."""
    return all(name in _LOADED for words in texts for name in _names(_ends(words)))


def _ends(words: str) -> str:
    return words if len(words) <= HEAD + TAIL else f"{words[:HEAD]}\n{words[-TAIL:]}"


def languages(words: str) -> tuple[Language, ...]:
    """Return the languages that a text may be in, each loaded when it is first met."""
    return tuple(map(_language, _names(words)))


def _names(words: str) -> tuple[str, ...]:
    if words.isascii():
        return LATIN
    if _KANA.search(words):
        return ("japanese",)
    return ("chinese",) if _HAN.search(words) else LATIN


def sentences(words: str) -> Iterator[tuple[str, str]]:
    """Each sentence of a text's own words, as it is read and as it stands there."""
    plain = _FENCED.sub("\n", words)
    for line in plain.split("\n"):
        if line.lstrip().startswith((">", "|", "    ")):
            continue
        bare = _ITEM.sub("", line)
        read = _MARKS.sub("", _QUOTED.sub("□", _LINK.sub("□", _CODE.sub(_named, bare)))).strip()
        if any(language.draft.search(read) for language in languages(read)):
            return  # what follows is a text that is shown
        for sentence in filter(None, map(str.strip, _SENTENCES.split(read))):
            yield sentence[:SENTENCE], sentence


def _named(code: regex.Match[str]) -> str:
    """Code in a line: the name of a file stays, all else is a command."""
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
    """The words around a place, as far as its clause reaches."""
    borders = [0, *(mark.end() for mark in _CLAUSES.finditer(sentence)), len(sentence)]
    first = max(border for border in borders if border <= start)
    last = min((border for border in borders if border >= end), default=len(sentence))
    return sentence[first:last]


def _asked_otherwise(saying: ClaimPattern, person: str) -> bool:
    """True if it answers something else than a wish for this: a question, a text to be written, or a report."""
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
