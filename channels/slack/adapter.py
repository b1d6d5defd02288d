"""Implements the Slack channel: receives events through Socket Mode or a webhook, and calls the Web API."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import aiohttp
from slack_bolt.app.async_app import AsyncApp
from slack_bolt.response import BoltResponse
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot import errors
from bot.contracts.base import Json
from bot.contracts.channel import (
    LOOPBACK,
    Channel,
    ChannelDeps,
    Health,
    Intake,
    Introduction,
    MembershipAnswer,
    ReadingLimits,
)
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ABOUT, ONLY_TO, ArchiveLine, Attachment, Inbound, Outbound, Quoted, Sent
from bot.text import clean
from bot.words import paragraph, say, sentence
from channels.slack import content, files, render, web_api
from channels.slack import inbound as incoming
from channels.slack.events import HttpEvents, SocketConnection
from channels.slack.manifest import SlackSettings, is_direct

CALL_SECONDS = 20.0  # Timeout in seconds of a Web API call
IDLE_SECONDS = 4.0
"""Max seconds that an unused connection is kept, because firewalls drop idle connections silently."""
HOLD_SECONDS = 0.5
"""Seconds by which an `app_mention` without files is delayed, so that the `message` event of the same post is processed first."""
MAX_KNOWN = 1_000  # Max response URLs that are kept in memory
THREAD_MESSAGES = 50  # Max earlier messages of a thread that the model gets with a message there
CHANNEL_MESSAGES = 30
"""Max earlier messages of people, and max earlier messages of bots, that the model gets with a channel's mention."""
CHANNEL_POSTS = 100  # Max messages of a channel that are requested from Slack for a mention
CHANNEL_SECONDS = 86_400  # Max age in seconds of a channel's messages that the model gets with a mention
PAGE = 200
PAGES = 10  # Max pages that are requested of one thread or channel
MAX_LOOKUPS = 10  # Max people whose names are looked up for one message
METADATA = "shipmate_message"
SKEW = 60.0  # Max seconds by which Slack's clock may be behind ours
LOADING = 4  # Number of status lines that Slack shows one after another
_READS = frozenset({"channels:history", "groups:history"})
"""OAuth scopes for reading channels. An app without these scopes receives only mentions."""
_TS = re.compile(r"(\d{1,12})\.(\d{6})")


@dataclass(frozen=True, slots=True)
class _Workspace:
    """The workspace of a started channel, and the objects that work with it."""

    client: web_api.WebClient
    intake: Intake
    me: incoming.BotIdentity
    people: web_api.People
    streams: render.Streams


class SlackChannel(Channel):
    """Implements `contracts.channel.Channel` and the protocols of optional channel features for one Slack workspace."""

    name = "slack"
    largest_file = 50_000_000
    # Slack wraps the cells of tables, so wide tables stay readable.
    reading_limits = ReadingLimits(characters=11_000, columns=200)

    def __init__(self, settings: SlackSettings, outside: ChannelDeps) -> None:
        self.addresses: tuple[str, ...] = ()
        self._settings = settings
        self._outside = outside
        self._log = outside.log
        self._call_seconds = CALL_SECONDS * outside.pace
        self._session: aiohttp.ClientSession | None = None
        self._started: _Workspace | None = None
        self._events: SocketConnection | HttpEvents | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One lock per channel id. The lock keeps the channel's messages in order while the names of people are looked up."""
        self._response_urls: OrderedDict[str, str] = OrderedDict()
        """Response URLs of slash commands and button presses, by `trigger_id`. The URLs are kept only in memory, because
        anybody who has such a URL can post with it for half an hour.
        """

    @property
    def _workspace(self) -> _Workspace:
        if self._started is None:
            raise web_api.NotConnected
        return self._started

    async def start(self, intake: Intake) -> None:
        await self.stop()
        try:
            with web_api.raised_as(web_api.call_error):
                self._started = await self._sign_in(intake)
                self._events = self._make_events(self._started)
                await self._events.start()
        except (errors.ShipmateError, asyncio.CancelledError):
            await self.stop()
            raise

    async def _sign_in(self, intake: Intake) -> _Workspace:
        clock, log = self._outside.clock, self._log
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(keepalive_timeout=IDLE_SECONDS * self._outside.pace),
            timeout=aiohttp.ClientTimeout(total=self._call_seconds, connect=self._call_seconds / 2),
        )
        base_url = self._settings.base_url
        client = web_api.WebClient(
            log, intake, token=self._settings.bot_token, base_url=base_url, session=self._session
        )
        if urlsplit(base_url).hostname in LOOPBACK:
            # The library takes proxies from the environment but ignores NO_PROXY, so use none for this machine.
            client.proxy = None
        answer = await client.auth_test()
        team, user, bot = answer.get("team_id"), answer.get("user_id"), answer.get("bot_id")
        if not (isinstance(team, str) and isinstance(user, str) and isinstance(bot, str)):
            raise errors.ChannelRefused("Slack says that channels.slack.botToken is not the token of a bot")
        headers = {name.lower(): value for name, value in (answer.headers or {}).items()}
        scopes = headers.get("x-oauth-scopes", "").replace(" ", "").split(",")
        name, site = (str(answer.get(key) or "") for key in ("user", "url"))
        one_direct = self._settings.direct == "one"
        me = incoming.BotIdentity(team, user, bot, one_direct, name, site, frozenset(filter(None, scopes)))
        people, streams = web_api.People(client, log, clock), render.Streams(client, clock)
        return _Workspace(client, intake, me, people, streams)

    def _make_events(self, workspace: _Workspace) -> SocketConnection | HttpEvents:
        app = AsyncApp(
            name="shipmate",
            client=workspace.client,
            logger=workspace.client.logger,
            before_authorize=self._process,
            ssl_check_enabled=False,
            request_verification_enabled=False,  # `HttpEvents` has verified the signature already
        )
        if (webhook := self._settings.webhook) is not None:
            secret = self._settings.signing_secret or ""
            return HttpEvents(app, secret, webhook, self._outside, keep_dead_letter=self._keep_dead_letter)
        return SocketConnection(app, self._settings.app_token or "", self._outside)

    async def pause(self) -> None:
        if self._events is not None:
            await self._events.close()

    async def stop(self) -> None:
        await self.pause()
        if self._started is not None:
            await self._started.people.close()
        if self._session is not None:
            await self._session.close()
        self._events = self._started = self._session = None

    def health(self) -> Health:
        if self._events is None:
            return Health(connected=False, detail="not started")
        return self._events.health()

    async def heal(self) -> None:
        if self._events is not None:
            self._events.renew()

    # Events from Slack

    async def _process(self, body: Json) -> BoltResponse:
        """Process one payload. bolt acknowledges the payload after this method returns. Raises `errors.StorageError` if
        Slack must deliver the payload again.
        """
        event = body.get("event")
        if isinstance(event, dict) and event.get("type") == "app_mention" and not event.get("files"):
            await asyncio.sleep(HOLD_SECONDS)
        try:
            await self._accept(body, self._workspace)
        except incoming.Unreadable as error:
            await self._keep_dead_letter(body, str(error))
        return BoltResponse(status=200, body="")

    async def _accept(self, body: Json, workspace: _Workspace) -> None:
        intake, me, people = workspace.intake, workspace.me, workspace.people
        now = self._outside.clock.now()
        if (opened := incoming.read_home(body, me, now)) is not None:
            try:
                await people.learn([opened.user_id])
                view = render.home(await intake.home(people.named(opened)))
                await workspace.client.views_publish(user_id=opened.user_id, view=view)
            except (*web_api.CALL_ERRORS, errors.ShipmateError) as error:
                kind = type(error).__name__
                self._log.write("channel", f"Slack did not take the home of a person ({kind})", level="warn")
            return
        mentioned: dict[str, None] = {}
        message = incoming.read(body, me, now, mentioned.setdefault)
        if message is None:
            return
        trigger, url = body.get("trigger_id"), body.get("response_url")
        if isinstance(trigger, str) and isinstance(url, str):
            self._response_urls[trigger] = url
            if len(self._response_urls) > MAX_KNOWN:
                self._response_urls.popitem(last=False)
        heard = message.addressed != "chat" or await intake.hears_all(message.chat_key)
        if not heard and message.kind == "message":
            return
        async with self._locks.setdefault(message.chat_id, asyncio.Lock()):
            if heard and not message.from_bot and not message.is_stop:
                group = [message.chat_id] if message.chat_type == "group" else []
                await people.learn((message.user_id, *group, *list(mentioned)[:MAX_LOOKUPS]))
        if mentioned:
            message = incoming.read(body, me, now, people.name) or message
        message = people.named(message)
        accepted = await intake.accept(message)
        if not accepted and (rest := incoming.rest_of(message)) is not None:
            await intake.accept(rest)

    async def _keep_dead_letter(self, payload: Any, reason: str) -> None:
        raw = json.dumps(incoming.skeleton(payload))
        event_id = payload.get("event_id") if isinstance(payload, dict) else None
        mark = clean(event_id) if isinstance(event_id, str) else hashlib.sha256(raw.encode()).hexdigest()[:32]
        self._log.write(
            "inbound", "An event of Slack cannot be read", level="warn", event=mark[:80], reason=reason
        )
        workspace = self._workspace
        key = f"slack:{workspace.me.team}:event:{mark[:80]}"
        await workspace.intake.keep_dead_letter(self.name, key, raw, reason)

    async def context(self, inbound: Inbound) -> tuple[Quoted, ...]:
        root, before = inbound.target.get("thread_ts"), inbound.message_id
        if self._started is None or root is None or before is None:
            return ()
        if root == before and (inbound.chat_type == "direct" or inbound.addressed != "mention"):
            return ()
        people = self._started.people
        with web_api.raised_as(web_api.call_error):
            said = await self._earlier(inbound.target["channel"], None if root == before else root, before)
            await people.learn(
                [one.user_id for one in said if one.user_id and not one.from_self], MAX_LOOKUPS
            )
        return tuple(one.model_copy(update={"user_name": people.name(one.user_id)}) for one in said)

    async def _earlier(self, channel: str, root: str | None, before: str) -> Sequence[Quoted]:
        """Return the newest messages of a thread or channel, oldest first. (Slack returns a thread oldest first, a channel
        newest first.)
        """
        client, me, name = self._workspace.client, self._workspace.me, self._workspace.people.name
        if root is None:
            oldest = f"{max(0, int(before.partition('.')[0]) - CHANNEL_SECONDS)}.000000"
            answer = await client.conversations_history(
                channel=channel, latest=before, oldest=oldest, limit=CHANNEL_POSTS
            )
            said = incoming.read_thread(answer.get("messages"), me, before, name)
            return incoming.newest(said, CHANNEL_MESSAGES)
        newest: deque[Quoted] = deque(maxlen=THREAD_MESSAGES)
        answer = await client.conversations_replies(channel=channel, ts=root, latest=before, limit=PAGE)
        async for page in web_api.pages(answer, PAGES):
            newest.extend(incoming.read_thread(page.get("messages"), me, before, name))
        return newest

    async def chats_of(self, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool) -> MembershipAnswer:
        with web_api.raised_as(web_api.call_error):
            return await self._workspace.people.chats_of(user_id, chat_keys, direct=direct)

    async def zone_of(self, user_id: str) -> str | None:
        with web_api.raised_as(web_api.call_error):
            return await self._workspace.people.zone_of(user_id)

    def fetch(self, attachment: Attachment, *, most: int) -> AsyncGenerator[bytes]:
        if self._started is None:
            raise errors.FileUnreachable("Slack is not connected")
        return files.fetch(self._started.client, attachment, most=most, patience=self._call_seconds)

    def permalink(self, line: ArchiveLine) -> str | None:
        ts = _TS.fullmatch(line.message_id or "")
        site = "" if self._started is None else self._started.me.site
        if ts is None or line.chat_key.channel != self.name or urlsplit(site).scheme != "https":
            return None
        return f"{site.rstrip('/')}/archives/{line.chat_key.chat_id}/p{ts[1]}{ts[2]}"

    async def introduce(self, inbound: Inbound) -> Introduction:  # noqa: ARG002 - the introduction is the same in each chat
        words = say("slack.hello", name=self._outside.name)
        scopes = self._workspace.me.scopes
        if not scopes or not (missing := sorted(_READS - scopes)):
            return Introduction(words)
        hindrance = sentence("operators.deaf_slack", scopes=", ".join(missing))
        return Introduction(paragraph(words, say("slack.deaf")), hindrance)

    # Messages to Slack

    def split(self, text: str) -> list[str]:
        return render.split(text)

    async def send(self, message: Outbound) -> Sent:
        with web_api.raised_as(web_api.send_error):
            workspace = self._workspace
        if message.file is not None:
            return await files.send(workspace.client, message, message.file, self._outside.clock)
        message = content.answered(message, workspace.people.name)
        markdown = _rendered(message)
        if (trigger := message.target.get("press")) is not None:
            if not await self._whispered(trigger, markdown):
                raise errors.DeliveryFailed("the press of a button can no longer be answered")
            return Sent(message_id=message.id)
        alone, in_channel = ONLY_TO in message.target, not is_direct(message.target["channel"])
        # Only the sender of a slash command sees its answer. Everybody sees a question, because others may press its buttons.
        private = message.kind == "notice" and message.buttons is None and in_channel
        if (alone or private) and await self._whispered(message.target.get("trigger"), markdown):
            return Sent(message_id=message.id)
        if not alone:
            return await self._post(message, markdown)
        where: Json = {"channel": message.target["channel"], "user": message.target[ONLY_TO]}
        # Slack shows no ephemeral message in a thread without replies, so such a message is posted in the channel.
        if (root := message.target.get("thread_ts")) != message.target.get(ABOUT):
            where["thread_ts"] = root
        with web_api.raised_as(web_api.send_error):
            await workspace.client.chat_postEphemeral(**where, markdown_text=markdown)
        return Sent(message_id=message.id)

    async def _post(self, message: Outbound, markdown: str) -> Sent:
        client, target = self._workspace.client, message.target
        where = {"channel": target["channel"], "thread_ts": target.get("thread_ts")}
        more = {"unfurl_links": False, "unfurl_media": False, "metadata": _metadata(message)}
        try:
            if (begun := await self._workspace.streams.begin(message)) is not None:
                return Sent(message_id=begun)
            answer = await render.write(client.chat_postMessage, client, message, markdown, **where, **more)
            channel, ts = answer.get("channel"), answer.get("ts")
        except web_api.CALL_ERRORS as error:
            failure = web_api.send_error(error)
            unsure = isinstance(failure, (errors.DeliveryThrottled, errors.DeliveryUncertain))
            # Previews are never ephemeral, because an ephemeral message cannot be edited.
            trigger = target.get("trigger") if message.kind != "preview" else None
            if not unsure and await self._whispered(trigger, markdown):
                return Sent(message_id=message.id)
            raise failure from None
        if not isinstance(ts, str):
            raise errors.DeliveryUncertain("Slack's answer names no message")
        # If the target is a user id, Slack returns the id of the direct channel. Later edits need this channel id.
        elsewhere = isinstance(channel, str) and channel != target["channel"]
        return Sent(message_id=f"{channel}/{ts}" if elsewhere else ts)

    async def _whispered(self, trigger: str | None, markdown: str) -> bool:
        if (url := self._response_urls.get(trigger or "")) is None:
            return False
        message = {"response_type": "ephemeral", "replace_original": False, "text": content.escape(markdown)}
        try:
            async with self._workspace.client.session.post(url, json=message) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError):
            return False

    async def edit(self, message: Outbound, message_id: str) -> None:
        with web_api.raised_as(web_api.edit_error):
            client, streams = self._workspace.client, self._workspace.streams
            message = content.answered(message, self._workspace.people.name)
            markdown, place, metadata = _rendered(message), _place(message, message_id), _metadata(message)
            if await streams.show(message, markdown, place, metadata):
                return
            where = {"channel": place[0], "ts": place[1], "metadata": metadata}
            try:
                await render.write(client.chat_update, client, message, markdown, **where)
            except SlackApiError as error:
                if web_api.error_code(error) != web_api.CONFLICT:
                    raise
                # An earlier process left the message's stream open, which blocks edits.
                await streams.end(place)
                await render.write(client.chat_update, client, message, markdown, **where)

    async def delete(self, message: Outbound, message_id: str) -> None:
        channel, ts = place = _place(message, message_id)
        with web_api.raised_as(web_api.edit_error):
            if place in self._workspace.streams.open:
                await self._workspace.streams.end(place)
            await self._workspace.client.chat_delete(channel=channel, ts=ts)

    async def find(self, message: Outbound) -> Sent | None:
        """Implement `contracts.channel.Channel.find`: find the post whose metadata contains the message's id, in the thread
        or among the channel's newest posts.
        """
        if ONLY_TO in message.target:
            raise errors.DeliveryUncertain("Slack does not list ephemeral messages")
        where: Json = {"channel": message.target["channel"], "limit": PAGE, "include_all_metadata": True}
        root = message.target.get("thread_ts")
        with web_api.raised_as(web_api.find_error):
            client = self._workspace.client
            if root:
                first = await client.conversations_replies(**where, ts=root)
            else:
                first = await client.conversations_history(**where)
            async for page in web_api.pages(first, PAGES):
                for post in page.get("messages") or ():
                    if self._is_post_of(message, post):
                        return Sent(message_id=str(post["ts"]))
            if web_api.has_more(first):
                raise errors.DeliveryUncertain("the conversation has too many messages to look through")
        return None

    def _is_post_of(self, message: Outbound, post: Json) -> bool:
        """Return True if the post shows the message. The posts of a file and of an open stream have no metadata, so their
        content and time are compared.
        """
        ts, me, file = str(post["ts"]), self._workspace.me, message.file
        payload = (post.get("metadata") or {}).get("event_payload") or {}
        if file is None and payload.get("id") == message.id:
            return True
        mine = post.get("bot_id") == me.bot or post.get("user") == me.user
        if not mine or float(ts) < message.meant_at - SKEW or ts in message.claimed:
            return False
        if file is None:
            known = (message.target["channel"], ts) in self._workspace.streams.open
            return message.kind == "preview" and not known and render.begun_as(message, post)
        found = [one for one in post.get("files") or () if isinstance(one, dict)]
        like_it = (one for one in found if (one.get("name"), one.get("size")) == (file.name, len(file.data)))
        return any(one.get("id") not in message.claimed for one in like_it)

    # Status, titles and reactions

    async def indicate(self, target: Mapping[str, str], *, working: bool) -> None:
        await self._set_status(target, "processing" if working else "active")

    async def suspend(self, target: Mapping[str, str]) -> None:
        await self._set_status(target, "suspended")

    async def _set_status(self, target: Mapping[str, str], status: str) -> None:
        """Set a thread's status line and the status of its agent session, which shows a stop button. Does nothing outside
        threads, because only threads have sessions.
        """
        if "thread_ts" not in target:
            return
        where = {"channel_id": target["channel"], "thread_ts": target["thread_ts"]}
        await self._sign("stop button", AsyncWebClient.agents_sessions_setStatus, **where, status=status)
        line: Json = {"status": ""}
        if status == "processing":
            loading = [say(f"slack.loading_{number}") for number in range(1, LOADING + 1)]
            line = {"status": say("slack.thinking"), "loading_messages": loading}
        await self._sign("sign of work", AsyncWebClient.assistant_threads_setStatus, **where, **line)

    async def entitle(self, target: Mapping[str, str], title: str) -> None:
        if "thread_ts" in target and is_direct(target["channel"]):
            where = {"channel_id": target["channel"], "thread_ts": target["thread_ts"]}
            call = AsyncWebClient.assistant_threads_setTitle
            await self._sign("titles of conversations", call, **where, title=title)

    async def react(self, target: Mapping[str, str], message_id: str) -> None:
        where = {"channel": target["channel"], "timestamp": message_id}
        await self._sign("reactions", AsyncWebClient.reactions_add, **where, name="eyes")

    async def _sign(self, feature: str, call: Callable[..., Awaitable[Any]], **fields: Any) -> None:
        """Call a method of the client. Do nothing if the workspace is known to lack the feature."""
        with web_api.raised_as(web_api.send_error):
            client = self._workspace.client
            if feature in client.lacking:
                return
            try:
                await call(client, **fields)
            except SlackApiError as error:
                if web_api.error_code(error) in web_api.UNSUPPORTED:
                    client.lacks(feature, error)
                elif web_api.error_code(error) != "already_reacted":
                    raise


def _rendered(message: Outbound) -> str:
    markdown = render.render(message.text)
    if not markdown.strip():
        raise errors.DeliveryFailed("an empty message cannot be sent")
    return markdown


def _place(message: Outbound, message_id: str) -> tuple[str, str]:
    channel, _, ts = message_id.rpartition("/")
    return channel or message.target["channel"], ts


def _metadata(message: Outbound) -> Json:
    return {"event_type": METADATA, "event_payload": {"id": message.id, "request_id": message.request_id}}
