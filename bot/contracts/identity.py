"""Identities: a `ChatKey` names a chat or a thread of a chat, a `UserRef` names a person."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot import errors

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_KEY = re.compile(
    r"(?P<channel>[^:]+):chat:(?P<chat_id>[^:]+)(?::(?P<kind>[^:]+):(?P<thread>[^:]+))?", re.DOTALL
)
THREAD = "thread"  # Default of `ChatKey.kind`


class _Text:
    """Base class of `ChatKey` and `UserRef`. A pydantic field accepts an instance or its text. JSON contains the text."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, _source: Any, _handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema  # imported late, since most commands validate nothing

        parse: Any = getattr(cls, "parse")  # noqa: B009 - subclasses define it
        return core_schema.no_info_before_validator_function(
            lambda value: parse(value) if isinstance(value, str) else value,
            core_schema.is_instance_schema(cls),
            serialization=core_schema.to_string_ser_schema(when_used="always"),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, _schema: CoreSchema, _handler: Any) -> dict[str, Any]:
        return {"type": "string"}


@dataclass(frozen=True, slots=True)
class ChatKey(_Text):
    """Key of a conversation: a chat of a channel, or one `thread` of the chat. `kind` is the platform's name for such a
    thread (`thread`, `topic`). As text: `<channel>:chat:<chat id>`, followed by `:<kind>:<thread>` for a thread.

    Raises `errors.IdentityInvalid` if a part is empty or contains a colon.
    """

    channel: str
    chat_id: str
    thread: str | None = None
    kind: str = THREAD
    _text: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = (self.channel, self.chat_id, self.kind, self.thread if self.thread is not None else self.kind)
        if not all(parts) or any(":" in part for part in parts):
            raise errors.IdentityInvalid("A part of a chatKey is empty or holds a colon.")
        text = f"{self.channel}:chat:{self.chat_id}"
        if self.thread is None:
            object.__setattr__(self, "kind", THREAD)
        else:
            text += f":{self.kind}:{self.thread}"
        object.__setattr__(self, "_text", text)

    def __str__(self) -> str:
        return self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __lt__(self, other: ChatKey) -> bool:
        return self._text < other._text

    @staticmethod
    @functools.lru_cache(maxsize=4_096)
    def parse(text: str) -> ChatKey:
        """Return the key that this text stands for. Raises `errors.IdentityInvalid`."""
        found = _KEY.fullmatch(text)
        if found is None:
            raise errors.IdentityInvalid(
                f"No chat is named by {text!r}; expected <channel>:chat:<chat id>, and perhaps :<kind>:<thread>."
            )
        return ChatKey(found["channel"], found["chat_id"], found["thread"], found["kind"] or THREAD)

    @property
    def chat(self) -> ChatKey:
        return self if self.thread is None else ChatKey(self.channel, self.chat_id)

    def contains(self, other: ChatKey) -> bool:
        """Return True if `other` equals this key, or if this key names a whole chat and `other` names a thread of that chat."""
        return other == self or (
            self.thread is None and (other.channel, other.chat_id) == (self.channel, self.chat_id)
        )

    def shows(self, other: ChatKey) -> bool:
        """Return True if people in this conversation also see `other`: if `other` is this conversation, or a thread
        below a message of this chat. Topics are separate, so people in the chat do not see the topics.
        """
        return other == self or (other.kind == THREAD and self.contains(other))


@dataclass(frozen=True, slots=True, order=True)
class UserRef(_Text):
    """A person, named by a channel and the stable id of the person in the channel. As text: `<channel>:<user id>`."""

    channel: str
    user_id: str

    def __str__(self) -> str:
        return f"{self.channel}:{self.user_id}"

    @classmethod
    def parse(cls, text: str) -> UserRef:
        """Return the person that this text names. Raises `errors.IdentityInvalid`."""
        channel, _, user_id = text.partition(":")
        if not channel or not user_id:
            raise errors.IdentityInvalid(f"No person is named by {text!r}; expected <channel>:<user id>.")
        return cls(channel, user_id)


CONSOLE = UserRef("shipmate", "console")
"""Person who stands for any user of the console. No channel has this name, so no message has this sender."""
