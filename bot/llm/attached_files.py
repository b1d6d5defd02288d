"""`AttachedFiles`: puts the bytes of attached files into requests to the model.

Before that, a request has a block of type `attached` for each file. `AttachedFiles` replaces the block just
before the request is sent. If the provider refuses a file, every later request has a sentence instead of that
file. If the provider says that the model has no vision, or refuses the only files of several chats, every
file is replaced by that sentence.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace

from bot import errors
from bot.contracts.base import Json, Message
from bot.contracts.environment import Log
from bot.contracts.identity import ChatKey
from bot.contracts.model import ATTACHED, Model, ModelReply, ModelRequest, TextDelta, ToolInputDelta
from bot.llm.wrapper import ModelWrapper, aclosing
from bot.storage.artifacts import ArtifactStore
from bot.telemetry import context

GONE = "[this file is not kept any more]"
UNSEEN = "[a file was sent here that you cannot be shown: the provider refuses it]"
MAX_REFUSING_CHATS = 3
"""Max chats with refused files before a model that never accepted a file is treated as having no vision."""
_WHOLE = 100_000_000
"""Max characters of an artifact that are read."""


class AttachedFiles(ModelWrapper):
    """Wraps a model so that the model sees the attached files of the running chat."""

    def __init__(self, model: Model, artifacts: ArtifactStore, log: Log) -> None:
        super().__init__(model)
        self._artifacts = artifacts
        self._log = log
        self._sees: dict[str, bool] = {}
        """Whether each model has vision, by the model's name. A model whose vision is unknown has no entry."""
        self._refused: dict[tuple[str, str], ChatKey | None] = {}
        """Files that the provider refused: maps (model, artifact) to the chat."""

    def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        # Most requests have no files, so their answers skip the code below.
        if not any(map(_has_files, request.messages)):
            return self._model.stream(request)
        return self._with_files(request)

    async def _with_files(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        model, files = request.model, dict(_files(request.messages))
        blind = not self._sees.get(model, True)
        left_out = {one for one in files.values() if blind or (model, one) in self._refused}
        sure, guess = set[str](), set[str]()
        while True:
            try:
                async with aclosing(self._model.stream(await self._filled(request, left_out))) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, ModelReply):
                            self._learn(model, sure | guess, shown=not left_out.issuperset(files.values()))
                            sees = self._sees.get(model, True)
                            piece = replace(piece, unshown=frozenset(left_out), blind=not sees)  # noqa: PLW2901
                        yield piece
            except errors.RequestInvalid as error:
                # The provider refuses a request before it sends any delta.
                left = [one for one in files.values() if one not in left_out]
                if not (error.about_files and left):
                    raise
                self._log.write(
                    "model",
                    "the provider refuses files and is asked without them",
                    level="warn",
                    model=model,
                    cause=str(error),
                )
                named = files.get(error.place) if error.place is not None else None
                if error.blind:
                    self._sees[model] = False
                    left_out.update(left)
                elif named in left:
                    sure, guess = {*sure, named}, set()
                else:
                    # Leave out the newest file, then the file before it, and so on. If the request then succeeds, the provider had
                    # refused the file that was left out last.
                    guess = {left[-1]}
                left_out |= sure | guess
            else:
                return

    def _learn(self, model: str, refused: set[str], *, shown: bool) -> None:
        """Remember that the model answered without the `refused` files. `shown` is True if the request
        contained other files.
        """
        if shown:
            self._sees[model] = True
        chat_key = context.current().chat_key
        self._refused |= {(model, one): chat_key for one in refused}
        chats = {chat for (name, _), chat in self._refused.items() if name == model}
        if len(chats) >= MAX_REFUSING_CHATS:
            self._sees.setdefault(model, False)

    async def _filled(self, request: ModelRequest, left_out: set[str]) -> ModelRequest:
        """Return the request with the bytes of its files. A sentence replaces each file in `left_out`."""
        chat_key = context.current().chat_key
        messages: list[Message] = []
        for message in request.messages:
            if _has_files(message):
                content = [
                    await self._block(one, chat_key, left_out) if one.get("type") == ATTACHED else one
                    for one in message["content"]
                ]
                messages.append({**message, "content": content})
            else:
                messages.append(message)
        return replace(request, messages=messages)

    async def _block(self, block: Json, chat_key: ChatKey | None, left_out: set[str]) -> Json:
        mark = {"cache_control": block["cache_control"]} if "cache_control" in block else {}
        if block["artifact"] in left_out:
            return {"type": "text", "text": UNSEEN} | mark
        data = None
        if chat_key is not None:
            with contextlib.suppress(errors.ToolError, errors.StorageError):
                read = await self._artifacts.read(block["artifact"], chat_key, offset=0, limit=_WHOLE)
                data = read.text
        if data is None:
            return {"type": "text", "text": GONE} | mark
        source = {"type": "base64", "media_type": block["media"], "data": data}
        kind = "image" if block["media"].startswith("image/") else "document"
        return {"type": kind, "source": source} | mark


def _has_files(message: Message) -> bool:
    content = message["content"]
    return not isinstance(content, str) and any(block.get("type") == ATTACHED for block in content)


def _files(messages: Sequence[Message]) -> Iterator[tuple[tuple[int, int], str]]:
    """Yield the position (index of the message, index of the block) and the artifact of each attached file."""
    for at, message in enumerate(messages):
        for number, block in enumerate(message["content"] if _has_files(message) else ()):
            if block.get("type") == ATTACHED:
                yield (at, number), block["artifact"]
