"""An instruction file that a command makes is renamed and never followed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import errors
from bot.contracts.identity import ChatKey
from bot.contracts.messages import NOBODYS
from bot.core.prompt import InstructionFiles, must_read, of_folders
from bot.system import SystemDisk
from bot.testing.log import MemoryLog
from bot.tools.file_guard import Command, FileGuard, InstructionFileSet
from bot.tools.isolation import Isolation
from bot.tools.permissions.protected_code import ProtectedCode
from bot.tools.skills import SkillFolder

from .walls import Desk, isolated

FILE = ".ship/origins.json"
SKILL = "---\nname: {}\ndescription: does it\n---\nbody\n"


class Chat:
    """Reads the instructions and skills of a project as a chat does."""

    def __init__(self, root: Path) -> None:
        (root / ".ship").mkdir(parents=True, exist_ok=True)
        self.root, self.log = root, MemoryLog()
        self.guard = FileGuard(root, root / FILE, SystemDisk(), self.log)

    async def told(self, *touched: str) -> str:
        found = InstructionFiles(self.root, log=self.log, guard=self.guard)
        skills = SkillFolder(self.root, [], self.log, self.guard)
        paths = [self.root / one for one in touched]
        tags = [tag.words for tag in of_folders(self.root, paths, self.log, self.guard)]
        names = [skill.name for skill in await skills.overview()]
        return "\n".join([(await found.of_chat("c", ChatKey("tele", "k"), "m")).shared, *tags, *names])


@pytest.fixture
def chat(desk: Desk) -> Chat:
    chat = Chat(desk.root)
    desk.isolation.guard = chat.guard
    desk.isolation.code = ProtectedCode(desk.root)
    return chat


MAKE = (
    "echo PLANTED > Agent.md",
    "mkdir p0; echo PLANTED > p0/Agent.md",
    "mkdir p1; echo PLANTED > w1; ln -s ../w1 p1/Agent.md",
    "mkdir p2; echo PLANTED > w2; mv w2 p2/Agent.md",
    "mkdir p3; echo PLANTED > w3; ln w3 p3/Agent.md",
    "mkdir o4; echo PLANTED > o4/Agent.md; mv o4 p4",
    "mkdir p5; cp old/PLANTED.md p5/Agent.md",
    "mkdir p6; ln -s ../old/PLANTED.md p6/Agent.md",
    "mkdir p7; echo PLANTED > p7/Agent.md; touch -d 2001-01-01 p7/Agent.md p7",
    "mkdir p8; echo PLANTED > p8/AGENT.MD; mv p8/AGENT.MD p8/Agent.md",
    "mkdir -p .claude s/planted; sed s/x/PLANTED/ old/skill > s/planted/SKILL.md; ln -s ../s .claude/skills",
)
TOUCHED = [f"p{number}/x" for number in range(9)]


@isolated
async def test_what_a_command_makes_does_not_instruct(desk: Desk, chat: Chat) -> None:
    (desk.root / "old").mkdir()
    (desk.root / "old/PLANTED.md").write_text("PLANTED\n")
    (desk.root / "old/skill").write_text(SKILL.format("planted"))
    said = await desk.said("; ".join([*MAKE, "echo > seen.txt"]))
    assert await chat.told(*TOUCHED) == ""
    assert "p8/Agent.md may not be made by a command; it is p8/refused-Agent.md-" in said
    assert sum("a command made an instruction file" in one.message for one in chat.log.entries) == 11
    assert [one for one in desk.root.rglob("*") if one.name.casefold() in {"agent.md", "skill.md"}] == []
    # After a restart or another command, the file is still not followed.
    await desk.call(
        "mv p0/Agent.md x; mv x p0/Agent.md; echo PLANTED >> p2/Agent.md; mv p4 p3 p5; touch p6/*"
    )
    assert await Chat(desk.root).told(*TOUCHED, "p5/p3/x", "p5/p4/x") == ""


@isolated
async def test_an_include_that_is_not_there_yet_is_not_filled_by_a_command(desk: Desk, chat: Chat) -> None:
    """The command may also create, move or link a folder of the include's path."""
    (desk.root / "Agent.md").write_text(
        "@include rules.md\n@include a/rules.md\n@include b/rules.md\n@include c/../rules2.md\n"
    )
    (desk.root / "old/in").mkdir(parents=True)
    for name in ("old/rules.md", "old/rules2.md"):
        (desk.root / name).write_text("PLANTED\n")
    await desk.said("echo PLANTED > rules.md; cp -r old a; ln -s old b; ln -s old/in c; echo > seen.txt")
    assert "PLANTED" not in await chat.told()


@isolated
async def test_while_commands_run_only_what_stood_before_instructs(desk: Desk, chat: Chat) -> None:
    (desk.root / "Agent.md").write_text("GOOD\n")
    for name in ("begun", "go"):
        os.mkfifo(desk.root / name)
    first = asyncio.create_task(
        desk.isolation.run("mkdir pkg; echo PLANTED > pkg/Agent.md; echo > begun; cat go", 60)
    )
    await asyncio.to_thread((desk.root / "begun").read_text)
    assert "GOOD" in (told := await chat.told("pkg/x"))
    assert "PLANTED" not in told
    other = await desk.isolation.run("echo TWO-PLANTED >> pkg/Agent.md", 20)
    assert "pkg/Agent.md" in other.stderr
    assert "PLANTED" not in await chat.told("pkg/x")
    # After a kill, the next start follows the files that were followed when the command began.
    assert "PLANTED" not in (told := await Chat(desk.root).told("pkg/x"))
    assert "GOOD" in told
    await asyncio.to_thread((desk.root / "go").write_text, "")
    await first
    assert "PLANTED" not in (told := await chat.told("pkg/x"))
    assert "GOOD" in told


async def test_no_tool_writes_it_while_a_command_runs(desk: Desk, chat: Chat) -> None:
    """The command could change the new file, since only files that existed at its start are read-only for the command."""
    chat.guard.begin(command := Command())
    for path in ("Agent.md", "pkg/Agent.md", ".claude/skills/a/SKILL.md"):
        with (
            pytest.raises(errors.ToolError, match="a command runs"),
            chat.guard.writing(path, NOBODYS, None, whole=True),
        ):
            pytest.fail("written")
    with chat.guard.writing("free.md", NOBODYS, None, whole=True):
        pass
    chat.guard.end(command)
    with chat.guard.writing("Agent.md", NOBODYS, None, whole=True):
        (desk.root / "Agent.md").write_text("GOOD")
    assert await chat.told() == "GOOD"


@isolated
async def test_what_people_wrote_no_command_changes(desk: Desk, chat: Chat) -> None:
    (desk.root / "docs").mkdir()
    (desk.root / "docs/real.md").write_text("GOOD\n")
    (desk.root / "Agent.md").symlink_to("docs/real.md")
    await desk.call("rm -f docs/real.md; echo PLANTED > Agent.md")
    assert await chat.told() == "GOOD"
    await desk.call("rm Agent.md; echo PLANTED > Agent.md")
    assert await chat.told() == ""


@isolated
async def test_no_link_of_a_command_renames_what_people_wrote(desk: Desk, chat: Chat) -> None:
    """A skill is not renamed because of a link to it. A file in a hidden folder is not renamed, because it never instructs."""
    good, hidden = desk.root / ".claude/skills/good/SKILL.md", desk.root / "pkg/.env.d/Agent.md"
    for path, words in ((good, SKILL.format("good")), (hidden, "x")):
        path.parent.mkdir(parents=True)
        path.write_text(words)
    await desk.said(
        "ln -s good .claude/skills/evil; mkdir -p sub/.envx; echo x > sub/.envx/Agent.md; echo > seen.txt; "
        "mkdir .claude/skills/.envx; ln -s ../../../seen.txt .claude/skills/.envx/SKILL.md"
    )
    assert (good.exists(), hidden.exists(), (desk.root / "sub/deep").exists()) == (True, True, True)
    assert (await chat.told()).strip() == "good"


@isolated
async def test_what_replaces_an_instruction_file_during_a_command_does_not_instruct(
    desk: Desk, chat: Chat
) -> None:
    """The command can change the new file, because only the replaced file was read-only for the command."""
    (desk.root / "Agent.md").write_text("GOOD\n")
    (desk.root / "new").write_text("NEW\n")
    for name in ("begun", "go"):
        os.mkfifo(desk.root / name)
    running = asyncio.create_task(
        desk.isolation.run("echo > begun; cat go; echo PLANTED > Agent.md; echo > begun; cat go", 60)
    )
    for change in (lambda: (desk.root / "new").replace(desk.root / "Agent.md"), lambda: None):
        await asyncio.to_thread((desk.root / "begun").read_text)
        change()
        assert await chat.told() in {"", "GOOD"}
        await asyncio.to_thread((desk.root / "go").write_text, "")
    assert "Agent.md may not be made by a command" in (await running).stderr
    assert await chat.told() == ""


async def test_a_file_that_cannot_be_renamed_is_not_followed(desk: Desk, chat: Chat) -> None:
    chat.guard.begin(command := Command())
    (desk.root / "pkg").mkdir()
    (desk.root / "pkg/Agent.md").write_text("PLANTED")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", refused)
        chat.guard.end(command)
    assert await chat.told("pkg/x") == ""
    again = Chat(desk.root)
    assert not (desk.root / "pkg/Agent.md").exists()
    (desk.root / "pkg/Agent.md").write_text("GOOD")
    assert "GOOD" in await again.told("pkg/x")


def refused(name: str, _: str, **__: int) -> None:
    raise PermissionError(1, "refused", name)


def test_another_case_of_a_name_hides_none(tmp_path: Path) -> None:
    chat = Chat(tmp_path)
    chat.guard.begin(command := Command())
    for name in ("Agent.md", "AGENT.md", "agent.MD"):
        (tmp_path / name).write_text(f"PLANTED {name}")
    assert sorted(one.partition(" ")[0] for one in chat.guard.end(command)) == [
        "AGENT.md",
        "Agent.md",
        "agent.MD",
    ]
    assert len(list(tmp_path.glob("refused-*"))) == 3


@pytest.mark.parametrize("words", ["\ufeff@include rules.md", "  @include rules.md", "@inc\0lude rules.md"])
async def test_what_is_included_in_odd_writing_is_kept_too(tmp_path: Path, words: str) -> None:
    (tmp_path / "Agent.md").write_text(words)
    (tmp_path / "rules.md").write_text("GOOD")
    await Isolation(tmp_path).run("echo PLANTED > rules.md", 20)
    assert await Chat(tmp_path).told() == "GOOD"


async def test_a_command_that_is_stopped_while_it_begins_leaves_nothing_waiting(tmp_path: Path) -> None:
    chat, isolation = Chat(tmp_path), Isolation(tmp_path)
    isolation.guard = chat.guard
    for steps in range(12):
        task = asyncio.create_task(isolation.run("true", 20))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.gather(*isolation.leaving)
        (tmp_path / "Agent.md").write_text(f"GOOD {steps}")
        assert await chat.told() == f"GOOD {steps}"


@isolated
async def test_a_link_to_what_commands_do_not_see_instructs_never(desk: Desk, chat: Chat) -> None:
    """Anybody's text can be written into hidden folders without approval, so their files are never followed."""
    kept = desk.root / ".ship/memory/chat.md"
    kept.parent.mkdir()
    kept.write_text(SKILL.format("planted"))
    desk.isolation.guard = guard = FileGuard(desk.root, skills=(desk.root / "team",))
    make = "mkdir -p {0}/planted; ln -s $(pwd)/.ship/memory/chat.md {0}/planted/SKILL.md"
    await desk.said("; ".join(map(make.format, (".claude/skills", "team"))))
    assert await SkillFolder(desk.root, [], chat.log, FileGuard(desk.root)).overview() == []
    skills = SkillFolder(desk.root, ["team"], chat.log, guard)
    assert await skills.overview() == []
    kept.write_text(SKILL.format("planted") + "more")
    assert await skills.overview() == []


async def test_a_folder_that_cannot_be_listed_hides_none() -> None:
    """A file in a folder that cannot be listed can still be read by its name."""
    with tempfile.TemporaryDirectory() as folder, no_root(Path(folder)) as root:
        chat = Chat(root)
        chat.guard.begin(command := Command())
        (root / "pkg/in").mkdir(parents=True)
        (root / "pkg/in/Agent.md").write_text("PLANTED")
        (root / "pkg").chmod(0o311)
        chat.guard.end(command)
        assert await chat.told("pkg/in/x") == ""
        chat.guard.begin(command := Command())
        (root / "pkg").chmod(0o755)
        chat.guard.end(command)
        assert await chat.told("pkg/in/x") == ""


@contextlib.contextmanager
def no_root(folder: Path) -> Iterator[Path]:
    """Run the block as a user who is not root."""
    if os.geteuid() != 0:
        yield folder
        return
    os.chown(folder, 65534, 65534)
    os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(0)


@isolated
async def test_a_name_that_is_no_text_stops_nothing(desk: Desk, chat: Chat) -> None:
    said = await desk.said("mkdir $'\\xff' pkg; echo PLANTED | tee $'\\xff'/Agent.md pkg/Agent.md")
    assert "pkg/Agent.md may not be made by a command" in said
    assert await Chat(desk.root).told("pkg/x") == ""
    assert await desk.said("ls -d pkg") == "pkg"


async def test_a_command_that_is_stopped_while_its_beginning_is_slow_leaves_nothing_waiting(
    tmp_path: Path,
) -> None:
    """On a slow disk, the end of a command must not be recorded before its beginning."""
    slow = Slow(tmp_path)
    isolation = Isolation(tmp_path, guard=slow)
    task = asyncio.create_task(isolation.run("true", 20))
    await asyncio.to_thread(slow.begun.wait)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await asyncio.to_thread(slow.done.wait)
    (tmp_path / "Agent.md").write_text("GOOD")
    assert must_read(tmp_path, tmp_path / "Agent.md", MemoryLog(), slow) == "GOOD"


class Slow(FileGuard):
    """Delays the beginning of a command until the command has ended, by at most 0.1 seconds."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun, self.ended, self.done = threading.Event(), threading.Event(), threading.Event()

    def begin(self, command: Command) -> InstructionFileSet:
        self.begun.set()
        self.ended.wait(0.1)
        try:
            return super().begin(command)
        finally:
            self.done.set()

    def end(self, command: Command) -> list[str]:
        try:
            return super().end(command)
        finally:
            self.ended.set()


@pytest.mark.parametrize("running", [False, True])
async def test_what_waited_in_version_02_is_not_followed_after_the_upgrade(
    tmp_path: Path, *, running: bool
) -> None:
    """`.ship/vetting.json` of version 0.2 lists what waits, or, after a kill, what was followed before the command."""
    (tmp_path / "sub").mkdir()
    for name, words in (("Agent.md", "GOOD"), ("sub/Agent.md", "PLANTED")):
        (tmp_path / name).write_text(f"{words}\n")
    at = {name.casefold(): [(tmp_path / name).stat().st_ctime_ns] for name in ("Agent.md", "sub/Agent.md")}
    good = {"agent.md": at.pop("agent.md")}
    waiting = {} if running else at
    (tmp_path / ".ship").mkdir()
    state = {"v": 1, "known": good if running else {}, "waiting": waiting, "running": running}
    (tmp_path / ".ship/vetting.json").write_text(json.dumps(state))
    (tmp_path / FILE).write_text('{"v": 1, "files": {}, "folders": [], "begun": []}\n')
    for _ in range(2):
        assert await Chat(tmp_path).told("sub/x") == "GOOD"
