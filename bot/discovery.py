"""Finds channels: folders of the package `channels` with a `manifest.py`, and entry points of the group
`shipmate.channels`. It also imports libraries, and keeps them from loading optional dependencies that no channel needs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

from bot import errors
from bot.contracts.channel import Manifest

PACKAGE = "channels"
GROUP = "shipmate.channels"
"""Group of the entry points through which other packages provide channels. An entry point has the channel's name, and
its value is the channel's `MANIFEST`.
"""


def manifests(package: str = PACKAGE) -> dict[str, Manifest]:
    """Return all channels' manifests, keyed by name. Raises `errors.ConfigError` if a manifest cannot be used."""
    found: dict[str, Manifest] = {}
    findings: list[str] = []
    folder = importlib.import_module(package)
    modules = {
        one.name: f"{package}.{one.name}.manifest"
        for one in sorted(pkgutil.iter_modules(folder.__path__), key=lambda item: item.name)
        if one.ispkg and importlib.util.find_spec(f"{package}.{one.name}.manifest") is not None
    }
    own = [EntryPoint(name, f"{module}:MANIFEST", GROUP) for name, module in modules.items()]
    for entry in (*own, *entry_points(GROUP)):
        try:
            manifest = entry.load()
        except (ImportError, AttributeError) as error:
            findings.append(f"{entry.value}: cannot be imported: {error}")
            continue
        if not isinstance(manifest, Manifest) or manifest.name != entry.name:
            findings.append(
                f"{entry.value}: found no MANIFEST for a channel of this name; expected a contracts.channel.Manifest "
                f'with name="{entry.name}"; see docs/extend/channel.md'
            )
        elif found.setdefault(entry.name, manifest) is not manifest:
            findings.append(f"{entry.value}: the channel {entry.name} is there already")
    if findings:
        raise errors.ConfigError(*findings)
    return found


@functools.cache
def entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group in all installed packages. They are cached, because reading them takes 10 to
    30 ms and a start needs the same groups several times.
    """
    return metadata.entry_points(group=group)


def import_without(module: str, unused: Iterable[str]) -> None:
    """Import a module as if the packages `unused` were not installed. If the module needs one of them, import it
    normally. No other thread may import these packages during the call.
    """
    # Python raises ImportError for a module whose entry in `sys.modules` is None.
    absent: dict[str, Any] = dict.fromkeys(name for name in unused if name not in sys.modules)
    sys.modules.update(absent)
    try:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
            return
    finally:
        for name in absent:
            del sys.modules[name]
    importlib.import_module(module)
