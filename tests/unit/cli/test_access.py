from __future__ import annotations

import json
from pathlib import Path

import pytest

from bot.core.access import AccessList
from bot.system import SystemClock, SystemDisk

from .conftest import Shipmate


def lists(root: Path) -> AccessList:
    return AccessList(root / ".ship" / "access.json", SystemDisk(), SystemClock())


def test_a_stranger_who_asked_is_let_in_and_blocked(shipmate: Shipmate, project: Path) -> None:
    lists(project).note("telegram", "12345")
    lists(project).note("slack", "U0123456789", "Zoë\x1b[31m 李")
    waiting = shipmate("pending", "--dir", project)
    assert f"shipmate allow telegram 12345 --dir {project}\n" in waiting.out
    assert f"shipmate allow slack U0123456789 --dir {project}   # Zoë" in waiting.out
    assert "\x1b" not in waiting.out
    rows = shipmate("pending", "--dir", project, "--json").lines
    assert [row.get("name", "") != "" for row in rows if row["channel"] == "slack"] == [True]
    assert not any("name" in row for row in rows if row["channel"] == "telegram")
    assert {(row["channel"], row["id"]) for row in rows} == {("telegram", "12345"), ("slack", "U0123456789")}
    assert shipmate("allow", "telegram", "12345", "--dir", project).code == 0
    assert shipmate("block", "slack", "U0123456789", "--dir", project).code == 0
    assert lists(project).allowed("telegram") == {"12345"}
    assert lists(project).blocked("slack") == {"U0123456789"}
    assert shipmate("pending", "--dir", project).out == "Nobody is waiting.\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("pigeon", "1"), "no channel is called 'pigeon'"),
        (("slack", "@bob"), "only stable ids count"),
        (("telegram", "bob"), "only stable ids count"),
        (("telegram", "*"), "only stable ids count"),
        (("telegram", "1087968824"), "stands for many people"),
    ],
)
@pytest.mark.parametrize("command", ["allow", "block"])
def test_only_stable_ids_of_known_channels_are_taken(
    shipmate: Shipmate, project: Path, command: str, words: tuple[str, str], reason: str
) -> None:
    done = shipmate(command, *words, "--dir", project)
    assert done.code == 2
    assert reason in done.err
    assert not (project / ".ship" / "access.json").exists()


def test_a_file_that_cannot_be_read_is_a_finding(shipmate: Shipmate, project: Path) -> None:
    (project / ".ship" / "access.json").write_text("{")
    done = shipmate("pending", "--dir", project)
    assert done.code == 78
    assert ".ship/access.json: found " in done.err
    assert shipmate("allow", "telegram", "1", "--dir", project).code == 78
    assert json.loads((project / ".ship" / "access.json").read_text() + "}") == {}
