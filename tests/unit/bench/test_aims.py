"""Aims beside what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench import aims
from tests.bench.aims import Aim


def test_a_miss_is_told_as_one_and_what_was_not_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Aim(6, "memory, idle", "memory.idleMb", 100, "MB")
    monkeypatch.setattr(
        aims, "AIMS", (memory, replace(memory, most=96.4), replace(memory, path="memory.other"))
    )
    assert [line.split() for line in aims.told({"memory": {"idleMb": 96.5}})] == [
        ["6", "reached", "memory,", "idle:", "96.5", "MB,", "aim", "100"],
        ["6", "MISSED", "memory,", "idle:", "96.5", "MB,", "aim", "96.4"],
        ["6", "not", "measured", "memory,", "idle"],
    ]


def test_where_parts_alone_were_measured_the_others_are_not_told() -> None:
    (line,) = aims.told({"restart": {"readyS": 1.5}}, measured_alone=True)
    assert line.split() == ["8", "reached", "ready", "after", "a", "kill:", "1.50", "s,", "aim", "2.00"]


def test_every_point_has_an_aim() -> None:
    assert {aim.point for aim in aims.AIMS} == set(range(1, 11))
    assert len({aim.path for aim in aims.AIMS}) == len(aims.AIMS)
