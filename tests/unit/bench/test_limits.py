"""What counts as worse than before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import limits


def test_a_ratio_is_worse_beyond_noise_alone() -> None:
    before = {"rush.cpuMs": 2.0, "oneChat.overheadMs": 3.0}
    assert limits.regressions({"rush.cpuMs": 2.0 * limits.NOISE, "oneChat.overheadMs": 1.0}, before) == []
    (line,) = limits.regressions({"rush.cpuMs": 2.8, "oneChat.overheadMs": 3.0}, before)
    assert line == "rush.cpuMs: 2.80 times the yardstick, stored are 2.00"


def test_what_could_not_be_measured_is_not_compared() -> None:
    found = {
        "rush": {"messageMs": {"ratio": 1.5}},
        "crowd": {"cpuMs": {"ratio": 0.0}},
        "growth": {"turns": {"cpuMs": {"ratio": 1.1}}},
    }
    assert limits.ratios(found) == {"rush.messageMs": 1.5, "growth.turns.cpuMs": 1.1}
    assert limits.regressions({"rush.messageMs": 1.5}, {"crowd.cpuMs": 1.0}) == []


def test_what_is_stored_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STORED", tmp_path / "ratios.toml")
    limits.store({"crowd.cpuMs": 1.234, "rush.cpuMs": 2.0})
    assert limits.stored() == {"crowd.cpuMs": 1.23, "rush.cpuMs": 2.0}


def test_the_stored_ratios_are_those_that_are_compared() -> None:
    assert set(limits.stored()) <= set(limits.KEPT)
    assert limits.stored()
