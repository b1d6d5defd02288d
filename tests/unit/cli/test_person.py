"""The commands `shipmate export` and `shipmate erase`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bot.core.access import AccessList
from bot.system import SystemClock, SystemDisk
from tests.unit.cli.conftest import Shipmate, process


@pytest.fixture
def lists(project: Path) -> AccessList:
    found = AccessList(project / ".ship" / "access.json", SystemDisk(), SystemClock())
    found.allow("telegram", "1")
    return found


def test_without_a_terminal_nothing_is_removed_unless_it_is_confirmed(
    project: Path, lists: AccessList
) -> None:
    done = process("erase", "telegram:1", "--dir", project)
    assert (done.code, done.out) == (2, "")
    assert "--yes" in done.err
    assert lists.lists_with("telegram", "1") == ["allow"]


def test_who_is_nobody_is_wrong_usage(shipmate: Shipmate, project: Path, tmp_path: Path) -> None:
    for person, why in (("1", "No person is named by"), ("fax:1", "no channel is called")):
        for name in ("erase", "export"):
            done = shipmate(name, person, "--dir", project)
            assert done.code == 2
            assert why in " ".join(done.err.replace("│", " ").split())
    (tmp_path / "empty").mkdir()
    done = shipmate("export", "telegram:1", "--dir", tmp_path / "empty")
    assert (done.code, "there is no .ship" in done.err) == (1, True)
