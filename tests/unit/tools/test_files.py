"""File tools reach only the project, limit the size of results and write files atomically."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bot import errors
from bot.contracts.base import Json
from bot.testing.clock import FakeClock
from bot.testing.model import tool_use
from bot.tools import result_limits
from bot.tools.builtin import files
from bot.tools.builtin.files import replaced
from bot.tools.file_guard import FileGuard
from bot.tools.project import Project
from tests.shares import examples

from .conftest import Workbench

CANARY = "canary-8d2f-outside"


class Desk:
    def __init__(self, root: Path, tools: Workbench) -> None:
        self.root, self.project = root, Project(root)
        ports: Any = SimpleNamespace(project=self.project, clock=FakeClock(), guard=FileGuard(root))
        self.tools = [tool(ports) for tool in files.TOOLS]
        self.bench = tools

    def write(self, name: str, content: str | bytes = "x") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    async def call(self, name: str, **arguments: Any) -> Json:
        (result,) = await self.bench.run([tool_use(name, **arguments)], *self.tools)
        return result

    async def said(self, name: str, **arguments: Any) -> str:
        result = await self.call(name, **arguments)
        assert "is_error" not in result, result["content"]
        return str(result["content"])

    async def refused(self, name: str, **arguments: Any) -> str:
        result = await self.call(name, **arguments)
        assert result["is_error"], result["content"]
        return str(result["content"])

    async def edit(self, path: str, old: str, new: str) -> str:
        return str((await self.call("edit_file", path=path, old_str=old, new_str=new))["content"])

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*"))


@pytest.fixture
def desk(tmp_path: Path, tools: Workbench) -> Desk:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text(CANARY)
    root = tmp_path / "project"
    root.mkdir()
    made = Desk(root, tools)
    made.write("src/main.py", "one\ntwo\nthree\n")
    for hidden in (  # noqa: SIM905 - a list would take a page
        ".env .env.local ship.json .git/config .ship/shipmate.db src/.ENV a/.Git/x"
    ).split():
        made.write(hidden, CANARY)
    return made


OUTSIDE = (  # noqa: SIM905 - a list would take a page
    ".. ../outside/secret.txt src/../../outside/secret.txt /etc/passwd / ./../outside "
    "src/../../../../../../etc/passwd out/secret.txt out file-out loop/../../outside/secret.txt"
).split()
NO_PATH = ("", "a\0b", "\0", "x" * 5_000, "lone \ud800")
HIDDEN = (  # noqa: SIM905 - a list would take a page
    ".env ./.env .ENV .env.local ship.json SHIP.JSON .git .git/config .ship src/.ENV .ship/shipmate.db "
    "src/../.env src/../.git/config .ship/../src/main.py hidden-link ſhip.json a/.Git/x "
    "hidden-folder/shipmate.db .environment nothing/.env"
).split()


@pytest.fixture
def linked(desk: Desk) -> Desk:
    (desk.root / "out").symlink_to(desk.root.parent / "outside")
    (desk.root / "file-out").symlink_to("../outside/secret.txt")
    (desk.root / "hidden-link").symlink_to(".env")
    (desk.root / "hidden-folder").symlink_to(".ship")
    (desk.root / "loop").symlink_to("loop")
    (desk.root / "inside").symlink_to("src")
    return desk


@pytest.mark.parametrize("tool", ["read_file", "list_dir", "search_files"])
async def test_nothing_outside_and_nothing_hidden_is_reached(linked: Desk, tool: str) -> None:
    more: dict[str, Any] = {"pattern": "canary"} if tool == "search_files" else {}
    for path in OUTSIDE:
        said = await linked.refused(tool, path=path, **more)
        assert "out of the project" in said or "ELOOP" in said, path
    for path in NO_PATH:
        assert "This is no path" in await linked.refused(tool, path=path, **more), path
    for path in HIDDEN:
        assert "No such file" in await linked.refused(tool, path=path, **more), path
    absent = await linked.refused(tool, path="nothing-there", **more)
    assert absent.replace("nothing-there", ".env") == await linked.refused(tool, path=".env", **more)
    for path in (*OUTSIDE, *HIDDEN):
        words = str((await linked.call(tool, path=path, **more))["content"])
        assert CANARY not in words
        assert str(linked.root.parent) not in words


async def test_links_that_stay_inside_and_full_paths_are_followed(linked: Desk) -> None:
    assert "two" in await linked.said("read_file", path="inside/main.py")
    assert "two" in await linked.said("read_file", path=str(linked.root / "src/main.py"))
    assert "[src/main.py, lines 1 to 3 of 3]" in await linked.said("read_file", path="src//./main.py")


async def test_what_is_hidden_is_not_listed_or_found(linked: Desk) -> None:
    listed = await linked.said("list_dir", depth=5)
    for name in (".env", "ship.json", ".git", ".ship", ".ENV", ".Git"):
        assert name not in listed
    assert "out (a link)" in listed
    assert "src/main.py  14 B" in listed
    assert "[0 lines found" in await linked.said("search_files", pattern="canary")


PARTS = st.sampled_from(
    [
        *(  # noqa: SIM905 - a list would take a page
            "..¦.¦src¦out¦inside¦loop¦.env¦.git¦main.py¦¦~¦a\nb¦字¦%2e%2e"
        ).split("¦"),
        "x" * 300,
    ]
)


@given(parts=st.lists(PARTS, min_size=1, max_size=6), absolute=st.booleans())
@settings(
    derandomize=True,
    deadline=None,
    max_examples=examples(300),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_no_path_opens_what_is_elsewhere(linked: Desk, parts: list[str], *, absolute: bool) -> None:
    named = "/" * absolute + "/".join(parts)
    with (
        contextlib.suppress(OSError, errors.ToolError),
        linked.project.opened(linked.project.place(named)) as file,
    ):
        opened = Path(f"/proc/self/fd/{file.fileno()}").readlink() if Path("/proc").is_dir() else None
        assert file.read() == b"one\ntwo\nthree\n"
        assert opened in {None, linked.root / "src/main.py"}


@pytest.mark.parametrize("swapped", ["src", "src/main.py"])
def test_a_link_put_in_the_place_of_a_part_meanwhile_is_refused(desk: Desk, swapped: str) -> None:
    place = desk.project.place("src/main.py")
    target = desk.root / swapped
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    outside = desk.root.parent / "outside"
    (outside / "main.py").write_text(CANARY)
    target.symlink_to(outside if swapped == "src" else outside / "main.py")
    with (
        pytest.raises(OSError, match=r"ENOTDIR|Not a directory|Too many levels"),
        desk.project.opened(place),
    ):
        pytest.fail("opened")
    with pytest.raises(OSError, match=r"ENOTDIR|Not a directory|Too many levels"):
        desk.project.write(place, b"mine")
    assert (outside / "main.py").read_text() == CANARY


async def test_what_is_no_file_is_refused_without_waiting(desk: Desk) -> None:
    os.mkfifo(desk.root / "pipe")
    with socket.socket(socket.AF_UNIX) as door:
        here = Path.cwd()
        os.chdir(desk.root)
        try:
            door.bind("door")
        finally:
            os.chdir(here)
        for name in ("pipe", "door"):
            assert "a pipe, a socket or a device" in await desk.refused("read_file", path=name)
        listed = await desk.said("list_dir")
    assert "pipe (no file)" in listed
    assert "ENOTDIR (pipe)" in await desk.refused("list_dir", path="pipe")
    assert "EISDIR (src)" in await desk.refused("read_file", path="src")
    assert "EISDIR (.)" in await desk.refused("read_file", path=".")
    assert "ENAMETOOLONG" in await desk.refused("read_file", path="n" * 300)


async def test_a_file_is_read_by_lines(desk: Desk) -> None:
    desk.write("many.txt", "".join(f"line {number}\n" for number in range(1, 6)))
    assert await desk.said("read_file", path="many.txt", offset=2, limit=2) == (
        "[many.txt, lines 2 to 3 of 5; go on with offset 4]\nline 2\nline 3"
    )
    assert (await desk.said("read_file", path="many.txt", offset=4)).startswith(
        "[many.txt, lines 4 to 5 of 5]\n"
    )
    assert "has 5 lines" in await desk.refused("read_file", path="many.txt", offset=9)
    desk.write("empty.txt", "")
    assert await desk.said("read_file", path="empty.txt") == "empty.txt is empty."


@pytest.mark.parametrize(
    "line", ["plain words and more of them", "漢字かな交じり文", "👨‍👩‍👧‍👦 emoji", "x" * 500]
)
async def test_pages_stay_within_their_room_and_together_are_the_file(desk: Desk, line: str) -> None:
    lines = [f"{number} {line}" for number in range(700)]
    desk.write("big.txt", "\n".join(lines))
    read, offset = list[str](), 1
    while True:
        page = await desk.said("read_file", path="big.txt", offset=offset)
        assert result_limits.weight(page) <= result_limits.ROOM
        head, *shown = page.split("\n")
        read += shown
        if "go on with offset" not in head:
            break
        offset = int(head.rpartition(" ")[2].rstrip("]"))
    assert read == lines


async def test_one_endless_line_and_large_files_are_bounded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.write("line.txt", "字" * 300_000 + "\nlast")
    page = await desk.said("read_file", path="line.txt")
    assert "more characters in this line]" in page
    assert "go on with offset 2" in page
    assert result_limits.weight(page) <= result_limits.ROOM
    assert page.count("字") + int(page.rpartition("[… ")[2].split()[0]) == 300_000
    monkeypatch.setattr(files, "LARGEST", 6_000)
    desk.write("large.txt", "words\n" * 5_000)
    said = "lines 1 to 3 of 1000; go on with offset 4; only its first 6,000 bytes can be read]"
    assert said in await desk.said("read_file", path="large.txt", limit=3)
    for encoding in ("utf-8", "gb18030"):  # the limit is in the middle of a character
        desk.write("large.txt", ("大文件的字大文件的字\n" * 5_000).encode(encoding))
        page = await desk.said("read_file", path="large.txt", limit=3)
        assert page.endswith("only its first 6,000 bytes can be read]" + 3 * "\n大文件的字大文件的字"), (
            encoding
        )


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0", "a PNG image of 10 bytes"),
        (b"\xff\xd8\xff\xe0\0", "a JPEG image"),
        (b"GIF89a\0", "a GIF image"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "a WEBP image"),
        (b"%PDF-1.7\n", "a PDF document"),
        (b"PK\x03\x04\0", "a ZIP archive"),
        (b"\x7fELF\0", "a program"),
        (b"words\0words", "a binary file"),
    ],
)
async def test_what_is_no_text_is_told_by_its_kind(desk: Desk, raw: bytes, said: str) -> None:
    desk.write("thing", raw)
    assert said in await desk.refused("read_file", path="thing")


async def test_other_encodings_are_recognised_and_damaged_text_is_marked(desk: Desk) -> None:
    words = "これは古い文字コードで書かれたログです。"
    desk.write("old.txt", words.encode("shift_jis"))
    assert (await desk.said("read_file", path="old.txt")).endswith(f"lines 1 to 1 of 1]\n{words}")
    desk.write("bad.txt", "漢字 words".encode() + b"\xff")
    said = await desk.said("read_file", path="bad.txt")
    assert "no known encoding" in said
    assert said.endswith("漢字 words�")


async def test_huge_folders_are_bounded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(700):
        desk.write(f"many/{number:04}", "")
    listed = await desk.said("list_dir", path="many")
    assert listed.startswith("[many/: 500 entries; 200 more are not shown]\nmany/0000  0 B")
    entries, cut = desk.project.walk("many", depth=1, most=100)
    assert (len(entries), cut) == (100, True)
    desk.write("empty/x.bak")
    assert "empty/ is empty" in await desk.said("list_dir", path="empty")


async def test_ignored_files_are_neither_listed_nor_searched_but_can_be_read(desk: Desk) -> None:
    desk.write(".shipmateignore", "# noise\n/build/\n*.log\n!keep.log\n")
    for name in ("build/x.py", "src/a.log", "src/keep.log", "src/old.py.bak", "src/build/y.py"):
        desk.write(name, "needle")
    found = await desk.said("search_files", pattern="NEEDLE")
    assert found == "[2 lines found]\nsrc/keep.log:1: needle\nsrc/build/y.py:1: needle"
    listed = await desk.said("list_dir", depth=3)
    assert "build/x.py" not in listed.replace("src/build", "")
    assert ".bak" not in listed
    assert "needle" in await desk.said("read_file", path="src/old.py.bak")


async def test_texts_expressions_and_names_are_searched(desk: Desk) -> None:
    desk.write("src/b.txt", "Größe (a+b)\r\n" + "p" * 500 + "漢字" + "y" * 500)
    assert (
        await desk.said("search_files", pattern="GRÖSSE (A+B)") == "[1 lines found]\nsrc/b.txt:1: Größe (a+b)"
    )
    assert "src/main.py:2: two" in await desk.said("search_files", pattern="^t.o$", regex=True)
    assert "[0 lines" in await desk.said("search_files", pattern="^t.o$")
    assert await desk.said("search_files", glob="*.py") == "[1 files found]\nsrc/main.py"
    assert "[0 files" in await desk.said("search_files", glob="/*.py")
    assert "main.py" in await desk.said("search_files", glob="/*.py", path="src")
    assert "src/main.py:3" in await desk.said("search_files", pattern="thr", path="src/main.py")
    assert "[0 lines" in await desk.said("search_files", pattern="thr", glob="*.txt")
    around = await desk.said("search_files", pattern="漢字")
    assert "…ppp" in around
    assert "漢字yyy" in around
    assert len(around) < 300
    desk.write("bin", b"thr\0")
    assert "1 files are no text" in await desk.said("search_files", pattern="three")
    assert "pattern, a glob" in await desk.refused("search_files")
    assert "no regular expression" in await desk.refused("search_files", pattern="(", regex=True)


async def test_a_search_ends_whatever_is_searched_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write("lines.txt", "hit\n" * 1_000)
    found = await desk.said("search_files", pattern="hit")
    assert found.startswith("[200 lines found; there are more: search for less]")
    desk.write("evil.txt", "a" * 5_000)
    evil = "(a|aa)+$x|(a*)*b"
    assert "[0 lines found" in await desk.said("search_files", pattern=evil, regex=True, path="evil.txt")
    monkeypatch.setattr(files, "SECONDS", -1.0)
    assert "the time was over" in await desk.said("search_files", pattern="hit")


@pytest.mark.parametrize("pattern", ["(?:(?:a{500}){500}){500}", "((a{900,}){900,}){2}"])
async def test_an_expression_that_would_fill_the_memory_is_not_compiled(desk: Desk, pattern: str) -> None:
    assert "no regular expression" in await desk.refused("search_files", pattern=pattern, regex=True)


async def test_tools_tell_what_they_touched(desk: Desk) -> None:
    await desk.said("read_file", path="src/main.py")
    await desk.said("list_dir", path="src")
    assert desk.bench.touched == [desk.root / "src/main.py", desk.root / "src"]


@pytest.fixture
def bare(tmp_path: Path, tools: Workbench) -> Desk:
    (tmp_path / "bare").mkdir()
    return Desk(tmp_path / "bare", tools)


async def test_a_file_is_written_with_the_folders_above_it(bare: Desk) -> None:
    assert (
        await bare.said("write_file", path="a/b/字.txt", content="👍\r\nx")
        == "a/b/字.txt is written: 7 bytes."
    )
    assert (bare.root / "a/b/字.txt").read_bytes() == "👍\r\nx".encode()
    assert await bare.said("write_file", path="a/b/字.txt", content="") == "a/b/字.txt is replaced: 0 bytes."
    assert bare.names() == ["a", "a/b", "a/b/字.txt"], "no scratch file is left"


async def test_the_mode_of_a_file_stays(bare: Desk) -> None:
    script = bare.root / "run.sh"
    script.write_text("#!/bin/sh\necho 1\n")
    script.chmod(0o750)
    await bare.edit("run.sh", "echo 1", "echo 2")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750
    await bare.said("write_file", path="run.sh", content="new")
    assert stat.S_IMODE(script.stat().st_mode) == 0o750


async def test_nothing_is_written_elsewhere(bare: Desk) -> None:
    outside = bare.root.parent / "outside"
    outside.mkdir()
    (outside / "x").write_text("theirs")
    (bare.root / "out").symlink_to(outside)
    (bare.root / "link").symlink_to(outside / "x")
    (bare.root / "dangling").symlink_to(outside / "new")
    (bare.root / "ship.json").write_text("{}")
    os.mkfifo(bare.root / "pipe")
    before = bare.names()
    named = (
        "../x¦out/x¦out/new¦link¦dangling¦/etc/x¦.env¦.env.new¦ship.json¦SHIP.json¦.git/hooks/pre-commit¦"
        ".ship/access.json¦a/.git/x¦pipe¦.¦¦a\0b"
    )
    for path in (*named.split("¦"), str(outside / "x"), "n" * 300):
        for call in (
            bare.call("write_file", path=path, content="mine"),
            bare.call("edit_file", path=path, old_str="theirs", new_str="mine"),
        ):
            assert (await call)["is_error"] is True, path
    assert bare.names() == before
    assert [path.name for path in outside.iterdir()] == ["x"]
    assert (outside / "x").read_text() == "theirs"
    assert (bare.root / "ship.json").read_text() == "{}"


@pytest.mark.parametrize("fails", ["fsync", "replace"])
async def test_where_writing_fails_the_old_file_stays(
    bare: Desk, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    (bare.root / "x").write_text("old")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, fails, full)
    said = str((await bare.call("write_file", path="x", content="new"))["content"])
    monkeypatch.undo()
    assert said == "write_file failed with ENOSPC (x): No space left on device."
    assert bare.names() == ["x"]
    assert (bare.root / "x").read_text() == "old"


async def test_an_edit_needs_a_text_that_occurs_once(bare: Desk) -> None:
    (bare.root / "x.py").write_text("a = 1\nb = 2\na = 1\nc = 3\n")
    assert "occurs 2 times. Its first line is in the lines 1, 3." in await bare.edit("x.py", "a = 1", "a = 2")
    assert "occurs 0 times. Its first line is in the lines 2." in await bare.edit("x.py", "b = 2\nb = 3", "x")
    assert "occurs 0 times. Nothing" in await bare.edit("x.py", "zz", "x")
    assert "are the same" in await bare.edit("x.py", "b = 2", "b = 2")
    assert await bare.edit("x.py", "b = 2\na", "b = 7\nd") == "x.py is changed, at line 2."
    assert (bare.root / "x.py").read_text() == "a = 1\nb = 7\nd = 1\nc = 3\n"


@pytest.mark.parametrize("name", ["utf-8", "utf-8-sig", "utf-16"])
async def test_line_ends_and_encoding_stay(bare: Desk, name: str) -> None:
    path = bare.root / "x.txt"
    path.write_bytes("eins\r\nzwei 字\r\ndrei\r\n".encode(name))
    assert await bare.edit("x.txt", "eins\nzwei", "1\n2\n3") == "x.txt is changed, at line 1."
    assert path.read_bytes() == "1\r\n2\r\n3 字\r\ndrei\r\n".encode(name)


async def test_what_is_no_text_is_not_edited(bare: Desk) -> None:
    (bare.root / "p.png").write_bytes(b"\x89PNG\r\n\x1a\n\0")
    (bare.root / "old.txt").write_bytes("größe".encode("latin-1"))
    (bare.root / "big.txt").write_bytes(b"x" * (files.EDITED + 1))
    assert "is a PNG image" in await bare.edit("p.png", "PNG", "x")
    assert "not UTF-8" in await bare.edit("old.txt", "gr", "x")
    assert "cannot be edited" in await bare.edit("big.txt", "x", "y")


def test_what_changed_meanwhile_is_not_overwritten(bare: Desk) -> None:
    path = bare.root / "x"
    path.write_text("one")
    with pytest.raises(errors.ToolError, match="changed meanwhile"):
        bare.project.write(bare.project.place("x"), b"two", known=(0, 0, 0))
    assert path.read_text() == "one"
    assert bare.names() == ["x"]


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
