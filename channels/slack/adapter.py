"""`SlackChannel`: Slack through Socket Mode or a webhook, with the Web API for everything that goes out."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import aiohttp
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot import errors
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Json
from bot.contracts.channel import (
    LOOPBACK,
    ChannelDeps,
    Health,
    Intake,
    Introduction,
    MembershipAnswer,
    ReadingLimits,
)
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Attachment, Inbound, Quoted
from bot.contracts.outbound import ABOUT, ONLY_TO, Outbound, Sent
from bot.text import clean
from bot.words import Sentence, paragraph, say, sentence
from channels.slack import (
    address,
    buttons,
    events,
    failures,
    files,
    home_tab,
    members,
    mentions,
    render,
    task_cards,
    uploads,
)
from channels.slack import inbound as incoming
from channels.slack.dead_letters import skeleton
from channels.slack.duplicate_mentions import DuplicateMentions
from channels.slack.home_tab import HomeTab
from channels.slack.http_events import HttpEvents
from channels.slack.mentions import Names
from channels.slack.response_urls import ResponseUrls
from channels.slack.settings import SlackSettings
from channels.slack.socket_mode import EnvelopeHandler, EventAcknowledger, LibraryLog, SocketConnection
from channels.slack.streams import Streams, begun_as
from channels.slack.typing_indicator import TypingIndicator
from channels.slack.user_names import UserNames
from channels.slack.web_client import WebClient

CALL_SECONDS = 20.0
IDLE_SECONDS = 4.0
"""After which an unused connection is not used again: what lies between may have forgotten it without telling."""
PING_SECONDS = 10.0
CONTEXT_MESSAGES = 50
CHANNEL_MESSAGES = 30
CHANNEL_POSTS = 100
"""Messages of a channel that are asked for, so that posts of bots take no places of people."""
CHANNEL_SECONDS = 86_400
"""Age of a message outside of threads that a mention brings along, at the most: a later deletion is looked for as far back."""
PAGE = 200
PAGES = 10
MOST_MENTIONED = 10
"""People named in one message whose names are asked for."""
METADATA = "shipmate_message"
_READS = frozenset({"channels:history", "groups:history"})
"""Scopes without which Slack tells the bot of mentions alone."""


class SlackChannel:
    """One workspace. See `contracts.channel.Channel` for what each method promises."""

    name = "slack"
    largest_file = 50_000_000
    # Slack shows tables as such, and wraps their cells.
    reading_limits = ReadingLimits(characters=11_000, columns=200)

    def __init__(
        self,
        settings: SlackSettings,
        outside: ChannelDeps,
        *,
        call_seconds: float = CALL_SECONDS,
        ping_seconds: float = PING_SECONDS,
    ) -> None:
        self.addresses: tuple[str, ...] = ()
        self._settings = settings
        self._outside = outside
        self._log = outside.log
        self._call_seconds = call_seconds * outside.pace
        self._ping_seconds = ping_seconds * outside.pace
        self._names = UserNames(outside.log, outside.clock)
        self._home = HomeTab(self._names, outside.log)
        self._in_order: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._session: aiohttp.ClientSession | None = None
        self._client: AsyncWebClient | None = None
        self._events: SocketConnection | HttpEvents | None = None
        self._intake: Intake | None = None
        self._me: incoming.BotIdentity | None = None
        self._site = ""
        self._scopes: frozenset[str] = frozenset()
        """The rights of the app; empty where Slack has not said them."""
        self._unhandled = events.UnhandledTypes(outside.log)
        self._response_urls = ResponseUrls()
        self._mentions = DuplicateMentions()
        self._signs = TypingIndicator(outside.log)
        self._writer = task_cards.CardWriter(outside.log)
        self._streams = Streams(outside.clock, outside.log)

    # Coming and going

    async def start(self, intake: Intake) -> None:
        await self.stop()
        self._intake = intake
        try:
            client = self._open()
            self._me = await self._who_am_i(client)
            await self._connect(client)
        except failures.CALL_ERRORS as error:
            await self.stop()
            raise failures.connect_error(error) from None
        except (errors.ShipmateError, asyncio.CancelledError):
            await self.stop()
            raise

    def _open(self) -> AsyncWebClient:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS * self._outside.pace),
            timeout=aiohttp.ClientTimeout(total=self._call_seconds, connect=self._call_seconds / 2),
        )
        self._client = WebClient(
            report_missing_right=self._report_missing_right,
            token=self._settings.bot_token,
            base_url=self._settings.base_url,
            session=self._session,
            logger=LibraryLog(self._log),
            # The library's own retries post again after a lost answer.
            retry_handlers=[],
        )
        if urlsplit(self._settings.base_url).hostname in LOOPBACK:
            # The library takes a proxy from the environment and does not read NO_PROXY.
            self._client.proxy = None
        return self._client

    def _report_missing_right(self, right: str, words: Sentence) -> None:
        if self._intake is not None:
            self._intake.report_missing_right(self.name, right, words)

    async def _who_am_i(self, client: AsyncWebClient) -> incoming.BotIdentity:
        answer = await client.auth_test()
        team, user, bot = answer.get("team_id"), answer.get("user_id"), answer.get("bot_id")
        if not (isinstance(team, str) and isinstance(user, str) and isinstance(bot, str)):
            raise errors.ChannelRefused("Slack says that channels.slack.botToken is not the token of a bot")
        headers = {name.lower(): value for name, value in (answer.headers or {}).items()}
        self._scopes = frozenset(filter(None, headers.get("x-oauth-scopes", "").replace(" ", "").split(",")))
        site = answer.get("url")
        self._site = site if isinstance(site, str) else ""
        name = answer.get("user")
        return incoming.BotIdentity(
            team,
            user,
            bot,
            one_direct=self._settings.direct == "one",
            name=name if isinstance(name, str) else "",
        )

    async def _connect(self, client: AsyncWebClient) -> None:
        app = AsyncApp(
            name="shipmate",
            client=client,
            logger=client.logger,
            before_authorize=EventAcknowledger(self._take),
            ssl_check_enabled=False,
            request_verification_enabled=False,  # `HttpEvents` does that, before it reads
        )
        if (webhook := self._settings.webhook) is not None:
            self._events = HttpEvents(
                app,
                self._settings.signing_secret or "",
                webhook,
                self._outside,
                keep_dead_letter=self._keep_dead_letter,
            )
        else:
            self._events = self._socket(app, client)
        await self._events.start()

    def _socket(self, app: AsyncApp, client: AsyncWebClient) -> SocketConnection:
        connection = SocketConnection(
            app_token=self._settings.app_token or "",
            web_client=client,
            clock=self._outside.clock,
            rng=self._outside.rng,
            log=self._log,
            keep_dead_letter=self._keep_dead_letter,
            ping_interval=self._ping_seconds,
            pace=self._outside.pace,
        )
        EnvelopeHandler(app, connection, self._keep_dead_letter)
        return connection

    async def pause(self) -> None:
        if self._events is not None:
            await self._events.close()

    async def stop(self) -> None:
        await self.pause()
        await self._home.close()
        await self._names.close()
        await self._signs.close()
        if self._session is not None:
            await self._session.close()
        self._events = self._client = self._session = None

    def health(self) -> Health:
        if self._events is None:
            return Health(connected=False, detail="not started")
        return Health(self._events.well, self._events.last_heard, self._events.trouble)

    async def heal(self) -> None:
        if self._events is not None:
            self._events.renew()

    # In

    async def _take(self, body: Json) -> None:
        """Take in one payload; returns when Slack may be told. Raises `StorageError` when it may not."""
        event = body.get("event")
        told = event if isinstance(event, dict) else {}
        await self._mentions.wait_for_message(told)
        try:
            await self._taken(body)
        finally:
            self._mentions.message_taken_in(told)

    async def _taken(self, body: Json) -> None:
        mentioned: dict[str, None] = {}
        try:
            if self._opened(body):
                return
            message = self._read(body, mentioned.setdefault)
        except incoming.Unreadable as error:
            await self._keep_dead_letter(body, str(error))
            return
        if message is None or self._intake is None or self._client is None:
            return
        client, intake = self._client, self._intake
        heard = message.addressed != "chat" or await intake.hears_all(message.chat_key)
        if not heard and message.kind == "message":
            return
        # In the order in which they came: what is said after a message must not pass it while the name is asked for.
        turn = self._in_order.setdefault(message.chat_id, asyncio.Lock())
        async with turn:
            if heard and not message.from_bot and not message.is_stop:
                group = [message.chat_id] if message.chat_type == "group" else []
                people = (message.user_id, *group, *list(mentioned)[:MOST_MENTIONED])
                if unknown := [user for user in people if not self._names.has_asked(user)]:
                    await asyncio.gather(*(self._names.learn(user, client) for user in unknown))
        message = self._read(body, self._names.get) or message if mentioned else message
        self._names.renew(message.user_id, client)
        profile = self._names.profile(message.user_id)
        name = self._names.get(message.chat_id)
        known = {"user_name": profile.name, "language": profile.locale, "zone": profile.zone}
        named = message.model_copy(update=known | {"chat_name": name and f"#{name}"})
        if await self._accepted(named, intake) and message.kind == "stop" and not message.from_bot:
            self._signs.remove_stop(client, message.target["channel"], message.target["thread_ts"])

    def _opened(self, body: Json) -> bool:
        """True for the event of somebody who has opened the app's home."""
        opened = home_tab.read(body, self._me, self._outside.clock.now()) if self._me is not None else None
        if opened is not None and self._intake is not None and self._client is not None:
            self._home.open(opened, self._intake, self._client)
        return opened is not None

    async def _accepted(self, message: Inbound, intake: Intake) -> bool:
        """True if the intake took the message, or the part of it that its earlier mention lacked."""
        if await intake.accept(message):
            return True
        rest = incoming.rest_of(message, self._me) if self._me is not None else None
        return rest is not None and await intake.accept(rest)

    def _read(self, body: Json, names: Names) -> Inbound | None:
        if self._me is None:
            raise incoming.Unreadable("the bot is not signed in")
        kind = body.get("type")
        if kind == "event_callback":
            event = body.get("event")
            if isinstance(event, dict):
                self._unhandled.log_once(event.get("type"), event.get("subtype"))
            return incoming.read_event(body, self._me, names)
        if kind is None and "command" in body:
            self._response_urls.remember(body)
            return incoming.read_command(body, self._me, self._outside.clock.now())
        if kind == buttons.PRESSED:
            self._response_urls.remember(body)
            return buttons.read(body, self._me, self._outside.clock.now())
        if not isinstance(kind, str):
            raise incoming.Unreadable("type: missing")
        self._unhandled.log_once(kind)
        return None

    async def _keep_dead_letter(self, payload: Any, reason: str) -> None:
        raw = json.dumps(skeleton(payload))
        event_id = payload.get("event_id") if isinstance(payload, dict) else None
        mark = clean(event_id) if isinstance(event_id, str) else hashlib.sha256(raw.encode()).hexdigest()[:32]
        self._log.write(
            "inbound", "An event of Slack cannot be read", level="warn", event=mark[:80], reason=reason
        )
        if self._intake is not None:
            team = self._me.team if self._me is not None else "unknown"
            await self._intake.keep_dead_letter(self.name, f"slack:{team}:event:{mark[:80]}", raw, reason)

    async def context(self, inbound: Inbound) -> tuple[Quoted, ...]:
        client, root, before = self._client, inbound.target.get("thread_ts"), inbound.message_id
        opens = root == before
        if client is None or self._me is None or root is None or before is None:
            return ()
        if opens and (inbound.chat_type == "direct" or inbound.addressed != "mention"):
            return ()
        channel = inbound.target["channel"]
        with failures.raised_as(failures.history_error):
            said = await (
                self._said_before(client, self._me, channel, before)
                if opens
                else self._earlier(client, self._me, channel, root, before)
            )
            people = dict.fromkeys(one.user_id for one in said if one.user_id and not one.from_self)
            unknown = [user for user in people if not self._names.has_asked(user)][:MOST_MENTIONED]
            await asyncio.gather(*(self._names.learn(user, client) for user in unknown))
        named = self._names.get
        return tuple(one.model_copy(update={"user_name": named(one.user_id)}) for one in said)

    async def _said_before(
        self, client: AsyncWebClient, me: incoming.BotIdentity, channel: str, before: str
    ) -> Sequence[Quoted]:
        """The newest messages of a channel in a day, outside of threads. Slack gives those first."""
        oldest = f"{max(0, int(before.partition('.')[0]) - CHANNEL_SECONDS)}.000000"
        answer = await client.conversations_history(
            channel=channel, latest=before, oldest=oldest, limit=CHANNEL_POSTS
        )
        said = incoming.read_thread(answer.get("messages"), me, before, self._names.get)
        return incoming.newest(said, CHANNEL_MESSAGES)

    async def _earlier(
        self, client: AsyncWebClient, me: incoming.BotIdentity, channel: str, root: str, before: str
    ) -> Sequence[Quoted]:
        """The newest messages of a thread. Slack gives it from its beginning, page by page."""
        newest: deque[Quoted] = deque(maxlen=CONTEXT_MESSAGES)
        cursor: str | None = None
        for _ in range(PAGES):
            answer = await client.conversations_replies(
                channel=channel, ts=root, latest=before, limit=PAGE, cursor=cursor
            )
            newest.extend(incoming.read_thread(answer.get("messages"), me, before, self._names.get))
            cursor = (answer.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                break
        return newest

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> MembershipAnswer:
        """As `contracts.channel.KnowsMembers`."""
        if self._client is None:
            raise errors.ChannelUnreachable("Slack is not connected")
        with failures.raised_as(failures.connect_error):
            return await members.chats_of(self._client, user_id, chat_keys, direct=direct)

    async def zone_of(self, user_id: str) -> str | None:
        """As `contracts.channel.KnowsZones`."""
        if self._client is None:
            raise errors.ChannelUnreachable("Slack is not connected")
        with failures.raised_as(failures.connect_error):
            return await self._names.zone(user_id, self._client)

    def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        """As `contracts.channel.Files`."""
        if self._client is None or self._session is None:
            raise errors.FileUnreachable("Slack is not connected")
        return files.fetch(self._client, self._session, attachment, most=most, patience=self._call_seconds)

    def permalink(self, line: ArchiveLine) -> str | None:
        """As `contracts.channel.KnowsLinks`."""
        return members.permalink(self._site, line)

    async def introduce(self, inbound: Inbound) -> Introduction:  # noqa: ARG002 - it is the same everywhere
        """As `contracts.channel.Introduces`."""
        words = say("slack.hello", name=self._outside.name)
        missing = sorted(_READS - self._scopes) if self._scopes else []
        if not missing:
            return Introduction(words)
        return Introduction(
            paragraph(words, say("slack.deaf")), sentence("operators.deaf_slack", scopes=", ".join(missing))
        )

    # Out

    def split(self, text: str) -> list[str]:
        return render.split(text)

    async def send(self, message: Outbound) -> Sent:
        if self._client is None or self._session is None:
            raise errors.DeliveryFailed("Slack is not connected")
        if message.file is not None:
            return await uploads.send(self._client, self._session, message, message.file, self._outside.clock)
        return await self._send_text(self._client, mentions.answered(message, self._names.get))

    async def _send_text(self, client: AsyncWebClient, message: Outbound) -> Sent:
        markdown = render.render(message.text)
        if not markdown.strip():
            raise errors.DeliveryFailed("an empty message cannot be sent")
        if "press" in message.target:
            return await self._answer_press(message, markdown)
        if ONLY_TO in message.target:
            return await self._shown_alone(client, message, markdown)
        if _is_private(message) and await self._whispered(message, markdown):
            return Sent(message_id=message.id)
        try:
            if (ts := await self._streams.begin(client, message)) is not None:
                return Sent(message_id=ts)
            answer = await self._writer.write(
                client.chat_postMessage,
                message,
                markdown,
                channel=message.target["channel"],
                thread_ts=message.target.get("thread_ts"),
                unfurl_links=False,
                unfurl_media=False,
                metadata=_metadata(message),
            )
            ts = answer.get("ts")
        except failures.CALL_ERRORS as error:
            failure = failures.send_error(error)
            unsure = isinstance(failure, (errors.DeliveryThrottled, errors.DeliveryUncertain))
            # What is whispered cannot be changed, so a preview is not.
            if not unsure and message.kind != "preview" and await self._whispered(message, markdown):
                return Sent(message_id=message.id)
            raise failure from None
        if not isinstance(ts, str):
            raise errors.DeliveryUncertain("Slack's answer names no message")
        # A message to a person is in a conversation of another id, and only that can be named to change it.
        channel = answer.get("channel")
        elsewhere = isinstance(channel, str) and channel != message.target["channel"]
        return Sent(message_id=f"{channel}/{ts}" if elsewhere else ts)

    async def edit(self, message: Outbound, message_id: str) -> None:
        """As `contracts.channel.Edits`."""
        if self._client is None:
            raise errors.DeliveryFailed("Slack is not connected")
        message = mentions.answered(message, self._names.get)
        markdown = render.render(message.text)
        if not markdown.strip():
            raise errors.DeliveryFailed("an empty message cannot be sent")
        place = _own(message, message_id)
        with failures.raised_as(failures.edit_error):
            ending: Json = {"metadata": _metadata(message)}
            if self._writer.rates(message):
                ending["blocks"] = [buttons.thumbs(message.language)]
            if not await self._streams.show(self._client, message, markdown, place, ending):
                await self._changed(self._client, message, markdown, place)

    async def delete(self, message: Outbound, message_id: str) -> None:
        """As `contracts.channel.Edits`."""
        if self._client is None:
            raise errors.DeliveryFailed("Slack is not connected")
        channel, ts = place = _own(message, message_id)
        with failures.raised_as(failures.edit_error):
            if self._streams.is_open(channel, ts):
                await self._streams.end(self._client, place)
            await self._client.chat_delete(channel=channel, ts=ts)

    async def _changed(
        self, client: AsyncWebClient, message: Outbound, markdown: str, place: tuple[str, str]
    ) -> None:
        where: Json = {"channel": place[0], "ts": place[1], "metadata": _metadata(message)}
        try:
            await self._writer.write(client.chat_update, message, markdown, **where)
        except SlackApiError as error:
            if failures.error_code(error) != failures.CONFLICT:
                raise
            # A stream of an earlier process.
            await self._streams.end(client, place)
            await self._writer.write(client.chat_update, message, markdown, **where)

    async def _answer_press(self, message: Outbound, markdown: str) -> Sent:
        """Answer the person who pressed a button; no other person sees it."""
        if self._session is None or not await self._response_urls.answer(
            message.target["press"], markdown, self._session
        ):
            raise errors.DeliveryFailed("the press of a button can no longer be answered")
        return Sent(message_id=message.id)

    async def _shown_alone(self, client: AsyncWebClient, message: Outbound, markdown: str) -> Sent:
        """Show a message to one person: as the answer to their slash command, else in the place where they wrote."""
        if await self._whispered(message, markdown):
            return Sent(message_id=message.id)
        target = message.target
        root = target.get("thread_ts")
        with failures.raised_as(failures.send_error):
            await client.chat_postEphemeral(
                channel=target["channel"],
                user=target[ONLY_TO],
                # Slack shows none in a thread that nobody has replied in yet.
                thread_ts=root if root != target.get(ABOUT) else None,
                markdown_text=markdown,
            )
        return Sent(message_id=message.id)

    async def _whispered(self, message: Outbound, markdown: str) -> bool:
        """True if the answer to a slash command was shown to its person alone."""
        trigger = message.target.get("trigger")
        return self._session is not None and await self._response_urls.answer(
            trigger, markdown, self._session
        )

    async def find(self, message: Outbound) -> Sent | None:
        """By the id in its metadata, in the thread (or among the newest of the channel) where it should be."""
        if self._client is None:
            raise errors.DeliveryUncertain("Slack is not connected")
        if ONLY_TO in message.target:
            raise errors.DeliveryUncertain("Slack does not tell what one person was shown alone")
        with failures.raised_as(failures.find_error):
            return await self._found(self._client, message)

    async def _found(self, client: AsyncWebClient, message: Outbound) -> Sent | None:
        where: dict[str, Any] = {
            "channel": message.target["channel"],
            "limit": PAGE,
            "include_all_metadata": True,
        }
        root = message.target.get("thread_ts")
        cursor: str | None = None
        for _ in range(PAGES):
            if root:
                answer = await client.conversations_replies(**where, ts=root, cursor=cursor)
            else:
                answer = await client.conversations_history(**where, cursor=cursor)
            for post in answer.get("messages") or ():
                payload = (post.get("metadata") or {}).get("event_payload") or {}
                if message.file is not None:
                    found = self._is_mine(post) and uploads.is_in(post, message, message.file)
                else:
                    found = payload.get("id") == message.id or self._is_stream_of(message, post)
                if found:
                    return Sent(message_id=str(post["ts"]))
            cursor = (answer.get("response_metadata") or {}).get("next_cursor")
            if not cursor:
                return None
        raise errors.DeliveryUncertain("there is more in this conversation than can be looked through")

    def _is_mine(self, post: Json) -> bool:
        me = self._me
        return me is not None and (post.get("bot_id") == me.bot or post.get("user") == me.user)

    def _is_stream_of(self, message: Outbound, post: Json) -> bool:
        mine = self._me is not None and post.get("bot_id") == self._me.bot
        known = self._streams.is_open(message.target["channel"], str(post["ts"]))
        begun = message.kind == "preview" and mine and not known and begun_as(message, post)
        return begun and uploads.may_be(post, message)

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        thread_ts = target.get("thread_ts")
        if self._client is None or thread_ts is None:
            return
        with failures.raised_as(failures.send_error):
            await self._signs.show(self._client, target["channel"], thread_ts, working=working)

    async def entitle(self, target: Mapping[str, str], title: str) -> None:
        """As `contracts.channel.Titles`."""
        thread_ts = target.get("thread_ts")
        if self._client is None or thread_ts is None or not address.is_direct(target["channel"]):
            return
        with failures.raised_as(failures.send_error):
            await self._signs.entitle(self._client, target["channel"], thread_ts, title)

    async def react(self, target: Mapping[str, str], message_id: str) -> None:
        """As `contracts.channel.Reacts`."""
        if self._client is None:
            return
        with failures.raised_as(failures.send_error):
            await self._signs.react(self._client, target["channel"], message_id)

    async def suspend(self, target: Mapping[str, str]) -> None:
        """As `contracts.channel.Suspends`: the session of the thread is suspended."""
        thread_ts = target.get("thread_ts")
        if self._client is None or thread_ts is None:
            return
        with failures.raised_as(failures.send_error):
            await self._signs.suspend(self._client, target["channel"], thread_ts)


def _is_private(message: Outbound) -> bool:
    """True for what is said of a slash command in a channel, which nobody else has seen. Others may have to press buttons."""
    target = message.target
    return (
        message.kind == "notice"
        and "trigger" in target
        and message.buttons is None
        and not address.is_direct(target["channel"])
    )


def _own(message: Outbound, message_id: str) -> tuple[str, str]:
    """The conversation and `ts` of a message of the bot's."""
    channel, _, ts = message_id.rpartition("/")
    return channel or message.target["channel"], ts


def _metadata(message: Outbound) -> Json:
    """The metadata by which `find` recognises a message; an edit replaces it with that of the new message."""
    return {
        "event_type": METADATA,
        "event_payload": {"id": message.id, "request_id": message.request_id},
    }
