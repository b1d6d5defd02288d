"""Files beside a message: those that may hold text, and the sentences for a person about the rest."""

from __future__ import annotations

from collections.abc import Sequence

from bot.contracts.environment import Log
from bot.contracts.inbound import Attachment, SeenFile

NO_ROOM = "I am short of memory just now and cannot take files; please send it again later."
FULL = "memory was short"
"""Why nothing of a message was fetched."""
NAMED = 10
"""So many of them are named: an album has no more."""
_KINDS = {
    "photo": "photos",
    "video": "videos",
    "audio": "audio files",
    "voice": "voice notes",
    "sticker": "stickers",
    "file": "files that are not text",
}


def may_hold_text(attachment: Attachment) -> bool:
    """True where its bytes are worth a look: what a platform calls a photo, say, never holds text."""
    return attachment.kind == "file" and attachment.ref is not None


def unseen(attachments: Sequence[Attachment], *, full: bool, log: Log) -> str:
    """The sentence about files that were not looked at; "" where nothing came along. While memory is `full`, none is
    taken.
    """
    if attachments and full:
        log.write("memory", "memory is short: files were refused", level="warn", files=len(attachments))
        return NO_ROOM
    return cannot_open(attachments)


def unread(attachments: Sequence[Attachment], seen: Sequence[SeenFile]) -> str:
    """The sentence about the files of a message that were not read; "" where all were, or nothing came along."""
    if any(one.why == FULL for one in seen):
        return NO_ROOM
    both = list(zip(attachments, seen, strict=True))
    failed = [f"{_named(file)}: {one.why}" for file, one in both if one.why]
    more = f"; and {len(failed) - NAMED} more" if len(failed) > NAMED else ""
    words = f"(I have not read {'; '.join(failed[:NAMED])}{more}.)" if failed else ""
    never = cannot_open([file for file, one in both if one.artifact is None and not one.why])
    return "\n".join(filter(None, (words, never)))


def cannot_open(attachments: Sequence[Attachment]) -> str:
    """A line that names them; "" where nothing came along."""
    if not attachments:
        return ""
    named = [_named(attachment) for attachment in attachments[:NAMED]]
    more = f" and {len(attachments) - NAMED} more" if len(attachments) > NAMED else ""
    kinds = " or ".join(dict.fromkeys(_KINDS[attachment.kind] for attachment in attachments))
    return f"(I cannot open {kinds} yet, so I have not looked at {', '.join(named)}{more}.)"


def _named(attachment: Attachment) -> str:
    kind = "voice note" if attachment.kind == "voice" else attachment.kind
    return f"the {kind} “{attachment.name}”" if attachment.name else f"the {kind}"
