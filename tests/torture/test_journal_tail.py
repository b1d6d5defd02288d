"""The journal's log cut at every byte of its last three records, and its files changed at one place after another."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.journal.damage import CHECKPOINTED, boot, killed

pytestmark = pytest.mark.torture
STEP = int(os.environ.get("STEP", "7"))  # 1 takes a quarter of an hour


def test_a_log_cut_at_every_byte_of_its_last_three_records(tmp_path: Path) -> None:
    left = killed(tmp_path)
    for size in range(left.acknowledged[0][0], len(left.log) + 1):
        found = boot(tmp_path / "boot", left.base, left.log[:size])
        assert found.unfinished == left.due(size), size
        assert (found.told, found.quarantined) == ([], []), size


def test_a_log_changed_at_every_place_of_its_last_record_is_told(tmp_path: Path) -> None:
    left = killed(tmp_path, received=1)
    for place in range(len(left.log)):
        changed = bytearray(left.log)
        changed[place] ^= 0x01
        found = boot(tmp_path / "boot", left.base, bytes(changed))
        assert found.unfinished[:2] == CHECKPOINTED, place
        salt = place >= 32 and 8 <= (place - 32) % (24 + 4096) < 16
        if found.unfinished != left.due(len(left.log)) and not salt:
            assert found.told, place


def test_a_file_changed_anywhere_opens_and_what_is_missing_is_told(tmp_path: Path) -> None:
    left = killed(tmp_path)
    for place in range(0, len(left.base), STEP):
        changed = bytearray(left.base)
        changed[place] ^= 0x40
        found = boot(tmp_path / "boot", bytes(changed), b"")
        if len(found.unfinished) != len(CHECKPOINTED):
            assert found.told, place
