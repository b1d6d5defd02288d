"""Finds channels: folders of `channels` with a `manifest.py`, and entry points `shipmate.channels`. Imports them without optional
dependencies that nothing here uses.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any

from bot import errors
from bot.contracts.channel import Manifest

PACKAGE = "channels"
GROUP = "shipmate.channels"
"""The entry points of channels that others ship: the name of the channel, and its `MANIFEST`."""


def manifests(package: str = PACKAGE) -> dict[str, Manifest]:
    """The manifest of every channel, by name. Raises `errors.ConfigError` where one cannot be used."""
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
    for entry in entry_points(group=GROUP):
        try:
            manifest = entry.load()
        except (ImportError, AttributeError) as error:
            findings.append(f"{entry.value}: cannot be imported: {error}")
        else:
            findings += _added(found, entry.name, entry.value, manifest)
    if findings:
        raise errors.ConfigError(*findings)
    return found


def _added(found: dict[str, Manifest], name: str, place: str, manifest: Any) -> Iterator[str]:
    """Add the manifest of a channel; a finding where it is none, or has the name of another one."""
    if not isinstance(manifest, Manifest) or manifest.name != name:
        yield (
            f"{place}: found no MANIFEST for a channel of this name; expected a contracts.channel.Manifest "
            f'with name="{name}"; see docs/extend/channel.md'
        )
    elif found.setdefault(name, manifest) is not manifest:
        yield f"{place}: the channel {name} is there already"


def import_without(module: str, unused: Iterable[str]) -> None:
    """Import a module as if the packages `unused` were not installed; normally if it needs one of them. No other thread may import them
    meanwhile.
    """
    with _absent(unused), contextlib.suppress(ImportError):
        importlib.import_module(module)
        return
    importlib.import_module(module)


@contextlib.contextmanager
def _absent(names: Iterable[str]) -> Iterator[None]:
    # Python raises ImportError for a module that is None in `sys.modules`.
    absent = dict.fromkeys(name for name in names if name not in sys.modules)
    sys.modules.update(absent)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
