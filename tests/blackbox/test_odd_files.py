"""A pipe or a device in place of a file that Shipmate reads is left out or reported at once. Shipmate never waits for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import quick
from tests.blackbox.conftest import World

SETTINGS = '{"llm": {"provider": "demo"}, "channels": {"web": {"port": 0}}, "dashboard": {"enabled": false}}'


def odd(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if kind == "device" else "/dev/tty")


@pytest.mark.parametrize("kind", ["pipe", "device"])
async def test_as_instructions_or_a_skill_it_is_left_out_and_people_are_answered(
    world: World, kind: str
) -> None:
    odd(world.root / "Agent.md", kind)
    for name in ("one", "two"):
        folder = world.root / ".claude" / "skills" / name
        folder.mkdir(parents=True)
        if name == "one":
            odd(folder / "SKILL.md", kind)
        else:
            words = "---\nname: two\ndescription: The second.\n---\nDo it.\n"
            (folder / "SKILL.md").write_text(words, encoding="utf-8")
    world.model.answer("Here.")
    await world.start("telegram")
    world.telegram.say("are you there?")
    await world.heard("Here.")
    assert "The second." in str(world.model.bodies[0])
    assert await world.process.stop() == 0


@pytest.mark.parametrize("command", [("pending",), ("allow", "web", "0123456789abcdef"), ("chats",)])
@pytest.mark.parametrize("kind", ["pipe", "device"])
async def test_in_the_place_of_the_lists_it_is_told_and_holds_up_no_command(
    tmp_path: Path, kind: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "ship.json").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / ".ship").mkdir()
    odd(tmp_path / ".ship" / "access.json", kind)
    code, _, said = await quick.run(*command, "--dir", str(tmp_path))
    assert code == (0 if command == ("chats",) else 78), said
    assert "Traceback" not in said
    assert said.count("\n") <= 2
