"""A fake Slack server for tests, with Web API and Socket Mode, as strict as the real service.

    server = SlackServer()
    ada = server.add_user("U0ADA", name="Ada")
    direct = server.add_im(ada)
    async with server:
        …start a client on server.api_url with server.bot_token and server.app_token…
        ts = await server.say("hello", channel=direct, user=ada)
        await server.until(lambda: server.replies(direct, ts))

Only the users and conversations that the test adds (`add_*`) exist. `say`, `edit`, `delete` and `command` act as a
person does in the Slack client. `push` and `envelope` send any event. `visible` returns the
messages that a person sees now. `fail` (see `loopback.Fault`) and `limit` make requests fail.
"""

from __future__ import annotations

import itertools
import json
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from aiohttp import web

from bot.contracts.base import Json
from bot.contracts.environment import Clock
from bot.testing import slack_scopes
from bot.testing._slack_api import WebApi, changed, deleted
from bot.testing._slack_files import FileHosting
from bot.testing._slack_link import Delivery, Link
from bot.testing._slack_requests import RequestUrl
from bot.testing._slack_world import ApiError, Post, Room, RoomKind, World, escape
from bot.testing.loopback import ChatCounts

BOT_TOKEN, APP_TOKEN = "xoxb-1-loopback", "xapp-1-loopback"
_STOPPED = "agent_session_stopped"
_JOINED = "member_joined_channel"
_OPENED = "app_home_opened"
SUBSCRIPTIONS = frozenset(slack_scopes.EVENTS)
PING_SECONDS = 10.0
MOST_ANSWERS = 5
"""Max answers that may be sent to the response address of one slash command or button press."""
Telling = Literal["message", "app_mention", "bare_mention"]
BOTH: tuple[Telling, ...] = ("message", "app_mention")
_SUBSCRIPTION = {"im": "im", "mpim": "mpim", "channel": "channels", "group": "groups"}


@dataclass(frozen=True, slots=True)
class Seen:
    """A message as a person sees it. `text` is the text before escaping; `bot` is True if Shipmate wrote it."""

    ts: str
    text: str
    user: str | None
    bot: bool
    thread_ts: str | None
    metadata: Mapping[str, Any] | None
    unfurl_links: bool | None
    unfurl_media: bool | None
    buttons: tuple[str, ...] = ()
    """Values of the message's buttons."""
    files: tuple[str, ...] = ()
    """Names of the message's files."""


class SlackServer(FileHosting):
    """A fake Slack server. The module docstring has an example.

    `ping_every` is the interval in seconds between the server's pings. If it is None, the server pings every 10 s
    on the real clock, and never on a test clock. If the app does not acknowledge an event
    within 3 s, the server sends it again: at once, after 1 minute and after 5 minutes.
    """

    def __init__(
        self, *, clock: Clock | None = None, app_token: str = APP_TOKEN, ping_every: float | None = None
    ) -> None:
        super().__init__(clock=clock)
        if ping_every is None:
            ping_every = PING_SECONDS if clock is None else 0.0
        self.bot_token, self.app_token = BOT_TOKEN, app_token
        self.app_scopes = {"connections:write"}
        self.world = World(self.clock)
        self.api = WebApi(self.world, self._emit, self._announce, lambda: self.url)
        self.subscriptions = self.world.subscriptions = set(SUBSCRIPTIONS)
        self.link = Link(self.clock, self.changed, self.world.app_id, ping_every)
        self._count = itertools.count(1)
        self._commands: set[int] = set()
        self._answers: Counter[int] = Counter()
        self.ephemeral: list[str] = []
        """Texts of the ephemeral answers to slash commands and button presses, as mrkdwn."""
        self.front: int | None = None
        """Port of a proxy through which clients open sockets; None if they connect to this server directly."""
        self.add_user(self.world.bot_user, name="shipmate", is_bot=True)

    # Users and conversations

    def add_user(
        self, user: str, *, name: str, is_bot: bool = False, locale: str = "en-US", tz: str | None = None
    ) -> str:
        self.world.users[user] = {
            "id": user,
            "team_id": self.world.team,
            "name": name.lower(),
            "real_name": name,
            "profile": {"real_name": name, "display_name": name},
            "is_bot": is_bot,
            "deleted": False,
            "locale": locale,
        } | ({} if tz is None else {"tz": tz})
        return user

    def add_channel(
        self,
        channel: str,
        *,
        kind: RoomKind = "channel",
        members: Iterable[str] = (),
        bot: bool = True,
        archived: bool = False,
    ) -> str:
        """Add a conversation with these members; return its id. The bot is a member unless `bot` is False."""
        inside = {*members, self.world.bot_user} if bot else set(members)
        self.world.rooms[channel] = Room(channel, kind, channel.lower(), inside, archived)
        return channel

    def add_im(self, user: str) -> str:
        """Add the direct conversation between a user and the bot; return its id."""
        return self.add_channel(f"D{user[1:]}", kind="im", members=[user])

    @property
    def api_url(self) -> str:
        """Base URL for the `baseUrl` setting of the Slack channel."""
        return f"{self.url}/api/"

    async def post_to(self, url: str) -> None:
        """Switch from Socket Mode to HTTP: verify the request URL, and post all later payloads to it."""
        requests = RequestUrl(url, self.clock)
        await requests.verify()
        self.link.requests = requests

    # Actions of people

    async def invite(self, channel: str, *, by: str, user: str | None = None) -> None:
        """Add the bot, or another `user`, to a conversation."""
        room = self.world.rooms[channel]
        joined = user or self.world.bot_user
        room.members.add(joined)
        if self._hears(_JOINED, room):
            event = {
                "user": joined,
                "channel": channel,
                "channel_type": "C",
                "team": self.world.team,
                "inviter": by,
            }
            await self.push({"type": _JOINED, "event_ts": self.world.stamp()} | event)

    async def say(
        self,
        text: str,
        *,
        channel: str,
        user: str | None,
        thread_ts: str | None = None,
        subtype: str | None = None,
        files: Sequence[Json] = (),
        blocks: Sequence[Json] = (),
        attachments: Sequence[Json] = (),
        bot_id: str | None = None,
        told: Sequence[Telling] = BOTH,
    ) -> str:
        """Post a message as a person (or as another bot, with `bot_id`); return the message's timestamp."""
        room = self.world.rooms[channel]
        post = Post(
            ts=self.world.stamp(),
            text=text,
            user=user,
            bot_id=bot_id,
            thread_ts=thread_ts,
            subtype=subtype or ("file_share" if files else None),
            files=files,
            blocks=blocks,
            attachments=attachments,
            client_msg_id=None if bot_id else secrets.token_hex(8),
        )
        self.world.add(room, post)
        await self.tell(channel, post.ts, told)
        return post.ts

    async def tell(self, channel: str, ts: str, told: Sequence[Telling] = BOTH) -> None:
        """Send the app the event `message` of a posted message. If the message mentions the bot in a channel, also send
        `app_mention`. `told` can leave out one of the events.
        """
        room = self.world.rooms[channel]
        await self._announce(room, room.posts[ts], told)

    def shared(
        self, channel: str, ts: str, *, link: bool = False, files: Sequence[Json] | None = None
    ) -> Json:
        """Return an attachment for `say(attachments=[…])` that shares another message. With `link`, the attachment
        is the preview of a link to that message.
        """
        room = self.world.rooms[channel]
        post = room.posts[ts]
        author = self.world.users.get(post.user or "", {})
        address = f"https://example.slack.com/archives/{channel}/p{ts.replace('.', '')}"
        attachment: Json = {
            "id": 1,
            "ts": ts,
            "author_id": post.user or post.bot_id,
            "author_name": author.get("real_name", ""),
            "author_subname": author.get("real_name", ""),
            "author_link": f"https://example.slack.com/team/{post.user}",
            "channel_id": channel,
            "channel_team": self.world.team,
            "channel_name": room.name,
            "is_msg_unfurl": True,
            "text": escape(post.text),
            "fallback": f"[{ts}] {author.get('name', '')}: {escape(post.text)}",
            "from_url": address,
            "footer": "Slack Conversation",
            "mrkdwn_in": ["text"],
        }
        carried = post.files if files is None else files
        return (
            attachment
            | ({"original_url": address} if link else {"is_share": True})
            | ({"files": list(carried)} if carried else {})
            | (
                {
                    "message_blocks": [
                        {
                            "team": self.world.team,
                            "channel": channel,
                            "ts": ts,
                            "message": {"blocks": list(post.blocks)},
                        }
                    ]
                }
                if post.blocks
                else {}
            )
        )

    async def edit(self, channel: str, ts: str, text: str) -> None:
        room = self.world.rooms[channel]
        post = room.posts[ts]
        before = self.world.message(room, post)
        post.text, post.edited = text, {"user": post.user, "ts": self.world.stamp()}
        await self._emit(room, changed(self.world, room, post, before))

    async def delete(self, channel: str, ts: str) -> None:
        room = self.world.rooms[channel]
        await self._emit(room, deleted(self.world, room, room.posts[ts]))

    async def press_stop(self, channel: str, thread_ts: str, *, user: str) -> Delivery:
        """Press the stop button of a thread's agent session. Raises `ValueError` if no stop button is shown."""
        if self.session_of(channel, thread_ts) != "processing" or not self._hears(
            _STOPPED, self.world.rooms[channel]
        ):
            raise ValueError("there is no stop button")
        stopped = self.api.streams.stop_all(channel, self.world.rooms[channel].thread(thread_ts))
        event = {"channel": channel, "thread_ts": thread_ts, "user": user, "streaming_message_ts": stopped}
        return await self.push(event | {"type": _STOPPED, "event_ts": self.world.stamp()})

    async def open_home(self, user: str, *, tab: Literal["home", "messages"] = "home") -> None:
        """Open a tab of the app as a person."""
        if _OPENED in self.subscriptions:
            event = {"user": user, "channel": f"D{user[1:]}", "tab": tab}
            await self.push({"type": _OPENED, "event_ts": self.world.stamp()} | event)

    def home_of(self, user: str) -> str:
        """Return the text of the app's home tab as the person sees it; "" if no home view was published."""
        blocks = self.world.homes.get(user, {}).get("blocks", ())
        return "\n".join(block["text"]["text"] for block in blocks)

    async def command(self, text: str, *, channel: str, user: str, command: str = "/shipmate") -> Delivery:
        """Send a slash command as a person. The caller may wait for `Delivery.acked`, which the app's acknowledgement sets."""
        number = next(self._count)
        self._commands.add(number)
        return await self.envelope(
            {
                "team_id": self.world.team,
                "team_domain": "example",
                "channel_id": channel,
                "channel_name": "directmessage" if channel.startswith("D") else channel.lower(),
                "user_id": user,
                "user_name": self.world.users[user]["name"],
                "command": command,
                "text": text,
                "api_app_id": self.world.app_id,
                "is_enterprise_install": "false",
                "response_url": f"{self.url}/commands/{number}",
                "trigger_id": f"{next(self._count)}.{self.world.team}.{secrets.token_hex(8)}",
            },
            kind="slash_commands",
        )

    async def press(self, channel: str, ts: str, value: str, *, user: str) -> Delivery:
        """Press a button of a message as a person."""
        number, post = next(self._count), self.world.rooms[channel].posts[ts]
        self._commands.add(number)
        message: Json = {"type": "message", "ts": ts, "text": post.text}
        if post.thread_ts is not None:
            message["thread_ts"] = post.thread_ts
        return await self.envelope(
            {
                "type": "block_actions",
                "user": {"id": user, "username": self.world.users[user]["name"], "team_id": self.world.team},
                "api_app_id": self.world.app_id,
                "channel": {"id": channel, "name": channel.lower()},
                "message": message,
                "actions": [
                    {"type": "button", "action_id": "a", "block_id": "b", "value": value, "action_ts": ts}
                ],
                "response_url": f"{self.url}/commands/{number}",
                "trigger_id": f"{next(self._count)}.{self.world.team}.{secrets.token_hex(8)}",
            },
            kind="interactive",
        )

    # Events that the test makes

    async def push(self, event: Any, **body: Any) -> Delivery:
        """Send an event. `body` overrides the fields around the event (for example `event_id=…` for a duplicate)."""
        return await self.envelope(self._body(event) | body)

    async def envelope(self, payload: Any, *, kind: str = "events_api") -> Delivery:
        """Send any payload. Without an acknowledgement, the server repeats only a payload of kind `events_api`."""
        delivery = Delivery(kind, payload)
        self.link.send(delivery)
        await self.changed()
        return delivery

    # State that tests check

    def visible(self, channel: str) -> list[Seen]:
        """Return the messages that a person sees in a conversation now, oldest first, including threads."""
        return [
            Seen(
                ts=post.ts,
                text=post.text,
                user=post.user,
                bot=post.bot_id == self.world.bot_id,
                thread_ts=post.thread_ts,
                metadata=post.metadata,
                unfurl_links=post.unfurl_links,
                unfurl_media=post.unfurl_media,
                buttons=tuple(
                    str(element["value"])
                    for block in post.blocks
                    if block.get("type") == "actions"
                    for element in block["elements"]
                ),
                files=tuple(str(file["name"]) for file in post.files),
            )
            for post in self.world.rooms[channel].posts.values()
            if post.subtype != "tombstone"
        ]

    def alone(self, user: str) -> list[str]:
        """Return the ephemeral messages that the bot has shown to this person."""
        return [text for _, to, text in self.world.alone if to == user]

    def replies(self, channel: str, thread_ts: str | None = None) -> list[Seen]:
        """Return the bot's messages in a conversation, or only those in the thread `thread_ts`."""
        seen = [message for message in self.visible(channel) if message.bot]
        return [m for m in seen if m.thread_ts == thread_ts] if thread_ts else seen

    @property
    def deliveries(self) -> list[Delivery]:
        """Payloads sent to the app, oldest first."""
        return self.link.deliveries

    def unacked(self) -> list[Delivery]:
        """Return the deliveries that the app has not acknowledged, oldest first."""
        return [delivery for delivery in self.deliveries if not delivery.acked.is_set()]

    def status_of(self, channel: str, thread_ts: str) -> str:
        """Return the status shown in a thread; "" if the thread has no status."""
        return self.world.status(channel, thread_ts)

    def title_of(self, channel: str, thread_ts: str) -> str:
        """Return the title of a thread in a direct conversation; "" if the thread has no title."""
        return self.world.titles.get((channel, thread_ts), "")

    def session_of(self, channel: str, thread_ts: str) -> str:
        """Return the status of a thread's agent session; "" if there is no session."""
        return self.world.sessions.get((channel, thread_ts), "")

    def tally(self, channel: str) -> ChatCounts:
        """Return how many messages the bot has posted, edited and deleted in a conversation, and how many of them are
        visible now.
        """
        room = self.world.rooms[channel]
        return replace(room.tally, visible=len(self.replies(channel)))

    def streaming(self, channel: str, ts: str) -> bool:
        """Return True while the bot is still streaming this message."""
        return self.api.streams.is_open(channel, ts)

    @property
    def sockets(self) -> int:
        return len(self.link.sockets)

    @property
    def pongs(self) -> int:
        """Number of the server's pings that the app answered."""
        return self.link.pongs

    @property
    def pinged(self) -> int:
        """Number of the app's pings that the server answered."""
        return self.link.pinged

    # The Web API

    def routes(self, app: web.Application) -> None:
        app.router.add_route("*", "/api/{method}", self._web)
        app.router.add_get("/link", self._socket)
        self.file_routes(app)
        app.router.add_post("/commands/{number}", self._whisper)

    async def _whisper(self, request: web.Request) -> web.StreamResponse:
        """Handle a request to the response address of a slash command or button press. Record its ephemeral answer."""
        body = json.loads(await request.text())
        await self.record("response_url", body, request.headers)
        fault = self.take_fault("response_url")
        if fault is not None:
            return await self.broken(request, fault)
        number = int(request.match_info["number"])
        if number not in self._commands or not body.get("text"):
            return web.Response(status=404, text="expired_url")
        if self._answers[number] == MOST_ANSWERS:
            return web.Response(status=404, text="used_url")
        self._answers[number] += 1
        if body.get("response_type", "ephemeral") == "ephemeral":
            self.ephemeral.append(body["text"])
        await self.changed()
        return web.Response(text="ok")

    async def _web(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        params, broken = await self._params(request)
        await self.record(method, params, request.headers)
        fault = self.take_fault(method)
        if fault is not None and not fault.executes:
            return await self.broken(request, fault)
        answer: Json
        try:
            if broken:
                raise ApiError("invalid_json")
            answer = {"ok": True} | await self._execute(method, params, request)
        except ApiError as error:
            answer = {"ok": False, "error": error.code} | error.more
        await self.changed()
        told = answer["ok"] or answer["error"] == "missing_scope"
        headers = {"X-OAuth-Scopes": ",".join(sorted(self.api.scopes))} if told else {}
        return await self.answered(request, fault, web.json_response(answer, headers=headers))

    @staticmethod
    async def _params(request: web.Request) -> tuple[Json, bool]:
        params: Json = dict(request.query)
        if request.content_type == "application/json":
            try:
                body = json.loads(await request.text() or "{}")
            except ValueError:
                return params, True
            return (params | body, False) if isinstance(body, dict) else (params, True)
        return params | dict(await request.post()), False

    async def _execute(self, method: str, params: Json, request: web.Request) -> Json:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        token = token.strip() if scheme == "Bearer" else str(params.get("token", ""))
        if not token:
            raise ApiError("not_authed")
        if token not in {self.bot_token, self.app_token}:
            raise ApiError("invalid_auth")
        if (method == "apps.connections.open") != (token == self.app_token):
            raise ApiError("not_allowed_token_type")
        if method == "apps.connections.open":
            if not self.app_scopes & {"connections:write"}:
                raise ApiError("missing_scope", needed="connections:write", provided="")
            return {"url": f"ws://127.0.0.1:{self.front or self.port}/link?ticket={self.link.ticket()}"}
        return await self.api.call(method, params)

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        fault = self.take_fault("link")
        if fault is not None:
            return await self.broken(request, fault)
        self.link.admit(request.query.get("ticket", ""))
        return await self.link.serve(request)

    # Events

    def _body(self, event: Any) -> Json:
        number, world = next(self._count), self.world
        return {
            "team_id": world.team,
            "context_team_id": world.team,
            "api_app_id": world.app_id,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev{number:010d}",
            "event_time": int(self.clock.now()),
            "authorizations": [
                {
                    "enterprise_id": None,
                    "team_id": world.team,
                    "user_id": world.bot_user,
                    "is_bot": True,
                    "is_enterprise_install": False,
                }
            ],
            "is_ext_shared_channel": False,
            "event_context": f"4-{number}",
        }

    async def _announce(self, room: Room, post: Post, told: Sequence[Telling] = BOTH) -> None:
        """Send the events of a new message: `message`, and `app_mention` if the message mentions the bot."""
        message = self.world.message(room, post)
        message |= {"channel": room.id, "event_ts": post.ts}
        bot = self.world.bot_user
        named = f"<@{bot}>" in post.text or f'"user_id": "{bot}"' in json.dumps(list(post.blocks))
        mentioned = named and post.bot_id != self.world.bot_id and room.kind != "im"
        for kind in told:
            if kind == "message":
                await self._emit(room, dict(message))
            elif mentioned and self._hears("app_mention", room):
                bare = {"files", "attachments", "subtype"} if kind == "bare_mention" else set[str]()
                event = {key: value for key, value in message.items() if key not in bare}
                await self.push(event | {"type": "app_mention"})

    async def _emit(self, room: Room, event: Json) -> None:
        if self._hears(f"message.{_SUBSCRIPTION[room.kind]}", room):
            await self.push(event | {"channel_type": room.kind})
        else:
            await self.changed()

    def _hears(self, event: str, room: Room) -> bool:
        """Return True if the app receives the event. The bot must be in the conversation, and the app must have the
        subscription and the scope for the event.
        """
        inside = self.world.bot_user in room.members and event in self.subscriptions
        return inside and slack_scopes.of_event(event, room.kind) <= self.api.scopes
