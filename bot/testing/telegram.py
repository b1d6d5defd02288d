"""A fake Telegram server for tests, as strict as the real Bot API. Tests act as the people who write to the bot.

    async with TelegramServer() as server:
        server.say("hello")                        # a person writes to the bot; the update waits for the bot's poll
        ...                                        # run the bot with base URL server.url and server.token
        await server.until(lambda: server.visible(1001))
        assert server.visible(1001)[-1].text == "Hello!"

`fail` (see `Loopback`) makes requests fail: `server.fail("sendMessage", **refusal(429, "…", retry_after=2))`,
`server.fail("sendMessage", action="lose")`. `url` is the root of the server: methods are under `/bot<token>/`, files
under `/file/bot<token>/`. The server refuses `parse_mode`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from bot.contracts.base import Json
from bot.testing import telegram_rules as rules
from bot.testing import telegram_world as world
from bot.testing.loopback import ChatCounts
from bot.testing.telegram_service import Service
from bot.testing.telegram_world import Seen

__all__ = ["Seen", "TelegramServer", "refusal"]


def refusal(code: int, description: str, **parameters: Any) -> dict[str, Any]:
    """Return arguments for `fail` that make a request fail with Telegram's error answer."""
    return {"status": code, "body": rules.error_body(code, description, **parameters)}


class TelegramServer(Service):
    """A fake Bot API server for one bot. The module docstring has an example. With `limits=True`, the server
    enforces the flood limits of each chat.
    """

    def topic(self, chat_id: int, thread_id: int, *, by_bot: bool = False) -> None:
        """Open a topic; the chat becomes a forum."""
        chat = self.chat(chat_id)
        chat.forum = True
        root = self._message(chat, self.me if by_bot else world.person(1), thread_id)
        root |= {"message_thread_id": thread_id, "is_topic_message": True}
        chat.topics[thread_id] = {**root, "forum_topic_created": {"name": "Topic", "icon_color": 7322096}}
        chat.last_id = max(chat.last_id, thread_id)

    def say(
        self,
        text: str = "",
        *,
        chat_id: int = 1001,
        user_id: int | None = None,
        chat_type: str | None = None,
        name: str = "",
        username: str | None = None,
        entities: Iterable[Json] = (),
        reply_to: int | None = None,
        thread_id: int | None = None,
        media: world.Media | None = None,
        data: bytes = b"\0",
        file_name: str | None = None,
        mime: str | None = None,
        is_bot: bool = False,
        language: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Json:
        """Send a message as a person or as another bot; return the update that the bot will receive."""
        chat = self.chat(chat_id, chat_type)
        sender = chat_id if chat.kind == "private" else 1001
        who = world.person(user_id or sender, name=name, username=username, is_bot=is_bot, language=language)
        message = self._message(chat, who, chat.next_id())
        spans = sorted([*rules.detect(text), *entities], key=lambda span: int(span["offset"]))
        if media is not None:
            file_id = f"file-{len(self.files) + 1}"
            self.files[file_id] = data
            message |= world.media_fields(media, file_id, len(data), file_name, mime)
        if text:
            message["text" if media is None else "caption"] = text
        if text and spans:
            message["entities" if media is None else "caption_entities"] = spans
        self._place(chat, message, thread_id, reply_to)
        message |= fields or {}
        chat.messages[message["message_id"]] = message
        return self._push("message", message)

    def forward(
        self,
        message: Json,
        *,
        chat_id: int = 1001,
        user_id: int | None = None,
        hidden: bool = False,
        album: str | None = None,
    ) -> Json:
        """Forward a message as a person; return the update."""
        told = world.origin(message, hidden=hidden)
        fields: Json = {"forward_origin": told, "forward_date": told["date"]}
        if told["type"] == "user":
            fields["forward_from"] = told["sender_user"]
        fields |= {key: message[key] for key in world.FORWARDED if key in message}
        if album is not None:
            fields["media_group_id"] = album
        return self.say(chat_id=chat_id, user_id=user_id, fields=fields)

    def forget_file(self, file_id: str) -> None:
        """Delete a file from the server. Messages still refer to it, so downloads fail."""
        del self.files[file_id]

    def edit(self, message_id: int, text: str, *, chat_id: int = 1001) -> Json:
        """Edit a message as a person; return the update."""
        chat = self.chats[chat_id]
        message = {**chat.messages[message_id], "edit_date": int(self.clock.now())}
        where = "caption" if "text" not in message else "text"
        message[where] = text
        message["entities" if where == "text" else "caption_entities"] = rules.detect(text)
        chat.messages[message_id] = message
        return self._push("edited_message", message)

    def delete(self, message_id: int, *, chat_id: int = 1001) -> None:
        """Delete a message as a person. Like Telegram, the server sends the bot no update."""
        del self.chats[chat_id].messages[message_id]

    def press_stop(self, *, chat_id: int = 1001, thread_id: int | None = None, draft_id: int = 1) -> Json:
        """As a person, press the stop button of the reply that the bot is writing; return the update."""
        chat = self.chat(chat_id)
        if chat.kind != "private":
            raise ValueError("drafts are shown in private chats only")
        chat.drafts.pop(draft_id, None)
        body: Json = {"chat": chat.json(), "draft_id": draft_id}
        if thread_id is not None:
            body["message_thread_id"] = thread_id
        return self._push("stopped_message_generation", body)

    def press(self, message_id: int, data: str, *, chat_id: int = 1001, user_id: int | None = None) -> Json:
        """Press a button under a message as a person; return the update."""
        number = str(9000 + len(self.callbacks))
        self.callbacks.add(number)
        return self._push(
            "callback_query",
            {
                "id": number,
                "from": world.person(user_id or abs(chat_id)),
                "chat_instance": str(chat_id),
                "message": self.chats[chat_id].messages[message_id],
                "data": data,
            },
        )

    def tap(self, message_id: int, words: str, *, chat_id: int = 1001) -> Json:
        """Tap a key of the keyboard below a message, as a person. The key's text becomes the person's message. Return the
        update. Raises `ValueError` if there is no such key.
        """
        markup = self.chats[chat_id].messages[message_id].get("reply_markup", {})
        if words not in [key["text"] for row in markup.get("keyboard", ()) for key in row]:
            raise ValueError("there is no such key")
        return self.say(words, chat_id=chat_id)

    def react(self, message_id: int, *emoji: str, chat_id: int = 1001, user_id: int | None = None) -> Json:
        """Set a person's reactions to a message; return the update."""
        chat, who = self.chat(chat_id), world.person(user_id or abs(chat_id))
        before = chat.reactions.get((message_id, who["id"]), ())
        chat.reactions[message_id, who["id"]] = emoji
        if chat.kind != "private" and chat.members.get(self.me["id"]) != "administrator":
            return {}
        was, now = ([{"type": "emoji", "emoji": one} for one in which] for which in (before, emoji))
        body = {"chat": chat.json(), "message_id": message_id, "user": who, "date": int(self.clock.now())}
        return self._push("message_reaction", body | {"old_reaction": was, "new_reaction": now})

    def push_raw(self, raw: Any) -> Any:
        """Queue any JSON as an update, unchanged; an object without `update_id` gets an id. Return the update."""
        update = self.updates.add(raw)
        self.wake()
        return update

    def repeat(self, update: Json) -> None:
        """Deliver a confirmed update again, as Telegram sometimes does."""
        self.updates.again(update)
        self.wake()

    def add_bot(self, chat_id: int, *, by: int = 1001, status: str = "member", **rights: bool) -> Json:
        """Add the bot to a group as a person, or change the bot's status in the group; return the update."""
        chat = self.chat(chat_id)
        was = chat.members.get(self.me["id"], "left")
        chat.members[self.me["id"]] = status
        chat.rights = rights
        body = {
            "chat": chat.json(),
            "from": world.person(by),
            "date": int(self.clock.now()),
            "old_chat_member": {"user": self.me, "status": was},
            "new_chat_member": {"user": self.me, "status": status, **rights},
        }
        return self._push("my_chat_member", body)

    def limit(self, method: str, retry_after: Any = None, times: int = 1) -> None:
        """Answer the next `times` calls of `method` with 429. `retry_after` may be any JSON; None omits the field."""
        asked = {} if retry_after is None else {"retry_after": retry_after}
        self.fail(
            method, times=times, **refusal(429, f"Too Many Requests: retry after {retry_after}", **asked)
        )

    def cut_polls(self) -> None:
        """Cut the connections of the open polls."""
        for request in list(self.polls.values()):
            self.drop(request)

    def tally(self, chat_id: int = 1001) -> ChatCounts:
        """Return how many messages the bot has posted, edited and deleted in a chat, and how many of them are visible now."""
        chat = self.chats.get(chat_id)
        return replace(chat.tally, visible=len(self.visible(chat_id))) if chat is not None else ChatCounts()

    def block(self, chat_id: int, *, why: str = "bot was blocked by the user") -> None:
        """Answer every later call for this chat with 403 and the text `why`."""
        self.chat(chat_id).gone = f"Forbidden: {why}"

    def upgrade(
        self, chat_id: int, new_id: int, *, told: Iterable[Literal["to", "from"]] = ("to", "from")
    ) -> None:
        """Turn a group into a supergroup with a new id and new message numbers."""
        old = self.chat(chat_id, "group")
        old.moved_to = new_id
        fresh = self.chat(new_id, "supergroup")
        fresh.members |= old.members
        for which in told:
            place = old if which == "to" else fresh
            message = self._message(place, world.person(1001), place.next_id())
            where = {"migrate_to_chat_id": new_id} if which == "to" else {"migrate_from_chat_id": chat_id}
            self._push("message", message | where)

    def visible(self, chat_id: int = 1001, *, everyone: bool = False) -> list[Seen]:
        """Return the bot's messages that a person sees now, oldest first; with `everyone`, people's messages too."""
        chat = self.chats.get(chat_id)
        if chat is None:
            return []
        shown = [chat.seen(message, self.me["id"]) for message in chat.messages.values()]
        return [seen for seen in shown if everyone or seen.from_bot]

    def documents(self, chat_id: int = 1001) -> list[tuple[str, str, bytes]]:
        """Return the files that the bot has sent to a chat, oldest first, each as name, MIME type and bytes."""
        chat = self.chats.get(chat_id)
        shown = chat.messages.values() if chat is not None else ()
        sent = [one["document"] for one in shown if one.get("from") == self.me and "document" in one]
        return [(one["file_name"], one["mime_type"], self.files[one["file_id"]]) for one in sent]

    def drafts(self, chat_id: int = 1001) -> dict[int, str]:
        """Return the texts of the bot's unfinished replies that people see in a chat now, by draft id."""
        now = self.clock.now()
        return {name: words for name, (words, until) in self.chat(chat_id).drafts.items() if now < until}

    def _place(self, chat: world.Chat, message: Json, thread_id: int | None, reply_to: int | None) -> None:
        """Add the fields for the message's topic and for the message that it replies to."""
        if thread_id is not None:
            if thread_id not in chat.topics:
                self.topic(chat.id, thread_id)
                message["chat"] = chat.json()
            message |= {"message_thread_id": thread_id, "is_topic_message": True}
            message["reply_to_message"] = chat.topics[thread_id]
        if reply_to is not None:
            answered = {k: v for k, v in chat.messages[reply_to].items() if k != "reply_to_message"}
            message["reply_to_message"] = answered
            if chat.kind == "supergroup" and thread_id is None:
                message["message_thread_id"] = answered.get("message_thread_id", reply_to)

    def _push(self, kind: str, body: Json) -> Json:
        update: Json = {kind: body}
        if self.updates.wanted(kind):
            update = self.updates.add(update)
            self.wake()
        return update
