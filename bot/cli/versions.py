"""`shipmate version`: shows the versions of Shipmate, Python and the dependencies."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires

from bot.cli.common import AsJson, Dir, Here, say, say_json
from bot.invocation import version_of

PYTHON = ".".join(map(str, sys.version_info[:3]))


def version(root: Dir = Here, as_json: AsJson = False) -> None:
    del root
    own, found = version_of("shipmate"), {name: version_of(name) for name in dependencies()}
    if as_json:
        say_json({"version": own, "python": PYTHON, "dependencies": found})
        return
    say(f"shipmate {own}")
    say(f"Python {PYTHON}")
    for name, number in found.items():
        say(f"  {name} {number}")


def dependencies() -> list[str]:
    """Return the packages that Shipmate requires, without extras. Return an empty list if Shipmate is not
    installed as a package.
    """
    try:
        needed = [line for line in requires("shipmate") or () if "extra ==" not in line]
    except PackageNotFoundError:
        return []
    return sorted(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in needed)
