"""Imports libraries without the optional ones that they would take along and that nothing here uses."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable, Iterator


def import_without(module: str, unused: Iterable[str]) -> None:
    """Import a module while `unused`, names of packages, count as not installed. Where it needs one of them after all, it is
    imported as usual. No other thread may import any of them meanwhile.
    """
    with _absent(unused), contextlib.suppress(ImportError):
        importlib.import_module(module)
        return
    importlib.import_module(module)


@contextlib.contextmanager
def _absent(names: Iterable[str]) -> Iterator[None]:
    # None in `sys.modules` is the language's own way to say that a module cannot be imported.
    absent = dict.fromkeys(name for name in names if name not in sys.modules)
    sys.modules.update(absent)  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in absent:
            del sys.modules[name]
