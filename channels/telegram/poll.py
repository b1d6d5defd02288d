"""Long polling: an update is confirmed to Telegram only after the intake has journaled it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from telegram.error import Conflict, InvalidToken, TelegramError

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import ChannelDeps, Health, Intake
from bot.contracts.identity import ChatKey
from channels.telegram import inbound
from channels.telegram.bot_api import Bot, TooManyRequests
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


HOLD = 10
"""Seconds for which Telegram keeps a poll open while nothing happens. One that hangs is given up soon after that."""
LATE = 5.0
"""Seconds that the answer to a poll may take besides."""
ALBUM_WAIT = 1.0
"""Seconds after its first item in which the rest of an album arrives."""
FAREWELL = 3.0
"""Seconds for telling Telegram at the end what was taken in; without that it comes again, and is dropped."""
LONGEST_PAUSE = 3.0
"""Seconds between two polls in trouble: nothing comes in meanwhile, and a poll costs little."""
REFUSED_PAUSE = 30.0
"""The same where the token is refused, which does not pass by itself."""
DISK_PAUSE = 0.5
"""Seconds of rest while what comes in cannot be written down: a stop is carried out all the same, and has to be heard."""
LONGEST_RETRY_AFTER = 600.0
"""Seconds for which the poll rests at most, whatever Telegram asks for: nothing comes in meanwhile."""
CALM = 30
"""Seconds without a conflict after which it is over: the other one rests at times too."""
CONTESTED = 30.0
"""Seconds of conflict after which the channel no longer counts as connected; a restart beside us is over by then."""
CONFLICT = "another process polls with this bot's token (409)"
REMEMBERED = 1000
_PASSING = (TelegramError, errors.ShipmateError, OSError, MemoryError)
"""Errors that say nothing of the update itself."""
AGAIN = 5.0
"""Seconds before the loop restarts after an unexpected error."""
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


@dataclass(slots=True)
class _TokenConflict:
    """Another process polls with our token: `began` on the monotonic clock, `since` in words, `calm_since` after the
    last conflict.
    """

    began: float
    since: str
    calm_since: float | None = None


class UpdatePoller:
    """From `start` to `stop`; `health` says how it goes."""

    def __init__(
        self, bot: Bot, intake: Intake, around: ChannelDeps, *, migrations: GroupMigrations, patience: float
    ) -> None:
        self._bot = bot
        self._migrations = migrations
        self._intake = intake
        self._clock, self._log, self._rng = around.clock, around.log, around.rng
        self._patience = patience
        self._connected = True
        self._heard = self._clock.now()
        self._trouble = ""
        self._in_conflict = False
        """True if that is another process that polls."""
        self._failures = 0
        self._token_conflict: _TokenConflict | None = None
        self._known = RecentMessages()
        self._offset: int | None = None
        self._confirmed: int | None = None
        self._taken: set[int] = set()
        self._albums: dict[str, float] = {}
        self._nameless: set[str] = set()
        self._broke: Counter[int] = Counter()
        self._stopping = False
        self._waiting = False
        self._polling = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="telegram poll")
        self._task.add_done_callback(self._ended)

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    def health(self) -> Health:
        if not self.running:
            return Health(connected=False, last_heard=self._heard, detail="stopped")
        conflict = self._token_conflict
        lost = conflict is not None and self._clock.monotonic() - conflict.began >= CONTESTED
        return Health(self._connected and not lost, self._heard, self._trouble)

    async def renew(self) -> None:
        """Give up the poll that is open and begin another one; what is being taken in is not cut."""
        task = self._task
        if task is None or not self._polling:
            return
        task.cancel()
        await asyncio.wait({task})
        if self._task is task and not self._stopping:
            self.start()

    async def stop(self) -> None:
        """End after the update that is being taken in, and confirm what was taken in."""
        self._stopping = True
        task, self._task = self._task, None
        if task is None:
            return
        if self._waiting:
            task.cancel()
        await asyncio.wait({task})
        if self._offset != self._confirmed:
            with contextlib.suppress(TelegramError, TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._fetch(0, limit=1)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (exc := task.exception()) is not None:
            message = f"Telegram's poll loop ended: {type(exc).__name__}; it begins again"
            self._log.write("error", message, level="error", channel="telegram")
            self._connected = False
            if not self._stopping:
                self._task = asyncio.create_task(self._begin_again(), name="telegram poll")
                self._task.add_done_callback(self._ended)

    async def _begin_again(self) -> None:
        with self._may_be_cut():
            await self._clock.sleep(AGAIN)
        await self._run()

    # -- the loop --------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._stopping:
            try:
                began = self._clock.monotonic()
                pause = await self._round()
                self._well(began)
            except (TelegramError, errors.StorageError) as exc:
                pause = self._failed(exc)
            if pause and not self._stopping:
                with self._may_be_cut():
                    await self._clock.sleep(pause)

    async def _round(self) -> float:
        """One poll and what came of it; the seconds to wait before the next one."""
        with self._may_be_cut():
            self._polling = True
            try:
                raws = await self._fetch(self._hold())
            finally:
                self._polling = False
        self._heard = self._clock.now()
        self._connected = True
        return await self._take(raws)

    def _hold(self) -> int:
        """Seconds a poll waits at Telegram: 0 after trouble, so that its end shows at once. After a conflict a whole
        poll is held, since only that proves that no other process polls any more.
        """
        return 0 if self._trouble and not self._in_conflict else HOLD

    async def _fetch(self, hold: int, limit: int = 100) -> list[Any]:
        offset = self._offset
        found = await self._bot.raw_updates(
            offset,
            hold=hold,
            patience=min(self._patience, LATE),
            kinds=list(inbound.HANDLED),
            limit=limit,
        )
        self._confirmed = offset
        return found

    @contextlib.contextmanager
    def _may_be_cut(self) -> Iterator[None]:
        """Mark an await in which `stop` may end the loop without losing anything."""
        self._waiting = True
        try:
            yield
        finally:
            self._waiting = False

    async def _take(self, raws: Sequence[Any]) -> float:
        """Hand over what is whole, in order; the seconds to wait before the next poll."""
        named = await self._named(raws)
        await self._migrations.read(named)
        ready, pause = self._whole(self._units(named))
        if raws and not ready:
            pause = pause or 1.0  # the same would come again at once
        try:
            await self._hand_over_all(ready)
        finally:
            self._advance(sorted(raw["update_id"] for raw in named))
        return pause

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
                self._taken.update(unit.ids)
            else:
                failed = failed or end
            if self._stopping:
                break
        if failed is not None:
            raise failed

    def _advance(self, numbers: Sequence[int]) -> None:
        """Move the offset behind what was taken in, up to the first update that was not."""
        for number in numbers:
            if number not in self._taken:
                break
            self._offset = number + 1
        self._taken = {number for number in self._taken if self._offset is None or number >= self._offset}

    # -- one batch -------------------------------------------------------------------------------------------

    async def _named(self, raws: Sequence[Any]) -> list[Json]:
        """The updates with an id, oldest first. Anything else can be neither confirmed nor answered."""
        named: list[Json] = []
        for raw in raws:
            if isinstance(raw, dict) and type(raw.get("update_id")) is int:
                named.append(raw)
                continue
            text = json.dumps(raw)
            digest = hashlib.sha256(text.encode()).hexdigest()[:16]
            if digest not in self._nameless and len(self._nameless) < REMEMBERED:
                await self._keep_dead_letter(f"nameless:{digest}", text, "an update without update_id")
                self._nameless.add(digest)
        return sorted(named, key=lambda raw: int(raw["update_id"]))

    def _units(self, raws: Sequence[Json]) -> dict[str, _UpdateGroup]:
        units: dict[str, _UpdateGroup] = {}
        for raw in raws:
            number = raw["update_id"]
            if number in self._taken:
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
        return replace(event, inbound=self._migrations.here(event.inbound)) if event is not None else None

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
                left = since + ALBUM_WAIT - now
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

    # -- trouble ---------------------------------------------------------------------------------------------

    def _failed(self, exc: TelegramError | errors.StorageError) -> float:
        """Note what went wrong, once for as long as it lasts; the seconds to wait."""
        self._in_conflict = isinstance(exc, Conflict)
        if self._in_conflict:
            trouble = self._conflict()
        else:
            trouble = _described(exc)
            if not isinstance(exc, errors.StorageError):
                self._connected = False
        if trouble != self._trouble:
            self._log.write("channel", f"Telegram: {trouble}", level="warn", channel="telegram")
        self._trouble = trouble
        self._failures = min(self._failures + 1, 10)
        longest = LONGEST_PAUSE
        if isinstance(exc, errors.StorageError):
            longest = DISK_PAUSE
        elif isinstance(exc, InvalidToken):
            longest = REFUSED_PAUSE
        pause = min(longest, 2.0 ** (self._failures - 1) * (1 + self._rng.random() / 4))
        return max(pause, min(exc.wait, LONGEST_RETRY_AFTER)) if isinstance(exc, TooManyRequests) else pause

    def _conflict(self) -> str:
        """Note that another process polls: Telegram answers, and gives each update to one of the two."""
        now = self._heard = self._clock.now()
        if self._token_conflict is None:
            self._token_conflict = _TokenConflict(
                self._clock.monotonic(), f"{datetime.fromtimestamp(now, UTC):%F %T} UTC"
            )
        self._token_conflict.calm_since = None
        return f"{CONFLICT} since {self._token_conflict.since}"

    def _well(self, began: float) -> None:
        """After a round without trouble that began at `began`. A conflict is over once nothing was seen of it for a
        while: the other one rests at times too.
        """
        conflict = self._token_conflict
        if conflict is not None:
            conflict.calm_since = began if conflict.calm_since is None else conflict.calm_since
            if self._clock.monotonic() - conflict.calm_since < CALM:
                return
            self._token_conflict = None
        if self._trouble:
            self._log.write("channel", "Telegram: all is well again", channel="telegram")
        self._trouble, self._in_conflict = "", False
        self._failures = 0


def _described(exc: TelegramError | errors.StorageError) -> str:
    match exc:
        case errors.StorageError():
            return "messages wait at Telegram because they cannot be written down here"
        case InvalidToken():
            return "the token is refused"
        case TooManyRequests():
            return "asked to poll less often"
    return f"cannot be reached ({exc})"
