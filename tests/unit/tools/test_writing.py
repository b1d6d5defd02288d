"""Files are written whole or not at all, inside the project, and edits change what they name and nothing else."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.base import Json
from bot.testing.model import tool_use
from bot.tools.builtin import files
from bot.tools.builtin.files import replaced
from bot.tools.file_provenance import FileProvenance
from bot.tools.project import Project
from bot.vetting import Vetting
from tests.shares import examples

from .conftest import Workbench


class Desk:
    def __init__(self, root: Path, tools: Workbench) -> None:
        self.root, self.project = root, Project(root)
        origins, vetting = FileProvenance(self.project.root), Vetting(self.project.root)
        ports: Any = SimpleNamespace(project=self.project, origins=origins, vetting=vetting)
        self._tools = [tool(ports) for tool in files.TOOLS]
        self._bench = tools

    async def call(self, name: str, **arguments: Any) -> Json:
        (result,) = await self._bench.run([tool_use(name, **arguments)], *self._tools)
        return result

    async def write(self, path: str, content: str) -> str:
        return str((await self.call("write_file", path=path, content=content))["content"])

    async def edit(self, path: str, old: str, new: str) -> str:
        return str((await self.call("edit_file", path=path, old_str=old, new_str=new))["content"])


@pytest.fixture
def desk(tmp_path: Path, tools: Workbench) -> Desk:
    root = tmp_path / "project"
    root.mkdir()
    return Desk(root, tools)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


async def test_a_file_is_written_with_the_folders_above_it(desk: Desk) -> None:
    assert await desk.write("a/b/字.txt", "👍\r\nx") == "a/b/字.txt is written: 7 bytes."
    assert (desk.root / "a/b/字.txt").read_bytes() == "👍\r\nx".encode()
    assert await desk.write("a/b/字.txt", "") == "a/b/字.txt is replaced: 0 bytes."
    assert names(desk.root) == ["a", "a/b", "a/b/字.txt"], "no scratch file is left"


async def test_the_mode_of_a_file_stays(desk: Desk) -> None:
    script = desk.root / "run.sh"
    script.write_text("#!/bin/sh\necho 1\n")
    script.chmod(0o750)
    await desk.edit("run.sh", "echo 1", "echo 2")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    await desk.write("run.sh", "new")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750


async def test_nothing_is_written_elsewhere(desk: Desk) -> None:
    outside = desk.root.parent / "outside"
    outside.mkdir()
    (outside / "x").write_text("theirs")
    (desk.root / "out").symlink_to(outside)
    (desk.root / "link").symlink_to(outside / "x")
    (desk.root / "dangling").symlink_to(outside / "new")
    (desk.root / "ship.json").write_text("{}")
    os.mkfifo(desk.root / "pipe")
    before = names(desk.root)
    named = (
        "../x¦out/x¦out/new¦link¦dangling¦/etc/x¦.env¦.env.new¦ship.json¦SHIP.json¦.git/hooks/pre-commit¦"
        ".ship/access.json¦a/.git/x¦pipe¦.¦¦a\0b"
    )
    for path in (*named.split("¦"), str(outside / "x"), "n" * 300):
        for call in (
            desk.call("write_file", path=path, content="mine"),
            desk.call("edit_file", path=path, old_str="theirs", new_str="mine"),
        ):
            assert (await call)["is_error"] is True, path
    assert names(desk.root) == before
    assert names(outside) == ["x"]
    assert (outside / "x").read_text() == "theirs"
    assert (desk.root / "ship.json").read_text() == "{}"


async def test_a_link_inside_stays_and_what_it_leads_to_is_written(desk: Desk) -> None:
    (desk.root / "real.txt").write_text("old")
    (desk.root / "link.txt").symlink_to("real.txt")
    await desk.edit("link.txt", "old", "new")
    assert (desk.root / "link.txt").is_symlink()
    assert (desk.root / "real.txt").read_text() == "new"


def test_a_link_put_in_the_place_of_a_folder_meanwhile_is_refused(desk: Desk) -> None:
    place = desk.project.place("a/x.txt")
    outside = desk.root.parent / "outside"
    outside.mkdir()
    (desk.root / "a").symlink_to(outside)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        desk.project.write(place, b"mine")
    assert names(outside) == []


@pytest.mark.parametrize("fails", ["fsync", "replace"])
async def test_where_writing_fails_the_old_file_stays(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    (desk.root / "x").write_text("old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, fails, full)
    said = await desk.write("x", "new")
    monkeypatch.undo()
    assert said == "write_file failed with ENOSPC (x): No space left on device."
    assert names(desk.root) == ["x"]
    assert (desk.root / "x").read_text() == "old"


async def test_an_edit_needs_a_text_that_occurs_once(desk: Desk) -> None:
    (desk.root / "x.py").write_text("a = 1\nb = 2\na = 1\nc = 3\n")
    assert "occurs 2 times. Its first line is in the lines 1, 3." in await desk.edit("x.py", "a = 1", "a = 2")
    assert "occurs 0 times. Its first line is in the lines 2." in await desk.edit("x.py", "b = 2\nb = 3", "x")
    assert "occurs 0 times. Nothing" in await desk.edit("x.py", "zz", "x")
    assert "are the same" in await desk.edit("x.py", "b = 2", "b = 2")
    assert await desk.edit("x.py", "b = 2\na", "b = 7\nd") == "x.py is changed, at line 2."
    assert (desk.root / "x.py").read_text() == "a = 1\nb = 7\nd = 1\nc = 3\n"


@pytest.mark.parametrize("name", ["utf-8", "utf-8-sig", "utf-16"])
async def test_line_ends_and_encoding_stay(desk: Desk, name: str) -> None:
    path = desk.root / "x.txt"
    path.write_bytes("eins\r\nzwei 字\r\ndrei\r\n".encode(name))
    assert await desk.edit("x.txt", "eins\nzwei", "1\n2\n3") == "x.txt is changed, at line 1."
    assert path.read_bytes() == "1\r\n2\r\n3 字\r\ndrei\r\n".encode(name)


async def test_what_is_no_text_is_not_edited(desk: Desk) -> None:
    (desk.root / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    (desk.root / "old.txt").write_bytes("größe".encode("latin-1"))
    (desk.root / "big.txt").write_bytes(b"x" * (files.EDITED + 1))
    assert "is a PNG image" in await desk.edit("p.png", "PNG", "x")
    assert "not UTF-8" in await desk.edit("old.txt", "gr", "x")
    assert "cannot be edited" in await desk.edit("big.txt", "x", "y")


def test_what_changed_meanwhile_is_not_overwritten(desk: Desk) -> None:
    path = desk.root / "x"
    path.write_text("one")
    with pytest.raises(errors.ToolError, match="changed meanwhile"):
        desk.project.write(desk.project.place("x"), b"two", known=(0, 0, 0))
    assert path.read_text() == "one"
    assert names(desk.root) == ["x"]


@given(
    before=st.text(max_size=20),
    old=st.text(min_size=1, max_size=5),
    new=st.text(max_size=5),
    after=st.text(max_size=20),
)
@settings(derandomize=True, deadline=None, max_examples=examples(150))
def test_an_edit_changes_nothing_but_its_passage(before: str, old: str, new: str, after: str) -> None:
    words = before + old + after
    try:
        changed, line = replaced(words, old, new)
    except errors.ToolError:
        assert words.count(old) != 1 or old == new or "\r\n" in words
        return
    if "\r\n" not in words:
        assert changed == words.replace(old, new, 1)
        assert line == words[: words.index(old)].count("\n") + 1
