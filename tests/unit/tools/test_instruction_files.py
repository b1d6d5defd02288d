"""Files that an instruction file includes or links to need the same approval as the instruction file."""

from __future__ import annotations

import os
import time
import unicodedata
from pathlib import Path

import pytest

from bot.testing.model import tool_use
from bot.tools.file_guard import FileGuard
from bot.tools.isolation import Isolation

from .test_policy import Asks, Bench


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "docs").mkdir(parents=True)
    (root / "Agent.md").write_text(
        "@include docs/rules.md\nSee [style](docs/My%20Style.md#top), [later](<docs/not there.md>) and [x][y].\n\n[y]: café.md\n"
    )
    (root / "docs" / "rules.md").write_text(
        "[deep](../deep.md) [web](https://a.test/docs/free.md) [out](../../out.md)\n"
    )
    for name in ("docs/My Style.md", "deep.md", "café.md", "docs/free.md", "free.md"):
        (root / name).write_text("words\n")
    (root / "to").symlink_to("docs")
    (root / ".claude" / "skills").mkdir(parents=True)
    (root / "skills").symlink_to(".claude/skills")
    os.link(root / "deep.md", root / "hard.md")
    return root


@pytest.mark.parametrize(
    "link",
    [
        "<a href=docs/x.md>x</a>",
        "<A class='a' HREF = 'docs/x.md'>x</A>",
        '<a title=">" href="docs/x.md">x</a>',
        "<div>\n<a\nhref=docs/x.md>x</a>\n</div>",
        "[x]\n\n[x]:\n  docs/x.md",
        "[nobody uses it]: docs/x.md",
        "> [x][y]\n>\n> [y]: docs/x.md",
        "> - [x](docs/x.md 'a title')",
        "[x](docs/&#120;.md)",
        "[x](docs/%78.md)",
        "[x](/docs/x.md)",
        '<a href="/docs/x.md">x</a>',
        "[x](\n  docs/x.md\n)",
        "![x](docs/x.md)",
        "```\n[x](docs/x.md)\n```",
        "<details>\n[x](docs/x.md)\n</details>",
        "| a | b |\n|---|---|\n| [x](docs/x.md) | c |",
        "[x](file:docs/x.md)",
        "[x](file://{root}/docs/x.md)",
        "<a href='FILE://localhost{root}/docs/x.md'>x</a>",
        "<object data=docs/x.md></object>",
        "<blockquote cite='docs/x.md'>x</blockquote>",
    ],
)
def test_a_link_of_any_form_makes_what_it_leads_to_an_instruction_file(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "x.md").write_text("words\n")
    (tmp_path / "Agent.md").write_text(f"Words.\n\n{link.replace('{root}', str(tmp_path))}\n")
    assert FileGuard(tmp_path).find_instruction_files().holds(tmp_path / "docs" / "x.md")


@pytest.mark.parametrize("words", ["docs/x.md", "[x](https://a.test/docs/x.md)", "[x](//a.test/docs/x.md)"])
def test_what_is_no_link_leads_to_no_instruction_file(tmp_path: Path, words: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "x.md").write_text("words\n")
    (tmp_path / "Agent.md").write_text(f"Words.\n\n{words}\n")
    assert not FileGuard(tmp_path).find_instruction_files().holds(tmp_path / "docs" / "x.md")


PROTECTED = (
    "Agent.md",
    "docs/rules.md",
    "docs/My Style.md",
    "deep.md",
    "docs/not there.md",
    "café.md",
    unicodedata.normalize("NFD", "café.md"),
    "DEEP.md",
    "to/rules.md",
    "hard.md",
    "docs/../deep.md",
    "./docs//Rules.MD",
    "docs/agent.md",
    "skills/x",
    ".claude/skills/a/SKILL.md",
    "./.Claude//Skills/x",
    "more/b/SKILL.md",
)


@pytest.mark.parametrize("path", PROTECTED)
async def test_it_needs_an_operators_yes_or_a_marked_rule(root: Path, path: str) -> None:
    asks = Asks("denied")
    for lists in ({"allow": ["write_file"]}, {"allow": ["write_file"], "ask": ["write_file"]}):
        bench = Bench(root, asks, **lists)
        await bench.run(tool_use("write_file", path=path))
        assert not bench.tools["write_file"].ran
    assert [asked.granted for asked in asks.asked] == [False, False], "whoever asked may not press it"
    marked = Bench(root, asks, allow=["@trusted:write_file"])
    await marked.run(tool_use("write_file", path=path))
    assert len(marked.tools["write_file"].ran) == 1


async def test_other_files_are_written_as_rules_say(root: Path) -> None:
    bench = Bench(root, allow=["write_file"])
    others = ("free.md", "docs/free.md", "new.md", "Agent.md.txt", "other/x", ".claude/x", "a/Agent.md/x")
    for path in others:
        await bench.run(tool_use("write_file", path=path))
    assert len(bench.tools["write_file"].ran) == len(others)


async def test_commands_cannot_change_it(root: Path) -> None:
    found = FileGuard(root).find_instruction_files()
    before = {path: Path(path).read_bytes() for path in found.files}
    assert {Path(path).name for path in before} == {
        "Agent.md",
        "rules.md",
        "My Style.md",
        "deep.md",
        "café.md",
    }
    commands = (
        "echo x > docs/rules.md",
        "echo x >> to/rules.md",
        "rm Agent.md",
        "mv deep.md gone.md",
        "mv docs other; mkdir docs; echo x > docs/rules.md",
        "cp free.md 'docs/My Style.md'",
        "ln -f free.md deep.md",
    )
    await Isolation(root).run("\n".join(commands), 20)
    assert {path: Path(path).read_bytes() for path in before} == before
    await Isolation(root).run("echo x > free.md", 20)
    assert (root / "free.md").read_text() == "x\n"


def test_a_file_of_tags_that_never_end_takes_no_time(root: Path) -> None:
    (root / "Agent.md").write_text(f"{'<a' * 15_000}>\n\n<a title='x' href='docs/x.md'>x</a>\n")
    began = time.process_time()
    assert FileGuard(root).find_instruction_files().holds(root / "docs" / "x.md")
    assert time.process_time() - began < 3
