"""The transcript of a task as text: what `read_artifact` shows of it, page by page or searched."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bot.context import blocks
from bot.contracts.base import Json, Message


def rendered(head: str, messages: Iterable[Message]) -> str:
    """Every message with everything in it but what was thought."""
    return "\n\n".join([head, *map(_message, messages)])


def _message(message: Message) -> str:
    shown = (_block(block) for block in message["content"] if block.get("type") not in blocks.THINKING)
    return "\n".join([f"== {message['role']}", *shown])


def _block(block: Json) -> str:
    kind = block.get("type")
    if kind == "text":
        return str(block["text"])
    if kind == "tool_use":
        return f"[call {block['id']}] {block['name']} {json.dumps(block['input'], ensure_ascii=False)}"
    if kind == "tool_result":
        content = block.get("content")
        words = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        failed = ", failed" if block.get("is_error") else ""
        return f"[result of {block['tool_use_id']}{failed}]\n{words}"
    return f"[{kind}]"
