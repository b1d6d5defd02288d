"""Channels are found by name: every folder of `channels` with a `manifest.py`."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil

from bot import errors
from bot.contracts.channel import Manifest

PACKAGE = "channels"


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
            continue
        if isinstance(manifest, Manifest) and manifest.name == module.name:
            found[manifest.name] = manifest
        else:
            findings.append(
                f"{name}: found no MANIFEST for a channel of this name; expected a contracts.channel.Manifest "
                f'with name="{module.name}"; see CONTRIBUTING, "Add a channel"'
            )
    if findings:
        raise errors.ConfigError(*findings)
    return found
