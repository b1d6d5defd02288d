"""A fake of Slack's Web API for tests. It checks parameters and reports errors as the real service does."""

from __future__ import annotations

import json
import mimetypes
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from bot.contracts.base import Json
from bot.testing import slack_scopes
from bot.testing._slack_streams import Streams, streamed
from bot.testing._slack_world import ApiError, Post, Room, Upload, World

MARKDOWN_LIMIT = 12_000
TEXT_LIMIT = 40_000
EDIT_LIMIT = 4_000

UPLOAD_SECONDS = 60.0
"""Timeout in seconds of an upload address. The server refuses bytes that arrive later."""
MOST_LOADING = 10
MOST_HOME_BLOCKS = 100
_HOME_TEXTS = {"header": ("plain_text", 150), "section": ("mrkdwn", 3_000)}
MOST_ELEMENTS, MOST_LABEL, MOST_VALUE = 5, 75, 2_000
SESSION_STATUSES = frozenset({"active", "processing", "suspended", "closed"})
TASK_STATES = frozenset({"pending", "in_progress", "complete", "error"})

_TS = re.compile(r"\d{1,12}\.\d{6}")
_KINDS = {"public_channel": "channel", "private_channel": "group", "mpim": "mpim", "im": "im"}

Emit = Callable[[Room, Json], Awaitable[None]]


def _flag(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    return str(value).lower() in {"1", "true"}


def _object(value: Any, error: str) -> Any:
    """Parse a form parameter whose value is JSON. Raises `ApiError` with the code `error` if the value is no JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ApiError(error) from None


class WebApi:
    """Implements each Slack API call as a method. The method takes the call's parameters, and returns the
    fields of the answer or raises `ApiError`.
    """

    def __init__(
        self,
        world: World,
        emit: Emit,
        posted: Callable[[Room, Post], Awaitable[None]],
        files_url: Callable[[], str],
    ) -> None:
        self.world = world
        self.files_url = files_url
        self.largest_upload = 1_000_000_000
        self.scopes: set[str] = set(slack_scopes.ALL)
        self._emit = emit
        self._posted = posted
        self.streams = Streams(world)
        self._methods: dict[str, Callable[[Json], Awaitable[Json]]] = {
            "auth.test": self._auth_test,
            "bots.info": self._bot,
            "chat.postMessage": self._post,
            "chat.postEphemeral": self._show_alone,
            "chat.startStream": self._start_stream,
            "chat.appendStream": self._append_stream,
            "chat.stopStream": self._stop_stream,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "conversations.replies": self._replies,
            "conversations.history": self._history,
            "conversations.info": self._info,
            "users.info": self._user,
            "users.conversations": self._conversations,
            "agents.sessions.setStatus": self._set_session,
            "assistant.threads.setStatus": self._set_status,
            "assistant.threads.setTitle": self._set_title,
            "reactions.add": self._react,
            "files.info": self._file,
            "views.publish": self._publish,
            "files.getUploadURLExternal": self._begin_upload,
            "files.completeUploadExternal": self._complete_upload,
        }

    async def call(self, method: str, params: Json) -> Json:
        if method not in self._methods:
            raise ApiError("unknown_method", req_method=method)
        for scope in slack_scopes.METHODS.get(method, ()):
            self._need(scope)
        return await self._methods[method](params)

    def _need(self, scope: str) -> None:
        if scope not in self.scopes:
            raise ApiError("missing_scope", needed=scope, provided=",".join(sorted(self.scopes)))

    async def _auth_test(self, _: Json) -> Json:
        world = self.world
        return {
            "url": "https://example.slack.com/",
            "team": "Example",
            "user": world.users[world.bot_user]["name"],
            "team_id": world.team,
            "user_id": world.bot_user,
            "bot_id": world.bot_id,
            "is_enterprise_install": False,
        }

    async def _bot(self, params: Json) -> Json:
        world = self.world
        if params.get("bot") != world.bot_id:
            raise ApiError("bot_not_found")
        return {
            "bot": {"id": world.bot_id, "app_id": world.app_id, "user_id": world.bot_user, "deleted": False}
        }

    def _content(self, params: Json, text_limit: int) -> str:
        markdown, text, blocks = params.get("markdown_text"), params.get("text"), params.get("blocks")
        blocks = _object(blocks, "invalid_blocks_format")
        if markdown is not None and (text or blocks):
            raise ApiError("markdown_text_conflict")
        if blocks is not None and not isinstance(blocks, list):
            raise ApiError("invalid_blocks_format")
        _check_plans(blocks or [])
        _check_thumbs(blocks or [])
        parts = [str(block.get("text", "")) for block in blocks or [] if block.get("type") == "markdown"]
        written = markdown if markdown is not None else "\n".join(parts) or text
        if not isinstance(written, str) or not written.strip():
            raise ApiError("no_text")
        if len(markdown or "") > MARKDOWN_LIMIT or len(text or "") > text_limit:
            raise ApiError("msg_too_long")
        if sum(map(len, parts)) > MARKDOWN_LIMIT:
            raise ApiError("msg_blocks_too_long")
        return written

    @staticmethod
    def _metadata(params: Json) -> Json | None:
        metadata = _object(params.get("metadata"), "invalid_metadata_format")
        if metadata is None:
            return None
        if not isinstance(metadata, dict) or not isinstance(metadata.get("event_type"), str):
            raise ApiError("invalid_metadata_format")
        if not isinstance(metadata.get("event_payload"), dict):
            raise ApiError("invalid_metadata_schema")
        return metadata

    def _writable(self, params: Json, *, opens: bool = False) -> Room:
        """Return the conversation that a call writes to. Raises `ApiError` if the bot may not write there."""
        channel = params.get("channel")
        if opens and isinstance(channel, str) and channel in self.world.users:
            channel = self._direct(channel)
        room = self.world.room(channel, member=False)
        if room.archived:
            raise ApiError("is_archived")
        return self.world.room(room.id)

    def _direct(self, user: str) -> str:
        """Return the id of the direct conversation with a user; open the conversation if it does not exist."""
        if self.world.users[user]["is_bot"]:
            raise ApiError("cannot_dm_bot")
        channel = f"D{user[1:]}"
        members = {user, self.world.bot_user}
        self.world.rooms.setdefault(channel, Room(channel, "im", channel.lower(), members))
        return channel

    async def _post(self, params: Json) -> Json:
        room = self._writable(params, opens=True)
        text, metadata = self._content(params, TEXT_LIMIT), self._metadata(params)
        thread_ts = params.get("thread_ts")
        if thread_ts is not None:
            parent = room.find(thread_ts)
            if parent is None or parent.is_reply:
                raise ApiError("thread_not_found")
        post = Post(
            ts=self.world.stamp(),
            text=text,
            user=self.world.bot_user,
            bot_id=self.world.bot_id,
            thread_ts=thread_ts,
            metadata=metadata,
            blocks=_blocks(params),
            unfurl_links=_flag(params.get("unfurl_links")),
            unfurl_media=_flag(params.get("unfurl_media")),
        )
        await self._add(room, post)
        return {"channel": room.id, "ts": post.ts, "message": self.world.message(room, post, metadata=True)}

    async def _add(self, room: Room, post: Post) -> None:
        """Add a message written by the bot and emit the event for the message."""
        self.world.add(room, post)
        room.tally = replace(room.tally, posted=room.tally.posted + 1)
        await self._posted(room, post)

    async def _start_stream(self, params: Json) -> Json:
        room, thread_ts = self._writable(params), params.get("thread_ts")
        root = room.find(thread_ts)
        if root is None or root.is_reply:
            raise ApiError("invalid_thread_ts")
        if room.kind != "im":
            if not params.get("recipient_team_id"):
                raise ApiError("missing_recipient_team_id")
            if params.get("recipient_user_id") not in room.members:
                raise ApiError("missing_recipient_user_id")
        words = streamed(params, needed=False)
        post = Post(
            self.world.stamp(), "", self.world.bot_user, bot_id=self.world.bot_id, thread_ts=thread_ts
        )
        self.streams.begin(room.id, post, words)
        await self._add(room, post)
        return {"channel": room.id, "ts": post.ts}

    async def _append_stream(self, params: Json) -> Json:
        room, post, before = self._stream(params)
        self.streams.grow(room.id, post, streamed(params, needed=True))
        await self._emit(room, changed(self.world, room, post, before))
        return {"channel": room.id, "ts": post.ts}

    async def _stop_stream(self, params: Json) -> Json:
        room, post, before = self._stream(params)
        metadata, blocks = self._metadata(params), _blocks(params)
        _check_thumbs(blocks)
        self.streams.stop(room.id, post, streamed(params, needed=False))
        post.metadata, post.blocks = metadata, blocks
        await self._emit(room, changed(self.world, room, post, before))
        return {"channel": room.id, "ts": post.ts, "message": self.world.message(room, post, metadata=True)}

    def _stream(self, params: Json) -> tuple[Room, Post, Json]:
        room = self._writable(params)
        post = self._own(room, params.get("ts"), "message_not_owned_by_app")
        return room, post, self.world.message(room, post)

    async def _show_alone(self, params: Json) -> Json:
        room, user = self._writable(params), params.get("user")
        text, thread_ts = self._content(params, TEXT_LIMIT), params.get("thread_ts")
        if not isinstance(user, str) or user not in room.members:
            raise ApiError("user_not_in_channel")
        if thread_ts is None or any(post.is_reply for post in room.thread(str(thread_ts))):
            self.world.alone.append((room.id, user, text))
        return {"message_ts": self.world.stamp()}

    def _own(self, room: Room, ts: Any, error: str) -> Post:
        post = room.find(ts)
        if post is None:
            raise ApiError("message_not_found")
        if post.bot_id != self.world.bot_id:
            raise ApiError(error)
        return post

    async def _update(self, params: Json) -> Json:
        room = self._writable(params)
        post = self._own(room, params.get("ts"), "cant_update_message")
        if self.streams.is_open(room.id, post.ts):
            raise ApiError("streaming_state_conflict")
        text = self._content(params, EDIT_LIMIT)
        before, metadata = self.world.message(room, post), self._metadata(params)
        post.text, post.metadata = text, metadata or post.metadata
        if params.get("markdown_text") is not None or params.get("blocks") is not None:
            post.blocks = _blocks(params)  # an edit without blocks keeps the old ones
        post.edited = {"user": self.world.bot_user, "ts": self.world.stamp()}
        room.tally = replace(room.tally, edited=room.tally.edited + 1)
        await self._emit(room, changed(self.world, room, post, before))
        return {"channel": room.id, "ts": post.ts, "text": text}

    async def _delete(self, params: Json) -> Json:
        room = self._writable(params)
        post = self._own(room, params.get("ts"), "cant_delete_message")
        room.tally = replace(room.tally, deleted=room.tally.deleted + 1)
        await self._emit(room, deleted(self.world, room, post))
        return {"channel": room.id, "ts": post.ts}

    @staticmethod
    def _window(params: Json) -> tuple[int, str, str, bool, int]:
        try:
            limit, start = int(params.get("limit", 1000)), int(params.get("cursor") or 0)
        except (TypeError, ValueError):
            raise ApiError("invalid_cursor" if params.get("cursor") else "invalid_limit") from None
        if not 1 <= limit <= 1000:
            raise ApiError("invalid_limit")
        oldest, latest = params.get("oldest", "0.000000"), params.get("latest", "999999999999.000000")
        for name, value in (("oldest", oldest), ("latest", latest)):
            if not isinstance(value, str) or not _TS.fullmatch(value):
                raise ApiError(f"invalid_ts_{name}")
        return limit, oldest, latest, bool(_flag(params.get("inclusive"))), start

    def _page(self, room: Room, posts: list[Post], params: Json) -> Json:
        limit, oldest, latest, inclusive, start = self._window(params)
        low, high = float(oldest), float(latest)
        if inclusive:
            posts = [post for post in posts if low <= float(post.ts) <= high]
        else:
            posts = [post for post in posts if low < float(post.ts) < high]
        page, more = posts[start : start + limit], len(posts) > start + limit
        metadata = bool(_flag(params.get("include_all_metadata")))
        return {
            "messages": [self.world.message(room, post, metadata=metadata) for post in page],
            "has_more": more,
            "response_metadata": {"next_cursor": str(start + limit) if more else ""},
        }

    def _readable(self, params: Json) -> Room:
        room = self.world.room(params.get("channel"))
        self._need(slack_scopes.HISTORY[room.kind])
        return room

    async def _replies(self, params: Json) -> Json:
        room = self._readable(params)
        post = room.find(params.get("ts"))
        if post is None:
            raise ApiError("thread_not_found")
        return self._page(room, [post] if post.is_reply else room.thread(post.ts), params)

    async def _history(self, params: Json) -> Json:
        room = self._readable(params)
        shown = [p for p in room.posts.values() if not p.is_reply or p.subtype == "thread_broadcast"]
        return self._page(room, shown[::-1], params)

    async def _info(self, params: Json) -> Json:
        room = self.world.room(params.get("channel"), member=False)
        self._need(slack_scopes.INFO[room.kind])
        return {
            "channel": {
                "id": room.id,
                "name": room.name,
                "is_archived": room.archived,
                "is_channel": room.kind == "channel",
                "is_group": room.kind == "group",
                "is_im": room.kind == "im",
                "is_mpim": room.kind == "mpim",
                "is_member": self.world.bot_user in room.members,
            }
        }

    async def _user(self, params: Json) -> Json:
        user = self.world.users.get(str(params.get("user")))
        if user is None:
            raise ApiError("user_not_found")
        asked = _flag(params.get("include_locale"))
        return {"user": user if asked else {key: value for key, value in user.items() if key != "locale"}}

    async def _conversations(self, params: Json) -> Json:
        """Return the person's conversations that the bot can see: public channels, and private conversations in which
        the person and the bot are members.
        """
        kinds = [_KINDS.get(kind) for kind in str(params.get("types") or "public_channel").split(",")]
        for kind in kinds:
            if kind is None:
                raise ApiError("invalid_types")
            self._need(slack_scopes.INFO[kind])
        user, world = str(params.get("user") or self.world.bot_user), self.world
        if user not in world.users:
            raise ApiError("user_not_found")
        rooms = [
            room
            for room in world.rooms.values()
            if room.kind in kinds
            and user in room.members
            and (room.kind == "channel" or world.bot_user in room.members)
        ]
        start, limit = int(params.get("cursor") or 0), int(params.get("limit") or 100)
        return {
            "channels": [
                {"id": room.id, "is_im": True, "user": user} if room.kind == "im" else {"id": room.id}
                for room in rooms[start : start + limit]
            ],
            "response_metadata": {"next_cursor": str(start + limit) if start + limit < len(rooms) else ""},
        }

    async def _set_status(self, params: Json) -> Json:
        room = self.world.room(params.get("channel_id"))
        thread_ts, status = params.get("thread_ts"), params.get("status")
        if not isinstance(thread_ts, str) or not isinstance(status, str):
            raise ApiError("invalid_arguments")
        loading = _object(params.get("loading_messages", []), "invalid_arguments")
        if not isinstance(loading, list) or len(loading) > MOST_LOADING or not all(loading):
            raise ApiError("invalid_arguments")
        if room.find(thread_ts) is None:
            raise ApiError("invalid_thread_ts")
        self.world.set_status(room.id, thread_ts, status)
        return {}

    async def _set_title(self, params: Json) -> Json:
        room, thread_ts = self.world.room(params.get("channel_id")), params.get("thread_ts")
        root = room.find(thread_ts)
        if room.kind != "im" or root is None or root.is_reply:
            raise ApiError("invalid_thread_ts")
        if not params.get("title"):
            raise ApiError("invalid_arguments")
        self.world.titles[room.id, root.ts] = str(params["title"])
        return {}

    async def _set_session(self, params: Json) -> Json:
        if not self.world.agent:
            raise ApiError("not_authorized")
        room = self.world.room(params.get("channel_id"))
        thread_ts, status = params.get("thread_ts"), params.get("status")
        title = params.get("title", "")
        if not isinstance(thread_ts, str) or status not in SESSION_STATUSES or len(str(title)) > 200:
            raise ApiError("invalid_arguments")
        root = room.find(thread_ts)
        if root is None or root.is_reply:
            raise ApiError("invalid_thread_ts")
        self.world.sessions[room.id, thread_ts] = status
        missing = "missing_agent_session_stopped_event_subscription"
        warned = status == "processing" and "agent_session_stopped" not in self.world.subscriptions
        return {"status": status} | ({"warning": missing} if warned else {})

    async def _file(self, params: Json) -> Json:
        found = self.world.files.get(str(params.get("file")))
        if found is None:
            raise ApiError("file_not_found")
        shares = {
            name: [{"ts": post.ts} for post in room.posts.values() if found[0] in post.files]
            for name, room in self.world.rooms.items()
        }
        return {"file": found[0] | {"shares": {"private": shares}}}

    async def _begin_upload(self, params: Json) -> Json:
        name, world = params.get("filename"), self.world
        try:
            length = int(params.get("length", 0))
        except (TypeError, ValueError):
            raise ApiError("invalid_arguments") from None
        if not isinstance(name, str) or not name.strip() or length <= 0:
            raise ApiError("invalid_arguments")
        if length > self.largest_upload:
            raise ApiError("file_upload_size_restricted")
        file_id = f"F0SENT{len(world.uploads) + 1:04d}"
        world.uploads[file_id] = Upload(name, length, world.clock.monotonic() + UPLOAD_SECONDS)
        return {"upload_url": f"{self.files_url()}/upload/v1/{file_id}", "file_id": file_id}

    async def _complete_upload(self, params: Json) -> Json:
        world, files = self.world, _object(params.get("files"), "invalid_arguments")
        if not isinstance(files, list) or not files or not all(isinstance(one, dict) for one in files):
            raise ApiError("invalid_arguments")
        room = self._writable({"channel": params.get("channel_id")})
        thread_ts = params.get("thread_ts")
        if thread_ts is not None and (room.find(thread_ts) is None or room.posts[thread_ts].is_reply):
            raise ApiError("thread_not_found")
        shared: list[Json] = []
        for one in files:
            upload = world.uploads.get(str(one.get("id")))
            if upload is None or upload.data is None:
                raise ApiError("file_not_found")
            file: Json = {
                "id": one["id"],
                "name": upload.name,
                "title": one.get("title") or upload.name,
                "mimetype": mimetypes.guess_type(upload.name)[0] or "application/octet-stream",
                "size": upload.length,
                "mode": "hosted",
                "is_external": False,
                "user": world.bot_user,
            }
            world.files[one["id"]] = (file, upload.data)
            upload.data = None  # an upload can be shared only once
            shared.append(file)
        post = Post(
            ts=world.stamp(),
            text=str(params.get("initial_comment") or ""),
            user=world.bot_user,
            bot_id=world.bot_id,
            thread_ts=thread_ts,
            files=shared,
        )
        await self._add(room, post)
        # Real Slack posts the message a moment later, so the answer does not contain the message's timestamp.
        return {"files": [{"id": one["id"], "title": one["title"]} for one in shared]}

    async def _publish(self, params: Json) -> Json:
        user, view = params.get("user_id"), _object(params.get("view"), "invalid_arguments")
        if user not in self.world.users:
            raise ApiError("user_not_found")
        if not isinstance(view, dict) or view.get("type") != "home":
            raise ApiError("invalid_arguments")
        blocks = view.get("blocks")
        if not isinstance(blocks, list) or len(blocks) > MOST_HOME_BLOCKS or not all(map(_fits_home, blocks)):
            raise ApiError("invalid_blocks")
        self.world.homes[str(user)] = view
        return {"view": view}

    async def _react(self, params: Json) -> Json:
        room = self.world.room(params.get("channel"))
        post, name = room.find(params.get("timestamp")), params.get("name")
        if post is None:
            raise ApiError("message_not_found")
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_+'-]+", name):
            raise ApiError("invalid_name")
        if any(reaction["name"] == name for reaction in post.reactions):
            raise ApiError("already_reacted")
        post.reactions.append({"name": name, "users": [self.world.bot_user], "count": 1})
        return {}


def _blocks(params: Json) -> list[Json]:
    return list(_object(params.get("blocks"), "invalid_blocks_format") or [])


def _check_plans(blocks: list[Json]) -> None:
    """Check that each plan has a title and task cards. Each card needs a unique id, a title and one of four states."""
    for block in blocks:
        tasks = block.get("tasks") if block.get("type") == "plan" else []
        if not isinstance(tasks, list) or (block.get("type") == "plan" and not block.get("title")):
            raise ApiError("invalid_blocks")
        for task in tasks:
            named = task.get("type") == "task_card" and task.get("task_id") and task.get("title")
            if not named or task.get("status") not in TASK_STATES:
                raise ApiError("invalid_blocks")
        if len({task["task_id"] for task in tasks}) < len(tasks):
            raise ApiError("invalid_blocks")


def _fits_home(block: Json) -> bool:
    """Return True if a block of the home view has a text of an allowed type and length."""
    kind, most = _HOME_TEXTS.get(str(block.get("type")), ("", 0))
    words = block.get("text") or {}
    return bool(words.get("type") == kind and 0 < len(str(words.get("text", ""))) <= most)


def _check_thumbs(blocks: list[Json]) -> None:
    """Check that feedback buttons are a pair. Each button needs a short text and a value."""
    for block in blocks:
        elements = block.get("elements") if block.get("type") == "context_actions" else []
        if not isinstance(elements, list) or len(elements) > MOST_ELEMENTS:
            raise ApiError("invalid_blocks")
        for element in elements:
            pair = [element.get(name) or {} for name in ("positive_button", "negative_button")]
            if element.get("type") != "feedback_buttons" or not all(map(_is_thumb, pair)):
                raise ApiError("invalid_blocks")


def _is_thumb(button: Json) -> bool:
    label = button.get("text") or {}
    short = label.get("type") == "plain_text" and 0 < len(label.get("text", "")) <= MOST_LABEL
    return short and 0 < len(button.get("value", "")) <= MOST_VALUE


def changed(world: World, room: Room, post: Post, before: Json) -> Json:
    """Return the event `message_changed` of an edited message. `before` is the message before the edit."""
    ts = world.stamp()
    return {
        "type": "message",
        "subtype": "message_changed",
        "hidden": True,
        "message": world.message(room, post),
        "previous_message": before,
        "channel": room.id,
        "ts": ts,
        "event_ts": ts,
    }


def deleted(world: World, room: Room, post: Post) -> Json:
    """Delete a message and return the event. A root message with replies leaves a tombstone, as in Slack."""
    ts, before = world.stamp(), world.message(room, post)
    event: Json = {"type": "message", "hidden": True, "channel": room.id, "ts": ts, "event_ts": ts}
    event["previous_message"] = before
    if "reply_count" in before:
        post.subtype, post.user, post.text = "tombstone", "USLACKBOT", "This message was deleted."
        return event | {"subtype": "message_changed", "message": world.message(room, post) | {"hidden": True}}
    del room.posts[post.ts]
    return event | {"subtype": "message_deleted", "deleted_ts": post.ts}
