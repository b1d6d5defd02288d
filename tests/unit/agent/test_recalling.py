"""What a turn loads from the other chats of whoever asks: a message id names a message of one chat alone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bot.history.search.searched_archive import SearchedArchive

from bot.context import deletions
from bot.context.store import InjectedMessage, RunningTurn
from bot.contracts.archive import ArchiveKey, ArchiveLine
from bot.contracts.identity import ChatKey
from bot.contracts.recall import MembershipAnswer
from bot.contracts.transcript import Injection
from bot.system import SystemDisk
from bot.testing.log import MemoryLog
from bot.testing.model import reply, text, tool_use
from bot.tools.registry import Registry, builtin_tools
from tests.unit.agent.conftest import KEY, Bench

OTHER = ChatKey.parse("telegram:chat:2")


class Everywhere:
    """`contracts.recall.Membership` of somebody who is in every chat."""

    async def chats_of(
        self, channel: str, user_id: str, chat_keys: Sequence[ChatKey], *, direct: bool
    ) -> MembershipAnswer:
        return MembershipAnswer(list(chat_keys))


@pytest.fixture
async def wide(bench: Bench, tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench whose tools search all chats."""
    searched = SearchedArchive(
        bench.archive, tmp_path / "index.db", folder=tmp_path / "chats", disk=SystemDisk(), log=MemoryLog()
    )
    ports = replace(bench.ports, archive=searched, recall=searched, membership=Everywhere())
    registry = Registry(builtin_tools(ports))
    bench.configure(registry=registry, dispatcher=bench.dispatcher(registry))
    yield bench
    await searched.close()


async def said(bench: Bench, chat_key: ChatKey, ts: int, words: str, message_id: str) -> None:
    line = {
        "channel": "telegram",
        "chat_id": chat_key.chat_id,
        "chat_key": chat_key,
        "role": "user",
    }
    await bench.archive.append(
        ArchiveLine.model_validate(line | {"ts": ts, "text": words, "message_id": message_id})
    )


async def asked(bench: Bench, *calls: dict[str, Any]) -> list[str]:
    """The texts that a turn has loaded once it made these calls."""
    bench.model.answers += [reply(tool_use("chat_load_history", **call)) for call in calls]
    bench.model.answers += [reply(text("done"))]
    await bench.say("do you remember?")
    loaded = [m for m in bench.sent if m["content"][0].get("text", "").startswith("<loaded_history")]
    return [m["content"][1]["text"] for m in loaded]


@pytest.mark.parametrize("how", [{"keyword": "青い"}, {"query": "青い 箱"}])
async def test_a_line_of_another_chat_with_the_id_of_the_current_message_is_found(
    wide: Bench, how: dict[str, str]
) -> None:
    # The first message of this chat is number 1, as is the first one of the other.
    await said(wide, OTHER, 1_600_000_000_000, "青い 箱 is in the attic", "1")
    assert await asked(wide, {"scope": "mine", **how}) == ["青い 箱 is in the attic"]


async def test_lines_of_two_chats_that_are_alike_in_all_but_their_chat_are_both_found(wide: Bench) -> None:
    for chat in (OTHER, ChatKey.parse("telegram:chat:3")):
        await said(wide, chat, 1_600_000_000_000, "the parcel has come", "7")
    calls = [{"scope": "mine", "keyword": "parcel", "limit": 1}] * 3
    assert await asked(wide, *calls) == ["the parcel has come"] * 2, "each once, none twice"


async def test_what_was_removed_here_hides_no_line_of_another_chat(wide: Bench) -> None:
    await said(wide, OTHER, 1_600_000_000_000, "the parcel has come", "7")
    await asked(wide, {"scope": "mine", "keyword": "parcel"})
    (event,) = [one.event for one in await wide.transcript.load(KEY) if isinstance(one.event, Injection)]
    here = ArchiveLine.model_validate(
        {
            "ts": 1,
            "channel": "telegram",
            "chat_id": "1",
            "chat_key": KEY,
            "role": "system",
            "text": "",
            "message_id": "7",
            "meta": {"deleted": True},
        }
    )
    older = list(map(InjectedMessage, event.ts, event.messages, event.keys))
    assert "the parcel has come" in json.dumps(redacted(older, here))
    own = [InjectedMessage(one.ts, one.message, one.key and ArchiveKey(*one.key[:3])) for one in older]
    assert "parcel" not in json.dumps(redacted(own, here)), "as it was written before"


def redacted(older: list[InjectedMessage], removal: ArchiveLine) -> list[Any]:
    """The messages in view of a turn that is resumed."""
    turn = RunningTurn("R", ("R",), older=tuple(older))
    turn.redact_older(deletions.read_deletions([removal]))
    return [one.message for one in turn.older]
