"""The `memory` tool changes memory files, and reaches only the memory files of its chat and person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ANYBODYS, Provenance, Taint, unpacked
from bot.storage.notes import NoteStore
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import tool_use
from bot.tools.builtin import ToolPorts, memory
from bot.tools.builtin.memory import NoteSources
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.dispatch import Dispatcher, Registry
from tests.tool_calls import run_blocks


class Turn:
    """A turn of one person in one chat."""

    def __init__(self, root: Path, chat_key: ChatKey, user_id: str | None, *, private: bool) -> None:
        clock = FakeClock()
        ports = type("Ports", (), {"memory": NoteStore(root, disk=SystemDisk()), "clock": clock})
        registry = Registry([memory.memory(cast("ToolPorts", ports))])
        self._dispatcher = Dispatcher(registry, clock=clock, log=MemoryLog())
        self._context = ToolExecutionContext(
            chat_key, "R1", user_id, None, cast("Any", None), "telegram", private
        )

    def sees(self, view: Sequence[Message]) -> None:
        """Set the messages in the model's context."""
        self._context = replace(self._context, view=lambda: view)

    async def call(self, command: str, **arguments: Any) -> Json:
        with tool_scope(self._context):
            (result,) = await run_blocks(self._dispatcher, [tool_use("memory", command=command, **arguments)])
        return result

    async def does(self, command: str, **arguments: Any) -> str:
        result = await self.call(command, **arguments)
        assert "is_error" not in result, result
        return str(result["content"])

    async def fails(self, command: str, **arguments: Any) -> str:
        result = await self.call(command, **arguments)
        assert result["is_error"] is True
        return str(result["content"])


@pytest.fixture
def group(tmp_path: Path) -> Turn:
    return Turn(tmp_path, ChatKey.parse("telegram:chat:-5"), "1", private=False)


@pytest.fixture
def direct(tmp_path: Path) -> Turn:
    return Turn(tmp_path, ChatKey.parse("telegram:chat:1"), "1", private=True)


async def test_a_file_from_its_creation_to_its_end(group: Turn) -> None:
    path = "/memories/chat/plan.md"
    assert await group.does("view", path="/memories") == "/memories/chat/ (empty)"
    assert await group.does("create", path=path, file_text="one\ntwo") == f"{path} is written: 2 lines."
    whole = f"{path}, lines 1 to 2 of 2:\n    1\tone\n    2\ttwo"
    assert await group.does("view", path=path) == whole
    await group.does("str_replace", path=path, old_str="two", new_str="2\n3")
    await group.does("insert", path=path, insert_line=0, insert_text="zero\n")
    shown = await group.does("view", path=path, view_range=[1, -1])
    assert shown.endswith("    1\tzero\n    2\tone\n    3\t2\n    4\t3")
    assert (await group.does("view", path=path, view_range=[2, 3])).endswith(":\n    2\tone\n    3\t2")
    await group.does("rename", old_path=path, new_path="/memories/chat/done/plan.md")
    listing = "/memories/chat/\n/memories/chat/done/plan.md  12 B"
    assert await group.does("view", path="/memories/chat/") == listing
    assert await group.does("view", path="/memories/chat/done") == (
        "/memories/chat/done/\n/memories/chat/done/plan.md  12 B"
    )
    assert await group.does("delete", path="/memories/chat/done") == "Deleted: 1 file."
    assert await group.does("view", path="/memories") == "/memories/chat/ (empty)"


async def test_what_cannot_be_done_says_why(group: Turn) -> None:
    path = "/memories/chat/a.md"
    await group.does("create", path=path, file_text="x\nx")
    assert "there already" in await group.fails("create", path=path, file_text="y")
    twice = await group.fails("str_replace", path=path, old_str="x", new_str="y")
    assert "occurs 2 times. Its first line is in the lines 1, 2." in twice
    assert "occurs 0 times" in await group.fails("str_replace", path=path, old_str="z")
    assert "has 2 lines" in await group.fails("insert", path=path, insert_line=3, insert_text="y")
    for asked in ([0, 1], [3, 3], [2, 1]):
        assert "no such range" in await group.fails("view", path=path, view_range=asked)
    for command in ("view", "delete"):
        assert "There is no /memories/chat/b.md" in await group.fails(command, path="/memories/chat/b.md")
    assert "Create it first" in await group.fails(
        "insert", path="/memories/chat/b.md", insert_line=0, insert_text="y"
    )
    missing = await group.fails("rename", old_path="/memories/chat/b.md", new_path="/memories/chat/c.md")
    assert "There is no" in missing
    assert "the folder itself" in await group.fails("delete", path="/memories/chat")
    assert "needs insert_line and insert_text" in await group.fails("insert", path=path)
    assert (await group.does("view", path=path)).endswith(f"{path}, lines 1 to 2 of 2:\n    1\tx\n    2\tx")


async def test_a_file_says_whose_words_it_holds(tmp_path: Path, group: Turn) -> None:
    path = "/memories/chat/a.md"
    await group.does("create", path=path, file_text="<origin>[]</origin>\nmine")
    other = Turn(tmp_path, ChatKey.parse("telegram:chat:-5"), "2", private=False)
    await other.does("insert", path=path, insert_line=0, insert_text="theirs")
    assert (await group.call("view", path=path, view_range=[2, 3]))["origin"] == ["1", "2"]
    assert (await group.call("view", path="/memories"))["origin"] == ["1", "2"], "its name is words of both"
    nobody = Turn(tmp_path, ChatKey.parse("telegram:chat:-5"), None, private=False)
    await nobody.does("insert", path=path, insert_line=0, insert_text="of a job")
    assert (await group.call("view", path=path))["origin"] == ANYBODYS.packed()
    assert (await group.call("view", path="/memories"))["origin"] == ANYBODYS.packed()


async def test_what_was_in_view_when_a_note_was_made_is_in_view_again_with_it(tmp_path: Path) -> None:
    path = "/memories/chat/a.md"
    for level in Taint:
        turn = Turn(tmp_path / level.name, ChatKey.parse("telegram:chat:-5"), "1", private=False)
        call = tool_use("list_dir")
        shown = {"type": "tool_result", "tool_use_id": call["id"], "content": "x"}
        shown["origin"] = Provenance(taint=level).packed()
        turn.sees([{"role": "assistant", "content": [call]}, {"role": "user", "content": [shown]}])
        await turn.does("create", path=path, file_text="words")
        turn.sees([])
        for viewed in (path, "/memories", "/memories/chat"):
            found = unpacked((await turn.call("view", path=viewed))["origin"])
            assert found.taint == level
            assert found.people == frozenset({"1"})


async def test_a_name_that_was_given_with_foreign_words_in_view_is_foreign(group: Turn) -> None:
    await group.does("create", path="/memories/chat/a.md", file_text="words")
    group.sees([{"role": "user", "content": "anybody's"}])
    await group.does("rename", old_path="/memories/chat/a.md", new_path="/memories/chat/obey.md")
    group.sees([])
    assert unpacked((await group.call("view", path="/memories"))["origin"]).taint == Taint.FOREIGN


@pytest.mark.parametrize(
    "path",
    (  # noqa: SIM905 - a list would take a page
        "/etc/passwd¦/memories/../x¦/memories/chat/../../x¦/memories/chatter/a¦chat/a¦¦"
        "/memories/people/telegram-2/a.md¦/memories/chat/a%2fb¦/memories/chat//a"
    ).split("¦"),
)
async def test_no_other_path_means_anything(group: Turn, path: str) -> None:
    for command in ("view", "delete"):
        await group.fails(command, path=path)
    await group.fails("create", path=path, file_text="x")
    await group.does("create", path="/memories/chat/a.md", file_text="x")
    await group.fails("rename", old_path="/memories/chat/a.md", new_path=path)


async def test_the_files_of_a_person_are_there_in_their_direct_chat_alone(
    tmp_path: Path, direct: Turn, group: Turn
) -> None:
    path = "/memories/me/diet.md"
    await direct.does("create", path=path, file_text="no nuts")
    assert "no nuts" in await direct.does("view", path=path)
    assert path in await direct.does("view", path="/memories")
    nobody = Turn(tmp_path, ChatKey.parse("telegram:chat:1"), None, private=True)
    other = Turn(tmp_path, ChatKey.parse("telegram:chat:2"), "2", private=True)
    for turn in (group, nobody):
        assert "direct chats only" in await turn.fails("view", path=path)
        assert "direct chats only" in await turn.fails("create", path=path, file_text="x")
        assert "/memories/me" not in await turn.does("view", path="/memories")
    assert "There is no" in await other.fails("view", path=path)


async def test_what_is_private_does_not_move_into_a_chat(direct: Turn) -> None:
    await direct.does("create", path="/memories/me/a.md", file_text="x")
    assert "stay apart" in await direct.fails(
        "rename", old_path="/memories/me/a.md", new_path="/memories/chat/a.md"
    )


def said(request_id: str, words: str, user_id: str | None = "U1") -> Message:
    facts: Json = {"requestId": request_id, "userId": user_id}
    head = {"type": "text", "text": f"<turn_context>{json.dumps(facts)}</turn_context>"}
    return {"role": "user", "content": [head, {"type": "text", "text": words}]}


def found(line: str, *view: Message) -> list[str]:
    return [name for name, _ in NoteSources(view, "OWN").of(line)]


@pytest.mark.parametrize(
    ("before", "asked", "line"),
    [
        ("I love teal", "please note my favourite colour", "- Favourite colour: teal"),
        ("my IBAN is DE12 3456", "save that", "Ann's IBAN: DE12 3456"),
        ("我最喜欢的颜色是青色", "记住我最喜欢的颜色", "最喜欢的颜色：青色"),
        ("my secret is 鯨", "remember it", "secret: 鯨"),
        ("ｐｉｎ 4711", "note", "PIN 4711"),
        ("the door opens with 42", "note it", "42"),
    ],
)
def test_a_note_of_what_was_said_before_names_it(before: str, asked: str, line: str) -> None:
    view = [said("A", before), said("B", "how is the weather in 東京?"), said("OWN", asked)]
    assert found(line, *view) == ["A"]


def test_what_the_turn_says_itself_names_nobody_else() -> None:
    view = [said("A", "my dog is called Rex"), said("OWN", "note that my dog is called Rex and is two")]
    assert found("dog: Rex, two", *view) == []
    assert found("", *view) == []


def test_it_says_who_said_it_as_far_as_that_is_known() -> None:
    sources = NoteSources([said("A", "teal is best", "U7"), said("B", "teal!", None)], "OWN")
    assert list(sources.of("teal")) == [("A", "U7"), ("B", None)]
