"""The project's folder in the turns of a chat: what stands before the messages never changes with it."""

from __future__ import annotations

import json

import pytest

from bot import tags
from bot.core.assembly import Prompts
from bot.core.file_names import encode
from bot.core.instructions import InstructionFiles

from .conftest import KEY, Bench


@pytest.fixture
def works(bench: Bench) -> Bench:
    """In a project that the model has tools for."""
    files = InstructionFiles(bench.root / "project", encode=encode, log=bench.log, vetting=bench.deps.vetting)
    bench.configure(
        prompts=Prompts(
            bench.root / "project",
            name="Shipmate",
            skills=bench.skills,
            instructions=files,
            log=bench.log,
            vetting=bench.deps.vetting,
            has_files=True,
        )
    )
    write(bench, "README.md")
    return bench


def write(bench: Bench, name: str) -> None:
    path = bench.root / "project" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("words", encoding="utf-8")


def system(bench: Bench) -> str:
    return json.dumps(list(bench.model.requests[-1].system), ensure_ascii=False)


def told(bench: Bench) -> list[str | None]:
    """The folder as each message of a person tells it."""
    found = (tags.facts(message) for message in bench.sent)
    return [facts.get("projectFolder") for facts in found if facts]


async def test_a_folder_that_changes_is_told_with_the_next_turn_in_a_cold_chat_and_breaks_nothing(
    works: Bench,
) -> None:
    await works.say("one")
    before = system(works)
    assert "projectFolder: README.md" in before
    write(works, "图/deep.py")
    await works.say("two")
    await works.clock.advance(301)
    await works.say("three")
    await works.clock.advance(301)
    write(works, "图/deeper.py")
    await works.say("four")
    assert told(works) == [None, None, "图/, README.md", None]
    assert system(works) == before
    assert not works.log.of("prompt")
    assert not works.log.of("compaction")


async def test_what_has_left_the_view_is_told_again_and_a_restart_changes_nothing(works: Bench) -> None:
    await works.say("one")
    write(works, "src/a.py")
    await works.clock.advance(301)
    await works.say("two")
    await works.pool.undo(KEY)
    await works.say("three")
    assert told(works) == [None, "src/, README.md"]
    (works.root / "project/README.md").unlink()
    works.restart()
    await works.clock.advance(301)
    await works.say("four")
    assert told(works) == [None, "src/, README.md", "src/"]
    assert "projectFolder: README.md\\n" in system(works)
    assert not works.log.of("compaction")[1:]
    await works.pool.reset(KEY)
    await works.say("five")
    assert told(works) == [None]
    assert "projectFolder: src/\\n" in system(works)


async def test_changed_instructions_bring_the_folder_as_it_is(works: Bench) -> None:
    await works.say("one")
    write(works, "src/a.py")
    write(works, "Agent.md")
    await works.clock.advance(301)
    await works.say("two")
    assert "projectFolder: src/, Agent.md, README.md\\n" in system(works)
    assert told(works) == [None, None]
