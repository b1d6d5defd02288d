"""The installed package `shipmate`: starts the `bot` and `channels` beside it, whatever other distributions use these
names.

The build (`hatch_build.py`) installs this folder as the package `shipmate`, and below it `bot` and `channels`: only this
name of ours is public. An editable install calls `find` at each start of the interpreter with the folder of the source.
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
    """Finds the packages in one folder, and nothing else in it."""

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
    """Let `bot` and `channels` be found in a folder by those who import them, after anything else of these names."""
    _found.append(Finder(folder))
    sys.meta_path.append(_found[-1])


def prefer(folder: str) -> None:
    """From now on `bot` and `channels` are those in this folder, and what others put under these names is not used."""
    for name in list(sys.modules):
        module = sys.modules[name]
        if name.partition(".")[0] in PACKAGES and not _stands_in(module, folder):
            del sys.modules[name]
    sys.meta_path.insert(0, Finder(folder))


def _stands_in(module: ModuleType, folder: str) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and os.path.abspath(file).startswith(os.path.join(folder, ""))  # noqa: PTH100, PTH118


def leave_folder() -> None:
    """Take the current folder, in which people and tools write, from the places that Python imports from."""
    if not sys.flags.safe_path and sys.path[:1] in ([""], [os.getcwd()]):  # noqa: PTH109
        del sys.path[0]


def main() -> int:
    """Run one command; the exit code."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    prefer(_found[0].folder if _found else here)
    from bot import cli

    return cli.main()
