"""Limits of open files and of connections."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

import pytest

from bot import descriptors


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
