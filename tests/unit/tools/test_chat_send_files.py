"""`chat_send` sends files that this turn has made, and no others."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bot import errors
from bot.contracts.base import Json
from bot.contracts.outbound import OutgoingFile, Sent
from bot.contracts.tools import ToolCall, ToolInput, ToolResult
from bot.testing.clock import FakeClock
from bot.testing.log import MemoryLog
from bot.testing.model import tool_use
from bot.tools.builtin import chat_send, edit_file, run_shell, write_file
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.dispatch import Dispatcher
from bot.tools.file_provenance import FileProvenance
from bot.tools.isolation import Isolation
from bot.tools.made_files import FileWriters
from bot.tools.mcp.tool import ServerTool
from bot.tools.project import Project
from bot.tools.registry import Registry, ToolPorts
from bot.vetting import Vetting
from tests.tool_calls import run_blocks

from .conftest import KEY, Workbench


class Reply:
    """The way back; `failure` is raised in place of sending."""

    written: Sequence[str] = ()

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[OutgoingFile]]] = []
        self.failure: errors.DeliveryFailed | None = None

    async def send(
        self, text: str, step_id: str | None = None, files: Sequence[OutgoingFile] = ()
    ) -> list[Sent]:
        if self.failure is not None:
            raise self.failure
        self.sent.append((text, list(files)))
        return [Sent("m1")]

    def preview(self, words: Any) -> None: ...


class Recorder:
    """What a turn's steps have of its calls."""

    def __init__(self) -> None:
        self.made: list[Json] = []

    async def started(self, call: ToolCall, *, wait: bool) -> None: ...
    def looked(self, call: ToolCall, result: ToolResult, began_at: float) -> None: ...
    def finished(self, call: ToolCall, result: ToolResult, made: Sequence[Json]) -> None:
        self.made += made


class Desk:
    """Turns of one project; each `turn` is another one."""

    def __init__(self, root: Path, tools: Workbench) -> None:
        self.root, self.bench, self.reply, self.recorder = root, tools, Reply(), Recorder()
        self.made = FileWriters()
        ports = cast(
            "ToolPorts",
            SimpleNamespace(
                project=Project(root),
                isolation=Isolation(root, required=False),
                origins=FileProvenance(root),
                vetting=Vetting(root),
                made=self.made,
            ),
        )
        self.tools = [one.build(ports) for one in (chat_send, edit_file, run_shell, write_file)]
        self.turn("R1")

    def turn(self, request_id: str, made: Sequence[Json] = ()) -> None:
        self.context = ToolExecutionContext(KEY, request_id, None, self.reply, None, made=list(made))  # type: ignore[arg-type]

    def dispatcher(self, *more: Any) -> Dispatcher:
        tools = Registry([*self.tools, *more])
        return Dispatcher(tools, clock=FakeClock(), log=MemoryLog(), made=self.made)

    @contextlib.asynccontextmanager
    async def meanwhile(self, command: str, *makes: str) -> AsyncIterator[None]:
        """A command of this turn runs around the block; it begins with the block and ends after it."""
        with contextlib.ExitStack() as pipes:
            for name in ("begun", "over"):
                os.mkfifo(self.root.parent / name)
                pipes.callback((self.root.parent / name).unlink)
            held = f"echo > {self.root.parent}/begun; cat {self.root.parent}/over; {command}"
            running = asyncio.create_task(self.shell(held, *makes))
            await asyncio.to_thread((self.root.parent / "begun").read_text)
            yield
            await asyncio.to_thread((self.root.parent / "over").write_text, "\n")
            assert "ended well" in await running

    async def call(self, name: str, **arguments: Any) -> str:
        with tool_scope(self.context):
            (result,) = await run_blocks(
                self.dispatcher(), [tool_use(name, **arguments)], recorder=self.recorder
            )
        return str(result["content"])

    async def shell(self, command: str, *makes: str) -> str:
        return await self.call("run_shell", command=command, makes=list(makes))

    async def send(self, *paths: str) -> str:
        return await self.call("chat_send", text="here", attachments=list(paths))

    def files(self) -> list[tuple[str, str, bytes, str]]:
        return [
            (one.name, one.mime_type, one.data, one.path) for _, files in self.reply.sent for one in files
        ]


@pytest.fixture
def desk(tmp_path: Path, tools: Workbench) -> Desk:
    root = tmp_path / "project"
    root.mkdir()
    return Desk(root, tools)


async def test_what_a_file_tool_wrote_is_sent_as_it_is(desk: Desk) -> None:
    await desk.call("write_file", path="out/数据.csv", content="名,值\n")
    assert (await desk.send("out/数据.csv")).startswith("Delivered")
    assert desk.files() == [("数据.csv", "text/csv", "名,值\n".encode(), "out/数据.csv")]


async def test_what_a_command_made_is_sent(desk: Desk) -> None:
    await desk.shell(
        "mkdir out && printf '\\x89PNG' > out/chart.png && echo x > out/a.txt", "out/chart.png", "./out/a.txt"
    )
    assert (await desk.send("out/chart.png", "./out/a.txt", "out/chart.png")).startswith("Delivered")
    assert [name for name, *_ in desk.files()] == ["chart.png", "a.txt"]


async def test_what_a_command_made_before_it_failed_is_sent(desk: Desk) -> None:
    await desk.shell("echo x > a.txt; exit 3", "a.txt", "never.txt")
    assert (await desk.send("a.txt")).startswith("Delivered")


async def test_what_is_not_new_is_refused_before_the_command_runs(desk: Desk) -> None:
    (desk.root / "notes.txt").write_text("private", encoding="utf-8")
    said = await desk.shell("touch ran notes.txt", "notes.txt")
    assert said.startswith("Nothing was run: notes.txt is there already")
    assert not (desk.root / "ran").exists()
    assert "no file that you have made" in await desk.send("notes.txt")


@pytest.mark.parametrize("makes", [(), ("chart.png",)])
async def test_what_something_else_writes_while_a_command_runs_is_refused(
    desk: Desk, makes: tuple[str, ...]
) -> None:
    """As an editor does, or a server: of which program a file is cannot be told."""
    async with desk.meanwhile("echo x > chart.png", *makes):
        (desk.root / "notes.txt").write_text("private", encoding="utf-8")
    assert "no file that you have made" in await desk.send("notes.txt")
    assert (await desk.send("chart.png")).startswith("Delivered") == bool(makes)


class Server:
    """A tool of an MCP server, which writes where it likes."""

    name, description, input, timeout_seconds, ages = "mcp__x__y", "", ToolInput, 60.0, False
    effects = ServerTool.effects

    def __init__(self, file: Path) -> None:
        self._file = file

    async def run(self, _: Any) -> str:
        self._file.write_text("theirs", encoding="utf-8")
        return "done"


@pytest.mark.parametrize("who", ["a server", "a command", "a file tool", "a file tool elsewhere"])
async def test_what_another_turn_may_have_written_meanwhile_is_refused(desk: Desk, who: str) -> None:
    call = {
        "a server": tool_use("mcp__x__y"),
        "a command": tool_use("run_shell", command="echo theirs > chart.txt"),
        "a file tool": tool_use("write_file", path="chart.txt", content="theirs"),
        "a file tool elsewhere": tool_use("write_file", path="other.txt", content="theirs"),
    }[who]
    mine = desk.context
    async with desk.meanwhile("echo mine >> chart.txt", "chart.txt"):
        desk.turn("R2")
        with tool_scope(desk.context):
            (result,) = await run_blocks(desk.dispatcher(Server(desk.root / "chart.txt")), [call])
        assert "is_error" not in result, result
    desk.context = mine
    said = await desk.send("chart.txt")
    assert said.startswith("Delivered") == (who == "a file tool elsewhere"), said
    assert all(data == b"mine\n" for _, _, data, _ in desk.files())


async def test_an_edited_file_is_sent(desk: Desk) -> None:
    (desk.root / "a.txt").write_text("one", encoding="utf-8")
    await desk.call("edit_file", path="a.txt", old_str="one", new_str="two")
    assert (await desk.send("a.txt")).startswith("Delivered")
    assert desk.files()[0][2] == b"two"


async def test_what_was_there_before_is_refused_with_a_sentence_to_act_on(desk: Desk) -> None:
    (desk.root / "notes.txt").write_text("private", encoding="utf-8")
    await desk.call("write_file", path="other.txt", content="x")
    said = await desk.send("notes.txt")
    assert said.startswith("Not delivered: notes.txt is no file that you have made")
    assert desk.reply.sent == []


async def test_what_another_turn_made_is_refused(desk: Desk) -> None:
    await desk.call("write_file", path="a.txt", content="x")
    await desk.shell("echo y > b.txt", "b.txt")
    desk.turn("R2")
    await desk.shell("true")
    for name in ("a.txt", "b.txt"):
        assert "no file that you have made" in await desk.send(name)


async def test_what_has_changed_since_is_refused(desk: Desk) -> None:
    await desk.call("write_file", path="a.txt", content="mine")
    (desk.root / "a.txt").write_text("somebody's", encoding="utf-8")
    assert "it has changed since" in await desk.send("a.txt")


async def test_a_turn_that_goes_on_after_a_crash_still_has_what_it_made(desk: Desk) -> None:
    await desk.call("write_file", path="a.txt", content="x")
    await desk.shell("echo y > b.txt", "b.txt")
    desk.turn("R1", desk.recorder.made)
    assert (await desk.send("a.txt", "b.txt")).startswith("Delivered")


@pytest.mark.parametrize(
    "path",
    [
        "../outside.txt",
        "/etc/passwd",
        ".env",
        ".ship/journal.db",
        "ship.json",
        ".git/config",
        "missing.txt",
        "",
        ".",
    ],
)
async def test_what_is_outside_hidden_or_missing_is_refused(desk: Desk, path: str) -> None:
    (desk.root.parent / "outside.txt").write_text("x", encoding="utf-8")
    for name in (".env", "ship.json"):
        (desk.root / name).write_text("x", encoding="utf-8")
    await desk.shell("echo x > made.txt", "made.txt")
    assert ("ended well" in await desk.shell("true", path)) == (path == "missing.txt")
    await desk.send("made.txt", path)
    assert desk.reply.sent == []


async def test_links_pipes_and_folders_are_refused(desk: Desk) -> None:
    (desk.root / ".env").write_text("SECRET=1", encoding="utf-8")
    (desk.root / "kept.txt").write_text("kept", encoding="utf-8")
    (desk.root.parent / "outside.txt").write_text("x", encoding="utf-8")
    command = (
        "ln kept.txt hard.txt; ln -s kept.txt soft.txt; ln -s ../outside.txt out.txt; mkfifo pipe; mkdir d"
    )
    await desk.shell(command, "hard.txt", "soft.txt", "out.txt", "pipe", "d", "env.txt")
    os.link(desk.root / ".env", desk.root / "env.txt")
    for name in ("hard.txt", "soft.txt", "out.txt", "pipe", "d", "env.txt"):
        await desk.send(name)
    assert desk.reply.sent == []


async def test_more_than_fits_a_message_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_send, "BYTES", 10)
    await desk.shell("printf 123456 > a.txt; printf 123456 > b.txt", "a.txt", "b.txt")
    assert "more than 10 bytes" in await desk.send("a.txt", "b.txt")
    assert (await desk.send("a.txt")).startswith("Delivered")
    assert "attachments" in await desk.send(*[f"{n}.txt" for n in range(11)])


async def test_the_model_hears_what_became_of_a_file(desk: Desk) -> None:
    await desk.call("write_file", path="a.txt", content="x")
    desk.reply.failure = errors.FileRefused("a.txt holds a secret of this installation")
    assert await desk.send("a.txt") == (
        "Not delivered: a.txt holds a secret of this installation. Send again without that file, or with another one."
    )
    desk.reply.failure = errors.FilesMissing(names=["a.txt"])
    assert (await desk.send("a.txt")).startswith("The text is delivered. The chat did not take a.txt")
