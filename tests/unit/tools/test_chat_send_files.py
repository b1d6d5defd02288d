"""`chat_send` sends files that this turn has made, and no others."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.base import Json
from bot.contracts.outbound import OutgoingFile, Sent
from bot.testing.model import tool_use
from bot.tools.builtin import chat_send, edit_file, run_shell, write_file
from bot.tools.context import ToolExecutionContext, tool_scope
from bot.tools.dispatch import MADE
from bot.tools.file_provenance import FileProvenance
from bot.tools.isolation import Isolation
from bot.tools.made_files import MadeFiles, without
from bot.tools.project import Project
from bot.tools.registry import ToolPorts
from bot.vetting import Vetting
from tests.shares import examples

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
        self.results: list[Json] = []

    async def started(self, call: Json, *, wait: bool) -> None: ...
    def looked(self, call: Json, result: Json, began_at: float) -> None: ...
    def finished(self, call: Json, result: Json) -> None:
        self.results.append(result)


class Desk:
    """Turns of one project; each `turn` is another one."""

    def __init__(self, root: Path, tools: Workbench) -> None:
        self.root, self.bench, self.reply, self.recorder = root, tools, Reply(), Recorder()
        self.made = MadeFiles()
        ports = cast(
            "ToolPorts",
            SimpleNamespace(
                project=Project(root),
                isolation=Isolation(root, required=False),
                whose=lambda: FileProvenance(root),
                vetted=lambda: Vetting(root),
                made=self.made,
            ),
        )
        self.tools = [one.build(ports) for one in (chat_send, edit_file, run_shell, write_file)]
        self.turn("R1")

    def turn(self, request_id: str, made: Sequence[Json] = ()) -> None:
        self.context = ToolExecutionContext(KEY, request_id, None, self.reply, None, made=list(made))  # type: ignore[arg-type]

    async def call(self, name: str, **arguments: Any) -> str:
        with tool_scope(self.context):
            (result,) = await self.bench.dispatcher(*self.tools).run(
                [tool_use(name, **arguments)], recorder=self.recorder
            )
        assert MADE not in result, "the model is not told"
        return str(result["content"])

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
    await desk.call(
        "run_shell", command="mkdir out && printf '\\x89PNG' > out/chart.png && echo x > out/a.txt"
    )
    assert (await desk.send("out/chart.png", "./out/a.txt", "out/chart.png")).startswith("Delivered")
    assert [name for name, *_ in desk.files()] == ["chart.png", "a.txt"]


async def test_what_a_command_made_before_it_failed_is_sent(desk: Desk) -> None:
    await desk.call("run_shell", command="echo x > a.txt; exit 3")
    assert (await desk.send("a.txt")).startswith("Delivered")


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
    await desk.call("run_shell", command="echo y > b.txt")
    desk.turn("R2")
    await desk.call("run_shell", command="true")
    for name in ("a.txt", "b.txt"):
        assert "no file that you have made" in await desk.send(name)


async def test_what_was_made_while_another_turn_was_at_work_is_refused(desk: Desk) -> None:
    with desk.made.at_work("R2"):
        await desk.call("run_shell", command="echo y > b.txt")
    assert "no file that you have made" in await desk.send("b.txt")
    with desk.made.at_work("R1"):
        await desk.call("run_shell", command="echo z > b.txt")
    assert (await desk.send("b.txt")).startswith("Delivered")


async def test_what_has_changed_since_is_refused(desk: Desk) -> None:
    await desk.call("write_file", path="a.txt", content="mine")
    (desk.root / "a.txt").write_text("somebody's", encoding="utf-8")
    assert "it has changed since" in await desk.send("a.txt")


async def test_a_turn_that_goes_on_after_a_crash_still_has_what_it_made(desk: Desk) -> None:
    await desk.call("write_file", path="a.txt", content="x")
    await desk.call("run_shell", command="echo y > b.txt")
    desk.turn("R1", [one for result in desk.recorder.results for one in result.get(MADE, ())])
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
    await desk.call("run_shell", command="echo x > made.txt")
    await desk.send("made.txt", path)
    assert desk.reply.sent == []


async def test_links_pipes_and_folders_are_refused(desk: Desk) -> None:
    (desk.root / ".env").write_text("SECRET=1", encoding="utf-8")
    (desk.root / "kept.txt").write_text("kept", encoding="utf-8")
    (desk.root.parent / "outside.txt").write_text("x", encoding="utf-8")
    command = (
        "ln kept.txt hard.txt; ln -s kept.txt soft.txt; ln -s ../outside.txt out.txt; mkfifo pipe; mkdir d"
    )
    await desk.call("run_shell", command=command)
    os.link(desk.root / ".env", desk.root / "env.txt")
    for name in ("hard.txt", "soft.txt", "out.txt", "pipe", "d", "env.txt"):
        await desk.send(name)
    assert desk.reply.sent == []


async def test_more_than_fits_a_message_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_send, "BYTES", 10)
    await desk.call("run_shell", command="printf 123456 > a.txt; printf 123456 > b.txt")
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


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(sorted), max_size=5))
def test_what_is_left_of_a_time_is_what_no_other_has(others: list[list[int]]) -> None:
    left = without((10, 20), [(b, e) for b, e in others])
    for moment in (at + 0.5 for at in range(30)):
        free = 10 < moment < 20 and not any(b < moment < e for b, e in others)
        assert any(b < moment < e for b, e in left) == free
