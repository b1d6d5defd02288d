"""Restores working state after a compaction, so that the model need not look it up again.

Names are collected from the dropped messages and the remaining messages, and are stored with the summary for
the next compaction. The following is restored within a token budget, in this order: definitions of found
tools, usage notes of their MCP servers, pointers to large results, skills, names of other tools, files.
Skills and files are read again with the permissions of the last person, without asking. Content that has
become untrusted is only named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.contracts.approvals import Unattended
from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.provenance import NOBODYS, ORIGIN, Taint
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import blocks, file_words, found_tools
from bot.core.agent_deps import AgentDeps
from bot.core.assembly import Section, assemble
from bot.tools import excerpt
from bot.tools.builtin.skills import SkillsLoad
from bot.tools.builtin.tool_search import ToolSearch
from bot.tools.context import NoOlderTurns, ToolExecutionContext, tool_scope

MOST_TOKENS = 50_000
SHARE = 0.1
"""Max share of the context window for restored state."""
SOFT_SHARE = 4
"""Share of the soft limit for restored state, as a divisor (one quarter); with more, the history would be
compacted again at once.
"""
POINTERS = 20
"""Max number of restored pointers, and of other restored names; the newest are kept."""
FILES = 3
"""Max restored files; the files read last are kept."""
READ = "read_file"
TOOLS = 0.5
"""Max share of the restore budget for tool definitions."""
SAID = 0.2
"""Max share of the restore budget for usage notes of MCP servers."""
_Forms = tuple[str, bool, tuple[str, ...]]
"""Text of a section, whether the section is required, and shorter versions of the text."""
_ARTIFACTS, _SKILLS, _TOOLS, _FILES = "artifacts", "skills", "tools", "files"


@dataclass(frozen=True, slots=True)
class DroppedMessages:
    """Messages that a compaction dropped, including the previous summary, and the messages that were kept."""

    dropped: Sequence[Message]
    kept: Sequence[Message]

    def names(self) -> dict[str, dict[str, Any]]:
        """Return what the model worked with and no longer sees, by kind and name, newest last. The value of
        an artifact is its number of lines; the value of a file is the arguments with which it was read.
        """
        found: dict[str, dict[str, Any]] = {_ARTIFACTS: {}, _SKILLS: {}, _TOOLS: {}, _FILES: {}}
        still = {(kind, name) for kind, name, _ in _used(self.kept)}
        for kind, name, about in _used(self.dropped):
            found[kind].pop(name, None)  # a later use makes the name newer
            if (kind, name) not in still:
                found[kind][name] = about
        return {
            kind: dict(list(names.items())[-(FILES if kind == _FILES else POINTERS) :])
            for kind, names in found.items()
        }


def definitions(gone: DroppedMessages, deps: AgentDeps, most: float) -> list[Json]:
    """Return complete definitions of found tools that still exist. If not all fit into `most` tokens, the
    newest are kept.
    """
    still = found_tools.definitions(gone.kept)
    chosen: list[Json] = []
    for name, tool in reversed(found_tools.definitions(gone.dropped).items()):
        cost = deps.models.estimator.frame(deps.models.name, (), (tool,))
        if name not in still and deps.registry.get(name) is not None and cost <= most:
            chosen.append(tool)
            most -= cost
    return chosen[::-1]


def instructions(
    gone: DroppedMessages, declared: frozenset[str], deps: AgentDeps, most: float
) -> dict[str, str]:
    """Return complete usage notes of MCP servers whose tools are `declared` or in the model's context. If
    not all fit into `most` tokens, the newest are kept. A note that is left out is shown again with the
    next tool of its server.
    """
    still, names = (
        found_tools.server_notes(gone.kept),
        declared | found_tools.definitions(gone.kept).keys(),
    )
    chosen: dict[str, str] = {}
    for server, words in reversed(found_tools.server_notes(gone.dropped).items()):
        cost = deps.models.estimator.text(deps.models.name, words)
        if server not in still and cost <= most and any(one.startswith(f"mcp__{server}__") for one in names):
            chosen[server] = words
            most -= cost
    return dict(reversed(chosen.items()))


async def put_back(
    gone: DroppedMessages, deps: AgentDeps, most: float, chat_key: ChatKey, person: UserRef | None
) -> found_tools.PutBack:
    """Return the state to restore within `most` tokens, read with the permissions of `person`."""
    names = gone.names()
    tools = definitions(gone, deps, TOOLS * most)
    declared = frozenset(str(tool["name"]) for tool in tools)
    said = instructions(gone, declared, deps, SAID * most)
    names[_TOOLS] = {name: about for name, about in names[_TOOLS].items() if name not in declared}

    def size(words: str) -> float:
        return deps.models.estimator.text(deps.models.name, words)

    left = most - deps.models.estimator.frame(deps.models.name, (), tools) - sum(map(size, said.values()))
    with tool_scope(_reader(chat_key, person)):
        skills = await _read(deps, SkillsLoad.name, {one: {"name": one} for one in names[_SKILLS]})
        files = await _read(deps, READ, names[_FILES])
    origin = NOBODYS
    for result in files.values():
        origin |= result.origin or NOBODYS
    sections = (
        Section(_ARTIFACTS, 1, _pointers_shown(names[_ARTIFACTS])),
        Section(
            _SKILLS,
            2,
            *_texts("The skill {}, loaded before", "Skills loaded before; load", names[_SKILLS], skills),
        ),
        Section(_TOOLS, 3, _tools_shown(names[_TOOLS])),
        Section(
            _FILES,
            4,
            *_texts(
                "The file {}, read before, as it is now", "Files read before; read", names[_FILES], files
            ),
        ),
    )
    chosen = assemble(sections, left, size)
    shown = [(words, {ORIGIN: origin.packed()} if name == _FILES else {}) for name, words in chosen.parts]
    return found_tools.PutBack(shown, tools, said, names)


def room(deps: AgentDeps) -> float:
    """Return the max tokens of all state restored after a compaction."""
    budget = deps.budget()
    return min(budget.share(SHARE, MOST_TOKENS), budget.soft // SOFT_SHARE)


def _texts(title: str, again: str, names: Iterable[str], read: Mapping[str, ToolResult]) -> _Forms:
    """Return a section with the texts that were read, newest first, and the names of the others. The shorter
    versions contain fewer texts.
    """
    newest = list(names)[::-1]
    shown = [one for one in newest if one in read]
    forms = []
    for count in range(len(shown), -1, -1):
        texts = [f"{title.format(one)}:\n\n{read[one].content}" for one in shown[:count]]
        if others := [one for one in newest if one not in shown[:count]]:
            texts.append(f"{again} again what you need: {', '.join(others)}")
        forms.append("\n\n".join(texts))
    return forms[0], False, tuple(forms[1:])


def _pointers_shown(lines: Mapping[str, int]) -> str:
    rows = [f"- artifact {pointer} ({count} lines and more)" for pointer, count in lines.items()]
    title = f"Large results and files from before, to be read with {excerpt.READER}:"
    return "\n".join([title, *rows]) if rows else ""


def _tools_shown(names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return f"Tools found before; find again with {ToolSearch.name} what you need: {listed}" if listed else ""


async def _read(deps: AgentDeps, tool: str, inputs: Mapping[str, Json]) -> dict[str, ToolResult]:
    """Return a tool's current results by name, without refused calls and without untrusted content."""
    calls = [ToolCall(f"again_{name}", tool, arguments) for name, arguments in inputs.items()]
    results = await deps.dispatcher.run(calls) if calls else []
    return {
        name: result
        for name, result in zip(inputs, results, strict=True)
        if not result.failed and (result.origin or NOBODYS).taint < Taint.FOREIGN
    }


def _reader(chat_key: ChatKey, person: UserRef | None) -> ToolExecutionContext:
    """Return the tool context for reading again: with this person's permissions, and without asking anybody
    for approval.
    """
    who = person.user_id if person is not None else None
    channel = person.channel if person is not None else None
    return ToolExecutionContext(
        chat_key, "", who, None, NoOlderTurns(), channel=channel, approvals=lambda _: Unattended()
    )


def _used(messages: Sequence[Message]) -> Iterator[tuple[str, str, Any]]:
    """Yield what these messages worked with, as kind, name and value (see `DroppedMessages.names`)."""
    for message in messages:
        for kind, names in found_tools.worked_with(message).items():
            yield from ((kind, name, about) for name, about in names.items())
        yield from ((_ARTIFACTS, pointer, lines) for pointer, lines in file_words.pointers(message))
        yield from ((_TOOLS, name, None) for name in found_tools.definitions([message]))
    for call, result in _results(messages):
        if (left_out := result.omission) is not None:
            yield _ARTIFACTS, left_out.artifact, left_out.lines
        elif call.name == READ and isinstance(path := call.input.get("path"), str):
            # Large results are already listed among the artifacts.
            yield _FILES, path, call.input
        if call.name == SkillsLoad.name and isinstance(name := call.input.get("name"), str):
            yield _SKILLS, name, None


def _results(messages: Sequence[Message]) -> Iterator[tuple[ToolCall, ToolResult]]:
    """Yield every successful textual result with its call. An untrusted result is yielded only if it is a
    pointer to an artifact.
    """
    calls = {call.id: call for message in messages for call in blocks.tool_calls(message["content"])}
    for message in messages:
        for block in message["content"]:
            if block.get("type") != "tool_result" or not isinstance(block.get("content"), str):
                continue
            result = ToolResult.of(block)
            foreign = getattr(result.origin, "taint", None) is Taint.FOREIGN
            if not result.failed and (result.omission is not None or not foreign):
                yield calls.get(result.call_id, ToolCall(result.call_id, "")), result
