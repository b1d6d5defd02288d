"""The catalog of tools that a model request declares only after the model has found them, and the ranking of
a search in the catalog.
"""

from __future__ import annotations

import bisect
import itertools
import math
import unicodedata
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import regex

from bot.contracts.base import Json
from bot.contracts.tools import Tool

NAME, WORDS, FIELD = 3.0, 1.0, 0.5
"""Weights of a word that matches a tool's name, its description, or the name of an argument."""
ALIKE = 0.6
"""Factor for two words that share only their beginning, such as `issue` and `issues`."""
BEGINS = 4
"""Min characters of a shared beginning."""
LONGEST_QUERY = 60
"""Max words of a search query."""

# Text is compared in pairs of characters if its script has no spaces, or if the endings of its words change.
_RUNS = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+|[\p{L}\p{M}\p{N}]+"
)
PAIRED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_HUMP = regex.compile(r"(?<=[\p{Ll}\p{N}])(?=\p{Lu})")


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool that can be found in the catalog: the definition for the model, and the title and description
    that its source gave. `server` is the MCP server of the tool; `instructions` are that server's notes
    on its tools.
    """

    definition: Json
    title: str
    words: str
    fields: tuple[str, ...] = ()
    server: str = ""
    instructions: str = ""

    @property
    def name(self) -> str:
        return str(self.definition["name"])


@runtime_checkable
class ExternallyDefined(Protocol):
    """A tool that an MCP server defines and may redefine at any time. `defined` is a hash of the server and
    the definition.
    """

    @property
    def defined(self) -> str: ...


class ToolCatalog(Protocol):
    """The tools that can be found in addition to those that every model request declares. The tools may
    change at any time.
    """

    def get(self, name: str) -> Tool | None:
        """Return the tool whose definition has this name."""
        ...

    def offers(self) -> Sequence[ToolOffer]:
        """Return the tools that can be called now."""
        ...

    def sources(self) -> Mapping[str, str]:
        """Return the sources of tools, each with its state, as text for the model."""
        ...


class _Nothing:
    def get(self, name: str) -> Tool | None:
        del name
        return None

    def offers(self) -> Sequence[ToolOffer]:
        return ()

    def sources(self) -> Mapping[str, str]:
        return {}


NOTHING: ToolCatalog = _Nothing()


def words_of(text: str) -> list[str]:
    """Return the words of a text in any script, for comparison. `createIssue` has two words; 天気予報 has three
    pairs of characters.
    """
    found: list[str] = []
    for run in _RUNS.findall(_HUMP.sub(" ", unicodedata.normalize("NFKC", text))):
        folded = run.casefold()
        if PAIRED.match(run) and len(run) > 1:
            found += [folded[at : at + 2] for at in range(len(folded) - 1)]
        else:
            found.append(folded)
    return found


def rank_offers(query: str, offers: Iterable[ToolOffer], limit: int) -> list[ToolOffer]:
    """Return the tools that match a query, best first. A tool whose exact name is in the query comes before
    all other tools.
    """
    known = list(offers)
    places: dict[str, list[tuple[int, float]]] = {}
    for at, offer in enumerate(known):
        for word, weight in _weights(offer).items():
            places.setdefault(word, []).append((at, weight))
    vocabulary = sorted(places)
    scores = [0.0] * len(known)
    for word in list(dict.fromkeys(words_of(query)))[:LONGEST_QUERY]:
        hits = _hits(word, vocabulary, places)
        rarity = math.log(1 + (len(known) - len(hits) + 0.5) / (len(hits) + 0.5))
        for at, hit in hits.items():
            scores[at] += rarity * hit
    names = {word.strip("`'\",;()[]") for word in query.split()}
    scored = []
    for offer, score in zip(known, scores, strict=True):
        exact = offer.name in names or offer.title in names
        if score > 0 or exact:
            scored.append((not exact, -score, offer.name, offer))
    return [offer for *_, offer in sorted(scored, key=lambda one: one[:3])[:limit]]


def _weights(offer: ToolOffer) -> Mapping[str, float]:
    found: Counter[str] = Counter()
    for text, weight in ((offer.title, NAME), (offer.words, WORDS), *((one, FIELD) for one in offer.fields)):
        for word in words_of(text):
            # Repeating a word in a description does not raise the rank of a tool.
            found[word] = max(found[word], weight)  # type: ignore[assignment]
    return found


def _hits(
    word: str, vocabulary: Sequence[str], places: Mapping[str, Sequence[tuple[int, float]]]
) -> dict[int, float]:
    """Return the score of a query word for each tool that contains the word, or a word with the same beginning."""
    found: dict[int, float] = {}
    for other in _alike(word, vocabulary, places):
        for at, weight in places[other]:
            found[at] = max(found.get(at, 0.0), ALIKE * weight)
    return found | dict(places.get(word, ()))


def _alike(word: str, vocabulary: Sequence[str], known: Container[str]) -> Iterator[str]:
    """Return the words of a sorted vocabulary that begin with this word, or that are the beginning of this word."""
    if len(word) < BEGINS:
        return
    longer = itertools.islice(vocabulary, bisect.bisect_left(vocabulary, word), None)
    yield from itertools.takewhile(lambda other: other.startswith(word), longer)
    yield from (word[:end] for end in range(BEGINS, len(word)) if word[:end] in known)
