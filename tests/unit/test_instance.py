"""Only one process may use a `.ship` folder or a token, and only its user may read them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bot import errors, instance

TOKEN = "123456:a-token-that-nobody-may-see-密码"
TOKENS = {"channels.telegram.botToken": (TOKEN, "https://api.telegram.org")}
HOLDS = """
import sys
from pathlib import Path
from bot import instance
home, runtime = Path(sys.argv[1]), Path(sys.argv[2])
instance.prepare_home(home)
tokens = {"channels.telegram.botToken": (sys.argv[3], "https://api.telegram.org")}
with instance.held(home), instance.tokens_held(tokens, home.parent, runtime):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "first" / ".ship"
    folder.mkdir(parents=True)
    return folder


@contextmanager
def holder(home: Path, runtime: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that locks the folder and the token until its stdin ends."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(home), str(runtime), TOKEN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


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


def test_a_note_of_a_process_that_is_gone_names_nobody(home: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    instance.prepare_home(home)
    with instance.held(home):
        for note in (f"{gone.pid}\n", "", "no number", "9" * 40):
            (home / "pid").write_text(note)
            with pytest.raises(errors.Unavailable, match="held by another process;"), instance.held(home):
                pass


def test_asking_whether_a_folder_is_held_leaves_the_note_alone(home: Path) -> None:
    instance.prepare_home(home)
    with instance.held(home):
        pass
    (home / "pid").write_text("42\n")
    assert not instance.is_held(home)
    assert (home / "pid").read_text() == "42\n"


def test_tokens_are_locked_apart_and_one_token_at_two_services_is_two(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    others = {
        "channels.telegram.botToken": ("another", "https://api.telegram.org"),
        "channels.slack.botToken": (TOKEN, "https://slack.com/api/"),
    }
    with instance.tokens_held(TOKENS, tmp_path, runtime), instance.tokens_held(others, tmp_path, runtime):
        names = sorted(path.name for path in runtime.iterdir())
    assert len(names) == 3
    assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in runtime.iterdir())
    written = "".join([*names, *(path.read_text() for path in runtime.iterdir())])
    assert TOKEN not in written
    assert "another" not in written


def test_a_folder_that_others_prepared_is_not_trusted(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    (link := tmp_path / "link").symlink_to(real)
    (shared := tmp_path / "shared").mkdir()
    shared.chmod(0o777)
    (file := tmp_path / "file").write_text("")
    for place in (link, shared, file, tmp_path / "no" / "such"):
        with pytest.raises(errors.ConfigError), instance.tokens_held(TOKENS, tmp_path, place):
            pass
    assert list(real.iterdir()) == []


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    with instance.tokens_held(TOKENS, tmp_path, runtime):
        (lock,) = runtime.iterdir()
    lock.unlink()
    victim = tmp_path / "victim"
    victim.write_text("precious")
    lock.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"), instance.tokens_held(TOKENS, tmp_path, runtime):
        pass
    assert victim.read_text() == "precious"


def test_the_locks_are_in_the_runtime_folder_of_the_user_or_in_a_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with instance.tokens_held(TOKENS, tmp_path):
        assert len(list((tmp_path / "shipmate").iterdir())) == 1
    monkeypatch.setenv("XDG_RUNTIME_DIR", "")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    with instance.tokens_held(TOKENS, tmp_path):
        assert len(list((tmp_path / "temporary" / f"shipmate-{os.getuid()}").iterdir())) == 1


def test_a_token_in_use_by_a_service_is_seen_although_its_tmp_is_private(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(instance, "SERVICE", folder)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with (
        holder(home, folder),
        pytest.raises(errors.Unavailable, match="this token is used by process"),
        instance.tokens_held(TOKENS, tmp_path / "second"),
    ):
        pass
    with instance.tokens_held(TOKENS, tmp_path / "second"):
        assert list(folder.glob("*.lock"))


def test_a_folder_that_cannot_be_made_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(errors.ConfigError, match=r"found no folder that can be made .*--dir"):
        instance.prepare_home(tmp_path / "file" / ".ship")
