"""Receives Telegram's updates by long polling or through a webhook. Each update is confirmed to Telegram after the gateway has
written it to disk. Updates are in order within each chat. An unreadable update becomes a dead letter.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import secrets
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeGuard

from aiohttp import web
from telegram.error import BadRequest, Conflict, InvalidToken, TelegramError

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import ChannelDeps, Health, Intake, Webhook
from bot.contracts.environment import Disk, Log, cancel_all
from bot.contracts.identity import ChatKey
from bot.contracts.messages import Inbound
from channels.http_api import RETRY, WebhookServer
from channels.telegram import bot_api, inbound
from channels.telegram.manifest import decode, encode, valid_id

FILE = "telegram-groups.json"
NOT_WRITTEN = "messages wait at Telegram because they cannot be written down here"
REMEMBERED = 2_000
"""Max messages, and max albums, that are kept in memory. An edit that changes nothing in a kept message is ignored.
The first edit of any other message is always processed.
"""
TRIES = 3
"""Max attempts to process an update that causes unexpected errors. After the last attempt, the update becomes a dead letter."""
_PASSING = (errors.ShipmateError, OSError, MemoryError)  # Errors that the update did not cause


class NotTaken(errors.ShipmateError):
    """Error for an update that could not be stored because of an unexpected error. Telegram must send it again."""


@dataclass(frozen=True, slots=True)
class _Update:
    """One update. `inbound` is None if the update does not concern the bot. `fault` says why the update cannot be read."""

    raw: Json
    inbound: Inbound | None = None
    album: str | None = None
    fault: str = ""

    @property
    def id(self) -> int:
        return int(self.raw["update_id"])


@dataclass(eq=False)
class UpdateReceiver:
    """Base class of polling and the webhook: passes updates to the gateway."""

    bot: bot_api.Bot
    intake: Intake
    around: ChannelDeps
    migrations: GroupMigrations

    def __post_init__(self) -> None:
        self._clock, self._log = self.around.clock, self.around.log
        self._said: OrderedDict[tuple[str, str | None], str] = OrderedDict()
        """Digest of the stored content of each message, by chat and message id."""
        self._albums: OrderedDict[str, Inbound] = OrderedDict()
        """By album id: the album's message that addresses the bot. All messages of the album then address the bot."""
        self._attempts: Counter[int] = Counter()  # Failed attempts, by update id
        self._stopping = False
        """If True, updates that are being processed are finished, and no other update is processed."""
        self._connected = True
        self._heard = self._clock.now()
        """Time (epoch seconds) of Telegram's last response or post."""
        self._trouble = ""

    def _report(self, trouble: str, level: Literal["warn", "error"] = "warn") -> None:
        """Log a trouble when it begins, and again when it ends (`trouble` is then ""). An unchanged trouble is not logged again."""
        if trouble != self._trouble:
            words = f"Telegram: {trouble or 'all is well again'}"
            self._log.write("channel", words, level=level if trouble else "info", channel="telegram")
        self._trouble = trouble

    async def _take(self, raws: Iterable[Json]) -> tuple[set[int], BaseException | None]:
        """Pass updates to the gateway, several chats at a time. Return the ids of the finished updates, and the exception
        (`errors.StorageError` or `NotTaken`) that prevented the others. Telegram must send those updates again.
        """
        ordered = sorted(raws, key=lambda raw: int(raw["update_id"]))
        try:
            await self.migrations.read(ordered)
        except errors.StorageError as error:
            return set(), error
        chats: dict[ChatKey | None, list[_Update]] = {}
        for raw in ordered:
            update = self._read(raw)
            said = update.inbound
            chats.setdefault(said.chat_key if said is not None else None, []).append(update)
            if update.album is not None and said is not None and said.addressed != "chat":
                _remember(self._albums, update.album, said)
        taken: set[int] = set()
        ends = await asyncio.gather(*(self._take_chat(updates, taken) for updates in chats.values()))
        return taken, next(filter(None, ends), None)

    def _read(self, raw: Json) -> _Update:
        try:
            found = inbound.read(raw, self.bot, self._clock.now())
        except inbound.Unreadable as exc:
            return _Update(raw, fault=f"an update that cannot be read: {exc}")
        if found is None:
            return _Update(raw)
        return _Update(raw, self.migrations.here(found), inbound.album(raw) if found.of_album else None)

    async def _take_chat(self, updates: Sequence[_Update], taken: set[int]) -> BaseException | None:
        """Process one chat's updates in order, and return the first failure. After a failure, only updates that stop a turn are
        processed, so that no message overtakes another.
        """
        failed: BaseException | None = None
        for one in updates:
            if failed is not None and not (one.inbound is not None and one.inbound.is_stop):
                continue
            (failure,) = await asyncio.gather(self._take_one(one), return_exceptions=True)
            expected = isinstance(failure, _PASSING) or not isinstance(failure, Exception)
            if failure is not None and not expected:
                self._attempts[one.id] += 1
                if self._attempts[one.id] >= TRIES:
                    reason = f"an update that cannot be taken in: {type(failure).__name__}"
                    (failure,) = await asyncio.gather(self._keep(one, reason), return_exceptions=True)
            if failure is None:
                taken.add(one.id)
                self._attempts.pop(one.id, None)
            elif failed is None:
                known = isinstance(failure, errors.StorageError) or not isinstance(failure, Exception)
                failed = (
                    failure if known else NotTaken(f"an update is not taken in ({type(failure).__name__})")
                )
            if self._stopping:
                break
        return failed

    async def _take_one(self, update: _Update) -> None:
        if update.fault:
            await self._keep(update, update.fault)
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
        if await self.intake.accept(said) and said.kind in {"message", "edit"}:
            _remember(self._said, message, digest)

    async def _keep(self, update: _Update, reason: str) -> None:
        key = f"telegram:{self.bot.id}:update:{update.id}"
        await self.intake.keep_dead_letter("telegram", key, json.dumps(update.raw), reason)


def _remember(memory: OrderedDict[Any, Any], key: object, value: object) -> None:
    memory[key] = value
    memory.move_to_end(key)
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)


def has_id(raw: object) -> TypeGuard[Json]:
    """Return True for an update that has an id. Without an id, an update cannot be confirmed."""
    return isinstance(raw, dict) and type(raw.get("update_id")) is int


# -- long polling --------------------------------------------------------------------------------------------------

HOLD = 10  # Seconds that Telegram waits for an update before it answers a poll
LATE = 5.0  # Seconds after `HOLD` at which an unanswered poll times out
FAREWELL = 3.0
"""Timeout in seconds of the last confirmation when polling stops. Telegram sends unconfirmed updates again, and the gateway
drops the duplicates.
"""
LONGEST_PAUSE = 3.0
"""Max seconds between two polls after a failure. The pause is short, because no updates arrive meanwhile."""
REFUSED_PAUSE = 30.0  # Max seconds between two polls while Telegram refuses the token
DISK_PAUSE = 0.5
"""Max seconds between two polls while no update can be written to disk. The pause is short, because a request to stop a turn
needs no disk and must arrive.
"""
LONGEST_RETRY_AFTER = 600.0
"""Max seconds of a wait for `retry_after`, because no updates arrive during the wait."""
CALM = 30.0
"""A conflict has ended if Telegram reports no conflict for this many seconds. The other process may pause between polls."""
CONTESTED = 30.0
"""Seconds of conflict after which the channel counts as disconnected. At a restart, two processes overlap for less time."""


@dataclass(eq=False)
class UpdatePoller(UpdateReceiver):
    patience: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self._failures = 0
        self._conflict: tuple[float, float] | None = None
        """Times (monotonic seconds) of the first and the last conflict with another process that polls with the same token.
        Telegram gives each update to only one of the processes.
        """
        self._contested_since = ""
        self._offset: int | None = None  # Id of the first update that is not stored yet
        self._confirmed: int | None = None  # Offset that was sent with the last answered poll
        self._step: Literal["poll", "take", "pause"] = "pause"
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Remove a webhook, keep its pending updates, and begin to poll. Raises `TelegramError`."""
        await self.bot.call("deleteWebhook", {"drop_pending_updates": False})
        self._task = asyncio.create_task(self._run(), name="telegram poll")

    def health(self) -> Health:
        if self._task is None or self._task.done():
            return Health(connected=False, last_heard=self._heard, detail="stopped")
        lost = self._conflict is not None and self._clock.monotonic() - self._conflict[0] >= CONTESTED
        return Health(self._connected and not lost, self._heard, self._trouble)

    async def renew(self) -> None:
        """Cancel the open poll and begin a new one. Updates that are being processed continue."""
        task = self._task
        if task is None or not (self._step == "poll" or task.done()):
            return
        task.cancel()
        await asyncio.wait({task})
        if self._task is task and not self._stopping:
            self._task = asyncio.create_task(self._run(), name="telegram poll")

    async def stop(self) -> None:
        """Finish the updates that are being processed, and confirm all stored updates to Telegram."""
        self._stopping = True
        task, self._task = self._task, None
        if task is None:
            return
        if self._step != "take":
            task.cancel()
        await asyncio.wait({task})
        if self._offset != self._confirmed:
            with contextlib.suppress(TelegramError, TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._poll(0, limit=1)

    async def _run(self) -> None:
        while not self._stopping:
            try:
                await self._round()
            except (TelegramError, errors.StorageError, NotTaken) as error:
                pause = self._failed(error)
                if not self._stopping:
                    self._step = "pause"
                    await self._clock.sleep(pause)
            else:
                if self._conflict is None or self._clock.monotonic() - self._conflict[1] >= CALM:
                    self._report("")
                    self._conflict, self._failures = None, 0

    async def _round(self) -> None:
        # After a failure, Telegram should answer at once, so that the end of the failure is noticed early. After a conflict,
        # Telegram should wait as usual, because only a waiting poll shows that no other process polls.
        hold = 0 if self._trouble and self._conflict is None else HOLD
        self._step = "poll"
        updates = await self._poll(hold)
        self._step = "take"
        self._heard, self._connected = self._clock.now(), True
        taken, failure = await self._take(updates)
        for number in sorted(one["update_id"] for one in updates):
            if number not in taken:
                break
            self._offset = number + 1
        if failure is not None:
            raise failure

    async def _poll(self, hold: int, limit: int = 100) -> list[Json]:
        offset = self._offset
        fields = {"timeout": hold, "limit": limit, "allowed_updates": list(inbound.HANDLED), "offset": offset}
        found = await self.bot.call("getUpdates", fields, seconds=hold + min(self.patience, LATE))
        if not isinstance(found, list) or not all(map(has_id, found)):
            raise bot_api.OutcomeUnknown("getUpdates answered without a list of updates")
        self._confirmed = offset
        return found

    def _failed(self, error: TelegramError | errors.StorageError | NotTaken) -> float:
        longest, wait = LONGEST_PAUSE, 0.0
        match error:
            case Conflict():
                now, self._heard = self._clock.monotonic(), self._clock.now()
                if self._conflict is None:
                    self._contested_since = f"{datetime.fromtimestamp(self._heard, UTC):%F %T} UTC"
                self._conflict = (now if self._conflict is None else self._conflict[0], now)
                trouble = f"another process polls with this bot's token (409) since {self._contested_since}"
            case errors.StorageError():
                trouble, longest = NOT_WRITTEN, DISK_PAUSE
            case NotTaken():
                trouble = str(error)
            case InvalidToken():
                trouble, longest = "the token is refused", REFUSED_PAUSE
            case bot_api.TooManyRequests():
                trouble, wait = "asked to poll less often", min(error.wait, LONGEST_RETRY_AFTER)
            case _:
                trouble = f"cannot be reached ({error})"
        if isinstance(error, TelegramError) and not isinstance(error, Conflict):
            self._connected = False
        self._report(trouble, "error" if isinstance(error, NotTaken) else "warn")
        self._failures = min(self._failures + 1, 10)
        return max(wait, min(longest, 2.0 ** (self._failures - 1) * (1 + self.around.rng.random() / 4)))


# -- webhook -------------------------------------------------------------------------------------------------------

LOOK_EVERY = 15.0  # Seconds between requests that ask Telegram whether its posts arrive
SECRET = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105  the name of a header


@dataclass(eq=False)
class UpdateWebhook(UpdateReceiver):
    """Receives the updates that Telegram posts. Telegram posts a chat's next message only after the bot confirms the previous
    one.

    Each start creates a new secret, which each post must contain. If several hosts run the bot, only the host that started
    last accepts posts.
    """

    webhook: Webhook

    def __post_init__(self) -> None:
        super().__post_init__()
        self._url = self.webhook.url
        self._secret = ""
        self._server = WebhookServer(
            "telegram", self.webhook, self.around, admits=self._admits, take=self._receive
        )
        self._connected = False
        self._taken_at = self._heard  # Time (epoch seconds) of the last post that was confirmed
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the server and register its address. Raises `errors.ConfigError` if Telegram rejects the address,
        `TelegramError` if Telegram cannot be reached, and the exceptions of `WebhookServer.start`.
        """
        await self._server.start()
        try:
            await self._register()
        except TelegramError as error:
            await self._server.stop()
            if not isinstance(error, BadRequest) or bot_api.refused_for(error, "resolve"):
                raise
            raise errors.ConfigError(
                f"channels.telegram.webhook.url: Telegram does not take it ({error.message}); set another one"
            ) from None
        self._connected = True
        self._watching = asyncio.create_task(self._watch(), name="telegram webhook")

    async def renew(self) -> None:
        """Register the address again with a new secret. Telegram then forgets earlier failures."""
        if self._server.up:
            with contextlib.suppress(TelegramError):
                await self._register()

    async def stop(self) -> None:
        """Accept no more posts. Telegram keeps the updates until the next start."""
        self._stopping = True
        if self._watching is not None:
            await cancel_all([self._watching])
        await self._server.stop()

    def health(self) -> Health:
        up = self._server.up
        return Health(self._connected and up, self._heard, self._trouble if up else "stopped")

    async def _register(self) -> None:
        self._secret = secrets.token_hex(32)
        fields = {"url": self._url, "secret_token": self._secret, "allowed_updates": list(inbound.HANDLED)}
        await self.bot.call("setWebhook", fields)

    async def _watch(self) -> None:
        while True:
            await self._clock.sleep(LOOK_EVERY)
            try:
                info = await self.bot.call_object("getWebhookInfo", {})
            except TelegramError as error:
                self._connected = False
                self._report(f"cannot be reached ({bot_api.said(error)})")
                continue
            self._heard = self._clock.now()
            trouble = ""
            if info.get("url") != self._url:
                trouble = "another program has taken this bot's updates"
            elif self._trouble == NOT_WRITTEN:
                continue
            elif info.get("pending_update_count") and info.get("last_error_date", 0) > self._taken_at:
                said = str(info.get("last_error_message", ""))[:200]
                trouble = f"its posts do not arrive at {self._url} ({said})"
            self._connected = not trouble
            self._report(trouble)

    def _admits(self, headers: Mapping[str, str]) -> bool:
        given = headers.get(SECRET, "").encode("utf-8", "surrogateescape")
        return self._secret != "" and hmac.compare_digest(given, self._secret.encode())

    async def _receive(self, request: web.Request) -> web.Response:
        try:
            update = json.loads((await request.read()).decode(errors="replace"))
        except (ValueError, RecursionError):
            update = None
        if not has_id(update):
            self._log.write("channel", "Telegram posted no update", level="warn", channel="telegram")
            return web.Response()  # confirm the post, because the same update would fail again
        taken, failure = await self._take([update])
        if isinstance(failure, errors.StorageError):
            self._connected = True
            self._report(NOT_WRITTEN)
        elif failure is not None:
            self._log.write("channel", f"Telegram: {failure}", level="error", channel="telegram")
        if not taken:
            return web.Response(status=503, headers=RETRY)
        self._taken_at = self._clock.now()
        if self._trouble == NOT_WRITTEN:
            self._connected = True
            self._report("")
        return web.Response()


# -- groups that became supergroups ---------------------------------------------------------------------------------


@dataclass(eq=False)
class GroupMigrations:
    """Maps groups to the supergroups that they became. A supergroup has another id than the group, and numbers its messages anew.

    The chatKey of the conversation keeps the group's id, so that history, jobs, memory, approvals and admission stay valid.
    Updates from the supergroup get the group's id. Messages to the group are sent to the supergroup. A migration is on disk
    before its update is confirmed to Telegram.
    """

    home: Path
    disk: Disk
    log: Log
    _groups: dict[str, str] = field(default_factory=dict)
    """Keys are ids of supergroups, values ids of their former groups."""
    _learning: asyncio.Lock = field(default_factory=asyncio.Lock)

    def load(self) -> None:
        """Read the file. This call blocks."""
        try:
            groups = json.loads((self.home / FILE).read_text(encoding="utf-8"))["groups"].items()
            self._groups = {new: old for new, old in groups if valid_id(new) and valid_id(old)}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            words = f"{FILE} cannot be read and is put aside"
            self.log.write("error", words, level="error", error=type(error).__name__)
            self.disk.rename(self.home / FILE, self.home / f"{FILE}.corrupt")

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
            if self._groups.get(supergroup) == group:
                return True
            groups = {**self._groups, supergroup: group}
            data = json.dumps({"v": 1, "groups": groups}, indent=1) + "\n"
            try:
                await asyncio.to_thread(self.disk.replace, self.home / FILE, data.encode())
            except OSError as error:
                raise errors.StorageError(f"{FILE} cannot be written: {type(error).__name__}") from None
            self._groups = groups
        self.log.write("channel", "a Telegram group is a supergroup now", group=group, supergroup=supergroup)
        return True

    def same(self, chat: str) -> frozenset[str]:
        group = self._groups.get(chat, chat)
        return frozenset({chat, group, self.now(group)})

    def now(self, chat: str) -> str:
        """Return the id of the chat to which messages for `chat` are sent."""
        return next((new for new, old in reversed(self._groups.items()) if old == chat), chat)

    def named(self, chat: str, message: str) -> str:
        """Return a message's id in its conversation. In a supergroup, the id includes the supergroup's id, because the group
        may have had a message with the same number.
        """
        return f"{chat}/{message}" if chat in self._groups else message

    def here(self, inbound: Inbound) -> Inbound:
        """Return `inbound`. A message from a supergroup gets the chatKey of the former group."""
        chat, group = inbound.chat_id, self._groups.get(inbound.chat_id)
        if group is None:
            return inbound

        def named(one: Any, field: str = "message_id") -> dict[str, str | None]:
            message = getattr(one, field)
            return {field: self.named(chat, message) if message is not None else None}

        quoted = tuple(one.model_copy(update=named(one)) for one in inbound.quoted)
        key = encode({**decode(inbound.chat_key), "chat_id": group})
        changes = {"chat_id": group, "chat_key": key, "quoted": quoted}
        return inbound.model_copy(update=changes | named(inbound) | named(inbound, "answers"))

    def place(self, target: Mapping[str, str]) -> dict[str, str]:
        """Return a target with the supergroup's id. Leave out a reply to a message of the former group, because Telegram
        refuses such a reply.
        """
        place = dict(target)
        chat = place.get("chat_id", "")
        if (moved := self.now(chat)) != chat:
            place["chat_id"] = moved
            place.pop("reply_to", None)
        return place
