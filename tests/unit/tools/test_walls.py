"""Commands cannot change the machine, escape their limits or see hidden files."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import tempfile
from pathlib import Path

import pytest

from bot import config, file_access
from bot.config.ship_file import ShellLimits
from bot.system import SystemDisk
from bot.tools import isolation
from bot.tools.file_guard import Command, FileGuard
from bot.tools.isolation import CROWDED, find
from bot.tools.permissions.protected_code import RunningCode, protected_code

from .walls import CANARY, MARK, Desk, all_ended, isolated

MB = 1024 * 1024


async def _begun(root: Path) -> None:
    """Wait until a command has written into the pipe `begun`."""
    await asyncio.to_thread((root / "begun").read_text)


def _pipes(root: Path) -> None:
    for name in ("begun", "go"):
        os.mkfifo(root / name)


def _names(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


async def test_the_wall_is_no_program_of_the_project(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the project's folder is a home folder, PATH may contain a folder of the project."""
    program = desk.root / "bin" / "bwrap"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho ran >> \'{desk.root}/planted\'\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    await desk.call("true")
    assert not (desk.root / "planted").exists()


@isolated
@pytest.mark.parametrize("place", ["/tmp", "/dev/shm"])
async def test_what_is_in_memory_is_bounded(desk: Desk, place: str) -> None:
    desk.isolation.limits = ShellLimits(tmp_mb=16)
    said = await desk.failed(f"head -c 10G /dev/zero > {place}/big; echo $?; stat -c %s {place}/big; exit 3")
    assert "No space left on device" in said
    assert int(said.split("```")[1].split()[1]) <= 16 * MB


@isolated
async def test_nothing_else_can_be_written(desk: Desk) -> None:
    places = "/ /run /dev /proc /etc /usr /var /home /var/tmp"
    said = await desk.call(
        f"for place in {places}; do echo x > $place/made-by-a-command && echo written; done"
    )
    assert "written" not in said["content"]


@isolated
async def test_a_command_that_fills_the_disk_is_stopped(desk: Desk) -> None:
    desk.isolation.limits = ShellLimits(disk_mb=100, file_mb=64)
    said = await desk.failed("for n in $(seq 160); do head -c 60M /dev/zero > big$n; done; echo all")
    assert "it had written more than 100 MB" in said
    assert "all" not in said.split("stdout")[-1].splitlines()
    assert sum(path.stat().st_blocks * 512 for path in desk.root.glob("big*")) < 3_000 * MB


@isolated
async def test_a_command_that_fills_the_disk_with_empty_files_ends(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.tools.isolation.FILES", 2_000)
    assert "it had made more than 2,000 files" in await desk.failed(f"seq 20000 | xargs touch; sleep {MARK}")
    await all_ended()


@isolated
async def test_a_bomb_of_processes_is_put_out_for_root_too(desk: Desk) -> None:
    desk.isolation.limits = ShellLimits(processes=40)
    # The bomb has only seven generations, because other tests need processes too.
    bomb = (
        f"b() {{ if [ $1 -gt 7 ]; then sleep {MARK}; else b $(($1 + 1)) | b $(($1 + 1)) & wait; fi; }}; b 1"
    )
    said = await desk.failed(bomb, timeoutMs=60_000)
    assert "more than 40 processes" in said or "Resource temporarily unavailable" in said
    await all_ended()


@isolated
async def test_a_command_ends_if_its_limits_cannot_be_checked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_: int) -> int:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr("bot.tools.isolation._threads", lost)
    assert "ESTALE" in await desk.failed(f"sleep {MARK}")
    await all_ended()


@isolated
@pytest.mark.skipif(isolation.syscall_filter() is None, reason="no filter is written for this machine")
async def test_calls_that_no_command_needs_are_closed(desk: Desk) -> None:
    _, column = isolation.MACHINES[os.uname().machine]
    forbidden, unknown = (
        [columns[column] for columns in isolation.CALLS[kind].values() if columns[column] >= 0]
        for kind in ("forbidden", "unknown")
    )
    lines = "".join(
        f"for n in {group}:\n"
        "  ctypes.set_errno(0); libc.syscall(n, 0, 0, 0, 0, 0); print(n, os.strerror(ctypes.get_errno()))\n"
        for group in (forbidden, unknown)
    )
    said = await desk.said(
        f"python3 - <<'X'\nimport ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n{lines}X"
    )
    told = dict(line.split(" ", 1) for line in said.splitlines())
    for group, words in ((forbidden, "Operation not permitted"), (unknown, "Function not implemented")):
        for number in group:
            assert told[str(number)] == words
    assert len(told) > 30


@isolated
@pytest.mark.skipif(isolation.syscall_filter() is None, reason="no filter is written for this machine")
async def test_no_terminal_is_typed_into_and_no_space_is_made(desk: Desk) -> None:
    call = "import fcntl; fcntl.ioctl(0, {}, b'x')"
    for number in (0x5412, 0x5412 | 1 << 32, 0x541C):
        line = f"import ctypes; print(ctypes.CDLL(None).ioctl(0, ctypes.c_ulong({number}), b'x'))"
        assert await desk.said(f'python3 -c "{line}"') == "-1"
    assert "Operation not permitted" in await desk.failed(f'python3 -c "{call.format(0x5412)}"')
    assert "Operation not permitted" in await desk.failed("unshare -Ur true")
    assert "Operation not permitted" in await desk.failed("unshare -n true")


@isolated
@pytest.mark.skipif(isolation.syscall_filter() is None, reason="no filter is written for this machine")
async def test_no_file_runs_as_somebody_else(desk: Desk) -> None:
    await desk.call(
        "cp /bin/true tool; chmod u+s tool; chmod 6755 tool; chmod g+s tool; install -m 4755 /bin/true two"
    )
    lines = "import os; os.open('three', os.O_CREAT | os.O_WRONLY, 0o6755)"
    await desk.call(f'python3 -c "{lines}"')
    await desk.call("python3 -c \"import os; os.mknod('four', 0o104755)\"")
    assert (desk.root / "tool").exists()
    assert [
        path.name for path in desk.root.rglob("*") if path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    ] == []


def test_a_machine_that_is_not_known_has_no_filter() -> None:
    assert isolation.syscall_filter("riscv64") is None
    for name, (_, column) in isolation.MACHINES.items():
        numbers = [
            one[column] for table in isolation.CALLS.values() for one in table.values() if one[column] >= 0
        ]
        assert len(set(numbers)) == len(numbers)
        assert len(isolation.syscall_filter(name) or b"") % 8 == 0


@isolated
async def test_nothing_of_the_machine_can_be_set_or_changed(desk: Desk) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        (ours := Path(folder) / "ours").write_text("x")
        before = {
            path: Path(path).stat().st_mode for path in ("/etc/passwd", "/usr/bin/env", "/usr", str(ours))
        }
        for path in (
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/pid_max",
            "/proc/sys/vm/overcommit_memory",
        ):
            # The same value is written again, so that a hole in the sandbox does not break the machine.
            said = await desk.call(
                f"v=$(cat {path} 2>/dev/null || echo {Path(path).read_text().strip()}); echo $v > {path} && echo written"
            )
            assert "written" not in said["content"], path
        changes = [
            f"{change} && echo changed"
            for path, mode in before.items()
            for change in (
                f"chmod {mode & 0o777:o} {path}",
                f"chown $(id -u) {path}",
                f"[ -e {path} ] && touch {path}",
            )
        ]
        assert "changed" not in (await desk.call("; ".join(changes)))["content"]
        assert before == {path: Path(path).stat().st_mode for path in before}


@isolated
async def test_it_inherits_nothing_but_its_outputs(desk: Desk) -> None:
    with (desk.root.parent / "outside.txt").open() as held:
        os.set_inheritable(held.fileno(), True)
        lines = "import os\nfor n in range(3, 300):\n try: print(n, os.fstat(n))\n except OSError: pass"
        said = await desk.said(f"python3 - <<'X'\n{lines}\nX")
    assert said == "It ended well and printed nothing."


@isolated
async def test_with_thousands_of_hidden_names_no_command_runs(desk: Desk) -> None:
    """Bubblewrap accepts at most 9,000 arguments, so these names do not fit."""
    for number in range(5_000):
        (desk.root / f".env_{number}").write_text(CANARY)
    assert await desk.failed("cat .env_* seen.txt; echo new > new.txt") == CROWDED
    assert not (desk.root / "new.txt").exists()
    (desk.root / "many").mkdir()
    for number in range(5_000):
        (desk.root / f".env_{number}").rename(desk.root / f"many/.env_{number}")
    assert await desk.failed("cat many/.env_*") == CROWDED


@isolated
async def test_what_holds_hidden_names_stays_where_it_is(desk: Desk) -> None:
    said = await desk.call(
        "mv sub moved; mv sub/deep deep; mv sub/deep/.Git x; mv .env x; ln .env x; ln sub/.env.local x; rm -rf sub;"
        "ln -s sub/.env.local y; cat y x */.env* */.Git/x"
    )
    assert CANARY not in said["content"]
    assert "moved" not in _names(desk.root)
    assert (desk.root / "sub/.env.local").read_text() == CANARY
    assert (desk.root / "sub/deep/.Git/x").read_text() == CANARY


@isolated
async def test_a_command_cannot_move_what_another_one_is_about_to_cover(desk: Desk) -> None:
    """One command moves folders all the time while other commands start."""
    _pipes(desk.root)
    moving = "while :; do mv sub sub2; mv sub2 sub; mv sub/deep d; mv d sub/deep; done 2>/dev/null"
    mover = asyncio.create_task(desk.isolation.run(f"echo > begun; {moving}", 60))
    await _begun(desk.root)
    for _ in range(6):
        assert (
            CANARY
            not in (await desk.call(f"grep -rs {CANARY} .; cat sub*/.env* sub*/deep/.Git/x"))["content"]
        )
    mover.cancel()
    with pytest.raises(asyncio.CancelledError):
        await mover
    assert (desk.root / "sub/.env.local").read_text() == CANARY


@isolated
async def test_side_by_side_none_makes_what_is_ours(desk: Desk) -> None:
    (desk.root / ".env").unlink()
    _pipes(desk.root)
    first = asyncio.create_task(desk.isolation.run("echo PLANTED=1 > .env; echo > begun; cat go", 60))
    await _begun(desk.root)
    second = await desk.isolation.run("cat .env; echo TOO=1 > .env; echo {} > .git; echo > go", 60)
    await first
    assert "PLANTED" not in second.stdout
    assert not {".env"} & _names(desk.root)
    assert (desk.root / ".git").is_dir()
    assert await desk.said("cat seen.txt") == "seen"
    assert {name.split("-")[1] for name in _names(desk.root) if name.startswith("refused-")} == {"env"}


@isolated
async def test_other_names_of_a_hidden_file_are_covered(desk: Desk) -> None:
    (desk.root / "deep/er").mkdir(parents=True)
    os.link(desk.root / ".env", desk.root / "deep/er/innocent.txt")
    os.link(desk.root / "sub/.env.local", desk.root / "notes.txt")
    for path in ("deep/er/innocent.txt", "notes.txt"):
        assert CANARY not in (await desk.call(f"cat {path}"))["content"]


def test_a_hidden_link_that_cannot_be_followed_prevents_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a command could create such a link, and the next command would see the other hidden files of the folder."""
    (tmp_path / "api").mkdir()
    (tmp_path / "api" / ".env").symlink_to("/closed/file")

    def closed(path: Path) -> bool:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "exists", closed)
    with pytest.raises(PermissionError):
        find(tmp_path, ())


@isolated
async def test_what_is_left_behind_makes_nothing_of_ours(desk: Desk) -> None:
    (desk.root / ".env").unlink()
    for late in ("0.001", "0.003", "0.006", "0.01"):
        await desk.call(f"(while :; do sleep {late}; echo x > .env; done) & sleep 0.02")
        assert ".env" not in _names(desk.root)


@isolated
async def test_a_link_that_is_ours_stays_as_it_is(desk: Desk) -> None:
    (desk.root / "config").mkdir()
    (desk.root / "config/production").write_text(CANARY)
    (desk.root / ".env").unlink()
    (desk.root / ".env").symlink_to("config/production")
    said = await desk.call(
        "cat .env config/production; echo PLANTED > config/production; echo PLANTED > .env;"
        "mv config other; rm -f .env; echo PLANTED=1 > .env"
    )
    assert CANARY not in said["content"]
    assert (desk.root / ".env").is_symlink()
    assert (desk.root / ".env").read_text() == CANARY
    await desk.call("rm -f .env")
    assert (desk.root / ".env").read_text() == CANARY


@isolated
@pytest.mark.skipif(isolation.syscall_filter() is None, reason="no filter is written for this machine")
async def test_space_is_written_and_not_set_aside(desk: Desk) -> None:
    lines = "import os; os.posix_fallocate(os.open('new', os.O_CREAT | os.O_RDWR), 0, 300000); print(os.stat('new').st_size)"
    assert await desk.said(f'python3 -c "{lines}"') == "300000"
    await desk.failed("fallocate -n -l 100M new")
    assert (desk.root / "new").stat().st_blocks * 512 < MB


TWINS = (  # noqa: SIM905 - a list would take a page
    ".ENV ſhip.json .e\u200bnv .g\u200cit \ufeff.ship .ｅnv .env\u0301 .en\u1e7d .ＧＩＴ"
).split()


@pytest.mark.parametrize("name", TWINS)
def test_twins_of_hidden_names_are_hidden(name: str) -> None:
    assert file_access.is_hidden(name)


@pytest.mark.parametrize(
    "name", ["env", "ship.jsonl", ".github", ".gitignore", "été", "環境.env", "ship.json.md"]
)
def test_other_names_are_not(name: str) -> None:
    assert not file_access.is_hidden(name)


def test_what_a_killed_command_made_is_set_aside_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / ".ship").mkdir()
    (tmp_path / "ship.json").write_text('{"name": "ours"}')
    guard = FileGuard(tmp_path, tmp_path / ".ship/origins.json", SystemDisk())
    guard.begin(command := Command())
    (tmp_path / ".env").write_text("ANTHROPIC_API_KEY=planted-by-a-command\n")
    (tmp_path / ".Git").mkdir()
    found = config.load(tmp_path, {}, {})
    assert found.llm.provider == "demo"
    assert found.name == "ours"
    assert any(".env was made by a command; it is refused-env-" in line for line in found.warnings)
    assert _names(tmp_path) & {".env", ".Git"} == set()
    guard.end(command)
    (tmp_path / ".env").touch(0o600)
    assert config.load(tmp_path, {}, {}).warnings == ()
    assert (tmp_path / ".env").exists()


@pytest.mark.parametrize("words", ["", "{", '{"known": 3}'])
def test_a_note_that_is_none_sweeps_nothing(tmp_path: Path, words: str) -> None:
    (tmp_path / ".ship").mkdir()
    (tmp_path / ".ship/commands.json").write_text(words, encoding="latin-1")
    (tmp_path / ".env").touch()
    assert file_access.sweep(tmp_path) == {}


@isolated
async def test_a_command_does_not_write_into_instructions_by_another_name(desk: Desk) -> None:
    """A person made the hard link. Commands cannot make one."""
    (desk.root / "rules.md").write_text("rules\n")
    (desk.root / "Agent.md").write_text("@include rules.md\n")
    (desk.root / "copies").mkdir()
    for name in ("Agent.md", "rules.md"):
        os.link(desk.root / name, desk.root / "copies" / f"{name}.txt")
    await desk.call(
        "echo x >> copies/rules.md.txt; echo x >> copies/Agent.md.txt; truncate -s 0 copies/rules.md.txt;"
        "ln rules.md one; ln copies/rules.md.txt two; echo x >> one; echo x >> two; mv copies away; echo x >> away/rules.md.txt"
    )
    assert (desk.root / "rules.md").read_text() == "rules\n"
    assert (desk.root / "Agent.md").read_text() == "@include rules.md\n"
    assert await desk.said("echo x > copies/free.md; cat copies/rules.md.txt") == "rules"


@isolated
@pytest.mark.parametrize("many", [False, True], ids=["some", "many"])
async def test_a_command_does_not_write_into_what_runs_by_another_name(desk: Desk, *, many: bool) -> None:
    """Installers may hard-link files of the project's environment to Shipmate's files."""
    ours, theirs = desk.root.parent / "ours", desk.root / "env" / "site-packages"
    (ours / "bin").mkdir(parents=True)
    theirs.mkdir(parents=True)
    for number in range(150 if many else 3):
        (ours / f"m{number}.py").write_text("pass\n")
        os.link(ours / f"m{number}.py", theirs / f"m{number}.py")
    desk.isolation.code = protected_code(desk.root, RunningCode((ours, ours / "bin")))
    said = await desk.call(
        "for f in env/site-packages/*; do echo x >> $f; done; mv env other; echo x >> other/site-packages/m1.py; echo y > seen.txt"
    )
    assert {path.read_text() for path in ours.glob("*.py")} == {"pass\n"}
    assert (desk.root / "seen.txt").read_text() == "y\n"
    assert "Read-only file system" in said["content"]
