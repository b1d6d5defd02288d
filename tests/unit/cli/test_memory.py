"""`shipmate memory` reads, edits and deletes memory files, and shows the source of each line."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import pytest

from bot.contracts.identity import ChatKey
from bot.core.memory import SessionMemory
from bot.storage.notes import MemoryOwner, NoteStore, Written
from bot.system import SystemDisk
from tests.unit.cli.conftest import Shipmate, Terminal

KEY = ChatKey.parse("telegram:chat:-5")
CHAT, PERSON = MemoryOwner("chat", str(KEY)), MemoryOwner("person", "telegram:77")
BY = Written(1_700_000_000_000, "01R", KEY, "77")
MARKDOWN = SessionMemory(facts=("the ship is called 海",)).markdown


def store(project: Path) -> NoteStore:
    return NoteStore(project / ".ship" / "memory", disk=SystemDisk())


@pytest.fixture
def remembered(project: Path) -> Path:
    async def write() -> None:
        files = store(project)
        await files.change(CHAT, "plan.md", lambda _: "one\n二", BY)
        await files.change(PERSON, "diet.md", lambda _: "no nuts", BY)
        await files.save_session(KEY, MARKDOWN)

    asyncio.run(write())
    return project


def words(project: Path, owner: MemoryOwner, path: str) -> str | None:
    file = asyncio.run(store(project).read(owner, path))
    return file.text if file is not None else None


def test_the_list_names_every_owner_and_file(remembered: Path, shipmate: Shipmate) -> None:
    found = shipmate("memory", "list", "--dir", remembered, "--json").lines
    assert [(one["kind"], one["owner"], one["path"]) for one in found] == [
        ("chat", str(KEY), "plan.md"),
        ("chat", str(KEY), "session.md"),
        ("person", "telegram:77", "diet.md"),
    ]
    assert "telegram:77  diet.md" in shipmate("memory", "list", "--dir", remembered).out


def test_every_line_is_shown_with_where_it_comes_from(remembered: Path, shipmate: Shipmate) -> None:
    out = shipmate("memory", "show", KEY, "--dir", remembered).out
    assert "== plan.md\n2023-11-14 22:13:20  77  01R" in out
    assert "二" in out
    assert "- the ship is called 海" in out
    (line,) = shipmate("memory", "show", "telegram:77", "--dir", remembered, "--json").lines
    assert line == {
        "owner": "telegram:77",
        "kind": "person",
        "path": "diet.md",
        "line": 1,
        "text": "no nuts",
        "written": [{"ts": BY.ts, "requestId": "01R", "chatKey": str(KEY), "userId": "77"}],
    }


def test_an_edit_keeps_the_sources_of_what_it_keeps(
    remembered: Path, shipmate: Shipmate, tmp_path: Path
) -> None:
    (tmp_path / "new.md").write_text("one\n三", encoding="utf-8")
    done = shipmate("memory", "edit", KEY, "plan.md", "--from", tmp_path / "new.md", "--dir", remembered)
    assert done.code == 0
    lines = shipmate("memory", "show", KEY, "plan.md", "--dir", remembered, "--json").lines
    assert [(line["text"], [one["userId"] for one in line["written"]]) for line in lines] == [
        ("one", ["77"]),
        ("三", ["77", "operator"]),
    ]
    none = shipmate("memory", "edit", KEY, "plan.md", "--from", tmp_path / "none.md", "--dir", remembered)
    assert (none.code, "cannot be read as text" in none.err) == (2, True)
    again = shipmate("memory", "edit", KEY, "plan.md", "--from", tmp_path / "new.md", "--dir", remembered)
    assert again.out == "Nothing was changed.\n"


def test_the_memory_of_a_conversation_is_edited_as_what_it_is(
    remembered: Path, shipmate: Shipmate, tmp_path: Path
) -> None:
    text = tmp_path / "new.md"
    text.write_text("just words", encoding="utf-8")
    done = shipmate("memory", "edit", KEY, "session.md", "--from", text, "--dir", remembered)
    assert (done.code, "without any of the sections" in done.err) == (2, True)
    fresh = SessionMemory(facts=("the ship is called 鯨",)).markdown
    text.write_text(fresh, encoding="utf-8")
    assert shipmate("memory", "edit", KEY, "session.md", "--from", text, "--dir", remembered).code == 0
    kept = asyncio.run(store(remembered).load_session(KEY))
    assert kept == fresh


def test_what_is_forgotten_is_gone(remembered: Path, shipmate: Shipmate) -> None:
    assert "1 file of" in shipmate("memory", "forget", KEY, "plan.md", "-y", "--dir", remembered).out
    assert words(remembered, CHAT, "plan.md") is None
    assert words(remembered, CHAT, "session.md") == MARKDOWN
    assert shipmate("memory", "forget", KEY, "-y", "--dir", remembered).code == 0
    assert words(remembered, CHAT, "session.md") is None
    left = [path.name for path in (remembered / ".ship" / "memory").rglob("*") if path.is_file()]
    assert sorted(name for name in left if not name.startswith(".")) == ["diet%2Emd.lines", "diet%2Emd.md"]


def test_nothing_is_forgotten_that_was_not_confirmed(
    remembered: Path, shipmate: Shipmate, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget = ("memory", "forget", KEY, "plan.md", "--dir", remembered)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    done = shipmate(*forget)
    assert (done.code, "--yes" in done.err) == (2, True)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    done = shipmate(*forget)
    assert (done.code, "Forget plan.md of" in done.out) == (1, True)
    assert words(remembered, CHAT, "plan.md") is not None
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert shipmate(*forget).code == 0
    assert words(remembered, CHAT, "plan.md") is None
