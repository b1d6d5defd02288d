"""`AttachedFiles`: a model that is shown files of a conversation as they are.

What is kept, counted, recorded and logged of a request has a block of the type `attached` in the place of each; the bytes are
put in only here, where the request leaves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from bot import errors
from bot.contracts.artifacts import Artifacts
from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey
from bot.contracts.model import ATTACHED, Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.llm.wrapper import ModelWrapper, aclosing
from bot.telemetry import context

GONE = "[this file is not kept any more]"
_WHOLE = 100_000_000
"""Characters: an artifact has fewer."""


class AttachedFiles(ModelWrapper):
    """Puts the bytes of attached files into requests, within the scope of the chat that has them."""

    def __init__(self, model: Model, artifacts: Artifacts) -> None:
        super().__init__(model)
        self._artifacts = artifacts

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        async with aclosing(self._model.stream(await self._filled(request))) as pieces:
            async for piece in pieces:
                yield piece

    async def _filled(self, request: ModelRequest) -> ModelRequest:
        if not any(map(_has_files, request.messages)):
            return request
        chat_key = context.current().chat_key
        return replace(request, messages=[await self._message(one, chat_key) for one in request.messages])

    async def _message(self, message: Message, chat_key: ChatKey | None) -> Message:
        if not _has_files(message):
            return message
        content = [
            await self._block(one, chat_key) if one.get("type") == ATTACHED else one
            for one in message["content"]
        ]
        return {**message, "content": content}

    async def _block(self, block: Json, chat_key: ChatKey | None) -> Json:
        mark = {"cache_control": block["cache_control"]} if "cache_control" in block else {}
        data = await self._data(str(block.get("artifact")), chat_key) if chat_key is not None else None
        if data is None:
            return {"type": "text", "text": GONE} | mark
        source = {"type": "base64", "media_type": block["media"], "data": data}
        kind = "image" if block["media"].startswith("image/") else "document"
        return {"type": kind, "source": source} | mark

    async def _data(self, artifact: str, chat_key: ChatKey) -> str | None:
        try:
            return (await self._artifacts.read(artifact, chat_key, offset=0, limit=_WHOLE)).text
        except (errors.ToolError, errors.StorageError):
            return None


def _has_files(message: Message) -> bool:
    content = message["content"]
    return not isinstance(content, str) and any(block.get("type") == ATTACHED for block in content)
