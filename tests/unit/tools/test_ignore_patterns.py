"""Ignore patterns match as in Git, in linear time."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bot import errors
from bot.tools.project import path_matcher

PATTERNS = (  # noqa: SIM905 - a list would take a page
    "*.bak|.git/|build|/build|build/|/build/|a/b|/a/b|a/*|a/**|**/b|a/**/b|**/a/b|**/|*|/*|?|"
    r"a?|[ab]|[!ab]|[^a]|[a-c]x|[]a]|[a|a[|[z-a]|\#x|#x|\!x|!x|a\*|a\|x |x\ | x|a b|foo*bar|"
    "f*o*o|*.*|**foo|foo**|***|a//b|/||a/b/|**/*.py|src/**/*.py|.*|[.]git|é|漢*|[漢字]|[a-]|[-a]"
).split("|")
PATHS = (  # noqa: SIM905 - a list would take a page
    "a|b|c|x|ax|cx|a/b|a/b/c|a/x/b|a/x/y/b|x/a/b|build|x/build|build/x|x.bak|d/x.bak|#x|!x|a*|"
    r"a\| x|x |a b|foobar|fooxbar|foo|fxoxo|src/m.py|src/a/m.py|m.py|x/.git|é|漢字|字|]|-|[a|a[|"
    "**|foo/x|xfoo/y|.hidden/x"
).split("|")


def ours(patterns: list[str], path: str) -> bool:
    ignored, parts = path_matcher(patterns), path.split("/")
    above = ["/".join(parts[:at]) + "/" for at in range(1, len(parts))]
    return any(map(ignored, [*above, path]))


@pytest.fixture
def git(tmp_path: Path) -> Callable[[list[str]], set[str]]:
    if shutil.which("git") is None:
        pytest.skip("Git is not installed")
    folder = tmp_path / "checked"
    subprocess.run(["git", "init", "-q", str(folder)], check=True)

    def ignored(patterns: list[str]) -> set[str]:
        (folder / ".gitignore").write_text("\n".join(patterns) + "\n", encoding="utf-8")
        done = subprocess.run(
            ["git", "-C", str(folder), "check-ignore", "--no-index", "--stdin", "-z"],
            input="\0".join(PATHS).encode(),
            capture_output=True,
            check=False,
        )
        assert done.returncode in {0, 1}, done.stderr
        return set(done.stdout.decode().split("\0")) - {""}

    return ignored


def test_patterns_mean_what_they_mean_to_git(git: Callable[[list[str]], set[str]]) -> None:
    for pattern in PATTERNS:
        # In Git, `?` and `[!a]` match a byte. Here they match a character.
        bytewise = (
            {path for path in PATHS if not path.isascii()} if "?" in pattern or "[" in pattern else set()
        )
        assert {path for path in PATHS if ours([pattern], path)} - bytewise == git([pattern]) - bytewise, (
            pattern
        )
    for patterns in (["*", "!a"], ["*.py", "!m.py"], ["a/", "!a/b"], ["!x", "x"], ["/*", "!/src", "src/a"]):
        assert {path for path in PATHS if ours(patterns, path)} == git(patterns), patterns


def test_no_pattern_takes_long() -> None:
    name = "a" * 250
    assert not path_matcher(["*a" * 100 + "b"])(name)
    assert not path_matcher(["**/" * 100 + "b"])("/".join(["a"] * 100))
    with pytest.raises(errors.ToolError, match="too many patterns"):
        path_matcher([f"{'*a' * 10}{number}" for number in range(2_500)])
