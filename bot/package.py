"""Versions of installed packages."""

from __future__ import annotations

from importlib import metadata


def version_of(name: str) -> str:
    """Version of an installed package, ours among them."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
