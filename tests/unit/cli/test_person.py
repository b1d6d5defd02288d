"""`shipmate export` and `shipmate erase` as they are typed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bot.access_list import AccessList
from bot.system import SystemClock, SystemDisk
from tests.unit.cli.conftest import Shipmate, Terminal, process


@pytest.fixture
def lists(project: Path) -> AccessList:
    found = AccessList(project / ".ship" / "access.json", SystemDisk(), SystemClock())
    found.allow("telegram", "1")
    return found


def test_a_person_is_given_out_and_erased(shipmate: Shipmate, project: Path, lists: AccessList) -> None:
    given = shipmate("export", "telegram:1", "--dir", project)
    assert (given.code, given.lines) == (0, [{"from": "access.json", "value": "allow"}])
    done = shipmate("erase", "telegram:1", "--yes", "--dir", project)
    assert done.code == 0
    first, second, third = done.out.splitlines()
    assert first.split() == ["1", "entries", "of", "the", "access", "list"]
    assert second == "That was all that was kept of telegram:1."
    assert third.startswith("Not touched: ship.json")
    assert shipmate("erase", "telegram:1", "-y", "--dir", project).out == "Nothing was kept of telegram:1.\n"
    given = shipmate("export", "telegram:1", "--dir", project)
    assert (given.code, given.out) == (0, "")
    assert "Nothing is kept of telegram:1." in given.err


def test_without_a_terminal_nothing_is_removed_unless_it_is_confirmed(
    project: Path, lists: AccessList
) -> None:
    done = process("erase", "telegram:1", "--dir", project)
    assert (done.code, done.out) == (2, "")
    assert "--yes" in done.err
    assert lists.lists_with("telegram", "1") == ["allow"]
    assert process("erase", "telegram:1", "--yes", "--dir", project).code == 0


def test_on_a_terminal_it_asks_first(
    shipmate: Shipmate, project: Path, lists: AccessList, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer, left in (("n\n", ["allow"]), ("y\n", [])):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        done = shipmate("erase", "telegram:1", "--dir", project)
        assert done.code == len(left)
        assert "There is no way back." in done.out
        found = AccessList(project / ".ship" / "access.json", SystemDisk(), SystemClock())
        assert found.lists_with("telegram", "1") == left


def test_who_is_nobody_is_wrong_usage(shipmate: Shipmate, project: Path, tmp_path: Path) -> None:
    for person, why in (("1", "No person is named by"), ("fax:1", "no channel is called")):
        for name in ("erase", "export"):
            done = shipmate(name, person, "--dir", project)
            assert done.code == 2
            assert why in " ".join(done.err.replace("│", " ").split())
    (tmp_path / "empty").mkdir()
    done = shipmate("export", "telegram:1", "--dir", tmp_path / "empty")
    assert (done.code, "there is no .ship" in done.err) == (1, True)
