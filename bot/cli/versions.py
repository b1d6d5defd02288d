"""Says the version: `shipmate version`. Imports no parser: that would take most of its time."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires

from bot.invocation import version_of


def say_own() -> None:
    print(f"shipmate {version_of('shipmate')}")


def say_all(*, as_json: bool = False) -> None:
    """Say the versions of Python and the dependencies too."""
    found = {name: version_of(name) for name in dependencies()}
    python = ".".join(map(str, sys.version_info[:3]))
    if as_json:
        print(json.dumps({"version": version_of("shipmate"), "python": python, "dependencies": found}))
        return
    say_own()
    print(f"Python {python}")
    for name, number in found.items():
        print(f"  {name} {number}")


def dependencies() -> list[str]:
    """The packages that Shipmate needs, without those of extras; none where it is not installed itself."""
    try:
        needed = [line for line in requires("shipmate") or () if "extra ==" not in line]
    except PackageNotFoundError:
        return []
    return sorted(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in needed)


WITHOUT_PARSER: dict[tuple[str, ...], Callable[[], None]] = {("version",): say_all, ("--version",): say_own}
"""Command lines that are asked often, as by installers, and need none."""
