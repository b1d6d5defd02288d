"""Remembers groups that became supergroups: Telegram gives them another id and numbers their messages anew.

The conversation keeps its name, which is that of the group: so history, jobs, memory, approvals and admission stay where they
are. What comes from the supergroup is brought to that name, and what goes to the group goes to the supergroup.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bot import errors
from bot.contracts.base import Json
from bot.contracts.environment import Disk, Log
from bot.contracts.inbound import Inbound
from channels.telegram import address

FILE = "telegram-groups.json"
_VERSION = 1
_KEYS = ("message", "edited_message")


class GroupMigrations:
    """The supergroup of each migrated group. A migration is on disk before its update is confirmed to Telegram."""

    def __init__(self, home: Path, disk: Disk, log: Log) -> None:
        self._file = home / FILE
        self._disk = disk
        self._log = log
        self._named: dict[str, str] = {}
        """The id of the group by that of its supergroup."""
        self._now: dict[str, str] = {}
        self._learning = asyncio.Lock()

    async def load(self) -> None:
        """Read what is on disk. What cannot be read is put aside, and said."""
        self._know(await asyncio.to_thread(self._read))

    async def read(self, updates: Sequence[Json]) -> None:
        """Learn what these updates tell of groups that have moved, in whichever of both chats it is told, before any of them
        is looked at. Raises `errors.StorageError`.
        """
        for update in updates:
            for told in (update.get(key) for key in _KEYS):
                if isinstance(told, dict) and (move := _moved_ids(told)) is not None:
                    await self.learn(*move)

    async def learn(self, old: int, new: int) -> bool:
        """Write down that a group has another id; whether it can be so. Raises `errors.StorageError`."""
        group, supergroup = str(old), str(new)
        if not old < 0 > new or group == supergroup or group in self._named:
            return False
        async with self._learning:
            if self._now.get(group) == supergroup:
                return True
            named = {**self._named, supergroup: group}
            try:
                await asyncio.to_thread(self._write, named)
            except OSError as error:
                raise errors.StorageError(f"{FILE} cannot be written: {type(error).__name__}") from None
            self._know(named)
        self._log.write("channel", "a Telegram group is a supergroup now", group=group, supergroup=supergroup)
        return True

    def same(self, chat: str) -> frozenset[str]:
        """All ids of a chat."""
        group = self._named.get(chat, chat)
        return frozenset({chat, group, self._now.get(group, group)})

    def now(self, chat: str) -> str:
        """The id to which messages for this chat are sent."""
        return self._now.get(chat, chat)

    def named(self, chat: str, message: str) -> str:
        """The name of a message: of a supergroup with its id, since the group may have had one of the same number."""
        return f"{chat}/{message}" if chat in self._named else message

    def here(self, inbound: Inbound) -> Inbound:
        """The same as something of the conversation that it belongs to."""
        chat, group = inbound.chat_id, self._named.get(inbound.chat_id)
        if group is None:
            return inbound

        def name(message: str | None) -> str | None:
            return self.named(chat, message) if message is not None else None

        quoted = tuple(one.model_copy(update={"message_id": name(one.message_id)}) for one in inbound.quoted)
        return inbound.model_copy(
            update={
                "chat_id": group,
                "chat_key": address.encode({**address.decode(inbound.chat_key), "chat_id": group}),
                "message_id": name(inbound.message_id),
                "answers": name(inbound.answers),
                "quoted": quoted,
                "items": {self.named(chat, item): words for item, words in inbound.items.items()},
            }
        )

    def place(self, target: Mapping[str, str]) -> dict[str, str]:
        """A target as it is now. A message of the group cannot be answered in the supergroup."""
        place, chat = dict(target), target.get("chat_id", "")
        if (now := self._now.get(chat)) is not None:
            place["chat_id"] = now
            place.pop("reply_to", None)
        return place

    def _know(self, named: Mapping[str, str]) -> None:
        self._named = dict(named)
        self._now = {group: supergroup for supergroup, group in named.items()}

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self._file.read_text(encoding="utf-8"))
            named = {str(new): str(old) for new, old in found["groups"].items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            aside = self._file.with_name(f"{FILE}.corrupt")
            self._log.write(
                "error", f"{FILE} cannot be read and is put aside", level="error", error=type(error).__name__
            )
            self._disk.rename(self._file, aside)
            return {}
        return {new: old for new, old in named.items() if address.valid_id(new) and address.valid_id(old)}

    def _write(self, named: Mapping[str, str]) -> None:
        words = json.dumps({"v": _VERSION, "groups": dict(named)}, indent=1) + "\n"
        self._disk.replace(self._file, words.encode())


def _moved_ids(message: Json) -> tuple[int, int] | None:
    """The ids before and after, where a message tells of a move."""
    chat = message.get("chat")
    here = chat.get("id") if isinstance(chat, dict) else None
    old, new = message.get("migrate_from_chat_id"), message.get("migrate_to_chat_id")
    move = (here, new) if new is not None else (old, here)
    first, second = move
    return (first, second) if type(first) is int and type(second) is int else None
