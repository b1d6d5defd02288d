"""Skills are found only in the configured folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot import errors
from bot.testing.log import MemoryLog
from bot.tools.file_guard import FileGuard
from bot.tools.skills import SkillFolder


def write(folder: Path, head: str, body: str = "Do it.") -> None:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\n{head}\n---\n{body}\n", encoding="utf-8")


async def test_skills_of_the_project_and_of_configured_paths_are_listed_and_loaded(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    write(
        root / ".claude/skills/sail",
        "name: sail\ndescription: |\n  How to\n  sail.\nallowed-tools: Read, Grep",
    )
    write(elsewhere / "cook", "description: 料理の仕方")
    skills = SkillFolder(root, [str(elsewhere)], MemoryLog(), FileGuard(root))
    sail, cook = await skills.overview()
    assert (sail.name, sail.description, sail.allowed_tools) == ("sail", "How to sail.", ("Read", "Grep"))
    assert (cook.name, cook.description) == ("cook", "料理の仕方")
    assert await skills.load("sail") == "Do it."


async def test_an_unknown_skill_names_its_nearest(tmp_path: Path) -> None:
    write(tmp_path / ".claude/skills/sailing", "description: d")
    skills = SkillFolder(tmp_path, [], MemoryLog(), FileGuard(tmp_path))
    with pytest.raises(errors.ToolError, match="nearest are: sailing"):
        await skills.load("sailng")
    with pytest.raises(errors.ToolError, match="skills_list"):
        await skills.load("../../etc/passwd")


@pytest.mark.parametrize(
    ("folder", "head"),
    [
        ("a", "name: Not Good\ndescription: d"),
        ("b", "name: b"),
        ("c", "- a list"),
        ("d", "name: [\n"),
        ("e", "name: ../x\ndescription: d"),
    ],
)
async def test_a_skill_that_cannot_be_used_is_left_out_and_the_operator_told(
    tmp_path: Path, folder: str, head: str
) -> None:
    write(tmp_path / ".claude/skills" / folder, head)
    log = MemoryLog()
    assert await SkillFolder(tmp_path, [], log, FileGuard(tmp_path)).overview() == []
    assert [entry.level for entry in log.of("skill")] == ["warn"]


async def test_a_link_out_of_the_project_is_not_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    write(tmp_path / "outside", "name: outside\ndescription: d")
    (root / ".claude/skills").mkdir(parents=True)
    (root / ".claude/skills/outside").symlink_to(tmp_path / "outside")
    assert await SkillFolder(root, [], MemoryLog(), FileGuard(root)).overview() == []


async def test_of_two_skills_with_one_name_the_first_counts(tmp_path: Path) -> None:
    write(tmp_path / ".claude/skills/a", "name: same\ndescription: first")
    write(tmp_path / ".claude/skills/b", "name: same\ndescription: second")
    log = MemoryLog()
    assert [
        skill.description for skill in await SkillFolder(tmp_path, [], log, FileGuard(tmp_path)).overview()
    ] == ["first"]
    assert log.of("skill")


class Reads(FileGuard):
    """Records which files were read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.seen: list[Path] = []

    def read(self, path: Path, real: Path, most: int) -> bytes:
        self.seen.append(path)
        return super().read(path, real, most)


async def test_a_skill_is_read_once_and_again_when_it_has_changed(tmp_path: Path) -> None:
    write(tmp_path / ".claude/skills/sail", "description: old")
    write(tmp_path / ".claude/skills/broken", "- a list")
    log, reads = MemoryLog(), Reads(tmp_path)
    skills = SkillFolder(tmp_path, [], log, reads)
    for _ in range(3):
        assert [skill.description for skill in await skills.overview()] == ["old"]
    assert len(reads.seen) == 2
    assert len(log.of("skill")) == 1
    (tmp_path / ".claude/skills/sail/SKILL.md").write_text(
        "---\ndescription: newer 帆\n---\n", encoding="utf-8"
    )
    assert [skill.description for skill in await skills.overview()] == ["newer 帆"]
    (tmp_path / ".claude/skills/sail/SKILL.md").unlink()
    assert await skills.overview() == []
