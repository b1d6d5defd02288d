"""`AttachedFiles`: a model that is shown files of a conversation as they are.

What is kept, counted, recorded and logged of a request has a block of the type `attached` in the place of each; the bytes are
put in only here, where the request leaves. A provider that refuses them (a model that sees none, a damaged picture) is asked once more
with a sentence in the place of each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from bot import errors
from bot.contracts.artifacts import Artifacts
from bot.contracts.base import Json, Message
from bot.contracts.environment import Log
from bot.contracts.identity import ChatKey
from bot.contracts.model import ATTACHED, Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.llm.wrapper import ModelWrapper, aclosing
from bot.telemetry import context

GONE = "[this file is not kept any more]"
UNSEEN = "[a file was sent here that you cannot be shown: the provider refuses it]"
_WHOLE = 100_000_000
"""Characters: an artifact has fewer."""


class AttachedFiles(ModelWrapper):
    """Puts the bytes of attached files into requests, within the scope of the chat that has them."""

    def __init__(self, model: Model, artifacts: Artifacts, log: Log) -> None:
        super().__init__(model)
        self._artifacts = artifacts
        self._log = log
        self._sees: dict[str, bool] = {}
        """What is known of models: one that was shown a file, or that refused the first one."""

    def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        # Most requests have none: no piece of an answer passes through here then.
        if not any(map(_has_files, request.messages)):
            return self._model.stream(request)
        return self._with_files(request)

    async def _with_files(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        if self._sees.get(request.model, True):
            try:
                async for piece in self._asked(await self._filled(request, shown=True)):
                    self._sees[request.model] = True
                    yield piece
            except errors.RequestInvalid as error:
                # A refusal comes before any of the answer.
                if not error.about_files:
                    raise
                self._refused(request.model, error)
            else:
                return
        async for piece in self._asked(await self._filled(request, shown=False)):
            yield piece

    async def _asked(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        async with aclosing(self._model.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    def _refused(self, model: str, error: errors.RequestInvalid) -> None:
        self._sees.setdefault(model, False)
        self._log.write(
            "model",
            "the provider refuses files: it is asked without them",
            level="warn",
            model=model,
            cause=str(error),
        )

    async def _filled(self, request: ModelRequest, *, shown: bool) -> ModelRequest:
        """The request with the bytes of its files where they are `shown`, else with a sentence for each."""
        chat_key = context.current().chat_key
        messages = [await self._message(one, chat_key, shown=shown) for one in request.messages]
        return replace(request, messages=messages)

    async def _message(self, message: Message, chat_key: ChatKey | None, *, shown: bool) -> Message:
        if not _has_files(message):
            return message
        content = [
            await self._block(one, chat_key, shown=shown) if one.get("type") == ATTACHED else one
            for one in message["content"]
        ]
        return {**message, "content": content}

    async def _block(self, block: Json, chat_key: ChatKey | None, *, shown: bool) -> Json:
        mark = {"cache_control": block["cache_control"]} if "cache_control" in block else {}
        if not shown:
            return {"type": "text", "text": UNSEEN} | mark
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
