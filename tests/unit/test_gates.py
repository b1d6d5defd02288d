from __future__ import annotations

from pathlib import Path

import pytest

from tests import gates

BREACHES = {
    "bot/d.py": ("try:\n    pass\nexcept Exception:\n    pass\n", "catches every exception"),
    "bot/e.py": (
        "try:\n    pass\nexcept (ValueError, BaseException):\n    pass\n",
        "catches every exception",
    ),
    "bot/f.py": ("try:\n    pass\nexcept:\n    pass\n", "catches every exception"),
    "docs/g.md": ("# TO" + "DO\n", "unfinished work"),
    "docs/h.md": ("pip install -i https://py" + "pi.org/simple x\n", "package registry"),
    "deploy/i.txt": ("cd /ro" + "ot/shipmate\n", "path of one machine"),
    "bot/j.py": ("raise NotImplemented" + "Error\n", "unfinished code"),
}
FINE = {
    "bot/schedule.py": "try:\n    pass\nexcept Exception:\n    pass\n",
    "bot/k.py": "try:\n    pass\nexcept ValueError:\n    pass\n",
    "tests/l.py": "try:\n    pass\nexcept Exception:\n    pass\n",
    "docs/m.md": "See https://example.org/root/x and ./work/y and other lists.\n",
}


def write(root: Path, name: str, content: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


@pytest.mark.parametrize("name", BREACHES)
def test_each_breach_is_found(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, words = BREACHES[name]
    write(tmp_path, name, content)
    (finding,) = gates.examine(tmp_path)
    assert finding.startswith(f"{name}:")
    assert words in finding
    assert gates.main(tmp_path) == 1
    assert finding in capsys.readouterr().out


def test_what_keeps_the_rules_passes(tmp_path: Path) -> None:
    for name, content in FINE.items():
        write(tmp_path, name, content)
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff")
    assert list(gates.examine(tmp_path)) == []
    assert gates.main(tmp_path) == 0


def test_a_second_broad_catch_in_a_named_place_is_one_too_many(tmp_path: Path) -> None:
    write(tmp_path, "bot/schedule.py", FINE["bot/schedule.py"] * 2)
    assert len(list(gates.examine(tmp_path))) == 1
