"""Tests the wheel as a new user installs it: alone, without extras, in an empty environment of each Python
version. `python -m tests.wheel`.

For each version, the script runs init, check, run, the console page, an answer in the terminal, SIGTERM, and
a separate chat. The README's commands that need no clone, `uvx --from` and `pipx run --spec`, start the demo
from the wheel.
"""

from __future__ import annotations

import hashlib
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

CODE = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PINS = CODE / "requirements" / "runtime.txt"
ENV = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
SECONDS = 180.0


class Failed(Exception):
    """A command did not do what it should."""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="wheel-") as scratch:
        wheel = build(Path(scratch))
        found = {version: python for version in PYTHONS if (python := python_of(version)) is not None}
        if missing := [version for version in PYTHONS if version not in found]:
            print(f"wheel: not on this machine, so not tried: Python {', '.join(missing)}")
        with ThreadPoolExecutor(2) as side_by_side:
            tries = [
                side_by_side.submit(attempt, version, python, wheel, Path(scratch))
                for version, python in found.items()
            ]
            wrong = [line for one in tries if (line := one.result()) is not None]
        wrong += [line for line in without_clone(wheel, Path(scratch)) if line is not None]
    for line in wrong:
        print(line)
    return bool(wrong or not found)


def python_of(version: str) -> str | None:
    """Return the path of a Python of this version, from the PATH or from pyenv; None if there is none."""
    folders = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin"))
    candidates = [sys.executable, *(str(folder / "python") for folder in folders)]
    candidates += [one] if (one := shutil.which(f"python{version}")) else []
    asks = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
    for python in candidates:
        done = subprocess.run([python, "-I", "-c", asks], capture_output=True, text=True, check=False)
        if done.returncode == 0 and done.stdout.strip() == version:
            return python
    return None


def build(folder: Path) -> Path:
    """Build the wheel with the pinned build backend; return its path."""
    words = [sys.executable, "-P", "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*words, "--wheel-dir", str(folder), str(CODE)], check=True, timeout=SECONDS)
    return next(folder.glob("shipmate-*.whl"))


def attempt(version: str, python: str, wheel: Path, scratch: Path) -> str | None:
    """Install the wheel and use it; return what went wrong, or None."""
    try:
        env = scratch / f"env-{version}"
        install(python, env, wheel)
        shipmate = env / "bin" / "shipmate"
        use(shipmate, scratch / f"project-{version}")
    except (Failed, subprocess.TimeoutExpired, OSError) as error:
        return f"wheel: Python {version}: {error}"
    print(f"wheel: Python {version}: installed, set up, run and talked to")
    return None


def without_clone(wheel: Path, scratch: Path) -> Iterator[str | None]:
    """Run the README's commands in a terminal; yield for each runner what went wrong."""
    python = ["--python", sys.executable]
    runners = {
        "uvx": ["uvx", *python, "--from", str(wheel), "shipmate"],
        "pipx": ["pipx", "run", *python, "--spec", str(wheel), "shipmate"],
    }
    for name, words in runners.items():
        try:
            first_look(
                [str(Path(sys.executable).with_name(words[0])), *words[1:], "run", "--defaults"],
                scratch / name,
            )
        except (Failed, OSError) as error:
            yield f"wheel: {name}: {error}"
        else:
            print(f"wheel: {name}: a demo that runs, and ends with Ctrl-C")


def first_look(words: Sequence[str], home: Path) -> None:
    """Start the demo in a terminal, wait until it is ready, and press Ctrl-C."""
    home.mkdir()
    hidden = ("TOKEN", "KEY", "VIRTUAL_ENV", "PYTHON")
    env = {name: value for name, value in os.environ.items() if not any(one in name for one in hidden)}
    env |= {
        "PIPX_HOME": str(home.with_name("pipx-home")),
        "UV_CACHE_DIR": str(home.with_name("uv-cache")),
    }
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(home)
        os.execvpe(words[0], list(words), env)
    said, ends = b"", time.monotonic() + SECONDS
    while b"\nready " not in said and time.monotonic() < ends:
        if select.select([terminal], [], [], 1.0)[0]:
            try:
                said += os.read(terminal, 4096)
            except OSError:
                break  # the process has ended
    os.write(terminal, b"\x03") if b"\nready " in said else os.kill(pid, signal.SIGKILL)
    said += _rest(terminal)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    if os.waitstatus_to_exitcode(status) or b"the built-in demo model is answering" not in said:
        raise Failed(
            f"ended with {os.waitstatus_to_exitcode(status)}: {said[-800:].decode(errors='replace')}"
        )


def _rest(terminal: int) -> bytes:
    """Return all remaining output of a terminal, until every process has closed the terminal."""
    said = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            return said
        if not piece:
            return said
        said += piece


def install(python: str, env: Path, wheel: Path) -> None:
    """Install the wheel and its dependencies, and nothing else. Each package is checked by its hash."""
    run([python, "-I", "-m", "venv", "--without-pip", str(env)])
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    wanted = env / "wanted.txt"
    wanted.write_text(f"{wheel.as_uri()} --hash=sha256:{digest}\n", encoding="utf-8")
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet"]
    uv += ["--python", str(env / "bin" / "python"), "--cache-dir", str(env.with_name("uv-cache"))]
    run([*uv, "--require-hashes", "--only-binary", ":all:", "-r", str(wanted), "-c", str(PINS)], os.environ)


def use(shipmate: Path, project: Path) -> None:
    run([str(shipmate), "version"])
    run([str(shipmate), "init", "--yes", str(project)])
    config = json.loads((project / "ship.json").read_text(encoding="utf-8"))
    config["channels"] |= {"web": {"port": 0}, "console": {"enabled": True}}
    config["dashboard"] = {"port": 0}
    (project / "ship.json").write_text(json.dumps(config), encoding="utf-8")
    run([str(shipmate), "check", "--dir", str(project)])
    with started(shipmate, project) as ready:
        look(ready.split()[-1])
        talk(shipmate, project)
    talk(shipmate, project)


class started:  # noqa: N801 - used as a function is
    """Runs `shipmate run` during a `with` block. After the block, SIGTERM must end the process with exit code 0."""

    def __init__(self, shipmate: Path, project: Path) -> None:
        self._words = [str(shipmate), "run", "--dir", str(project)]

    def __enter__(self) -> str:
        """Start the process; return its "ready" line."""
        self._process = subprocess.Popen(
            self._words, env=ENV, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        for line in self._lines():
            if line.startswith("ready "):
                return line
        raise Failed(f"run ended with {self._process.wait(SECONDS)} before it was ready")

    def _lines(self) -> Iterator[str]:
        assert self._process.stdout is not None
        return iter(self._process.stdout.readline, "")

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=SECONDS)
        if self._process.returncode:
            raise Failed(f"run ended with {self._process.returncode} after SIGTERM")


def look(address: str) -> None:
    """Open the console page. The page's files are part of the wheel."""
    for path, shown in (("/", "Healthy"), ("/style.css", "color-scheme")):
        with urlopen(address + path, timeout=SECONDS) as answer:
            if shown not in answer.read().decode():
                raise Failed(f"the console shows no {shown!r} at {path}")


def talk(shipmate: Path, project: Path) -> None:
    """Send a message in the terminal and check that the demo model answers."""
    out = run([str(shipmate), "chat", "--dir", str(project)], said="hello 你好\n")
    if "demo" not in out.lower():
        raise Failed(f"chat answered {out[-500:]!r}")


def run(words: Sequence[str], env: Mapping[str, str] = ENV, said: str = "") -> str:
    """Run a command; return its output. Raises `Failed` if the command fails."""
    done = subprocess.run(
        words, env=env, input=said, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode:
        raise Failed(
            f"{' '.join(words[:4])} ended with {done.returncode}: {(done.stderr or done.stdout)[-800:]}"
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
