"""Selects the working state that is restored after a compaction: found tools, usage notes of MCP servers, pointers to
large results, skills and files. Skills and files are read again with the permissions of the person who wrote last. That
person is not asked for permission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from bot import telemetry
from bot.contracts.approvals import Unattended
from bot.contracts.base import Json, Message
from bot.contracts.messages import NOBODYS, ORIGIN, Taint
from bot.contracts.tools import ToolCall, ToolResult
from bot.core import user_message, view
from bot.core.fit import AgentDeps, Fit
from bot.core.memory import PutBack
from bot.core.prompt import assemble
from bot.llm import blocks
from bot.tools import result_limits
from bot.tools.builtin.skills import skills_load
from bot.tools.builtin.tool_search import tool_search
from bot.tools.context import ToolExecutionContext, tool_scope

T = TypeVar("T")
MOST_TOKENS, SHARE, SOFT_SHARE = 50_000, 0.1, 4
"""The restored state has at most 50,000 tokens, at most a tenth of the context window, and at most a quarter of the soft limit."""
TOOLS, SAID = 0.5, 0.2
"""Max shares of the restored state's tokens: first for tool definitions, then for usage notes of MCP servers."""
READ = "read_file"
_ARTIFACTS, _SKILLS, _TOOLS, _FILES = "artifacts", "skills", "tools", "files"
_MOST: Mapping[str, int] = {_ARTIFACTS: 20, _SKILLS: 20, _TOOLS: 20, _FILES: 3}
"""Max number of restored artifacts, skills, tools and files. The newest ones are restored."""


async def put_back(fit: Fit, dropped: Sequence[Message], kept: Sequence[Message], most: float) -> PutBack:
    """Return the state to restore after a summary has replaced the messages `dropped`, which include any earlier
    summary. The result has at most `most` tokens, and leaves out everything that the messages `kept` already show.
    """
    deps, model, estimator, budget = fit.agent, fit.models.name, fit.models.estimator, fit.budget()
    most = min(most, budget.share(SHARE, MOST_TOKENS), budget.soft // SOFT_SHARE)
    names, seen = _names(dropped, kept), view.definitions(kept)
    found = {
        name: tool
        for name, tool in view.definitions(dropped).items()
        if name not in seen and deps.registry.get(name) is not None
    }
    tools = _newest(found, TOOLS * most, lambda tool: estimator.tokens(model, (tool,)))
    names[_TOOLS] = {name: None for name in names[_TOOLS] if name not in tools}
    known, declared = view.server_notes(kept), [*tools, *seen]
    # A server's usage note is left out if none of its tools is restored. It is shown again when such a tool is found.
    notes = {
        server: words
        for server, words in view.server_notes(dropped).items()
        if server not in known and any(one.startswith(f"mcp__{server}__") for one in declared)
    }

    def size(words: str) -> float:
        return estimator.text(model, words)

    said = _newest(notes, SAID * most, size)
    left = most - estimator.tokens(model, tools.values()) - sum(map(size, said.values()))
    user_id, channel = (
        (person.user_id, person.channel) if (person := telemetry.current().person) else (None, None)
    )
    reader = ToolExecutionContext(
        fit.chat.key, "", user_id, None, None, channel=channel, approvals=lambda _: Unattended()
    )
    with tool_scope(reader):
        skills = await _read(deps, skills_load.name, {one: {"name": one} for one in names[_SKILLS]})
        files = await _read(deps, READ, names[_FILES])
    origin = NOBODYS
    for result in files.values():
        origin |= result.origin or NOBODYS
    pointers = [f"- artifact {name} ({count} lines and more)" for name, count in names[_ARTIFACTS].items()]
    title = f"Large results and files from before, to be read with {result_limits.READER}:"
    again = (
        f"Tools found before; find again with {tool_search.name} what you need: {', '.join(names[_TOOLS])}"
    )
    skill_texts = _texts("The skill {}, loaded before", "Skills loaded before; load", names[_SKILLS], skills)
    file_title = "The file {}, read before, as it is now"
    file_texts = _texts(file_title, "Files read before; read", names[_FILES], files)
    sections = {
        _ARTIFACTS: ["\n".join([title, *pointers])] if pointers else [],
        _SKILLS: skill_texts,
        _TOOLS: [again] if names[_TOOLS] else [],
        _FILES: file_texts,
    }
    chosen = assemble(sections, left, size).items()
    shown = [(words, {ORIGIN: origin.packed()} if name == _FILES else {}) for name, words in chosen]
    return PutBack(shown, list(tools.values()), said, names)


def _newest(found: Mapping[str, T], most: float, size: Callable[[T], float]) -> dict[str, T]:
    """Return the newest entries that have at most `most` tokens together. The oldest comes first. Skip entries that no longer fit."""
    chosen: dict[str, T] = {}
    for name, value in reversed(list(found.items())):
        if (cost := size(value)) <= most:
            chosen[name] = value
            most -= cost
    return dict(reversed(chosen.items()))


def _texts(title: str, again: str, names: Iterable[str], read: Mapping[str, ToolResult]) -> tuple[str, ...]:
    """Return versions of a section, longest first. Each version has the newest texts in full and the names of the others."""
    newest = list(names)[::-1]
    shown = [one for one in newest if one in read]
    forms = []
    for count in range(len(shown), -1, -1):
        texts = [f"{title.format(one)}:\n\n{read[one].content}" for one in shown[:count]]
        if others := [one for one in newest if one not in shown[:count]]:
            texts.append(f"{again} again what you need: {', '.join(others)}")
        forms.append("\n\n".join(texts))
    return tuple(forms)


async def _read(deps: AgentDeps, tool: str, inputs: Mapping[str, Json]) -> dict[str, ToolResult]:
    """Call a tool for each name, and return the results, keyed by name. Failed and untrusted results are left out."""
    calls = [ToolCall(f"again_{name}", tool, arguments) for name, arguments in inputs.items()]
    results = await deps.dispatcher.run(calls) if calls else []
    return {
        name: result
        for name, result in zip(inputs, results, strict=True)
        if not result.failed and (result.origin or NOBODYS).taint < Taint.FOREIGN
    }


def _names(dropped: Sequence[Message], kept: Sequence[Message]) -> dict[str, dict[str, Any]]:
    """Return the tools, skills, files and artifacts that appear only in `dropped`, keyed by kind and name, newest last."""
    found: dict[str, dict[str, Any]] = {kind: {} for kind in _MOST}
    still = {(kind, name) for kind, name, _ in _used(kept)}
    for kind, name, about in _used(dropped):
        found[kind].pop(name, None)  # a later use makes the name newer
        if (kind, name) not in still:
            found[kind][name] = about
    return {kind: dict(list(names.items())[-_MOST[kind] :]) for kind, names in found.items()}


def _used(messages: Sequence[Message]) -> Iterator[tuple[str, str, Any]]:
    calls = {call.id: call for message in messages for call in blocks.tool_calls(message["content"])}
    for message in messages:
        for kind, names in message["content"][0].get(view.WORKED_WITH, {}).items():
            yield from ((kind, name, about) for name, about in names.items())
        yield from ((_ARTIFACTS, pointer, lines) for pointer, lines in user_message.pointers(message))
        yield from ((_TOOLS, name, None) for name in view.definitions([message]))
        for block in message["content"]:
            if block.get("type") != "tool_result" or not isinstance(block.get("content"), str):
                continue
            result = ToolResult.of(block)
            foreign = result.origin is not None and result.origin.taint is Taint.FOREIGN
            if result.failed or (foreign and result.omission is None):
                continue  # an untrusted result is not restored; only its artifact is named
            call = calls.get(result.call_id, ToolCall(result.call_id, ""))
            if (left_out := result.omission) is not None:
                yield _ARTIFACTS, left_out.artifact, left_out.lines
            elif call.name == READ and isinstance(path := call.input.get("path"), str):
                # Large results are already listed among the artifacts.
                yield _FILES, path, call.input
            if call.name == skills_load.name and isinstance(name := call.input.get("name"), str):
                yield _SKILLS, name, None
