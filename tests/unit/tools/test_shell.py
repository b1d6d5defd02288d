"""Commands run in a sandbox without secrets, within limits, and leave no process behind."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from bot.config.ship_file import ShellLimits
from bot.tools import isolation
from bot.tools.builtin import ToolPorts, run_shell
from bot.tools.isolation import ENVIRONMENT, Isolation
from bot.tools.permissions.protected_code import ProtectedCode

from .walls import CANARY, MARK, Desk, all_ended, isolated


@pytest.fixture
def bare(desk: Desk) -> Desk:
    """Return commands that run without a sandbox."""
    desk.isolation = Isolation(desk.root, required=False)
    return desk


@isolated
async def test_a_command_works_in_the_project(desk: Desk) -> None:
    assert await desk.said("cat seen.txt") == "seen"
    assert await desk.said("echo one > new.txt && cat new.txt; pwd") == f"one\n{desk.root}"
    assert (desk.root / "new.txt").read_text() == "one\n"
    assert await desk.said("echo to-err >&2") == "stderr:\nto-err"
    assert await desk.said("true") == "It ended well and printed nothing."


@isolated
async def test_it_knows_and_sees_nothing_of_ours(desk: Desk) -> None:
    known = await desk.said("env")
    assert CANARY not in known
    assert {line.partition("=")[0] for line in known.splitlines()} <= {*ENVIRONMENT, "PWD", "SHLVL", "_"}
    # Hidden files are empty for commands, in every folder.
    found = await desk.said(
        f"grep -r {CANARY} . /tmp /run /etc /proc/1/environ {desk.root.parent} 2>/dev/null; true"
    )
    assert CANARY not in found
    for path in (
        ".env",
        "ship.json",
        ".ship/shipmate.db",
        ".git/config",
        "sub/.env.local",
        "sub/deep/.Git/x",
    ):
        assert CANARY not in (await desk.call(f"cat {path}"))["content"]
    for look in (f"cat {desk.root.parent}/outside.txt", f"ls {Path.home()}"):
        told = await desk.failed(look)
        assert "No such file" in told or "Permission denied" in told
    assert len((await desk.said("ls /proc | grep -c '^[0-9]*$'; true")).splitlines()) <= 3


@isolated
async def test_it_can_write_nowhere_else(desk: Desk) -> None:
    outside = desk.root.parent / "made"
    for path in (outside, "/usr/made", "/etc/made", desk.root / ".ship/made", desk.root / ".git/hooks-made"):
        await desk.call(f"mkdir {path}")
        assert not Path(path).exists()
    assert (await desk.call("rm -rf .env ship.json .ship .git"))["is_error"]
    assert (desk.root / ".env").read_text() == CANARY
    assert (desk.root / ".ship/shipmate.db").read_text() == CANARY
    await desk.call("ln -s /etc/passwd link; echo x > /tmp/mine")
    assert not Path("/tmp/mine").exists()


@isolated
async def test_it_has_no_network(desk: Desk) -> None:
    listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    said = await desk.failed(f"exec 3<>/dev/tcp/127.0.0.1/{port}")
    assert "Connection refused" in said or "Network is unreachable" in said
    listening.close()
    await listening.wait_closed()


@isolated
async def test_it_reaches_no_socket_of_the_machine(desk: Desk) -> None:
    heard: list[object] = []
    # The sandbox hides /tmp, so another folder is used. Names of sockets must be short.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        path = Path(folder) / "bus"
        listening = await asyncio.start_unix_server(lambda *_: heard.append(1), path)
        for name in (str(path), f"/proc/{os.getpid()}/root{path}", f"/proc/self/root{path}"):
            call = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r}); print('there')"
            assert "there" not in (await desk.call(f'python3 -c "{call}"'))["content"]
        listening.close()
        await listening.wait_closed()
    assert heard == []


@isolated
async def test_what_a_command_makes_of_ours_is_set_aside(desk: Desk) -> None:
    (desk.root / ".env").unlink()
    said = await desk.said("echo KEY=1 > .env; echo {} > .ENV.prod")
    assert ".env may not be made by a command; it is refused-env-" in said
    assert not {".env", ".ENV.prod"} & {path.name for path in desk.root.iterdir()}
    assert [path.read_text() for path in desk.root.glob("refused-env-*")] == ["KEY=1\n"]


@isolated
async def test_a_simple_command_runs_without_a_shell_and_a_missing_one_is_told(desk: Desk) -> None:
    assert "not-there-at-all: not found" in await desk.failed("not-there-at-all x")
    assert "not-there-at-all: command not found" in await desk.failed("not-there-at-all | cat; exit 127")


@isolated
async def test_at_its_limit_all_of_it_is_killed(desk: Desk) -> None:
    said = ""
    for seconds in (2, 8, 32):  # a busy machine needs several seconds to start the command
        said = await desk.failed(
            f"(setsid sleep {MARK} &) ; echo begun; sleep {MARK}", timeoutMs=seconds * 1_000
        )
        assert f"took longer than {seconds} s and was stopped" in said
        await all_ended()
        if "begun" in said:
            break
    assert "begun" in said


async def test_without_bubblewrap_nothing_runs_and_the_tool_says_how_to_install_it(desk: Desk) -> None:
    desk.isolation = Isolation(desk.root, which=lambda _: None)
    assert await desk.failed("touch made") == isolation.MISSING
    assert "apt install bubblewrap" in isolation.MISSING
    assert "off" not in isolation.MISSING.lower().replace("offline", "").split()
    broken = desk.root.parent / "bwrap"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    desk.isolation = Isolation(desk.root, which=lambda _: str(broken))
    assert await desk.failed("touch made") == isolation.MISSING
    assert not (desk.root / "made").exists()


async def test_where_no_proc_may_be_mounted_it_goes_without(desk: Desk) -> None:
    partly = desk.root.parent / "bwrap"
    partly.write_text('#!/bin/sh\ncase "$*" in *--proc*) exit 1;; esac\necho "$@"\n')
    partly.chmod(0o755)
    desk.isolation = Isolation(desk.root, which=lambda _: str(partly))
    said = await desk.said("echo words")
    assert "--tmpfs /proc" in said
    assert said.endswith("sh echo words")


@isolated
async def test_our_own_code_is_not_for_commands_to_change(desk: Desk) -> None:
    """Hidden files in the folder of the code, or beside the folder, make no difference."""
    code = desk.root / "deep/er/.venv/lib"
    code.mkdir(parents=True)
    (code / "x.py").write_text("ours")
    (code / ".env").write_text("hidden")
    (code.parents[1] / ".env").write_text("hidden")
    (desk.root / "started").write_text("ours")
    desk.isolation.code = ProtectedCode(desk.root.resolve(), sealed=(code.parent, desk.root / "started"))
    for command in (  # noqa: SIM905 - a list would take a page
        "echo theirs > deep/er/.venv/lib/x.py¦touch deep/er/.venv/lib/sitecustomize.py¦"
        "echo theirs > started¦rm -f started¦rm -rf deep¦mv deep/er/.venv one¦mv deep/er two¦mv deep three"
    ).split("¦"):
        said = await desk.failed(command)
        assert re.search("Read-only file system|resource busy|not permitted|Permission denied", said), command
    assert await desk.said("cat deep/er/.venv/lib/x.py started") == "oursours"
    await desk.said("echo theirs > deep/er/other")


def test_network_is_given_only_where_it_is_granted(tmp_path: Path) -> None:
    assert "--share-net" not in isolation.arguments(tmp_path, ShellLimits(), network=False, parts=())
    assert "--share-net" in isolation.arguments(tmp_path, ShellLimits(), network=True, parts=())
    for network in (False, True):
        ports = cast("ToolPorts", SimpleNamespace(isolation=Isolation(tmp_path, network=network)))
        assert ("without network" in run_shell.run_shell(ports).description) is not network


LIMITED = {
    "memory": ("python3 -c 'x = bytearray(200_000_000)'", ShellLimits(memory_mb=64), "MemoryError"),
    "files": ("head -c 3000000 /dev/zero > big; stat -c %s big; exit 3", ShellLimits(file_mb=1), "1048576"),
    "time": ("while :; do :; done", ShellLimits(cpu_seconds=1), "exit code 137"),
}


@isolated
@pytest.mark.parametrize("what", LIMITED)
async def test_a_command_gets_so_much_of_the_machine(desk: Desk, what: str) -> None:
    command, limits, told = LIMITED[what]
    desk.isolation.limits = limits
    assert told in await desk.failed(command)


async def test_limits_hold_without_isolation_too(bare: Desk) -> None:
    bare.isolation.limits = ShellLimits(file_mb=1)
    assert "1048576" in await bare.failed(LIMITED["files"][0])
    bare.isolation.limits = ShellLimits(memory_mb=None, processes=None, file_mb=None, cpu_seconds=None)
    assert await bare.said("head -c 3000000 /dev/zero > big; stat -c %s big") == "3000000"


@isolated
async def test_it_can_do_nothing_to_what_stands_around_it(desk: Desk) -> None:
    said = await desk.call(
        "kill -9 1; kill -9 -1; mount -t tmpfs none /mnt; umount /tmp; unshare -r true; echo alive"
    )
    assert "alive" in said["content"] or said["is_error"]
    assert (desk.root / "seen.txt").read_text() == "seen\n"
    assert CANARY not in (await desk.call("umount .env; cat .env; mount"))["content"]


async def test_the_environment_is_clean_without_isolation_too(bare: Desk) -> None:
    known = await bare.said("env; pwd")
    assert CANARY not in known
    assert str(bare.root) in known


async def test_outputs_are_bounded_head_and_tail(bare: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "KEPT", 1_000)
    ended = await bare.isolation.run("echo begin; yes 0123456789 | head -c 3000000; echo end", 20)
    assert ended.stdout.startswith("begin\n0123")
    assert ended.stdout.endswith("end\n")
    assert len(ended.stdout) < 2_100
    assert "bytes left out" in ended.stdout
    assert "2998010" in ended.stdout


async def test_colours_and_other_escapes_are_left_out(bare: Desk) -> None:
    assert await bare.said(r"printf '\033[1;31mred\033[0m \033]0;title\007plain'") == "red plain"


async def test_nothing_is_read_and_nobody_waits_for_who_holds_the_pipes(
    bare: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "LAST_WORDS", 0.05)
    assert await bare.said("cat; echo over") == "over"
    assert await bare.said("setsid sh -c 'exec sleep 0.3' & echo gone") == "gone"


async def test_a_turn_that_is_stopped_stops_its_command(bare: Desk) -> None:
    os.mkfifo(bare.root / "begun")
    task = asyncio.create_task(bare.isolation.run(f"echo $$ > begun; exec sleep {MARK}", 60))
    pid = int(await asyncio.to_thread((bare.root / "begun").read_text))
    for _ in range(10):
        task.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    await all_ended()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)  # a zombie would still be there


async def test_a_turn_that_is_stopped_while_its_command_starts_ends(bare: Desk) -> None:
    for steps in range(8):
        start = isolation.run_process(["/bin/sh", "-c", f"sleep {MARK} & wait"], bare.root, 60)
        task = asyncio.create_task(start)
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled(), steps
    await all_ended()


@pytest.mark.parametrize("command", ["", "a\0b", "x" * 20_001])
async def test_what_is_no_command_is_refused(bare: Desk, command: str) -> None:
    assert "does not fit the tool" in await bare.failed(command)
