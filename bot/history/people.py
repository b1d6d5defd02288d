"""Names of the people of a chat, as its newest lines have them."""

from __future__ import annotations

from collections.abc import Iterable

from bot import errors
from bot.contracts.archive import Archive, HistoryQuery
from bot.contracts.identity import ChatKey

NEWEST = 20
"""Lines of a chat that are looked at for names."""
NAMED = 3
"""Names of a chat that are shown."""


async def people_of(archive: Archive, chat_keys: Iterable[str]) -> dict[str, str]:
    """The names of those who spoke last in each chat. Raises `errors.StorageError`."""
    names = {}
    for chat_key in chat_keys:
        try:
            key = ChatKey.parse(chat_key)
        except errors.IdentityInvalid:
            continue
        page = await archive.search(key, HistoryQuery(limit=NEWEST, counted=False))
        said = [str((line.meta or {}).get("username") or "") for line in reversed(page.lines)]
        found = list(dict.fromkeys(name.replace(",", "") for name in said if name))
        if found:
            names[chat_key] = ", ".join(found[:NAMED])
    return names
