"""`tool_search`: finds tools that requests do not declare from the start. The tools are ranked by the words that match the
query, in any script. A match in a name counts more than a match in a description.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Annotated

import regex
from pydantic import Field

from bot.contracts.messages import ANYBODYS
from bot.contracts.tools import FoundTools
from bot.tools import context
from bot.tools.builtin import ToolPorts, tool
from bot.tools.dispatch import ToolOffer

AT_ONCE = 5  # Max tools that one search returns
SHOWN = 40  # Max tool names listed if nothing matches
NAME, WORDS, FIELD = 3.0, 1.0, 0.5
"""Weight of a matching word: in the tool's name, in its description, and in the name of an argument."""
ALIKE = 0.75
"""Factor for two words that only begin alike, such as `issue` and `issues`. The factor is applied twice, once for each word."""
BEGINS = 5  # Min number of common first characters of two words that count as beginning alike
LONGEST_QUERY = 60
"""Max words of a query. Further words are ignored."""

# In scripts without spaces, and in scripts whose words change their endings, pairs of characters are compared instead of words.
_RUNS = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]+|[\p{L}\p{M}\p{N}]+"
)
PAIRED = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")
_HUMP = regex.compile(r"(?<=[\p{Ll}\p{N}])(?=\p{Lu})")


def _adapted(ports: ToolPorts) -> dict[str, str]:
    servers = ", ".join(sorted(ports.catalog.sources()))
    # The names of the servers come from ship.json, so the tool's description stays the same while the process runs.
    return {
        "description": "Find more tools to call" + (f", of the MCP servers: {servers}." if servers else ".")
    }


@tool(adapt=_adapted, ages=False)
async def tool_search(
    ports: ToolPorts,
    *,
    query: Annotated[str, Field(min_length=1, max_length=500, description="What it should do, or its name.")],
) -> str | FoundTools:
    """Return the definitions of the best matching tools. The model can then call these tools."""
    catalog = ports.catalog
    # If the context window is small, requests do not declare some built-in tools, so search these too.
    own = [ToolOffer(one, one["name"], one["description"]) for one in context.current().undeclared()]
    offers = catalog.offers()
    if offers:
        # MCP servers wrote the names and descriptions.
        context.report_provenance(ANYBODYS)
    # Servers determine the number of tools and the length of their texts, so the search runs off the event loop.
    best = await asyncio.to_thread(rank_offers, query, itertools.chain(own, offers), AT_ONCE)
    if best:
        said = {offer.server: offer.instructions for offer in best if offer.instructions}
        return FoundTools(tuple(offer.definition for offer in best), said)
    state = [f"{name}: {words}" for name, words in sorted(catalog.sources().items())]
    names = [offer.name for offer in (*own, *offers)]
    if not names:
        return "\n".join(["There are no more tools.", *state])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return "\n".join([f"Nothing fits. There are: {', '.join(names[:SHOWN])}{more}.", *state])


def words_of(text: str) -> list[str]:
    """Return the words of a text in any script, in a form for comparison. `createIssue` gives two words; 天気予報 gives
    three pairs of characters.
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
    """Return the tools that match a query, best first. If the query contains the exact name of a tool, that tool
    precedes all others.
    """
    known, weights = list(offers), list[dict[str, float]]()
    for offer in known:
        forms = dict[str, float]()
        for text, weight in (
            (offer.title, NAME),
            (offer.words, WORDS),
            *((one, FIELD) for one in offer.definition["input_schema"].get("properties", ())),
        ):
            for form, share in _forms(words_of(text)):
                # A word that a description repeats counts once.
                forms[form] = max(forms.get(form, 0.0), weight * share)
        weights.append(forms)
    scores = [0.0] * len(known)
    for word in list(dict.fromkeys(words_of(query)))[:LONGEST_QUERY]:
        wanted = list(_forms([word]))
        hits = [max(share * forms.get(form, 0.0) for form, share in wanted) for forms in weights]
        matching = sum(hit > 0 for hit in hits)
        rarity = math.log(1 + (len(known) - matching + 0.5) / (matching + 0.5))
        scores = [score + rarity * hit for score, hit in zip(scores, hits, strict=True)]
    names = {word.strip("`'\",;()[]") for word in query.split()}
    exact = [offer.name in names or offer.title in names for offer in known]
    best = sorted(range(len(known)), key=lambda at: (not exact[at], -scores[at], known[at].name))
    return [known[at] for at in best if exact[at] or scores[at] > 0][:limit]


def _forms(words: Iterable[str]) -> Iterator[tuple[str, float]]:
    for word in words:
        yield word, 1.0
        if len(word) >= BEGINS:
            yield f"{word[:BEGINS]}…", ALIKE


TOOLS = (tool_search,)
