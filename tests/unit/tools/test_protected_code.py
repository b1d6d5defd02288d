"""Shipmate's own code is found in the project's folder and is never changed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bot import configuration, errors
from bot.tools.isolation import Isolation
from bot.tools.permissions.protected_code import ProtectedCode, RunningCode, protected_code
from bot.tools.project import Project

SOURCE = Path(__file__).parents[3]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "clone/bot",
        "clone/inner",
        "project/.venv/bin",
        "project/.venv/lib/site-packages/shipmate",
        "other",
    ):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def cloned(tree: Path) -> RunningCode:
    return RunningCode((tree / "clone", tree / "clone" / ".venv"), source=tree / "clone")


def installed(tree: Path, env: str = "project/.venv") -> RunningCode:
    packages = tree / env / "lib" / "site-packages"
    return RunningCode((packages / "shipmate", tree / env, packages, tree / env / "bin"))


@pytest.mark.parametrize(
    ("root", "closed"),
    [
        ("clone", True),
        ("clone/bot", True),
        ("clone/inner", True),
        (".", True),
        ("other", False),
        ("project", False),
    ],
)
def test_a_clone_closes_its_folder_all_in_it_and_all_around_it(
    tree: Path, root: str, *, closed: bool
) -> None:
    assert protected_code(tree / root, cloned(tree)) == ProtectedCode((tree / root).resolve(), closed=closed)


def test_neither_a_link_nor_another_name_of_the_same_folder_opens_it(tree: Path) -> None:
    (tree / "to").symlink_to(tree / "clone")
    assert protected_code(tree / "to", cloned(tree)).closed
    assert protected_code(tree / "clone" / ".." / "to" / "inner", cloned(tree)).closed
    assert protected_code(tree / "CLONE", RunningCode((tree / "clone",))).closed, (
        "where case makes no difference, it is the same"
    )
    code = RunningCode((tree / "to",), source=tree / "to")
    assert protected_code(tree / "clone", code).closed


def test_an_install_in_the_project_is_sealed_and_the_rest_is_open(tree: Path) -> None:
    here = protected_code(tree / "project", installed(tree))
    assert here == ProtectedCode((tree / "project").resolve(), sealed=((tree / "project/.venv").resolve(),))
    project = Project(tree / "project", here)
    for path in (".venv/bin/shipmate", ".venv/lib/site-packages/brotli.py", ".VENV/x", ".venv"):
        with pytest.raises(errors.ToolError, match="part of what Shipmate runs on"):
            project.write(project.place(path), b"x")
    assert project.write(project.place("brotli.py"), b"x") is False


def test_a_write_by_another_name_of_a_file_of_ours_leaves_ours_as_it_is(tree: Path) -> None:
    ours, other = tree / "project/.venv/bin/shipmate", tree / "project/other.py"
    ours.write_text("ours")
    os.link(ours, other)
    here = protected_code(tree / "project", installed(tree))
    project = Project(tree / "project", here)
    assert project.write(project.place("other.py"), b"x")
    assert (ours.read_text(), other.read_text()) == ("ours", "x")


@pytest.mark.parametrize(
    "root", ["project/.venv", "project/.venv/lib/site-packages", "project/.venv/bin/more"]
)
def test_a_project_in_an_install_is_closed(tree: Path, root: str) -> None:
    (tree / root).mkdir(exist_ok=True)
    assert protected_code(tree / root, installed(tree)).closed


def test_what_a_command_could_make_or_lead_elsewhere_closes_the_folder(tree: Path) -> None:
    """A command could create the missing folder, or replace the link."""
    assert protected_code(tree / "project", RunningCode((tree / "project" / "later",))).closed
    (tree / "project" / "env").symlink_to(".venv")
    assert protected_code(tree / "project", installed(tree, "project/env")).closed
    (tree / "project" / ".venv" / "lib64").symlink_to("lib")
    inside = RunningCode(
        (*installed(tree).runs, tree / "project/.venv/lib64/site-packages", tree / "project/.venv/x.zip")
    )
    assert not protected_code(tree / "project", inside).closed


async def test_no_command_runs_in_a_closed_folder(tree: Path) -> None:
    closed = protected_code(tree / "clone", cloned(tree))
    for required in (True, False):
        with pytest.raises(errors.ToolError, match="shipmate run --dir DIR"):
            await Isolation(tree / "clone", required=required, code=closed).run("touch planted", 10)
    assert not (tree / "clone" / "planted").exists()


def test_that_of_this_process_is_known(tmp_path: Path) -> None:
    code = RunningCode.running()
    assert code.source == SOURCE
    assert {SOURCE, Path(sys.prefix), Path(sys.executable).parent} <= set(code.runs)
    assert protected_code(SOURCE).closed
    assert protected_code(SOURCE / "requirements").closed
    assert protected_code(SOURCE.parent).closed
    assert not protected_code(tmp_path).closed
    assert [line for line in configuration.load(SOURCE).warnings if "shipmate run --dir DIR" in line]
