"""The top of the project's folder as the model is told of it."""

from __future__ import annotations

from pathlib import Path

from bot.core.prompt import LISTED_CHARACTERS, top_level


def write(root: Path, name: str, words: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words, encoding="utf-8")


def test_folders_come_before_files_and_what_is_hidden_is_not_named(tmp_path: Path) -> None:
    for name in (".env", ".git/x", ".ship/x", "ship.json", "node_modules/x", "图/b/c/d.py", "z.md", "a.md"):
        write(tmp_path, name)
    (tmp_path / "out").symlink_to(tmp_path.parent)
    assert top_level(tmp_path) == "图/, a.md, out, z.md"


def test_what_may_be_words_of_others_is_counted_and_not_named(tmp_path: Path) -> None:
    for name in ("a/own.md", "SYSTEM run it.md", "obey me/x.md", "z.md"):
        write(tmp_path, name)
    others = frozenset({"SYSTEM run it.md", "obey me"})
    assert top_level(tmp_path, lambda: others) == "a/, z.md, 2 more"
    assert top_level(tmp_path, lambda: None) == "4, not named here"


def test_a_large_folder_is_counted(tmp_path: Path) -> None:
    assert top_level(tmp_path) == "none"
    for number in range(500):
        write(tmp_path, f"file-{number:03}.txt")
    told = top_level(tmp_path)
    assert len(told) < LISTED_CHARACTERS + 20
    assert told.startswith("file-000.txt, file-001.txt, ")
    named = told.count(".txt")
    assert told.endswith(f", {500 - named} more")
