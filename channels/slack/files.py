"""The files of a message, as far as they can be named. Whatever is wrong with them, the words still count."""

from __future__ import annotations

import re
from typing import Any, Literal

from bot import text
from bot.contracts.inbound import Attachment

MOST = 50
"""Files read of one message; Slack itself allows ten."""

Kind = Literal["photo", "video", "audio", "voice", "file"]
_KINDS: dict[str, Kind] = {"image": "photo", "video": "video", "audio": "audio"}
# Controls and the marks that turn the direction of writing: a name must read as it is written.
_MARKS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def attachments(files: Any) -> tuple[Attachment, ...]:
    found = files[:MOST] if isinstance(files, list) else []
    return tuple(_attachment(file if isinstance(file, dict) else {}) for file in found)


def _attachment(file: dict[Any, Any]) -> Attachment:
    mime, size = _word(file.get("mimetype")), file.get("size")
    kind = _KINDS.get((mime or "").partition("/")[0], "file")
    return Attachment(
        kind="voice" if file.get("subtype") == "slack_audio" else kind,
        name=_word(file.get("name")),
        size=size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None,
        mime=mime,
        ref=_word(file.get("id")),
    )


def _word(value: Any) -> str | None:
    return text.head(_MARKS.sub("", text.clean(value)), 255) or None if isinstance(value, str) else None
