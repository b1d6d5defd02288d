"""Says a command of Shipmate as a person can type it here, by a name that the shell finds, with the folder that it needs; and the
versions of installed packages.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path


def command(words: str, root: Path) -> str:
    """`shipmate WORDS` for the project in `root`, with the program's path where the shell knows no `shipmate`, and with
    `--dir` where `root` is not the folder in which we are.
    """
    name = sys.argv[0]
    known = Path(name).name != "shipmate" or shutil.which("shipmate") is not None
    where = "" if root.resolve() == Path.cwd() else f" --dir {shlex.quote(str(root))}"
    return f"{'shipmate' if known else shlex.quote(name)} {words}{where}"


def installed_version(name: str) -> str | None:
    """Version of a package, ours among them; None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def version_of(name: str) -> str:
    """The same for a person."""
    return installed_version(name) or "not installed"
