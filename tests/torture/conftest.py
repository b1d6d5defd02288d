"""Torture tests. `SEED` repeats a run, and `SHARD=i/n` runs the i-th of n parts of it. The counts are printed at the
end.
"""

from __future__ import annotations

import gc
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture import scene


def pytest_configure() -> None:
    os.environ.setdefault("SEED", str(secrets.randbelow(1_000_000)))


def pytest_report_header() -> str:
    return f"torture: SEED={os.environ['SEED']} SHARD={os.environ.get('SHARD') or '1/1'}"


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Collect the garbage of a test's killed gateways, so that its warnings are not attributed to the next test."""
    yield
    gc.collect()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Distribute the torture tests over the shards one by one."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            # A gateway that dies inside this process closes no files, and no kernel closes them for it.
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
    part, _, parts = (os.environ.get("SHARD") or "1/1").partition("/")
    torture = [item for item in items if item.get_closest_marker("torture") is not None]
    others = {item for at, item in enumerate(torture) if at % int(parts) != int(part) - 1}
    if others:
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = [item for item in items if item not in others]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in scene.TOLD:
        terminalreporter.write_line(line)
