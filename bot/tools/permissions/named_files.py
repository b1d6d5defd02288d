"""Finds the files that a command line names or runs. An approval of a command is valid only while the
content of these files stays the same.

Shell syntax is approximated: file names built from wildcards or variables are not found.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from bot import file_access

LARGEST = 10_000_000
"""Max bytes of a file that is compared."""
_MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
_ENDS = frozenset(";|&()\n`")
_RUNS = re.compile(
    r"(?:python|pypy|ruby|perl|node|php|lua|Rscript|deno|bun)[\d.]*|(?:ba|da|z|k)?sh|source|\.|exec|-exec|xargs"
)
_BETWEEN = re.compile(r"env|nice|nohup|poetry|run|time|timeout|uv|[\d.]+[smh]?|\w+=.*|-.*")
"""Words that may precede the name of a program or a script in a command line."""


def find(command: str, root: Path) -> tuple[list[Path], list[Path]]:
    """Return the programs and scripts that a command in this folder runs, and the other files that the
    command names. This call blocks the thread.
    """
    words = list(_words(command))
    # The command may change to a folder first. `Path` would raise for words that are no valid file names.
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
        if " " in word and word != command:  # a quoted word may contain a command
            yield from (";", *_words(word))


def digest(paths: Sequence[Path]) -> str:
    """Return a hash of the paths and the contents of these files; unreadable files are skipped. Returns ""
    if there are no files. This call blocks the thread.
    """
    held = hashlib.sha256()
    for path in paths:
        with contextlib.suppress(OSError):
            raw = file_access.read(path, LARGEST)
            held.update(f"{path}\n{len(raw)}\n".encode(errors="replace") + raw)
    return held.hexdigest() if paths else ""
