"""Runs the steps of `deploy/Dockerfile`, and the resulting container, on machines without Docker: `python -m
tests.image`.

Each stage runs in bubblewrap with a root of its own. The root contains the machine's system folders, a
Python, and the commands, files, environment and user that the Dockerfile names.

System packages are not installed; the script only checks that they are installed. The container has a
read-only root, no capabilities, a network of its own, `/project` and `/tmp`.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.wheel import CODE, Failed, python_of

DOCKERFILE = CODE / "deploy" / "Dockerfile"
SECONDS = 600.0
Instruction = tuple[str, str]


def main() -> int:
    if shutil.which("bwrap") is None:
        print("image: bubblewrap is not on this machine, so nothing was tried")
        return 1
    build, final = stages(DOCKERFILE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        scratch = Path(folder)
        for name in ("opt", "src", "project"):
            (scratch / name).mkdir()
        try:
            make(build, scratch)
            run(final, scratch)
        except (Failed, OSError, subprocess.TimeoutExpired) as error:
            print(f"image: {error}")
            return 1
    return 0


def stages(text: str) -> list[list[Instruction]]:
    """Return the instructions of each stage; continued lines are joined."""
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[list[Instruction]] = []
    for line in filter(str.strip, joined.split("\n")):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest.strip()))
    return found


def make(stage: Sequence[Instruction], scratch: Path) -> None:
    """Run the instructions of the build stage as root of a separate user namespace."""
    path = ""
    for word, rest in stage:
        if word == "ENV":
            path = rest.removeprefix("PATH=").removesuffix(":$PATH")
        elif word == "COPY":
            *sources, target = rest.split()
            copy(sources, scratch / target.strip("/"))
        elif word == "RUN":
            told = walled(
                stage,
                scratch,
                ["/bin/sh", "-ec", rest],
                path=path,
                rights=["--bind", f"{scratch}/opt", "/opt"],
            )
            if told.returncode:
                raise Failed(f"RUN {rest[:60]}… ended with {told.returncode}: {told.stdout[-1500:]}")
    print("image: built, each package by its hash")


def copy(sources: Sequence[str], target: Path) -> None:
    """Copy the files that `Dockerfile.dockerignore` allows."""
    ignored = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line[1:] for line in ignored if line.startswith("!")}
    for name in sources:
        if name.split("/")[0] not in sent:
            raise Failed(f"COPY {name}: the builder does not get it")
        if (CODE / name).is_dir():
            shutil.copytree(CODE / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(CODE / name, target)


def run(stage: Sequence[Instruction], scratch: Path) -> None:
    """Start the container as its user and run the health check."""
    last = dict(stage)
    (packages,) = re.findall(r"--no-install-recommends ([\w -]+?) *&&", last["RUN"])
    for package in packages.split():
        if subprocess.run(["dpkg", "-s", package], capture_output=True, check=False).returncode:
            raise Failed(f"{package} is no package of this system")
    user, group = last["USER"].split(":")
    words = [*json.loads(last["ENTRYPOINT"]), *json.loads(last["CMD"])]
    check = json.loads(last["HEALTHCHECK"].partition(" CMD ")[2])
    script = f"""
        {shlex.join(words)} > /project/said 2>&1 & pid=$!
        until grep -q '^ready ' /project/said; do kill -0 $pid; sleep 0.1; done
        {shlex.join(check)}; echo "healthy $?"
        for place in / /opt/shipmate /usr /etc; do touch $place/written 2>/dev/null && echo "written $place"; done
        shipmate doctor --defaults --dir /project; echo "doctor $?"
        kill -{last["STOPSIGNAL"].removeprefix("SIG")} $pid; wait $pid; echo "ended $?"
    """
    rights = [
        "--ro-bind",
        f"{scratch}/opt",
        "/opt",
        "--bind",
        f"{scratch}/project",
        "/project",
        "--remount-ro",
        "/",
    ]
    rights += [
        "--uid",
        user,
        "--gid",
        group,
        "--unshare-net",
        "--unshare-pid",
        "--die-with-parent",
        "--chdir",
        last["WORKDIR"],
    ]
    environment = dict(one.split("=", 1) for one in shlex.split(last["ENV"]))
    path = environment.pop("PATH").removesuffix(":$PATH")
    rights += [word for name, value in environment.items() for word in ("--setenv", name, value)]
    told = walled(stage, scratch, ["/bin/sh", "-uc", script], path=path, rights=rights).stdout
    said = (scratch / "project" / "said").read_text(encoding="utf-8")
    if not {"healthy 0", "doctor 0", "ended 0"} <= set(told.splitlines()) or "written" in told:
        raise Failed(f"the container: {told[-1500:]}\n{said[-1500:]}")
    print(
        f"image: as {user}:{group} on a root that nobody writes to it is ready, healthy, well, and ends with 0"
    )


def walled(
    stage: Sequence[Instruction], scratch: Path, words: Sequence[str], *, path: str, rights: Sequence[str]
) -> subprocess.CompletedProcess[str]:
    """Run a command on a root of its own, with the Python version of the stage's base image."""
    (version,) = re.findall(r"python:(\d\.\d+)", stage[0][1])
    python = python_of(version)
    if python is None:
        raise Failed(f"Python {version} is not on this machine")
    home = Path(
        subprocess.check_output([python, "-Ic", "import sys; print(sys.base_prefix)"], text=True).strip()
    )
    walls = [
        "--unshare-user",
        "--cap-drop",
        "ALL",
        "--tmpfs",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--tmpfs",
        "/tmp",
    ]
    walls += [
        *_system(),
        "--ro-bind",
        str(home),
        str(home),
        "--ro-bind",
        f"{scratch}/src",
        "/src",
        "--clearenv",
    ]
    walls += ["--setenv", "PATH", f"{path}:{home}/bin:/usr/bin:/bin", "--setenv", "HOME", "/tmp"]
    return subprocess.run(
        ["bwrap", *walls, *rights, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=SECONDS,
    )


def _system() -> Iterator[str]:
    """Yield bubblewrap arguments that show the machine's system folders; symbolic links stay links."""
    for name in ("usr", "etc", "bin", "sbin", "lib", "lib64"):
        folder = Path("/", name)
        if folder.is_symlink():
            yield from ("--symlink", str(folder.readlink()), str(folder))
        elif folder.exists():
            yield from ("--ro-bind", str(folder), str(folder))


if __name__ == "__main__":
    sys.exit(main())
