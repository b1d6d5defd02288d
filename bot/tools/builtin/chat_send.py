"""`chat_send`: sends the reply to the chat."""

from __future__ import annotations

import asyncio
import mimetypes
import os
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field, ValidationError, WithJsonSchema

from bot import errors
from bot.contracts.base import Json
from bot.contracts.messages import OutgoingFile
from bot.contracts.tools import ToolInput
from bot.text import visible
from bot.tools import context
from bot.tools.builtin import ToolPorts, tool
from bot.tools.project import stamp

UNFOUNDED = (
    "Not delivered: it says “{error.claim}”, but no tool has done that while you answered this message. Do it now if you can, or "
    "say truly what was done and what was not; then send again."
)
BYTES = 50_000_000  # Max bytes of all files of one message in total
MOST_FILES = 10
PARTLY = "Only the first {error.sent} of {error.parts} parts were delivered; people see them. Send only what is missing."
UNCERTAIN = "The platform did not confirm the message; it may have arrived. Do not send it again."


class NewFile(ToolInput):
    name: str = Field(min_length=1)
    content: str = Field(min_length=1)


_NAMED: Json = {
    "type": ["string", "object"],
    "properties": {"name": {"type": "string"}, "content": {"type": "string"}},
}
"""JSON schema of a path or a `NewFile`, written inline because models understand references less reliably."""


class ChatSendInput(ToolInput):
    text: str = Field(description="The whole message, in Markdown.")
    attachments: list[Annotated[str | NewFile, WithJsonSchema(_NAMED)]] = Field(
        default=[],
        max_length=MOST_FILES,
        description="Files to send along: the path of one in the project, or a new one as {name, content}.",
    )
    more: bool = Field(
        default=False,
        description="Only for word on the way: your turn goes on, and another message has to follow.",
    )


@tool(
    "Send your reply to the person who wrote to you. Call it once, with the whole reply, when your work is done: a "
    "delivered message ends your turn, unless other tools were called beside it or you set `more`.",
    effects=frozenset({"message"}),
    timeout_seconds=300.0,  # a platform with rate limits may demand a wait
    ages=False,
    eager=True,
)
async def chat_send(ports: ToolPorts, args: ChatSendInput) -> str:
    """Send a message to the chat that caused the turn. The result tells the model whether the message was delivered."""
    reply = context.current().reply
    if reply is None:
        raise errors.ToolError(
            "Only the main agent of a chat can send messages. Answer with plain text instead."
        )
    if not visible(args.text):
        raise errors.ToolError("The text is empty, so nothing was sent. Send the message itself.")
    files = await asyncio.to_thread(_files, ports, args.attachments) if args.attachments else []
    try:
        sent = await reply.send(args.text, context.CALL.get() or None, files)
    except errors.DeliveryDeferred as error:
        return (
            "Not delivered yet: the platform lets me write here again only in about "
            f"{max(1, round(error.wait / 60))} min. It will then be delivered by itself. Do not send it again."
        )
    except errors.DeliveryFailed as error:
        refused = "Not delivered: the platform refused the message."
        words = next((words for kind, words in _REFUSED.items() if isinstance(error, kind)), refused)
        names = ", ".join(getattr(error, "names", ()))
        raise errors.ToolError(words.format(error=error, names=names)) from error
    if not sent:
        return "Nothing was sent, as you wanted."
    parts = f" in {len(sent)} parts" if len(sent) > 1 else ""
    return f"Delivered{parts} (message id {', '.join(part.message_id for part in sent)})."


def _files(ports: ToolPorts, named: Sequence[str | NewFile]) -> list[OutgoingFile]:
    files, left = list[OutgoingFile](), BYTES
    for one in named:
        if isinstance(one, str):
            path = ports.project.place(one)
            with ports.project.opened(path) as file:
                before = stamp(os.fstat(file.fileno()))
                data = file.read(left + 1)
                if stamp(os.fstat(file.fileno())) != before:
                    raise errors.ToolError(
                        f"Not delivered: {one} is being changed. Send again once it is whole."
                    )
            name = path.rpartition("/")[2]
        else:
            name, path, data = one.name, "", one.content.encode()
        left -= len(data)
        if left < 0:
            raise errors.ToolError(
                f"Not delivered: together the files have more than {BYTES:,} bytes. Send fewer, or pack them."
            )
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        files.append(OutgoingFile(name, kind, data, path))
    return files


_REFUSED: Mapping[type[errors.DeliveryFailed], str] = {
    errors.FileRefused: "Not delivered: {error}. Send again without that file, or with another one.",
    errors.FilesMissing: "The text is delivered. The chat did not take {names}, and was told so: do not send this again.",
    errors.DeliveryThrottled: "Not delivered: the platform limits how fast I may send.",
    errors.DeliveryUncertain: UNCERTAIN,
    errors.DeliveryPartial: PARTLY,
    errors.TargetGone: "Not delivered: this chat can no longer be written to.",
    errors.ClaimUnfounded: UNFOUNDED,
}


def promises_more(arguments: Json) -> bool:
    """Return True if the message in a call with these arguments announces a further message."""
    try:
        return ChatSendInput.model_validate(arguments).more
    except ValidationError:
        return False


TOOLS = (chat_send,)
