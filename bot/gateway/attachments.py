"""What came along with a message and cannot be looked at."""

from __future__ import annotations

from collections.abc import Sequence

from bot.contracts import Attachment, Log

NO_ROOM = "I am short of memory just now and cannot take files; please send it again later."
NAMED = 10
"""So many of them are named: an album has no more."""
_KINDS = {
    "photo": "photos",
    "video": "videos",
    "audio": "audio files",
    "voice": "voice notes",
    "sticker": "stickers",
    "file": "files",
}


def unseen(attachments: Sequence[Attachment], *, full: bool, log: Log) -> str:
    """What to say of files that were not looked at; "" where nothing came along. While memory is `full`, none is
    taken.
    """
    if attachments and full:
        log.write("memory", "memory is short: files were refused", level="warn", files=len(attachments))
        return NO_ROOM
    return cannot_open(attachments)


def cannot_open(attachments: Sequence[Attachment]) -> str:
    """A line that names them; "" where nothing came along."""
    if not attachments:
        return ""
    named = []
    for attachment in attachments[:NAMED]:
        kind = "voice note" if attachment.kind == "voice" else attachment.kind
        named.append(f"the {kind} “{attachment.name}”" if attachment.name else f"the {kind}")
    more = f" and {len(attachments) - NAMED} more" if len(attachments) > NAMED else ""
    kinds = " or ".join(dict.fromkeys(_KINDS[attachment.kind] for attachment in attachments))
    return f"(I cannot open {kinds} yet, so I have not looked at {', '.join(named)}{more}.)"
