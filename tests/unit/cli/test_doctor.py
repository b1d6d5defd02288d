from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from bot.cli import doctor
from bot.contracts.identity import UserRef
from bot.core.access import ACCESS_FILE, AccessList
from bot.system import SystemClock, SystemDisk

from .conftest import Shipmate


def test_who_became_an_operator_by_a_code_is_one_to_doctor_and_check(
    shipmate: Shipmate, project: Path
) -> None:
    (project / "ship.json").write_text('{"operators": ["slack:U0ANN"]}')
    lists = AccessList(project / ".ship" / ACCESS_FILE, SystemDisk(), SystemClock())
    lists.appoint(UserRef("telegram", "1001"))
    checked = shipmate("check", "--dir", project)
    assert "  operators slack:U0ANN, telegram:1001\n" in checked.out
    assert shipmate("check", "--json", "--dir", project).lines[0]["operators"] == [
        "slack:U0ANN",
        "telegram:1001",
    ]
    (project / "ship.json").write_text('{"dashboard": {"port": 0}, "channels": {"web": {"port": 0}}}')
    assert "operators: nobody" not in shipmate("doctor", "--dir", project).out
    (project / ".ship" / ACCESS_FILE).write_text("{")
    done = shipmate("doctor", "--dir", project)
    assert (done.code, "wrong  access list: .ship/access.json: found" in done.out) == (78, True)


@pytest.mark.parametrize(
    ("ahead", "verdict", "words"),
    [
        (0.4, "ok", "within 30 s"),
        (-29.0, "ok", "within 30 s"),
        (3_600.0, "wrong", "3,600 s ahead of the platforms'"),
        (-90.0, "wrong", "90 s behind the platforms'"),
    ],
)
def test_a_clock_that_differs_from_the_platforms_is_wrong(ahead: float, verdict: str, words: str) -> None:
    found = doctor.compared(ahead)
    assert found.verdict == verdict
    assert words in found.found
    assert bool(found.remedy) == (verdict == "wrong")


@pytest.mark.parametrize(("share", "verdict"), [(0.5, "ok"), (0.09, "warn"), (0.01, "later")])
def test_a_disk_with_little_room_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, verdict: str
) -> None:
    free = int(share * 2**40)
    said = SimpleNamespace(f_frsize=1, f_bfree=free, f_bavail=free, f_blocks=2**40)
    monkeypatch.setattr("bot.resources.os.statvfs", lambda _: said)
    assert doctor.disk(tmp_path).verdict == verdict


def test_files_that_others_can_reach_are_named_with_the_command_that_mends_them(project: Path) -> None:
    (project / ".env").write_text("A=1")
    (project / ".env").chmod(0o640)
    (project / "ship.json").chmod(0o666)
    assert [one.remedy for one in doctor.permissions(project)] == [
        "run `chmod 600 .env`",
        "run `chmod go-w ship.json`",
    ]
    (project / ".env").chmod(0o600)
    (project / "ship.json").chmod(0o644)
    assert [one.verdict for one in doctor.permissions(project)] == ["ok"]
