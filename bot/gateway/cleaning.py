"""Cleans what others say: text that UTF-8 can carry, without secrets of ours or words of strangers."""

from __future__ import annotations

from collections.abc import Iterable

from bot import text
from bot.contracts.environment import Redact
from bot.contracts.inbound import Attachment, Command, Inbound, Link, Quoted
from bot.gateway.access import Access


class InboundCleaner:
    """Cleans inbounds and the messages that they bring."""

    def __init__(self, redact: Redact, access: Access) -> None:
        self._redact = redact
        self._access = access

    def words(self, words: str) -> str:
        """A text as it may be kept."""
        return self._redact(text.clean(words))

    def cleaned(self, inbound: Inbound) -> Inbound:
        """An inbound as it may be kept, but for what it quotes (`admitted`)."""
        return inbound.model_copy(
            update={
                "text": self.words(inbound.text),
                "user_name": self._optional(inbound.user_name),
                "command": self._clean_command(inbound.command),
                "links": tuple(
                    Link(text=self.words(link.text), url=self.words(link.url)) for link in inbound.links
                ),
                "items": {name: self.words(words) for name, words in inbound.items.items()},
                "attachments": tuple(map(self._clean_attachment, inbound.attachments)),
            }
        )

    def _clean_command(self, command: Command | None) -> Command | None:
        if command is None:
            return None
        return Command(name=self.words(command.name), args=self.words(command.args))

    def _clean_attachment(self, attachment: Attachment) -> Attachment:
        update = {"name": self._optional(attachment.name), "mime": self._optional(attachment.mime)}
        return attachment.model_copy(update=update)

    def _clean_quote(self, message: Quoted) -> Quoted:
        origin = message.origin
        if origin is not None:
            names = {"name": self._optional(origin.name), "chat": self._optional(origin.chat)}
            origin = origin.model_copy(update=names)
        update = {
            "text": self.words(message.text),
            "user_name": self._optional(message.user_name),
            "part": self._optional(message.part),
            "files": tuple(map(self.words, message.files)),
            "origin": origin,
        }
        return message.model_copy(update=update)

    def _optional(self, words: str | None) -> str | None:
        return self.words(words) if words is not None else None

    def admitted(self, inbound: Inbound, quoted: Iterable[Quoted]) -> tuple[Quoted, ...]:
        """The quoted messages whose authors may talk to the bot here: a stranger's words reach it by no door."""
        return tuple(
            self._clean_quote(message)
            for message in quoted
            if message.from_self
            or self._access.standing(
                inbound.channel, message.user_id, inbound.chat_id, inbound.chat_type
            ).allowed
        )
