"""Attached files are inserted into a request just before it is sent, and only within their own chat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bot import errors
from bot.contracts.base import Json
from bot.contracts.identity import ChatKey
from bot.contracts.model import ModelReply, ModelRequest, ShownFile
from bot.llm import blocks, classify
from bot.llm.wrapper import GONE, AttachedFiles
from bot.storage.artifacts import ArtifactStore
from bot.system import SystemDisk, UlidSource
from bot.telemetry.log import turn_scope
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import ScriptedModel, reply, text

CHAT = ChatKey.parse("tele:chat:1")
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def shown(media: str = "image/png") -> Json:
    return blocks.attached(ShownFile(ULID, media, 3, 10))


async def sent(tmp_path: Path, *content: Json, chat: ChatKey = CHAT) -> Any:
    """Return the content of the message that the wrapped model receives."""
    store = ArtifactStore(tmp_path, disk=SystemDisk(), ids=UlidSource(), clock=FakeClock(), log=MemoryLog())
    await store.put(
        "AAEC", chat_key=CHAT, request_id=ULID, tool="attachment", tool_use_id=ULID, artifact_id=ULID
    )
    model = ScriptedModel(reply(text("ok")))
    request = ModelRequest("m", 1, (), [{"role": "user", "content": list(content)}])
    with turn_scope(chat_key=chat, request_id=ULID):
        pieces = [one async for one in AttachedFiles(model, store, MemoryLog()).stream(request)]
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


def refused(words: str) -> errors.ModelError:
    return classify.classify(
        400, {"error": {"type": "invalid_request_error", "message": words}}, quotes=False
    )


SAID = reply(text("ok"))
REFUSAL = refused("messages.0.content.1: this model does not support image input")


BROKEN = refused("Could not process image")


async def turns(tmp_path: Path, *answers: Any, chats: int = 1) -> tuple[ScriptedModel, list[Any]]:
    """Ask once in each chat about a file of that chat. Return the model and the result of each."""
    log = MemoryLog()
    store = ArtifactStore(tmp_path, disk=SystemDisk(), ids=UlidSource(), clock=FakeClock(), log=log)
    model, came = ScriptedModel(*answers), list[Any]()
    files = AttachedFiles(model, store, log)
    for number in range(chats):
        name, chat = f"{ULID[:-1]}{number}", ChatKey.parse(f"tele:chat:{number}")
        await store.put(
            "AAEC", chat_key=chat, request_id=ULID, tool="attachment", tool_use_id=name, artifact_id=name
        )
        request = ModelRequest("m", 1, (), [{"role": "user", "content": [shown() | {"artifact": name}]}])
        with turn_scope(chat_key=chat, request_id=ULID):
            try:
                last = [one async for one in files.stream(request)][-1]
                assert isinstance(last, ModelReply)
                came.append(last.unshown)
            except errors.ModelError as error:
                came.append(error)
    return model, came


def asked(model: ScriptedModel) -> list[str]:
    return [one.messages[0]["content"][0]["type"] for one in model.requests]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([REFUSAL, SAID, SAID], "image text text"),
        ([BROKEN, SAID, SAID, BROKEN, SAID], "image text image image text"),
    ],
    ids=["it says so", "it refuses single files"],
)
async def test_a_model_that_sees_none_is_asked_without_them_from_then_on(
    tmp_path: Path, answers: list[Any], expected: str
) -> None:
    chats = sum(one is SAID for one in answers)
    model, came = await turns(tmp_path, *answers, chats=chats)
    kinds = expected.split()
    assert asked(model) == kinds
    assert sum(bool(one) for one in came) == kinds.count("text")


async def test_any_other_refusal_and_a_second_one_are_told(tmp_path: Path) -> None:
    other = refused("max_tokens: Field required")
    model, came = await turns(tmp_path, other, REFUSAL, REFUSAL, chats=2)
    assert came == [other, REFUSAL]
    assert asked(model) == ["image", "image", "text"]
