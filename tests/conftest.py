"""Pytest configuration for all tests."""

import gc
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

pytest_plugins = ["tests.workers", "tests.shares", "tests.log_lines"]

# Whoever starts the tests in the background, or with nohup, has them ignore SIGINT or SIGHUP, and the processes that they
# start would inherit that. A function is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

# What is imported and not collected: without this its bare asserts would say nothing.

pytest.register_assert_rewrite(
    "tests.contracts.channel_contract",
    "tests.contracts.console_rig",
    "tests.contracts.model_contract",
    "tests.contracts.web_rig",
)

# What is imported stays to the end. To look through all of it for what could go takes a tenth of the time, while it is
# imported and at every test; so does looking through what is new after every 700 objects.
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
        tempfile.tempdir = None  # it may have been looked up


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    gc.enable()
