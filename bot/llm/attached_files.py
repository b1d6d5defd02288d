"""`AttachedFiles`: a model that is shown files of a conversation as they are.

What is kept, counted, recorded and logged of a request has a block of the type `attached` in the place of each; the bytes are
put in only here, where the request leaves. A file that the provider refuses is left out from then on, with a sentence in its
place; all of them where the provider says that the model sees none, or refuses the only ones of several chats.
"""

from __future__ import annotations

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
MANY = 3
"""A model that was shown nothing, and had files of so many chats refused, counts as one that sees none."""
_WHOLE = 100_000_000
"""Characters: an artifact has fewer."""


class AttachedFiles(ModelWrapper):
    """Puts the bytes of attached files into requests, within the scope of the chat that has them."""

    def __init__(self, model: Model, artifacts: ArtifactStore, log: Log) -> None:
        super().__init__(model)
        self._artifacts = artifacts
        self._log = log
        self._sees: dict[str, bool] = {}
        """True of models that see pictures, as far as that is known."""
        self._refused: dict[tuple[str, str], ChatKey | None] = {}
        """Files that were refused, by model and artifact, with their chats."""

    def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        # Most requests have none: no piece of an answer passes through here then.
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
                async for piece in self._asked(await self._filled(request, left_out)):
                    if isinstance(piece, ModelReply):
                        self._learn(model, sure | guess, shown=not left_out.issuperset(files.values()))
                        sees = self._sees.get(model, True)
                        piece = replace(piece, unshown=frozenset(left_out), blind=not sees)  # noqa: PLW2901
                    yield piece
            except errors.RequestInvalid as error:
                # A refusal comes before any of the answer.
                left = [one for one in files.values() if one not in left_out]
                if not (error.about_files and left):
                    raise
                self._log.write(
                    "model",
                    "the provider refuses files: it is asked without them",
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
                    # The newest, or one before it: what is left out last is what was refused.
                    guess = {left[-1]}
                left_out |= sure | guess
            else:
                return

    def _learn(self, model: str, refused: set[str], *, shown: bool) -> None:
        """The model has answered without the files that it had `refused`, having been `shown` others."""
        if shown:
            self._sees[model] = True
        chat_key = context.current().chat_key
        self._refused |= {(model, one): chat_key for one in refused}
        chats = {chat for (name, _), chat in self._refused.items() if name == model}
        if len(chats) >= MANY:
            self._sees.setdefault(model, False)

    async def _asked(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        async with aclosing(self._model.stream(request)) as pieces:
            async for piece in pieces:
                yield piece

    async def _filled(self, request: ModelRequest, left_out: set[str]) -> ModelRequest:
        """The request with the bytes of its files, and with a sentence for each that is `left_out`."""
        chat_key = context.current().chat_key
        messages = [await self._message(one, chat_key, left_out) for one in request.messages]
        return replace(request, messages=messages)

    async def _message(self, message: Message, chat_key: ChatKey | None, left_out: set[str]) -> Message:
        if not _has_files(message):
            return message
        content = [
            await self._block(one, chat_key, left_out) if one.get("type") == ATTACHED else one
            for one in message["content"]
        ]
        return {**message, "content": content}

    async def _block(self, block: Json, chat_key: ChatKey | None, left_out: set[str]) -> Json:
        mark = {"cache_control": block["cache_control"]} if "cache_control" in block else {}
        if block["artifact"] in left_out:
            return {"type": "text", "text": UNSEEN} | mark
        data = await self._data(block["artifact"], chat_key) if chat_key is not None else None
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


def _files(messages: Sequence[Message]) -> Iterator[tuple[tuple[int, int], str]]:
    """The places and artifacts of attached files, in order."""
    for at, message in enumerate(messages):
        for number, block in enumerate(message["content"] if _has_files(message) else ()):
            if block.get("type") == ATTACHED:
                yield (at, number), block["artifact"]
