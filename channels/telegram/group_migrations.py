"""Tracks groups that became supergroups, which have another id and number their messages from the beginning.

The chatKey of the conversation keeps the group's id, so that history, jobs, memory, approvals and admission stay valid.
Updates from the supergroup get the group's id. Messages to the group are sent to the supergroup.
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
from channels.telegram.manifest import decode, encode, valid_id

FILE = "telegram-groups.json"


class GroupMigrations:
    """Maps groups to their supergroups. A migration is on disk before its update is confirmed to Telegram."""

    def __init__(self, home: Path, disk: Disk, log: Log) -> None:
        self._file = home / FILE
        self._disk = disk
        self._log = log
        self._groups: dict[str, str] = {}  # Id of the former group, by the id of the supergroup
        self._supergroups: dict[str, str] = {}
        self._learning = asyncio.Lock()

    async def load(self) -> None:
        self._know(await asyncio.to_thread(self._read))

    async def read(self, updates: Sequence[Json]) -> None:
        for update in updates:
            message = update.get("message")
            chat = message.get("chat") if isinstance(message, dict) else None
            if isinstance(message, dict) and isinstance(chat, dict):
                # Both the group and the supergroup receive a message about the migration.
                old = message.get("migrate_from_chat_id", chat.get("id"))
                new = message.get("migrate_to_chat_id", chat.get("id"))
                if type(old) is int and type(new) is int and old != new:
                    await self.learn(old, new)

    async def learn(self, old: int, new: int) -> bool:
        """Write a migration to disk. Return False if the ids are no valid pair. Raises `errors.StorageError`."""
        group, supergroup = str(old), str(new)
        if not old < 0 > new or group == supergroup or group in self._groups:
            return False
        async with self._learning:
            if self._supergroups.get(group) == supergroup:
                return True
            groups = {**self._groups, supergroup: group}
            data = json.dumps({"v": 1, "groups": groups}, indent=1) + "\n"
            try:
                await asyncio.to_thread(self._disk.replace, self._file, data.encode())
            except OSError as error:
                raise errors.StorageError(f"{FILE} cannot be written: {type(error).__name__}") from None
            self._know(groups)
        self._log.write("channel", "a Telegram group is a supergroup now", group=group, supergroup=supergroup)
        return True

    def same(self, chat: str) -> frozenset[str]:
        group = self._groups.get(chat, chat)
        return frozenset({chat, group, self.now(group)})

    def now(self, chat: str) -> str:
        """Return the id of the chat to which messages for this chat are sent."""
        return self._supergroups.get(chat, chat)

    def named(self, chat: str, message: str) -> str:
        """Return a message's id in its conversation. For a supergroup, it includes the supergroup's id, because the group
        may have had a message with the same number.
        """
        return f"{chat}/{message}" if chat in self._groups else message

    def here(self, inbound: Inbound) -> Inbound:
        """Return an inbound from a supergroup with the chatKey of the former group."""
        chat, group = inbound.chat_id, self._groups.get(inbound.chat_id)
        if group is None:
            return inbound

        def named(message: str | None) -> str | None:
            return self.named(chat, message) if message is not None else None

        return inbound.model_copy(
            update={
                "chat_id": group,
                "chat_key": encode({**decode(inbound.chat_key), "chat_id": group}),
                "message_id": named(inbound.message_id),
                "answers": named(inbound.answers),
                "quoted": tuple(
                    one.model_copy(update={"message_id": named(one.message_id)}) for one in inbound.quoted
                ),
            }
        )

    def place(self, target: Mapping[str, str]) -> dict[str, str]:
        """Return a target with the supergroup's id. Leave out a reply to a message of the former group, because Telegram
        does not allow it.
        """
        place = dict(target)
        if (chat := place.get("chat_id", "")) in self._supergroups:
            place["chat_id"] = self._supergroups[chat]
            place.pop("reply_to", None)
        return place

    def _know(self, groups: Mapping[str, str]) -> None:
        self._groups = dict(groups)
        self._supergroups = {group: supergroup for supergroup, group in groups.items()}

    def _read(self) -> dict[str, str]:
        try:
            groups = json.loads(self._file.read_text(encoding="utf-8"))["groups"].items()
            return {new: old for new, old in groups if valid_id(new) and valid_id(old)}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            self._log.write(
                "error", f"{FILE} cannot be read and is put aside", level="error", error=type(error).__name__
            )
            self._disk.rename(self._file, self._file.with_name(f"{FILE}.corrupt"))
            return {}
