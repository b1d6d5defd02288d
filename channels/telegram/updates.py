"""Hands Telegram's updates to the gateway: albums whole, each chat in its order; what cannot be read becomes a dead letter."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from telegram.error import TelegramError

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import ChannelDeps, Intake
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from channels.telegram import inbound
from channels.telegram.bot_api import Bot
from channels.telegram.group_migrations import GroupMigrations
from channels.telegram.inbound import ReadUpdate

MOST = 2_000


class RecentMessages:
    """The newest messages that were taken in, with a mark of how they read. Lost at a restart, which costs little:
    an edit then counts by what it says itself.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._marks: OrderedDict[tuple[str, str | None], str] = OrderedDict()

    def without_repeats(self, event: ReadUpdate) -> ReadUpdate | None:
        """The event, unless it is an edit that changes no word."""
        repeats = event.inbound.kind == "edit" and self._marks.get(_place(event)) == _mark(event)
        return None if repeats else event

    def learn(self, event: ReadUpdate) -> None:
        if event.inbound.kind not in {"message", "edit"}:
            return
        place = _place(event)
        self._marks[place] = _mark(event)
        self._marks.move_to_end(place)
        if len(self._marks) > self._most:
            self._marks.popitem(last=False)


def _place(event: ReadUpdate) -> tuple[str, str | None]:
    return event.inbound.chat_id, event.inbound.message_id


def _mark(event: ReadUpdate) -> str:
    inbound = event.inbound
    parts = (*inbound.attachments, *inbound.brought, *inbound.links)
    said = "\0".join([inbound.text, *(one.model_dump_json() for one in parts)])
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


UNWRITTEN = "messages wait at Telegram because they cannot be written down here"
ALBUM_WAIT = 1.0
"""Seconds after its first item in which the rest of an album arrives."""
REMEMBERED = 1000
_PASSING = (TelegramError, errors.ShipmateError, OSError, MemoryError)
"""Errors that say nothing of the update itself."""
TRIES = 3
"""So often an update may do that; then it is a dead letter, and what stands behind it goes on."""


@dataclass(slots=True)
class _UpdateGroup:
    """Updates that are handed over together: one, or all of an album."""

    events: list[inbound.ReadUpdate] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    raws: list[Json] = field(default_factory=list)
    unreadable: tuple[Json, str] | None = None

    @property
    def chat_key(self) -> ChatKey | None:
        return self.events[0].inbound.chat_key if self.events else None

    @property
    def who(self) -> tuple[str, str] | None:
        """Chat and person of the first update."""
        return (self.events[0].inbound.chat_id, self.events[0].inbound.user_id) if self.events else None

    @property
    def says(self) -> bool:
        """True for words of a person; False for a change or a signal."""
        return bool(self.events) and self.events[0].inbound.kind == "message"

    @property
    def stops(self) -> bool:
        """True for a stop, which waits for no earlier update of others."""
        return bool(self.events) and self.events[0].inbound.is_stop


class UpdateIntake:
    """Takes updates in, however they came. `taken` are the ids of those that need not come again."""

    def __init__(
        self,
        bot: Bot,
        intake: Intake,
        around: ChannelDeps,
        *,
        migrations: GroupMigrations,
        album_wait: float = ALBUM_WAIT,
    ) -> None:
        self._bot = bot
        self._migrations = migrations
        self._intake = intake
        self._clock, self._log = around.clock, around.log
        self._album_wait = album_wait
        self._known = RecentMessages()
        self.taken: set[int] = set()
        self._albums: dict[str, float] = {}
        self._addressed: OrderedDict[str, str] = OrderedDict()
        """Of albums whose items come one by one: why the items so far are for the bot."""
        self._nameless: set[str] = set()
        self._broke: Counter[int] = Counter()
        self._stopping = False

    def stop(self) -> None:
        """Begin nothing more; what is being taken in comes to its end."""
        self._stopping = True

    def forget_before(self, number: int | None) -> None:
        """Updates before this one do not come again."""
        self.taken = {one for one in self.taken if number is None or one >= number}

    async def take(self, raws: Sequence[Any]) -> float:
        """Hand over what is whole; the seconds in which the rest of an album may come. What is not in `taken` then has to be
        given again. Raises `TelegramError`, or `errors.StorageError` where something could not be written down.
        """
        named = await self._named(raws)
        await self._migrations.read(named)
        ready, pause = self._whole(self._units(named))
        await self._hand_over_all(ready)
        # Where nothing could be handed over, the same would come again at once.
        return pause or (1.0 if raws and not ready else 0.0)

    async def _hand_over_all(self, units: Sequence[_UpdateGroup]) -> None:
        """Each chat in its order, chats side by side: what they have to wait for, the disk, they wait for at once."""
        chats: dict[ChatKey | None, list[_UpdateGroup]] = {}
        for unit in units:
            chats.setdefault(unit.chat_key, []).append(unit)
        ends = await asyncio.gather(*map(self._hand_over_chat, chats.values()), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end

    async def _hand_over_chat(self, units: Sequence[_UpdateGroup]) -> None:
        failed: BaseException | None = None
        for unit in units:
            if failed is not None and not unit.stops:
                continue
            (end,) = await asyncio.gather(self._hand_over(unit), return_exceptions=True)
            if end is None or await self._given_up(unit, end):
                self.taken.update(unit.ids)
            else:
                failed = failed or end
            if self._stopping:
                break
        if failed is not None:
            raise failed

    async def _named(self, raws: Sequence[Any]) -> list[Json]:
        """The updates with an id, oldest first. Anything else can be neither confirmed nor answered."""
        named: list[Json] = []
        for raw in raws:
            if has_id(raw):
                named.append(raw)
                continue
            text = json.dumps(raw)
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            if digest not in self._nameless and len(self._nameless) < REMEMBERED:
                await self._keep_dead_letter(f"nameless:{digest}", text, "an update without update_id")
                self._nameless.add(digest)
        # The service may give one twice.
        return sorted(
            {raw["update_id"]: raw for raw in named}.values(), key=lambda raw: int(raw["update_id"])
        )

    def _units(self, raws: Sequence[Json]) -> dict[str, _UpdateGroup]:
        units: dict[str, _UpdateGroup] = {}
        for raw in raws:
            number = raw["update_id"]
            if number in self.taken:
                continue
            event, unreadable = None, None
            try:
                event = self._read(raw)
            except inbound.Unreadable as exc:
                unreadable = (raw, f"an update that cannot be read: {exc}")
            album = event.album if event is not None else None
            unit = units.setdefault(album or f"update {number}", _UpdateGroup())
            unit.ids.append(number)
            unit.raws.append(raw)
            unit.unreadable = unreadable
            if event is not None:
                unit.events.append(event)
        return units

    def _read(self, raw: Json) -> inbound.ReadUpdate | None:
        event = inbound.read(raw, self._bot, self._clock.now())
        if event is None:
            return None
        found = self._migrations.here(event.inbound)
        one_by_one = event.album is not None and not self._album_wait
        return replace(event, inbound=self._of_album(found, event.album or "") if one_by_one else found)

    def _of_album(self, item: Inbound, album: str) -> Inbound:
        """An item that comes by itself. It speaks to the bot where one before it does: the words stand below the first."""
        addressed = item.addressed if item.addressed != "chat" else self._addressed.get(album, "chat")
        self._addressed[album] = addressed
        if len(self._addressed) > REMEMBERED:
            self._addressed.popitem(last=False)
        return item.model_copy(update={"of_album": True, "addressed": addressed})

    def _whole(self, units: dict[str, _UpdateGroup]) -> tuple[list[_UpdateGroup], float]:
        """The units that need not wait for the rest of an album, of their own or before them in their chat. An album is
        sent in one go: what its author says next comes behind all of it.
        """
        now = self._clock.monotonic()
        last = {unit.who: unit.ids[-1] for unit in units.values() if unit.says}
        ready: list[_UpdateGroup] = []
        behind: set[ChatKey | None] = set()
        open_albums: dict[str, float] = {}
        pause = 0.0
        for name, unit in units.items():
            if unit.events and unit.events[0].album:
                since = self._albums.get(name, now)
                left = since + self._album_wait - now
                if left > 0 and last[unit.who] == unit.ids[-1]:
                    open_albums[name] = since
                    behind.add(unit.chat_key)
                    pause = max(pause, left)
            if unit.chat_key is None or unit.chat_key not in behind or unit.stops:
                ready.append(unit)
        self._albums = open_albums
        return ready, pause

    async def _hand_over(self, unit: _UpdateGroup) -> None:
        if (unreadable := unit.unreadable) is not None:
            await self._keep_dead_letter(
                f"update:{unreadable[0]['update_id']}", json.dumps(unreadable[0]), unreadable[1]
            )
            return
        events = [event for event in map(self._known.without_repeats, unit.events) if event is not None]
        if not await self._offered(events) and events[1:]:
            # Of an album that was taken in before all of it had come, the rest is a message of its own.
            for event in events:
                await self._offered([event])

    async def _given_up(self, unit: _UpdateGroup, error: BaseException) -> bool:
        """Keep an update as a dead letter once it has raised an unexpected error often enough; True if it was kept."""
        first = unit.ids[0]
        if isinstance(error, Exception) and not isinstance(error, _PASSING):
            self._broke[first] += 1
        if self._broke[first] < TRIES:
            return False
        for raw in unit.raws:
            reason = f"an update that cannot be taken in: {type(error).__name__}"
            await self._keep_dead_letter(f"update:{raw['update_id']}", json.dumps(raw), reason)
        del self._broke[first]
        return True

    async def _offered(self, events: Sequence[inbound.ReadUpdate]) -> bool:
        whole = inbound.merge(events)
        taken = whole is not None and await self._intake.accept(whole)
        for event in events if taken else ():
            self._known.learn(event)
        return taken

    async def _keep_dead_letter(self, name: str, raw: str, reason: str) -> None:
        key = f"telegram:{self._bot.id}:{name}"
        self._log.write("channel", "Telegram sent " + reason, level="warn", channel="telegram", key=key)
        await self._intake.keep_dead_letter("telegram", key, raw, reason)


def has_id(raw: Any) -> TypeGuard[Json]:
    """True for an update that can be confirmed."""
    return isinstance(raw, dict) and type(raw.get("update_id")) is int
