"""Attached files are put into a request where it leaves, and only within their own chat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bot.context import blocks
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Shown
from bot.contracts.model import ModelReply, ModelRequest
from bot.history.artifacts import ArtifactStore
from bot.llm.attached import GONE, AttachedFiles
from bot.system import SystemDisk, UlidSource
from bot.telemetry import turn_scope
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import ScriptedModel, reply, text

CHAT = ChatKey.parse("tele:chat:1")
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def shown(media: str = "image/png") -> Json:
    return blocks.attached(Shown(ULID, media, 3, 10))


async def sent(tmp_path: Path, *content: Json, chat: ChatKey = CHAT) -> Any:
    """The content of the message that the model behind it gets."""
    store = ArtifactStore(tmp_path, disk=SystemDisk(), ids=UlidSource(), clock=FakeClock(), log=MemoryLog())
    await store.put(
        "AAEC", chat_key=CHAT, request_id=ULID, tool="attachment", tool_use_id=ULID, artifact_id=ULID
    )
    model = ScriptedModel(reply(text("ok")))
    request = ModelRequest("m", 1, (), [{"role": "user", "content": list(content)}])
    with turn_scope(chat_key=chat, request_id=ULID):
        pieces = [one async for one in AttachedFiles(model, store).stream(request)]
    assert isinstance(pieces[-1], ModelReply)
    assert request.messages[0]["content"] == list(content)
    return model.requests[0].messages[0]["content"]


async def test_a_picture_and_a_document_become_blocks_of_the_provider(tmp_path: Path) -> None:
    words: Json = {"type": "text", "text": "look"}
    marked = shown() | {"cache_control": {"type": "ephemeral"}}
    source = {"type": "base64", "media_type": "image/png", "data": "AAEC"}
    assert await sent(tmp_path, words, marked, shown("application/pdf")) == [
        words,
        {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}},
        {"type": "document", "source": source | {"media_type": "application/pdf"}},
    ]


async def test_what_has_no_file_is_the_same_object(tmp_path: Path) -> None:
    words: Json = {"type": "text", "text": "look"}
    assert await sent(tmp_path, words) == [words]


async def test_a_file_that_has_gone_or_is_of_another_chat_is_words(tmp_path: Path) -> None:
    gone = [{"type": "text", "text": GONE}]
    assert await sent(tmp_path, shown(), chat=ChatKey.parse("tele:chat:2")) == gone
    assert await sent(tmp_path, shown() | {"artifact": "01ARZ3NDEKTSV4RRFFQ69G5FAX"}) == gone
