"""`allowed-tools` of a skill removes rights and grants none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.contracts.base import Json, Message
from bot.system import read_link
from bot.testing.log import MemoryLog
from bot.testing.model import tool_use
from bot.tools.dispatch import Registry
from bot.tools.file_guard import FileGuard
from bot.tools.permissions.patterns import Paths
from bot.tools.skills import SkillAllowlist, SkillFolder, rules_of
from tests.unit.tools.test_policy import Asks, Bench


def skill(root: Path, name: str, allowed: str | None) -> None:
    folder = root / ".claude" / "skills" / name
    folder.mkdir(parents=True)
    line = f"allowed-tools: {allowed}\n" if allowed is not None else ""
    (folder / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: d\n{line}---\nDo it.", encoding="utf-8"
    )


def person(words: str = "do it") -> Message:
    return {
        "role": "user",
        "content": [
            {"type": "text", "text": '<turn_context>{"userId":"U7"}</turn_context>'},
            {"type": "text", "text": words},
        ],
    }


def load(name: str, *, fails: bool = False) -> list[Message]:
    call = {"type": "tool_use", "id": f"s_{name}", "name": "skills_load", "input": {"name": name}}
    result: Json = {"type": "tool_result", "tool_use_id": f"s_{name}", "content": "Do it."}
    if fails:
        result["is_error"] = True
    return [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]


class Narrowed(Bench):
    def __init__(self, root: Path, **more: Any) -> None:
        super().__init__(root, more.pop("asks", None), **more)
        skills = SkillFolder(root, [], MemoryLog(), FileGuard(root))
        narrowing = SkillAllowlist(skills, Paths(str(root), read_link))
        self.policy = replace(self.policy, narrowing=narrowing)
        self.dispatcher = self.dispatcher.narrowed(Registry(self.tools.values()), lambda _: self.policy)

    async def ran(self, call: Json, view: Sequence[Message]) -> bool:
        (result,) = await self.run(call, user="U7", view=view)
        self.said = result["content"]
        return not result.get("is_error")


READ = tool_use("read_file", path="a.txt")
SHELL = tool_use("run_shell", command="git log")


async def test_what_a_skill_does_not_name_is_refused_and_no_approval_changes_that(tmp_path: Path) -> None:
    skill(tmp_path, "sail", "Read, Grep")
    asks = Asks()
    bench = Narrowed(tmp_path, asks=asks, allow=["@trusted:run_shell"])
    assert await bench.ran(SHELL, [person()])
    assert not await bench.ran(SHELL, [person(), *load("sail")])
    assert "the skill sail does not work with it" in bench.said
    assert "allowed-tools Read Grep" in bench.said
    assert asks.asked == []
    assert await bench.ran(READ, [person(), *load("sail")])
    assert bench.decisions()[1] == ("denied", "skill")


async def test_what_a_skill_names_needs_the_same_approval_as_without_it(tmp_path: Path) -> None:
    skill(tmp_path, "sail", "Bash(git log:*) Bash(rm:*)")
    asks = Asks("denied")
    bench = Narrowed(tmp_path, asks=asks, deny=["run_shell(rm *)"])
    view = [person(), *load("sail")]
    assert not await bench.ran(SHELL, view)
    assert len(asks.asked) == 1
    assert not await bench.ran(tool_use("run_shell", command="rm -rf x"), view)
    assert "deny run_shell(rm *)" in bench.said
    for command in ("git push", "git log; rm x"):
        assert not await bench.ran(tool_use("run_shell", command=command), view)
        assert "the skill sail does not work with it" in bench.said


async def test_it_holds_until_the_person_writes_again(tmp_path: Path) -> None:
    skill(tmp_path, "sail", "Read")
    bench = Narrowed(tmp_path, allow=["@trusted:run_shell"])
    assert not await bench.ran(SHELL, [person(), *load("sail")])
    assert await bench.ran(SHELL, [person(), *load("sail"), person("now the tests")])


async def test_skills_add_up_and_those_without_a_list_lift_nothing(tmp_path: Path) -> None:
    skill(tmp_path, "sail", "Read")
    skill(tmp_path, "row", "run_shell")
    skill(tmp_path, "swim", None)
    bench = Narrowed(tmp_path, allow=["@trusted:run_shell"])
    assert await bench.ran(SHELL, [person(), *load("swim")])
    assert not await bench.ran(SHELL, [person(), *load("sail"), *load("swim")])
    assert await bench.ran(SHELL, [person(), *load("sail"), *load("row")])
    assert await bench.ran(SHELL, [person(), *load("sail", fails=True)])


async def test_entries_that_are_none_allow_nothing(tmp_path: Path) -> None:
    skill(tmp_path, "sail", "'run_shell(a | b), (), Nothing'")
    bench = Narrowed(tmp_path, allow=["@trusted:run_shell", "read_file"])
    assert not await bench.ran(SHELL, [person(), *load("sail")])
    assert not await bench.ran(READ, [person(), *load("sail")])


def test_names_of_other_agents_are_ours() -> None:
    assert rules_of("Read") == ["read_file"]
    assert rules_of("mcp__files__*") == ["mcp__files__*"]
    assert rules_of("Bash(npm test)") == ["run_shell(npm test)"]
    assert rules_of("Bash(git status:*)") == ["run_shell(git status)", "run_shell(git status *)"]
