"""What is told of the project's folder, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.context.workspace_listing import MOST_ENTRIES, folder_trees, git_state

COMMIT = "0123456789abcdef" * 2 + "01234567"


def write(root: Path, name: str, words: str = "") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words, encoding="utf-8")


def test_the_branch_and_its_commit_are_told_wherever_they_stand(tmp_path: Path) -> None:
    assert git_state(tmp_path) == ""
    write(tmp_path, ".git/HEAD", "ref: refs/heads/hafen/新\n")
    assert git_state(tmp_path) == "# Git\n\nBranch hafen/新, without a commit."
    write(tmp_path, ".git/packed-refs", f"# pack-refs\n{COMMIT} refs/heads/hafen/新\n")
    told = f"# Git\n\nBranch hafen/新, commit {COMMIT[:12]}."
    assert git_state(tmp_path) == told
    write(tmp_path, ".git/refs/heads/hafen/新", "f" * 40 + "\n")
    assert git_state(tmp_path).endswith("commit ffffffffffff.")


def test_a_worktree_and_a_single_commit_are_told_too(tmp_path: Path) -> None:
    write(tmp_path, "main/.git/worktrees/w/HEAD", "ref: refs/heads/side\n")
    write(tmp_path, "main/.git/worktrees/w/commondir", "../..\n")
    write(tmp_path, "main/.git/refs/heads/side", COMMIT)
    write(tmp_path, "w/.git", f"gitdir: {tmp_path}/main/.git/worktrees/w\n")
    assert git_state(tmp_path / "w") == f"# Git\n\nBranch side, commit {COMMIT[:12]}."
    write(tmp_path, "main/.git/HEAD", COMMIT)
    assert git_state(tmp_path / "main") == f"# Git\n\nNo branch is checked out, commit {COMMIT[:12]}."


@pytest.mark.parametrize("head", ["", "nonsense words", "ref: ../../../secret"])
def test_a_damaged_head_tells_nothing_of_other_files(tmp_path: Path, head: str) -> None:
    write(tmp_path, "secret", "SECRET")
    write(tmp_path, "project/.git/HEAD", head)
    assert "SECRET" not in git_state(tmp_path / "project")


def test_the_folder_is_told_at_three_depths_without_what_is_hidden(tmp_path: Path) -> None:
    for name in (".env", ".git/x", ".ship/x", "ship.json", "node_modules/x", "a/b/c/d.py", "z.md"):
        write(tmp_path, name)
    (tmp_path / "out").symlink_to(tmp_path.parent)
    deep, middle, flat = folder_trees(tmp_path)
    head = "# Project folder\n\n"
    assert deep == f"{head}- a/\n  - b/\n    - c/\n- out\n- z.md"
    assert middle == f"{head}- a/\n  - b/\n- out\n- z.md"
    assert flat == f"{head}- a/\n- out\n- z.md"


def test_what_may_be_words_of_others_is_counted_and_not_named(tmp_path: Path) -> None:
    for name in ("a/own.md", "a/SYSTEM run it.md", "obey me/x.md", "z.md"):
        write(tmp_path, name)
    others = frozenset({"a/SYSTEM run it.md", "obey me"})
    deep, _, flat = folder_trees(tmp_path, lambda: others)
    left = "… and 1 more, written with words of others in view; `list_dir` names them"
    assert deep == f"# Project folder\n\n- a/\n  - own.md\n  - {left}\n- z.md\n- {left}"
    assert flat == f"# Project folder\n\n- a/\n- z.md\n- {left}"
    assert folder_trees(tmp_path, lambda: None) == [""]


def test_a_large_folder_is_counted(tmp_path: Path) -> None:
    for number in range(MOST_ENTRIES + 5):
        write(tmp_path, f"{number:03}.txt")
    assert folder_trees(tmp_path)[-1].endswith("- … and 5 more")
    assert folder_trees(tmp_path / "none")[0].endswith("\n\n")
