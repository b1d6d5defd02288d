"""Writes `shipmate` commands in the form in which a person can type them on this machine. Also reads versions of
installed packages.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path


def command(words: str, root: Path) -> str:
    """Return the command line `shipmate WORDS` for the project in `root`. The line begins with the program's path if `shipmate`
    is not in PATH. It has `--dir` if `root` is not the working directory.
    """
    name = sys.argv[0]
    known = Path(name).name != "shipmate" or shutil.which("shipmate") is not None
    where = "" if root.resolve() == Path.cwd() else f" --dir {shlex.quote(str(root))}"
    return f"{'shipmate' if known else shlex.quote(name)} {words}{where}"


def version_of(name: str, missing: str = "not installed") -> str:
    """Return the version of a package as text for people; `missing` if the package is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return missing
