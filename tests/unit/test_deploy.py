"""The files in deploy/ fit the product. They are parsed, and checked with installed tools."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot.config.ship_file import Dashboard

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def instructions(text: str) -> list[tuple[str, str]]:
    """Return the instructions of a Dockerfile with their arguments. Continued lines are joined."""
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split()[0].upper(), line.split(None, 1)[1]) for line in joined.split("\n") if line.strip()]


@pytest.fixture(scope="module")
def docker() -> list[tuple[str, str]]:
    return instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    (found,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"].values()
    assert isinstance(found, dict)
    return found


def last(docker: list[tuple[str, str]], name: str) -> str:
    return [rest for word, rest in docker if word == name][-1]


def final(docker: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the instructions of the final image."""
    begins = [number for number, (word, _) in enumerate(docker) if word == "FROM"]
    return docker[begins[-1] :]


def test_the_image_is_built_from_what_is_pinned_and_there(docker: list[tuple[str, str]]) -> None:
    sources = [rest.split()[:-1] for word, rest in docker if word == "COPY" and not rest.startswith("--from")]
    names = {name for group in sources for name in group}
    assert all((ROOT / name).exists() for name in names)
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    sent = {line[1:] for line in ignored if line.startswith("!")}
    assert sent == {name.split("/")[0] for name in names}
    installs = [rest for word, rest in docker if word == "RUN" and "pip install" in rest]
    commands = [command for rest in installs for command in rest.split("&&")]
    assert len(commands) == 3
    assert all("--require-hashes" in one or "--no-deps --no-build-isolation /src" in one for one in commands)


def test_the_image_runs_without_root_and_has_what_it_needs(docker: list[tuple[str, str]]) -> None:
    image = final(docker)
    user = last(image, "USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    run = last(image, "RUN")
    for package in ("bubblewrap", "ca-certificates", "tzdata"):
        assert f" {package} " in run
    assert f"-o {user.split(':')[0]} -g {user.split(':')[1]} -m 700 /project" in run
    assert last(image, "VOLUME") == "/project"
    assert json.loads(last(image, "ENTRYPOINT")) == ["shipmate"]
    assert json.loads(last(image, "CMD")) == ["run", "--defaults", "--dir", "/project"]
    # The entry point begins as root and changes the user later.
    assert [word for word, _ in image].index("USER") > max(
        number for number, (word, _) in enumerate(image) if word == "RUN"
    )


def test_the_health_check_asks_the_default_address(docker: list[tuple[str, str]]) -> None:
    check = last(docker, "HEALTHCHECK")
    command = json.loads(check.partition(" CMD ")[2])
    assert command[:2] == ["python", "-c"]
    (address,) = re.findall(r"http://[^']+", command[2])
    assert address == f"http://{Dashboard().host}:{Dashboard().port}/healthz"
    compile(command[2], "HEALTHCHECK", "exec")


def test_the_container_has_a_root_that_nobody_writes_to(
    docker: list[tuple[str, str]], service: dict[str, Any]
) -> None:
    assert service["read_only"] is True
    assert service["user"] == last(docker, "USER")
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "privileged" not in service
    assert "network_mode" not in service
    assert service["volumes"] == ["project:/project"]
    assert [one.split(":")[0] for one in service["tmpfs"]] == ["/tmp"]
    build = service["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    # Running turns need at most ten seconds.
    assert int(service["stop_grace_period"].removesuffix("s")) >= 15
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    assert "project" in document["volumes"]


class Unit(configparser.RawConfigParser):
    """Return the values of a systemd unit by key. A key may occur several times."""

    def __init__(self) -> None:
        super().__init__(strict=False, delimiters=("=",), comment_prefixes=("#",), interpolation=None)

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def test_the_unit_ends_and_reloads_as_the_process_does() -> None:
    unit = Unit()
    unit.read(DEPLOY / "shipmate.service")
    service = unit["Service"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["TimeoutStopSec"]) >= 15
    assert service["RestartPreventExitStatus"] == "78"
    # Bubblewrap creates all namespaces of a command at once, so systemd must not forbid any of them.
    assert "RestrictNamespaces" not in service
    assert service["RuntimeDirectory"] == "shipmate"
    assert service["RuntimeDirectoryPreserve"] == "yes"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_unit_is_below_three_in_the_eyes_of_systemd() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(DEPLOY / "shipmate.service")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = re.search(r"Overall exposure level for shipmate.service: (\d+\.\d)", done.stdout)
    if found is None:
        pytest.skip(f"systemd-analyze cannot judge a unit here: {done.stderr.strip()[:200]}")
    assert float(found[1]) < 3.0


def test_the_processes_of_a_cluster_are_as_the_one_alone_and_share_nothing_but_the_database() -> None:
    document = yaml.safe_load((DEPLOY / "compose.cluster.yaml").read_text(encoding="utf-8"))
    services = document["services"]
    alone = [one for name, one in services.items() if name != "database"]
    assert [one["extends"] for one in alone] == 2 * [{"file": "compose.yaml", "service": "shipmate"}]
    folders = {one["volumes"][0].partition(":")[0] for one in alone}
    assert len(folders) == 2
    assert document["volumes"].keys() == {"database", *folders}
