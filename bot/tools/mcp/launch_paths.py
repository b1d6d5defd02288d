"""Finds paths in the project from which an MCP server would run code.

A server runs with the gateway's rights, outside the sandbox. The server's command and environment may not
name files of the project, or paths at which files could be created. As an argument after the server's name, a
project folder is allowed, because there the folder is data for the server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bot.tools.permissions.protected_code import ProtectedCode

_BETWEEN = re.compile(r"[\s=:,;|&<>()'\"]+")
"""Pattern of separators between paths within one word, as in `--path=/a:/b` or in a script."""
_VERBS = frozenset({"dlx", "exec", "run", "start", "tool", "x"})
"""Subcommands of package launchers that run a program."""
_SWITCHES = frozenset({"-c", "-e", "-i", "-m", "-q", "-y", "--", "--quiet", "--rm", "--yes"})
"""Options that the server's name may follow directly. Every other option takes a value."""
_ROOTS = frozenset({"-C", "-f", "--directory", "--prefix", "--project", "--cwd", "--file", "--makefile"})
"""Options of package launchers that name the folder or file from which code is run."""


def placed(root: Path, word: str) -> str:
    """Return an argument that begins with `.` or `..` as an absolute path, resolved against the project's
    folder. Other arguments are returned unchanged.
    """
    dots = word.partition("/")[0] in {".", ".."}
    return os.path.normpath(root / word) if dots else word


def fixed_environment(env: Mapping[str, str], ours: ProtectedCode, folder: Path) -> dict[str, str]:
    """Return the inherited variables except those that name a path which a chat can change. HOME is set to
    `folder`, because programs run code from HOME.
    """
    kept = {name: value for name, value in env.items() if name == "PATH" or not any(_changeable(value, ours))}
    return kept if "HOME" in kept or "HOME" not in env else kept | {"HOME": str(folder)}


def changeable_code(
    args: Sequence[str], values: Iterable[str], ours: ProtectedCode, env: Mapping[str, str]
) -> str | None:
    """Return the first argument or variable from which the server would run code that a chat can change;
    None if there is none. `env` is the server's environment, which is used to expand variable names. This
    call blocks the thread.
    """
    named, before = False, ""
    for word in args:
        places = [
            place for one in dict.fromkeys((word, _filled_in(word, env))) for place in _changeable(one, ours)
        ]
        if places and not (named and before not in _ROOTS and all(place.is_dir() for place in places)):
            return word
        option = word.startswith("-") or (before.startswith("-") and before not in _SWITCHES)
        named = named or not (option or word in _VERBS)
        before = word
    return next((value for value in values if any(_changeable(value, ours))), None)


def _filled_in(word: str, env: Mapping[str, str]) -> str:
    """Return a word with `~` and `$NAME` expanded as a shell does."""
    words = re.sub(r"(?<![^\s=:'\"])~(?=/|\s|$)", lambda _: env.get("HOME", "~"), word)
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda name: env.get(name[1] or name[2], name[0]), words)


def _changeable(word: str, ours: ProtectedCode) -> Iterator[Path]:
    """Yield the paths in a word that a tool or a command can change."""
    for part in dict.fromkeys((word, word.partition("=")[2], *_BETWEEN.split(word))):
        path = placed(ours.root, part)
        if os.path.isabs(path) and "\0" not in path and ours.changeable(Path(path)):  # noqa: PTH117 - a text
            yield Path(path)
