"""Finds the files that a command names, and those of them that it runs: an approval holds for what stood in them.

A shell's line is read roughly: a name that it comes to in another way, such as a wildcard or a variable, is not found.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from bot import regular_files

LARGEST = 10_000_000
"""Bytes of a file that are compared: of a larger one these and no more."""
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_ENDS = frozenset(";|&()\n`")
_RUNS = re.compile(
    r"(?:python|pypy|ruby|perl|node|php|lua|Rscript|deno|bun)[\d.]*|(?:ba|da|z|k)?sh|source|\.|exec|-exec|xargs"
)
_BETWEEN = re.compile(r"env|nice|nohup|poetry|run|time|timeout|uv|[\d.]+[smh]?|\w+=.*|-.*")
"""Words that may stand before the name of a program or a script."""


def find(command: str, root: Path) -> tuple[list[Path], list[Path]]:
    """Programs and scripts that a command runs which begins in this folder, and the other files that it names. Blocking."""
    words = list(_words(command))
    # It may go to a folder first. A word may be no name at all, which `Path` would raise for.
    folders = dict.fromkeys([root, *(root / word for word in words if os.path.isdir(root / word))])  # noqa: PTH112
    runs, others, begins, before = dict[Path, None](), dict[Path, None](), True, ""
    for word in words:
        program = word.rpartition("/")[2]
        names = [word, word.rpartition("=")[2].lstrip("@"), *(_MAKEFILES if program == "make" else ())]
        if before == "-m":
            names += [f"{word.replace('.', '/')}{end}" for end in (".py", "/__main__.py")]
        places = [folder / name for name in names if name for folder in folders]
        found = dict.fromkeys(place for place in places if os.path.isfile(place))  # noqa: PTH113
        (runs if begins else others).update(found)
        between = begins and not found and _BETWEEN.fullmatch(program)
        begins, before = bool(between or _RUNS.fullmatch(program) or not _ENDS.isdisjoint(word)), word
    return list(runs), [path for path in others if path not in runs]


def _words(command: str) -> Iterator[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="".join(_ENDS) + "<>")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        words = list(lexer)
    except ValueError:  # a quote that is not closed
        words = command.split()
    for word in words:
        yield word.strip("$\"'")
        if " " in word and word != command:  # what stood in quotes may be a command
            yield from (";", *_words(word))


def digest(paths: Sequence[Path]) -> str:
    """The hash of what these files hold, and of which can be read; "" where there are none. Blocking."""
    held = hashlib.sha256()
    for path in paths:
        with contextlib.suppress(OSError):
            raw = regular_files.read(path, LARGEST)
            held.update(f"{path}\n{len(raw)}\n".encode(errors="replace") + raw)
    return held.hexdigest() if paths else ""
