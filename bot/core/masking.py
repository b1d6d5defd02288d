"""Observation masking: placeholders that state the size replace old tool results. No model call is needed.

Messages and tool calls stay. A masked result stays masked. Each change invalidates the cached prefix, which
the caller must record.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence

from bot.contracts.base import Json, Message
from bot.contracts.model import ATTACHED
from bot.contracts.tools import omission
from bot.core import blocks, estimate

LEAST_KEPT = 3
"""Min number of newest tool results that are kept."""
KEPT_FILES = 4
"""Max newest files that stay unmasked."""
KEPT_BYTES = 8_000_000
"""Max total bytes of files that stay unmasked."""
CROWD = 12
"""Max files in the model's context before old files are masked; the provider accepts twenty files of any size."""
GONE = "[a file was shown here ({}); it is not shown any more]"
KEPT_TOKENS = 2_000
"""Max total tokens of tool results that all stay unmasked."""


def masks(
    messages: Sequence[Message],
    *,
    ages: Callable[[str], bool],
    keep: int,
    masked: Container[str] = (),
) -> dict[str, str]:
    """Return the placeholders for old tool results by call id; {} if none should be masked.

    `ages` says for a tool name whether the tool's results lose their value over time. The newest `keep`
    results of tools that age are not masked (at least three). Results are never masked if the model has not
    seen them, if they are errors of the last round, if they are in `masked`, or if they are no longer than
    their placeholder.
    """
    names = {call.id: call.name for message in messages for call in blocks.tool_calls(message["content"])}
    last = _last_round(messages)
    found: dict[str, str] = {}
    kept, tokens = 0, 0.0
    for at, block in _newest_first(messages):
        call = block["tool_use_id"]
        if not ages(names.get(call, "")) or call in masked:
            continue
        tokens += estimate.block_tokens(block)
        stays = kept < max(keep, LEAST_KEPT) or tokens <= KEPT_TOKENS
        kept += 1
        unseen = at == last == len(messages) - 1
        if stays or unseen or (at == last and block.get("is_error")):
            continue
        words = placeholder(block)
        if estimate.text_tokens(words) < estimate.block_tokens(block):
            found[call] = words
    return found | _old_files(messages)


def crowded(messages: Sequence[Message]) -> bool:
    """Return True if more files are in the context than a request should have."""
    shown = [block["size"] for _, block in _newest_first(messages, ATTACHED)]
    return len(shown) > CROWD or sum(shown) > KEPT_BYTES


def _old_files(messages: Sequence[Message]) -> dict[str, str]:
    """Return placeholders for all but the newest files, by artifact id. Files that the model has not
    answered yet stay.
    """
    answered = max((at for at, one in enumerate(messages) if one["role"] == "assistant"), default=-1)
    found: dict[str, str] = {}
    count = size = 0
    for at, block in _newest_first(messages, ATTACHED):
        count, size = count + 1, size + int(block["size"])
        if at < answered and (count > KEPT_FILES or size > KEPT_BYTES):
            found[str(block["artifact"])] = GONE.format(block["media"])
    return found


def placeholder(block: Json) -> str:
    """Return the placeholder for a tool result."""
    content = block.get("content") or ""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    words = "\n".join(part["text"] for part in parts if part.get("type") == "text")
    images = sum(part.get("type") == "image" for part in parts)
    lines = words.count("\n") + 1 if words else 0
    left_out = omission(block)
    what = f"{lines + (left_out.lines if left_out is not None else 0)} lines"
    if images:
        what += f", {images} image{'s' if images > 1 else ''}"
    where = f"; artifact {left_out.artifact}" if left_out is not None else ""
    return f"[observation masked — {what} omitted{where}]"


def _last_round(messages: Sequence[Message]) -> int:
    """Return the index of the newest message with tool results; -1 if there is none."""
    return next((at for at in reversed(range(len(messages))) if blocks.result_ids(messages[at])), -1)


def _newest_first(messages: Sequence[Message], kind: str = "tool_result") -> Iterator[tuple[int, Json]]:
    """Yield every block of a type with the index of its message, newest first."""
    for at in reversed(range(len(messages))):
        for block in reversed(messages[at]["content"]):
            if block.get("type") == kind:
                yield at, block
