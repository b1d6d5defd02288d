"""The installed package `shipmate`. It runs its own `bot` and `channels`, even if other distributions
install packages with these names.

The build (`hatch_build.py`) installs this folder as the package `shipmate`, with `bot` and `channels` inside
it, so that only the name `shipmate` is public. An editable install calls `find` with the source folder at
each start of the interpreter.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

PACKAGES = ("bot", "channels")


class Finder:
    """Import finder for the packages `bot` and `channels` in one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if name not in PACKAGES:
            return None
        place = os.path.join(self.folder, name)  # noqa: PTH118 - this runs at each start of an interpreter
        init = os.path.join(place, "__init__.py")  # noqa: PTH118
        return spec_from_file_location(name, init, submodule_search_locations=[place])


_found: list[Finder] = []


def find(folder: str) -> None:
    """Make `bot` and `channels` importable from a folder. Other packages with these names are found first."""
    _found.append(Finder(folder))
    sys.meta_path.append(_found[-1])


def prefer(folder: str) -> None:
    """Make Python import `bot` and `channels` from this folder, even if other packages have these names."""
    ours = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
    for name in ours:
        file = getattr(sys.modules[name], "__file__", None)
        if file is None or not os.path.abspath(file).startswith(os.path.join(folder, "")):  # noqa: PTH100, PTH118
            del sys.modules[name]
    sys.meta_path.insert(0, Finder(folder))


def leave_folder() -> None:
    """Remove the current folder from Python's import path, because people and tools can write files there."""
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109
        del sys.path[0]


def main() -> int:
    """Run one command and return its exit code."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    prefer(_found[0].folder if _found else here)
    from bot import cli

    return cli.main()
