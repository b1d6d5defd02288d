"""Prepares texts for a search for phrases. It splits a text into the sentences that its author wrote, and leaves out
quotes, code, links and drafts for other people. The phrases are data: each feature that uses them has one TOML file
per language.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import regex

Pattern = regex.Pattern[str]
COMMAND = "⌘"
"""Placeholder for inline code that is not a file name."""
NAME = r"(?:[\w./~-]*\w\.(?:cfg|conf|cpp|css|csv|docx?|env|go|html?|ini|ics|java|jsx?|json|jsonl|lock|log|md|pdf|php|png|jpe?g|pptx?|py|rb|rs|sh|sql|svg|toml|tsx?|txt|xlsx?|xml|ya?ml|zip)\b)"
"""Pattern of a file name with a common extension."""
_WORD = re.compile(r"<(\w+)>")
HEAD, TAIL = 4_000, 2_000
"""Max characters searched at the beginning and at the end of a text. A bot reports its actions there, not in the middle."""
SENTENCE = 400
"""Max characters searched in each sentence."""
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
"""Languages whose phrases are searched in a text without Japanese and Chinese characters."""
_KANA = regex.compile(r"[\p{Hiragana}\p{Katakana}]")
_HAN = regex.compile(r"\p{Han}")
_ASKS = regex.compile(r"[?？]\W*$")


def load(folder: Path, name: str) -> dict[str, Any]:
    """Return the phrases in a language file, as strings. In a phrase, `<WORD>` is replaced by the entry WORD of the file's
    table [words], `<name>` by `NAME`, and `<command>` by `COMMAND`.
    """
    raw = tomllib.loads((folder / f"{name}.toml").read_text(encoding="utf-8"))
    words = {"name": NAME, "command": COMMAND}
    for word, phrase in raw.pop("words", {}).items():
        words[word] = _filled(phrase, words)
    return {key: _filled_in(value, words) for key, value in raw.items()}


def _filled_in(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled_in(one, words) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled_in(one, words) for one in value]
    return _filled(value, words) if isinstance(value, str) else value


def _filled(phrase: str, words: Mapping[str, str]) -> str:
    return _WORD.sub(lambda found: words[found[1]], phrase)


def compiled(phrase: str) -> Pattern:
    return regex.compile(phrase, regex.IGNORECASE)


@functools.cache
def _drafts() -> dict[str, tuple[Pattern, Pattern]]:
    """Return two patterns for each language: the first matches the introduction of a draft, the second a request for a draft."""
    raw = load(Path(__file__).parent, "phrases")
    return {name: (compiled(one["draft"]), compiled(one["composing"])) for name, one in raw.items()}


def languages(words: str) -> tuple[str, ...]:
    if words.isascii():
        return LATIN
    if _KANA.search(words):
        return ("japanese",)
    return ("chinese",) if _HAN.search(words) else LATIN


def ends(words: str, head: int = HEAD, tail: int = TAIL) -> str:
    """Return a long text without its middle: the first `head` and the last `tail` characters."""
    return words if len(words) <= head + tail else f"{words[:head]}\n{words[-tail:]}"


def asks(sentence: str) -> bool:
    return _ASKS.search(sentence) is not None


def composing(person: str) -> bool:
    """Return True if a person's message asks the bot to draft a text that somebody else will send or receive."""
    return any(_drafts()[name][1].search(person) for name in languages(person))


def sentences(words: str) -> Iterator[tuple[str, str]]:
    """Yield each sentence that the author of a text wrote, as (first `SENTENCE` characters, whole sentence). Stop
    before a draft, because a draft's sentences are not the author's own.
    """
    plain = _FENCED.sub("\n", words)
    for line in plain.split("\n"):
        if line.lstrip().startswith((">", "|", "    ")):
            continue
        bare = _ITEM.sub("", line)
        read = _MARKS.sub("", _QUOTED.sub("□", _LINK.sub("□", _CODE.sub(_named, bare)))).strip()
        if any(_drafts()[name][0].search(read) for name in languages(read)):
            return  # the rest of the text is a draft
        for sentence in filter(None, map(str.strip, _SENTENCES.split(read))):
            yield sentence[:SENTENCE], sentence


def clause(sentence: str, start: int, end: int) -> str:
    borders = [0, *(mark.end() for mark in _CLAUSES.finditer(sentence)), len(sentence)]
    first = max(border for border in borders if border <= start)
    last = min((border for border in borders if border >= end), default=len(sentence))
    return sentence[first:last]


def _named(code: regex.Match[str]) -> str:
    """Return the content of inline code if it is a file name or path; otherwise return `COMMAND`."""
    return str(code[2]) if _FILE.fullmatch(code[2].strip()) else COMMAND
