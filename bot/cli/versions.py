"""Says the version: `shipmate version`. Imports no parser: that would take most of its time."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, requires

from bot.invocation import version_of


def say_own() -> None:
    print(f"shipmate {version_of('shipmate')}")


def say_all(*, as_json: bool = False) -> None:
    """Say the versions of Python and the dependencies too."""
    try:
        names = [line.split(";")[0].strip() for line in requires("shipmate") or () if "extra ==" not in line]
    except PackageNotFoundError:
        names = []
    dependencies = {name: version_of(name) for name in sorted(map(_bare, names))}
    python = ".".join(map(str, sys.version_info[:3]))
    if as_json:
        print(json.dumps({"version": version_of("shipmate"), "python": python, "dependencies": dependencies}))
        return
    say_own()
    print(f"Python {python}")
    for name, found in dependencies.items():
        print(f"  {name} {found}")


def _bare(requirement: str) -> str:
    end = next((at for at, char in enumerate(requirement) if not (char.isalnum() or char in "-_.")), None)
    return requirement[:end]


WITHOUT_PARSER: dict[tuple[str, ...], Callable[[], None]] = {("version",): say_all, ("--version",): say_own}
"""Command lines that are asked often, as by installers, and need none."""
