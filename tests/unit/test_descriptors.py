"""What is kept back for the journal, the archive and the log where the process has no descriptors left."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import descriptors
from bot.system import SystemDisk

SCRIPT = """
import os, resource, sys
from pathlib import Path
from bot import descriptors
from bot.system import SystemDisk
descriptors.RESERVE.fill()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    while True: os.open(os.devnull, os.O_RDONLY)
except OSError: pass
disk, file = SystemDisk(), Path(sys.argv[1])
disk.append(file, b"one", sync=True)
disk.append(file, b"two")
disk.replace(file.with_name("whole"), b"three")
print(disk.read(file), descriptors.RESERVE.fill() > 0)
"""


async def test_what_has_to_be_written_is_written_where_no_descriptor_is_left(tmp_path: Path) -> None:
    import asyncio

    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, str(tmp_path / "file"), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert (process.returncode, out) == (0, b"b'onetwo' True\n")
    assert (tmp_path / "whole").read_bytes() == b"three"


@pytest.mark.parametrize(("files", "most"), [(1024, 384), (256, 8), (64, 8), (65_536, 2_048)])
def test_the_pages_get_half_of_what_is_left(files: int, most: int) -> None:
    assert descriptors.connections(files) == most


@contextlib.contextmanager
def limited(soft: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_soft_limit_goes_as_far_as_the_hard_one() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with limited(256):
        descriptors.raise_limit()
        assert descriptors.limit() == (descriptors.MOST if hard < 0 else min(hard, descriptors.MOST))


def test_another_failure_is_told_and_takes_nothing(tmp_path: Path) -> None:
    reserve = descriptors.DescriptorReserve(2)
    assert reserve.fill() == 0
    with pytest.raises(FileNotFoundError):
        reserve.open(tmp_path / "none", os.O_RDONLY)
    assert reserve.fill() == 0
    assert SystemDisk().read(tmp_path / "none") == b""
    for handle in reserve.kept:
        os.close(handle)
