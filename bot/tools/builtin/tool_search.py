"""`tool_search`: finds tools that model requests do not declare from the start."""

from __future__ import annotations

import asyncio
import itertools

from pydantic import Field

from bot.contracts.provenance import ANYBODYS
from bot.contracts.tools import READS, FoundTools, ToolInput
from bot.tools import context
from bot.tools.catalog import ToolOffer, rank_offers
from bot.tools.registry import ToolPorts

AT_ONCE = 5
"""Max tools in one search result."""
SHOWN = 40
"""Max tool names listed if nothing matches."""


class ToolSearchInput(ToolInput):
    query: str = Field(min_length=1, max_length=500, description="What it should do, or its name.")


class ToolSearch:
    """Returns the definitions of the best matching tools. After that the model can call these tools."""

    name = "tool_search"
    input = ToolSearchInput
    effects = READS
    timeout_seconds = 30.0
    ages = False

    def __init__(self, ports: ToolPorts) -> None:
        self._catalog = ports.catalog
        servers = ", ".join(sorted(self._catalog.sources()))
        # The names come from ship.json, so the description is constant while the process runs.
        self.description = "Find more tools to call" + (
            f", of the MCP servers: {servers}." if servers else "."
        )

    async def run(self, args: ToolSearchInput) -> str | FoundTools:
        # Built-in tools that do not fit in a small context window can be found too.
        own = [ToolOffer(one, one["name"], one["description"]) for one in context.undeclared()]
        offers = self._catalog.offers()
        if offers:
            # MCP servers wrote the names and descriptions.
            context.report_provenance(ANYBODYS)
        # Servers decide how many tools there are and how long the texts are, so the search runs off the event loop.
        best = await asyncio.to_thread(rank_offers, args.query, itertools.chain(own, offers), AT_ONCE)
        if best:
            said = {offer.server: offer.instructions for offer in best if offer.instructions}
            return FoundTools(tuple(offer.definition for offer in best), said)
        state = [f"{name}: {words}" for name, words in sorted(self._catalog.sources().items())]
        if not offers and not own:
            return "\n".join(["There are no more tools.", *state])
        names = [offer.name for offer in (*own, *offers)]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        return "\n".join([f"Nothing fits. There are: {', '.join(names[:SHOWN])}{more}.", *state])


def build(ports: ToolPorts) -> ToolSearch:
    return ToolSearch(ports)
