"""Definitions of tools that the model has found while it worked.

They stand in the results that name them, so that the history alone says what a request declares, after a restart as
before. A request has them where the provider wants them: at the end of its tools, each to be loaded only where a result
refers to it, so that nothing that was sent before changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot.contracts import Json, Message

KIND = "tool_reference"
DEFINITION = "definition"
"""Beside the name in what is kept (`contracts.Found`); never sent there."""


def declared(messages: Sequence[Message]) -> tuple[list[Message], list[Json]]:
    """The messages as they are sent, and the definitions that they need, each name once: a definition that has changed
    since counts once the older one has left the history.
    """
    shown: list[Message] = []
    tools: dict[str, Json] = {}
    for message in messages:
        content = message["content"]
        if isinstance(content, list) and any(map(_refers, content)):
            message = {**message, "content": [_taken(block, tools) for block in content]}  # noqa: PLW2901 - as it is sent
        shown.append(message)
    return shown, [{**tool, "defer_loading": True} for tool in tools.values()]


def names(messages: Iterable[Message]) -> list[str]:
    """The tools that messages refer to, each once, in order."""
    _, tools = declared(list(messages))
    return [str(tool["name"]) for tool in tools]


def _taken(block: Json, tools: dict[str, Json]) -> Json:
    if not _refers(block):
        return block
    parts = []
    for part in block["content"]:
        if part.get("type") == KIND and DEFINITION in part:
            tools.setdefault(part["tool_name"], part[DEFINITION])
        parts.append({key: value for key, value in part.items() if key != DEFINITION})
    return {**block, "content": parts}


def _refers(block: Json) -> bool:
    parts: Iterable[Json] = block["content"] if isinstance(block.get("content"), list) else ()
    return any(part.get("type") == KIND for part in parts)
