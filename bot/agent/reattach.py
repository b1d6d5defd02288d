"""Sections that a compaction attaches again: working state that the model would otherwise have to look for.

Each provider looks at what left the view and at what is still in it, and gives one section. In this order, within a
budget: definitions of tools that were found, pointers to large results, the text of skills, the names of other tools; the open tasks stand before
them, in the memory or the summary itself. Others join the list once there is something to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bot.agent.deps import AgentDeps
from bot.context import blocks, file_previews, found_tools
from bot.context.sections import Section, assemble
from bot.contracts.base import Json, Message
from bot.contracts.provenance import Taint
from bot.contracts.tools import ToolCall, ToolResult
from bot.tools import excerpt
from bot.tools.builtin.skills_load import SkillsLoad
from bot.tools.builtin.tool_search import ToolSearch

MOST_TOKENS = 50_000
SHARE = 0.1
"""The part of the window that it may take."""
SOFT_SHARE = 4
"""And no more than a fourth of what a history may grow to: it would be compacted again at once."""
POINTERS = 20
"""The newest of them."""
FILES = 3
"""The files that were read last."""
TOOLS = 0.5
"""The part of its budget that definitions may take."""
SAID = 0.2
"""And what their servers say."""


@dataclass(frozen=True, slots=True)
class DroppedMessages:
    """A compaction: what left the view, and what is still there."""

    dropped: Sequence[Message]
    kept: Sequence[Message]
    declared: frozenset[str] = frozenset()
    """The tools whose definitions come back whole."""


def artifacts(gone: DroppedMessages) -> Section:
    """Pointers to large results and files that left the view."""
    still = {pointer for pointer, _ in _pointers(gone.kept)}
    left = {pointer: lines for pointer, lines in _pointers(gone.dropped) if pointer not in still}
    rows = [f"- artifact {pointer} ({lines} lines and more)" for pointer, lines in left.items()]
    words = f"Large results and files from before, to be read with {excerpt.READER}:\n" + "\n".join(
        rows[-POINTERS:]
    )
    return Section("artifacts", 1, words if rows else "")


def skills(gone: DroppedMessages) -> Section:
    """The text of skills that were loaded, the newest first where not all fit."""
    still = dict(_skills(gone.kept))
    left = {name: words for name, words in _skills(gone.dropped) if name not in still}
    texts = [f"The skill {name}, loaded before:\n\n{words}" for name, words in reversed(left.items())]
    shorter = tuple("\n\n".join(texts[:count]) for count in range(len(texts) - 1, 0, -1))
    names = f"Skills loaded before; load again what you need: {', '.join(left)}"
    return Section("skills", 2, "\n\n".join(texts), alternatives=(*shorter, names) if texts else ())


def files(gone: DroppedMessages) -> Section:
    """Files of the project that were read, whole; the last ones read come first if not all fit."""
    still = {where for where, _ in _read(gone.kept)}
    left: dict[str, str] = {}
    for where, words in _read(gone.dropped):
        left.pop(where, None)  # read again: it is as new as that
        if where not in still:
            left[where] = words
    newest = list(reversed(left.items()))[:FILES]
    texts = [f"The file {where}, as it was read before:\n\n{words}" for where, words in newest]
    shorter = tuple("\n\n".join(texts[:count]) for count in range(len(texts) - 1, 0, -1))
    names = f"Files read before; read again what you need: {', '.join(where for where, _ in newest)}"
    return Section("files", 4, "\n\n".join(texts), alternatives=(*shorter, names) if texts else ())


def definitions(gone: DroppedMessages, deps: AgentDeps, most: float) -> list[Json]:
    """The definitions of tools that were found and can be called still, whole, the newest first where not all fit."""
    still = found_tools.definitions(gone.kept)
    chosen: list[Json] = []
    for name, tool in reversed(found_tools.definitions(gone.dropped).items()):
        cost = deps.models.estimator.frame(deps.models.name, (), (tool,))
        if name not in still and deps.registry.get(name) is not None and cost <= most:
            chosen.append(tool)
            most -= cost
    return chosen[::-1]


def instructions(gone: DroppedMessages, deps: AgentDeps, most: float) -> dict[str, str]:
    """Usage notes of servers whose tools are still declared, whole; the newest come first if not all fit. A note without room
    is shown again with the next tool of that server that is found.
    """
    still, names = (
        found_tools.server_notes(gone.kept),
        gone.declared | found_tools.definitions(gone.kept).keys(),
    )
    chosen: dict[str, str] = {}
    for server, words in reversed(found_tools.server_notes(gone.dropped).items()):
        cost = deps.models.estimator.text(deps.models.name, words)
        if server not in still and cost <= most and any(one.startswith(f"mcp__{server}__") for one in names):
            chosen[server] = words
            most -= cost
    return dict(reversed(chosen.items()))


def tools(gone: DroppedMessages) -> Section:
    """The names of tools that were found and do not come back whole: what is in view no more is declared no more."""
    still = gone.declared | found_tools.definitions(gone.kept).keys()
    names = [name for name in found_tools.definitions(gone.dropped) if name not in still]
    words = (
        f"Tools found before; find again with {ToolSearch.name} what you need: {', '.join(names[-POINTERS:])}"
    )
    return Section("tools", 3, words if names else "")


def room(deps: AgentDeps) -> float:
    """The tokens that all of it may take."""
    budget = deps.budget()
    return min(budget.share(SHARE, MOST_TOKENS), budget.soft // SOFT_SHARE)


def attached(gone: DroppedMessages, deps: AgentDeps) -> list[str]:
    """Return the sections to attach, most useful first, within the budget."""
    chosen = assemble(
        (provider(gone) for provider in (artifacts, skills, tools, files)),
        room(deps),
        lambda words: deps.models.estimator.text(deps.models.name, words),
    )
    return [words for _, words in chosen.parts]


def _pointers(messages: Sequence[Message]) -> Iterator[tuple[str, int]]:
    for message in messages:
        yield from file_previews.pointers(message)
    for _, result in _results(messages):
        if (left_out := result.omission) is not None:
            yield left_out.artifact, left_out.lines


def _read(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    for call, result in _results(messages):
        where = call.input.get("path") if call.name == "read_file" else None
        # What was too large is named among the artifacts.
        if isinstance(where, str) and result.omission is None:
            yield where, str(result.content)


def _skills(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    for call, result in _results(messages):
        name = call.input.get("name") if call.name == SkillsLoad.name else None
        if isinstance(name, str):
            yield name, str(result.content)


def _results(messages: Sequence[Message]) -> Iterator[tuple[ToolCall, ToolResult]]:
    """Every textual result that was no error, with its call; of foreign ones those that are pointers."""
    calls = {call.id: call for message in messages for call in blocks.tool_calls(message["content"])}
    for message in messages:
        for block in message["content"]:
            if block.get("type") != "tool_result" or not isinstance(block.get("content"), str):
                continue
            result = ToolResult.of(block)
            foreign = getattr(result.origin, "taint", None) is Taint.FOREIGN
            if not result.failed and (result.omission is not None or not foreign):
                yield calls.get(result.call_id, ToolCall(result.call_id, "")), result
