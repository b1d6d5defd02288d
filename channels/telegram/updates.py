"""Passes Telegram's updates to the gateway, in order within each chat. An unreadable update becomes a dead letter."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import ChannelDeps, Intake
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from channels.telegram import inbound
from channels.telegram.bot_api import Bot
from channels.telegram.group_migrations import GroupMigrations

NOT_WRITTEN = "messages wait at Telegram because they cannot be written down here"
REMEMBERED = 2_000
"""Max messages, and max albums, that are kept in memory. After a restart, an edit that changes nothing may count as an edit
once.
"""
TRIES = 3
"""Max attempts to process an update that causes an unexpected error. Then it becomes a dead letter."""
_PASSING = (errors.ShipmateError, OSError, MemoryError)  # Errors without any relation to the update


class NotTaken(errors.ShipmateError):
    """Error for an update that could not be stored because of an unexpected error. Telegram must send it again."""


@dataclass(frozen=True, slots=True)
class _Update:
    """One update. `inbound` is None if it does not concern the bot. `fault` says why it cannot be read."""

    raw: Json
    inbound: Inbound | None = None
    album: str | None = None
    fault: str = ""

    @property
    def id(self) -> int:
        return int(self.raw["update_id"])


class UpdateIntake:
    def __init__(self, bot: Bot, intake: Intake, around: ChannelDeps, migrations: GroupMigrations) -> None:
        self._bot = bot
        self._migrations = migrations
        self._intake = intake
        self._clock = around.clock
        self._said: OrderedDict[tuple[str, str | None], str] = OrderedDict()
        """Digest of the stored content of each message, by chat and message id."""
        self._albums: OrderedDict[str, Inbound] = OrderedDict()
        """Message of each album that addresses the bot. The album's other messages then address the bot too."""
        self._failures: Counter[int] = Counter()
        self._stopping = False

    def stop(self) -> None:
        """Process no further updates, except those that have begun."""
        self._stopping = True

    async def take(self, raws: Iterable[Json], taken: set[int]) -> None:
        """Pass updates to the gateway, several chats at a time. Add the id of each finished update to `taken`; Telegram must
        send the others again. Raises `errors.StorageError` or `NotTaken` for the others.
        """
        ordered = sorted(raws, key=lambda raw: int(raw["update_id"]))
        await self._migrations.read(ordered)
        chats: dict[ChatKey | None, list[_Update]] = {}
        for raw in ordered:
            update = self._read(raw)
            said = update.inbound
            chats.setdefault(said.chat_key if said is not None else None, []).append(update)
            if update.album is not None and said is not None and said.addressed != "chat":
                _remember(self._albums, update.album, said)
        work = (self._take_chat(updates, taken) for updates in chats.values())
        for end in await asyncio.gather(*work, return_exceptions=True):
            if end is not None:
                raise end

    def _read(self, raw: Json) -> _Update:
        try:
            found = inbound.read(raw, self._bot, self._clock.now())
        except inbound.Unreadable as exc:
            return _Update(raw, fault=f"an update that cannot be read: {exc}")
        if found is None:
            return _Update(raw)
        return _Update(raw, self._migrations.here(found), inbound.album(raw) if found.of_album else None)

    async def _take_chat(self, updates: Sequence[_Update], taken: set[int]) -> None:
        """Process one chat's updates in order. After a failure, process stops only, so that no message overtakes another."""
        failed: BaseException | None = None
        for one in updates:
            if failed is not None and not (one.inbound is not None and one.inbound.is_stop):
                continue
            (failure,) = await asyncio.gather(self._take(one), return_exceptions=True)
            if failure is None or await self._given_up(one, failure):
                taken.add(one.id)
            elif failed is None:
                known = isinstance(failure, errors.StorageError) or not isinstance(failure, Exception)
                kind = type(failure).__name__
                failed = failure if known else NotTaken(f"an update is not taken in ({kind})")
            if self._stopping:
                break
        if failed is not None:
            raise failed

    async def _take(self, update: _Update) -> None:
        if update.fault:
            await self._keep_dead_letter(update, update.fault)
        if (said := update.inbound) is None:
            return
        if update.album is not None and said.addressed == "chat" and update.album in self._albums:
            said = said.model_copy(update={"addressed": self._albums[update.album].addressed})
        parts = (*said.attachments, *said.brought, *said.links)
        content = "\0".join([said.text, *(one.model_dump_json() for one in parts)])
        message = (said.chat_id, said.message_id)
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        if said.kind == "edit" and self._said.get(message) == digest:
            return  # an edit without new content, such as a link preview that Telegram added
        if await self._intake.accept(said) and said.kind in {"message", "edit"}:
            _remember(self._said, message, digest)

    async def _given_up(self, update: _Update, failure: BaseException) -> bool:
        """Count a failure. After `TRIES` failures, keep the update as a dead letter and return True."""
        if isinstance(failure, _PASSING) or not isinstance(failure, Exception):
            return False
        self._failures[update.id] += 1
        if self._failures[update.id] < TRIES:
            return False
        await self._keep_dead_letter(update, f"an update that cannot be taken in: {type(failure).__name__}")
        del self._failures[update.id]
        return True

    async def _keep_dead_letter(self, update: _Update, reason: str) -> None:
        key = f"telegram:{self._bot.id}:update:{update.id}"
        await self._intake.keep_dead_letter("telegram", key, json.dumps(update.raw), reason)


def _remember(memory: OrderedDict[Any, Any], key: object, value: object) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)


def has_id(raw: object) -> TypeGuard[Json]:
    """Return True for an update with an id, which is needed to confirm it."""
    return isinstance(raw, dict) and type(raw.get("update_id")) is int
