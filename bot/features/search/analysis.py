"""Splits text into the tokens under which it is indexed. Archive lines and search queries are split by the
same code.

A token contains only letters, digits, combining marks and the characters `._-+#@:/'`, so a token can be
quoted in a full-text query.
"""

from __future__ import annotations

import functools
import hashlib
import re
import threading
import tomllib
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

from bot import text as texts

_WORDS: dict[str, str] = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
# Base form of each irregular word form, because a query may use another form than the archive line.
_IRREGULAR = {
    form: forms.split()[0] for forms in _WORDS["irregular"].split("|") for form in forms.split()[1:]
}
_STEMMERS = threading.local()
"""Stemmers by thread, because a stemmer has internal state."""


@functools.lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return the stem of a lower-case word of the letters a to z. Results are cached, because stemming a
    word takes some 100 µs.
    """
    word = _IRREGULAR.get(word, word)
    if len(word) < 3:
        return word
    if not hasattr(_STEMMERS, "porter"):
        # Imported here because the package imports the stemmers of all languages.
        from snowballstemmer.porter_stemmer import PorterStemmer

        _STEMMERS.porter = PorterStemmer()
    return str(_STEMMERS.porter.stemWord(word))


NOISE = frozenset(_WORDS["noise"].split())
"""Stop words. Stop words are never indexed, because almost every second line contains one."""

ASKING = frozenset(_WORDS["asking"].split())
"""Words that are typical of questions, not of answers. Such words are ignored in a search query unless the
query contains nothing else.
"""

# Longest phrases first, because the first match is removed.
ASKING_CJK = re.compile("|".join(map(re.escape, sorted(_WORDS["asking_cjk"].split(), key=len, reverse=True))))
"""Question words in Chinese, Japanese and Korean. These languages do not separate words by spaces."""

ASKING_PHRASES = re.compile(
    r"\b(?:so far|to date|until now|up to now|these days|at (?:the moment|present)|right now|as of now)\b"
    r"|^\W*(?:please\s+)?(?:list|name|describe|summari[sz]e|show|find)\b",
    re.IGNORECASE,
)
"""English phrases that introduce a question and are not part of its subject."""

PARTICLES = frozenset(
    "的了是在我你您他她它们們咱有和就不也都很过過给給到对對把被让讓从從这這那个個一上下来來去要会會能可么麼什谁誰哪怎几幾多少为為"
    "与與及或但而还還又再之其此些样樣里裡后後吗嗎呢吧啊呀着著得地所以"
)
"""Chinese function characters. A pair of characters that contains one of them is rarely a word."""


VERSION = 4
"""Version of the tokenisation, increased with every change. An index of another version is rebuilt."""
LONGEST_TEXT = 200_000
"""Max characters of a line that are indexed."""
LONGEST_QUERY = 4_000
MOST_TERMS = 64
"""Max terms of a search query."""
LONGEST_TOKEN = 64
_LONGEST_STEMMED = (
    40  # max characters of a stemmed string; a longer one is no word and would slow the stemmer
)
_LONGEST_PARTED = 256
_MEMO = 50_000
_MIXED, _LIGHT = 0.5, 0.3  # weights of pairs that contain one particle or two particles
# In Japanese the script often changes at the end of a word. Weights of: a pair across such a change, a kanji with its ending
# (飲む), two hiragana, two katakana within a word, and a single kanji among kana, which is a word or the stem of a word.
_ACROSS, _ENDING, _HIRAGANA, _KATAKANA_PAIR, _LONE = 0.2, 0.7, 0.25, 0.5, 0.9
_CASES = "はがをにでのともへや"  # hiragana particles that follow a word and are hardly ever part of it

# Scripts without spaces, or with joined words: every character and every pair of characters is a token.
PAIRED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3041-\u309f\u30a0-\u30ff\u3105-\u312f"
    "\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_MARKS = "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0dff\u200d"
_SIGNS = "\u00a9\u00ae\u2190-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001fbff"
_LINKS = r"[.\-'/:@+#&_]+"
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)"
_ASCII = re.compile(rf"{_NUMBER}|[A-Za-z0-9]+(?:{_LINKS}[A-Za-z0-9]+)*(?:\+\+|#)?")
_LETTER = rf"(?:[^\W_{PAIRED}]|[{_MARKS}])"
_ANY = re.compile(rf"{_NUMBER}|{_LETTER}+(?:{_LINKS}{_LETTER}+)*(?:\+\+|#)?|[{PAIRED}]+|[{_SIGNS}]")
_PAIRED_RUN = re.compile(rf"[{PAIRED}]+")
_DIGIT, _UNLIKE = re.compile("[0-9]"), re.compile(rf"[0-9{PAIRED}]")
# Katakana words are the only Japanese words with visible boundaries.
_KATAKANA = re.compile("[\u30a1-\u30fa\u30fc-\u30fe]{3,64}")
_ALONE = re.compile("(?<!=)=(?!=)")
_SIGN = re.compile(rf"[{_SIGNS}]")
_APART = re.compile(_LINKS)
_CAMEL = re.compile(r"[a-z][A-Z]|[A-Z][A-Z][a-z][a-z]")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_FOLDED = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]"
)


class _Memo(dict[str, tuple[str, ...]]):
    """Cache of the tokens of strings that contain no spaces."""

    def __missing__(self, piece: str) -> tuple[str, ...]:
        words = _ASCII.findall(piece) if piece.isascii() else _words(piece)
        found = tuple(chain.from_iterable(map(_of_word, words)))
        # Numbers and text without spaces rarely repeat.
        if len(piece) <= LONGEST_TOKEN and not (_DIGIT if piece.isascii() else _UNLIKE).search(piece):
            if len(self) >= _MEMO:
                self.clear()
            self[piece] = found
        return found


_memo = _Memo()


@dataclass(frozen=True, slots=True)
class Term:
    """A token to search for, with the weight of its matches."""

    token: str
    weight: float = 1.0


def tokens(text: str) -> list[str]:
    """Return the tokens of a text; a repeated token is returned repeatedly. Never raises, whatever the text."""
    return list(chain.from_iterable(map(_memo.__getitem__, _cut(text, LONGEST_TEXT).split())))


def is_paired(token: str) -> bool:
    """Return True for a single character or a pair of characters in a script without spaces. Such a token is
    rarely a word by itself.
    """
    return len(token) <= 2 and _PAIRED_RUN.match(token) is not None


def terms(query: str, *, single: float = 0.75) -> list[Term]:
    """Return the terms of a search query. `single` is the weight of single characters when pairs of
    characters are searched too.

    Question words are left out unless the query contains nothing else.
    """
    text = _cut(query, LONGEST_QUERY)
    found = list(_terms(text, single, asking=False)) or list(_terms(text, single, asking=True))
    heaviest: dict[str, float] = {}
    for term in found:
        heaviest[term.token] = max(term.weight, heaviest.get(term.token, 0.0))
    return [Term(*item) for item in list(heaviest.items())[:MOST_TERMS]]


def _cut(text: str, longest: int) -> str:
    """Return the beginning of a text in normalised form. Normalising may turn one character into eighteen,
    so the text is cut before and after normalising.
    """
    return texts.normalized(texts.clean(text[:longest]))[:longest]


def _terms(text: str, single: float, *, asking: bool) -> Iterator[Term]:
    if not asking:
        text = ASKING_PHRASES.sub(" ", ASKING_CJK.sub(" ", text))
    for word in _words(text):
        if _PAIRED_RUN.fullmatch(word):
            yield from _paired(word, single)
        elif asking or word.lower() not in ASKING:
            yield from map(Term, _of_word(word))


def _paired(word: str, single: float) -> Iterator[Term]:
    """Yield single characters and pairs of characters with their weights, and katakana words."""
    scripts = "".join(map(_script, word))
    for token in _of_word(word):
        if token == word or len(token) > 2:
            yield Term(token)
        elif len(token) == 2:
            yield Term(token, _of_pair(token))
        elif _script(token) == "=" and token not in PARTICLES:
            yield Term(token, single)
    if "h" in scripts:
        alone = (word[found.start()] for found in _ALONE.finditer(scripts))
        yield from (Term(token, max(single, _LONE)) for token in alone if token not in PARTICLES)


def _of_pair(pair: str) -> float:
    scripts = _script(pair[0]) + _script(pair[1])
    if scripts == "==":
        return (1.0, _MIXED, _LIGHT)[sum(character in PARTICLES for character in pair)]
    if scripts == "=h":
        return _ACROSS if pair[1] in _CASES else _ENDING
    return {"hh": _HIRAGANA, "kk": _KATAKANA_PAIR}.get(scripts, _ACROSS)


def _script(character: str) -> str:
    """Return `h` for hiragana, `k` for katakana and `=` for all other scripts."""
    if "\u3041" <= character <= "\u309f":
        return "h"
    return "k" if "\u30a0" <= character <= "\u30ff" else "="


def _words(text: str) -> list[str]:
    text = unicodedata.normalize("NFKC", text.replace("\u2019", "'"))
    return _ANY.findall(text)


def _of_word(word: str) -> tuple[str, ...]:
    if _PAIRED_RUN.fullmatch(word):
        return (*word, *map("".join, pairwise(word)), *_KATAKANA.findall(word))
    return tuple(dict.fromkeys(token for token in _expanded(word) if token))


def _expanded(word: str) -> Iterator[str]:
    if _SIGN.fullmatch(word):
        yield word
        return
    word = word.replace(",", "")
    if "'" in word:
        word = _without_apostrophes(word)
    folded = _fold(word)
    parts = _APART.split(word.rstrip("+#"))
    if len(parts) == 1 and not _is_camel(word):
        yield _plain(folded)
        return
    yield _short(folded)
    for part in parts:
        if _is_camel(part):
            yield _short(_fold(part))
            yield from (_plain(_fold(hump)) for hump in _HUMPS.findall(part) if len(hump) > 1)
        else:
            yield _plain(_fold(part))


def _is_camel(word: str) -> bool:
    return len(word) <= _LONGEST_PARTED and _CAMEL.search(word) is not None


def _without_apostrophes(word: str) -> str:
    """Return the words of a string that contains apostrophes: `Anna's` gives Anna; `don't` and `O'Brien`
    stay one word each.
    """
    head, _, tail = word.rpartition("'")
    return head.replace("'", "") if tail.lower() == "s" else word.replace("'", "")


def _plain(word: str) -> str:
    if word in NOISE:
        return ""
    stems = len(word) <= _LONGEST_STEMMED and word.isascii() and word.isalpha()
    return stem(word) if stems else _short(word)


def _short(word: str) -> str:
    if len(word) <= LONGEST_TOKEN:
        return word
    return hashlib.sha256(word.encode()).hexdigest()[:32]


def _fold(word: str) -> str:
    """Return the word without case and diacritics."""
    word = word.casefold()
    if word.isascii():
        return word
    return unicodedata.normalize("NFC", _FOLDED.sub("", unicodedata.normalize("NFKD", word)))
