"""Pytest configuration for all tests."""

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

pytest_plugins = ["tests.workers", "tests.shares", "tests.log_lines"]

# Tests that are started in the background or with nohup ignore SIGINT or SIGHUP, and their child processes would inherit
# that. A child process does not inherit a handler function, so install one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# Pytest imports these modules without collecting them; without this call, their failed asserts would show no values.

pytest.register_assert_rewrite(
    "tests.contracts.channel_contract",
    "tests.contracts.console_rig",
    "tests.contracts.model_contract",
    "tests.contracts.web_rig",
)

# Imported modules stay in memory to the end. Searching them for garbage would take a tenth of the time, during the import
# and in every test. Searching the new objects after every 700 of them costs as much.
gc.disable()


MEMORY = Path("/dev/shm")
ROOM = 4 << 30


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Place temporary folders in memory if enough memory is free, because flushing to memory costs nothing.
    The tests' child processes use the same place.

    Torture tests and benches measure a real disk, so their temporary folders stay on disk. A TMPDIR that is
    already set is kept.
    """
    if config.option.markexpr in {"torture", "bench"} or "TMPDIR" in os.environ:
        return
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # tempfile may have cached the old folder


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()
