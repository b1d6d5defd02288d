"""Lines of a transcript, as tests tell them."""

from __future__ import annotations

from typing import Any

from bot.contracts.base import Json, Message
from bot.contracts.transcript import LineType, TranscriptLine
from bot.history.transcript.lines import event


def line(
    uuid: str,
    kind: LineType,
    request_id: str | None = None,
    message: Message | None = None,
    data: Json | None = None,
    **more: Any,
) -> TranscriptLine:
    """A line with this message and this data, as they stand on disk."""
    if message is None and kind in {"user", "assistant"}:
        message = {}
    more.setdefault("ts", 0)
    return TranscriptLine(uuid=uuid, event=event(kind, message, data), request_id=request_id, **more)
