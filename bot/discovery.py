"""Finds channels: folders of the package `channels` with a `manifest.py`, and entry points of the group
`shipmate.channels`. Also imports libraries without those optional dependencies that no channel needs.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.metadata import EntryPoints
from typing import Any

from bot import errors
from bot.contracts.channel import Manifest

PACKAGE = "channels"
GROUP = "shipmate.channels"
"""Group of the entry points through which other packages provide channels. An entry point has the channel's name, and
its value is the channel's `MANIFEST`.
"""


def manifests(package: str = PACKAGE) -> dict[str, Manifest]:
    """Return the manifest of every channel, by name. Raises `errors.ConfigError` if a manifest cannot be used."""
    found: dict[str, Manifest] = {}
    findings: list[str] = []
    folder = importlib.import_module(package)
    for module in sorted(pkgutil.iter_modules(folder.__path__), key=lambda item: item.name):
        name = f"{package}.{module.name}.manifest"
        if not module.ispkg or importlib.util.find_spec(name) is None:
            continue
        try:
            manifest = getattr(importlib.import_module(name), "MANIFEST", None)
        except ImportError as error:
            findings.append(f"{name}: cannot be imported: {error}")
        else:
            findings += _added(found, module.name, name, manifest)
    for entry in entry_points(GROUP):
        try:
            manifest = entry.load()
        except (ImportError, AttributeError) as error:
            findings.append(f"{entry.value}: cannot be imported: {error}")
        else:
            findings += _added(found, entry.name, entry.value, manifest)
    if findings:
        raise errors.ConfigError(*findings)
    return found


@functools.cache
def entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group in all installed packages. They are cached, because reading them takes 10 to
    30 ms and a start needs the same groups several times.
    """
    return metadata.entry_points(group=group)


def _added(found: dict[str, Manifest], name: str, place: str, manifest: Any) -> Iterator[str]:
    """Add a channel's manifest to `found`. Yield a finding if the object is not a manifest or the name is already taken."""
    if not isinstance(manifest, Manifest) or manifest.name != name:
        yield (
            f"{place}: found no MANIFEST for a channel of this name; expected a contracts.channel.Manifest "
            f'with name="{name}"; see docs/extend/channel.md'
        )
    elif found.setdefault(name, manifest) is not manifest:
        yield f"{place}: the channel {name} is there already"


def import_without(module: str, unused: Iterable[str]) -> None:
    """Import a module as if the packages `unused` were not installed. If it needs one of them, import it normally. No
    other thread may import these packages during the call.
    """
    with _absent(unused), contextlib.suppress(ImportError):
        importlib.import_module(module)
        return
    importlib.import_module(module)


@contextlib.contextmanager
def _absent(names: Iterable[str]) -> Iterator[None]:
    # Python raises ImportError for a module whose entry in `sys.modules` is None.
    absent = dict.fromkeys(name for name in names if name not in sys.modules)
    sys.modules.update(absent)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
