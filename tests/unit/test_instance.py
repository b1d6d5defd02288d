"""One process on one `.ship`, and nobody else's eyes on it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from bot import instance


def test_the_folder_and_its_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    home = tmp_path / ".ship"
    before = os.umask(0)
    try:
        instance.prepare_home(home)
        with instance.held(home):
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    finally:
        os.umask(before)
    assert modes == {".gitignore": 0o600, "lock": 0o600, "pid": 0o600}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
