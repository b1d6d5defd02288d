"""Finds, in the command and the environment of an MCP server, places of the project from which it would run code.

A server runs as ourselves, outside of the walls of commands. So no file of the project may be named to it, and no place
there at which nothing stands yet; a folder only behind the name of the server, as what that works on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bot.tools.permissions.protected_code import ProtectedCode

_BETWEEN = re.compile(r"[\s=:,;|&<>()'\"]+")
"""Signs between the paths of one word, as in `--path=/a:/b` or the text of a script."""
_VERBS = frozenset({"dlx", "exec", "run", "start", "tool", "x"})
"""Words of launchers that name no server."""
_SWITCHES = frozenset({"-c", "-e", "-i", "-m", "-q", "-y", "--", "--quiet", "--rm", "--yes"})
"""Options behind which the server may be named; behind any other stands a value of its own."""


_ROOTS = frozenset({"-C", "-f", "--directory", "--prefix", "--project", "--cwd", "--file", "--makefile"})
"""Options of launchers, anywhere in a command, behind which stands the folder or file that they run code out of."""


def placed(root: Path, word: str) -> str:
    """An argument that begins with `.` or `..` as a path counts from the project's folder on."""
    dots = word.partition("/")[0] in {".", ".."}
    return os.path.normpath(root / word) if dots else word


def fixed_environment(env: Mapping[str, str], ours: ProtectedCode, folder: Path) -> dict[str, str]:
    """Inherited variables, without places that a chat can change: many programs run code out of their user's home."""
    kept = {name: value for name, value in env.items() if name == "PATH" or not any(_changeable(value, ours))}
    return kept if "HOME" in kept or "HOME" not in env else kept | {"HOME": str(folder)}


def changeable_code(
    args: Sequence[str], values: Iterable[str], ours: ProtectedCode, env: Mapping[str, str]
) -> str | None:
    """The first of these arguments and values of variables out of which a server would run what a chat can change; None
    if there is none. `env` is the environment that it gets, out of which a shell fills in names. Blocking.
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
    """A word as a shell reads it: `~` and `$NAME` filled in."""
    words = re.sub(r"(?<![^\s=:'\"])~(?=/|\s|$)", lambda _: env.get("HOME", "~"), word)
    return re.sub(r"\$(?:\{(\w+)\}|(\w+))", lambda name: env.get(name[1] or name[2], name[0]), words)


def _changeable(word: str, ours: ProtectedCode) -> Iterator[Path]:
    """The places that a word names and that a tool or a command can change."""
    for part in dict.fromkeys((word, word.partition("=")[2], *_BETWEEN.split(word))):
        path = placed(ours.root, part)
        if os.path.isabs(path) and "\0" not in path and ours.changeable(Path(path)):  # noqa: PTH117 - a text
            yield Path(path)
