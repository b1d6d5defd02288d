"""Files that were written while foreign text was in the context stay foreign when they are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from bot.contracts.base import Json, Message
from bot.contracts.identity import ChatKey, UserRef
from bot.contracts.messages import ANYBODYS, NOBODYS, ORIGIN, WORKSPACES, Provenance, Taint, unpacked
from bot.system import SystemDisk
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import tool_use
from bot.tools import file_guard
from bot.tools.builtin import ToolPorts, files, run_shell
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.dispatch import Dispatcher, Registry
from bot.tools.file_guard import Command, FileGuard
from bot.tools.isolation import Isolation
from bot.tools.project import Project
from tests.tool_calls import run_blocks

FOREIGN: list[Message] = [{"role": "user", "content": "anybody's"}]


def person(user: str) -> list[Message]:
    return [{"role": "user", "content": [{"type": "text", "text": "go"}], ORIGIN: [user]}]


class Desk:
    """Runs the file tools of one project. Each call names the messages in the model's context."""

    def __init__(self, root: Path, *, network: bool = False) -> None:
        self.root, self.record = root / "project", root / "origins.json"
        self.root.mkdir(exist_ok=True)
        self.isolation = Isolation(self.root, network=network)
        self.restart()

    def restart(self) -> None:
        clock = FakeClock()
        operators = frozenset({UserRef("slack", "U7")})
        self.guard = self.isolation.guard = FileGuard(
            self.root, self.record, SystemDisk(), operators=operators
        )
        given: dict[str, Any] = {"project": Project(self.root), "clock": clock, "isolation": self.isolation}
        given |= {"guard": self.guard}
        ports = cast("ToolPorts", type("Ports", (), given))
        built = (*files.TOOLS, *run_shell.TOOLS)
        self.dispatcher = Dispatcher(Registry([one(ports) for one in built]), clock=clock, log=MemoryLog())

    async def call(
        self, name: str, view: Sequence[Message] = (), channel: str = "slack", **given: Any
    ) -> Json:
        turn = ToolExecutionContext(
            ChatKey("tele", "K"), "R", "U7", None, cast("Any", None), channel, view=lambda: view
        )
        with tool_scope(turn):
            (result,) = await run_blocks(self.dispatcher, [tool_use(name, **given)])
        return result

    async def origin(self, name: str, channel: str = "slack", **given: Any) -> Provenance:
        result = await self.call(name, channel=channel, **given)
        assert "is_error" not in result, result
        return unpacked(result[ORIGIN])


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_files_of_the_project_are_its_own(desk: Desk) -> None:
    (desk.root / "a.md").write_text("words\n")
    for name, given in (
        ("read_file", {"path": "a.md"}),
        ("list_dir", {}),
        ("search_files", {"pattern": "words"}),
        ("run_shell", {"command": "cat a.md"}),
    ):
        assert await desk.origin(name, **given) == WORKSPACES
    await desk.call("write_file", person("U7"), path="b.md", content="x")
    assert await desk.origin("read_file", path="b.md") == WORKSPACES, "an operator's words have every right"


@pytest.mark.parametrize("again", [False, True])
async def test_what_was_written_with_foreign_text_in_view_is_foreign(desk: Desk, *, again: bool) -> None:
    (desk.root / "old.md").write_text("one\n")
    await desk.call("write_file", FOREIGN, path="docs/a.md", content="obey me")
    await desk.call("edit_file", FOREIGN, path="old.md", old_str="one", new_str="obey me")
    (desk.root / "soft.md").symlink_to("docs/a.md")
    (desk.root / "clean.md").write_text("clean\n")
    if again:  # with a record in the format of 0.1
        state = json.loads(desk.record.read_text())
        for mark in state["files"].values():
            del mark["inode"]
        desk.record.write_text(json.dumps(state))
        desk.restart()
    for path in ("docs/a.md", "old.md", "soft.md"):
        assert (await desk.origin("read_file", path=path)).taint == Taint.FOREIGN, path
    assert await desk.origin("read_file", path="clean.md") == WORKSPACES
    assert (await desk.origin("search_files", pattern="obey")).taint == Taint.FOREIGN
    assert await desk.origin("search_files", pattern="clean") == WORKSPACES
    assert (await desk.origin("list_dir", path="docs")).taint == Taint.FOREIGN, "its name is words too"
    assert (await desk.origin("run_shell", command="cat docs/a.md")).taint == Taint.FOREIGN


async def test_a_command_that_may_have_read_it_hands_it_on(desk: Desk) -> None:
    await desk.call("write_file", FOREIGN, path="a.md", content="obey me")
    await desk.call("write_file", FOREIGN, path="sub/deep/d.md", content="obey me")
    (desk.root / "other").mkdir()
    await desk.call(
        "run_shell", command="cp a.md b.md; mv other moved; mkdir d; mv a.md d/c.md; mv d e; mv sub moved"
    )
    (desk.root / "late.md").write_text("x")
    for path in ("b.md", "e/c.md", "moved/sub/deep/d.md"):
        assert (await desk.origin("read_file", path=path)).taint == Taint.FOREIGN, path
    assert await desk.origin("read_file", path="late.md") == WORKSPACES


async def test_what_a_command_fetched_or_made_of_foreign_text_is_foreign(tmp_path: Path) -> None:
    for at, (network, view) in enumerate(((True, []), (False, FOREIGN))):
        (tmp_path / str(at)).mkdir()
        desk = Desk(tmp_path / str(at))
        desk.isolation.network = network
        desk.restart()
        await desk.call("run_shell", view, command="echo obey > page.txt; mkdir 'obey too'")
        desk.isolation.network = False
        desk.restart()
        assert (await desk.origin("read_file", path="page.txt")).taint == Taint.FOREIGN
        assert (await desk.origin("list_dir")).taint == Taint.FOREIGN
        shutil.rmtree(desk.root / "obey too")


async def test_words_of_people_stay_theirs(desk: Desk) -> None:
    await desk.call("write_file", person("U2"), path="a.md", content="theirs")
    mine = Provenance(frozenset({"U2"}), Taint.WORKSPACE)
    assert await desk.origin("read_file", path="a.md") == mine
    assert (await desk.origin("read_file", channel="telegram", path="a.md")).taint == Taint.FOREIGN
    await desk.call("edit_file", person("U7"), path="a.md", old_str="theirs", new_str="ours")
    assert (await desk.origin("read_file", path="a.md")).people >= {"U2"}
    await desk.call("write_file", person("U7"), path="a.md", content="anew")
    assert await desk.origin("read_file", path="a.md") == WORKSPACES, "nothing of it is left"


async def test_whoever_changes_a_file_outside_takes_it_over(desk: Desk) -> None:
    await desk.call("write_file", FOREIGN, path="a.md", content="obey me")
    (desk.root / "a.md").write_text("I have read this, and it is fine.")
    assert await desk.origin("read_file", path="a.md") == WORKSPACES
    assert await desk.origin("run_shell", command="true") == WORKSPACES


async def test_a_write_that_failed_leaves_nothing_foreign_after_a_restart(desk: Desk) -> None:
    await desk.call("write_file", FOREIGN, path="a.md", content="obey me")
    (desk.root / "a.md").unlink()
    (desk.root / "a.md").mkdir()
    assert (await desk.call("write_file", FOREIGN, path="a.md", content="obey me"))["is_error"]
    (desk.root / "a.md").rmdir()
    (desk.root / "a.md").write_text("I have read this, and it is fine.")
    desk.restart()
    assert await desk.origin("read_file", path="a.md") == WORKSPACES


async def test_a_command_that_a_crash_cut_off_counts_when_the_next_process_looks(desk: Desk) -> None:
    desk.guard.begin(Command(ANYBODYS, "slack"))
    (desk.root / "a.md").write_text("obey")
    desk.restart()
    assert (await desk.origin("read_file", path="a.md")).taint == Taint.FOREIGN
    assert json.loads(desk.record.read_text())["begun"] == []


async def test_a_record_that_cannot_be_read_makes_everything_foreign(desk: Desk) -> None:
    (desk.root / "a.md").write_text("x")
    for damaged in ("{", '{"files": {"a": 1}}', '{"files": []}', "[]"):
        desk.record.write_text(damaged)
        desk.restart()
        assert (await desk.origin("read_file", path="a.md")).taint == Taint.FOREIGN


async def test_of_too_many_files_the_folder_is_known(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_guard, "MOST", 5)
    await desk.call(
        "run_shell", FOREIGN, command="mkdir many; for n in 1 2 3 4 5 6 7; do echo x > many/$n; done"
    )
    assert (await desk.origin("read_file", path="many/7")).taint == Taint.FOREIGN
    assert desk.guard.of("elsewhere", "slack") == NOBODYS
