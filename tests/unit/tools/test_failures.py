"""Failures as the model, the person and the operator are told of them: true, of use, and without what is secret."""

from __future__ import annotations

import errno
import os

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot import errors
from bot.contracts.tools import ToolResult
from bot.testing.model import tool_use
from bot.tools.dispatch import failure, unfit
from bot.tools.result_limits import READER

from .conftest import Says, Workbench

SECRET = "canary-5f0e1d-secret"


def hide(words: str) -> str:
    return words.replace(SECRET, "[redacted]")


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="abc", max_length=5)


def test_many_and_long_and_secret_values_are_kept_short() -> None:
    with pytest.raises(ValidationError) as caught:
        Form.model_validate(
            {f"x{number}": "y" * 100_000 for number in range(50)} | {"name": SECRET + "z" * 80}
        )
    told = unfit(caught.value, hide).model
    assert len(told) < 5_000
    assert "- and 31 more" in told
    assert SECRET not in told


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOENT, "ENOENT (a/b): No such file or directory"),
        (errno.EACCES, "EACCES (a/b): Permission denied"),
        (errno.ENOSPC, "ENOSPC (a/b): No space left on device"),
    ],
)
def test_an_error_of_the_file_system_is_told_without_paths_outside_the_project(
    number: int, said: str
) -> None:
    told = failure(OSError(number, os.strerror(number), "a/b"), "read_file")
    assert told.model.startswith(f"read_file failed with {said}")
    assert told.operator.endswith("(a/b)")
    outside = failure(OSError(number, os.strerror(number), "/home-of/someone"), "read_file")
    assert "someone" not in outside.model
    assert "someone" in outside.operator


@pytest.mark.parametrize(
    "error", [RuntimeError("cannot open /etc/passwd"), KeyError(SECRET), ValueError(object())]
)
def test_of_everything_else_the_model_is_told_the_type(error: Exception) -> None:
    assert failure(error, "t", hide).model == f"t failed: {type(error).__name__}. Try another way."


def test_the_two_readers_are_told_different_things() -> None:
    stored = failure(errors.StorageError("disk 7 says EIO"), "memory")
    assert stored.model == f"memory failed: {errors.StorageError().for_model}"
    assert stored.operator == "StorageError: disk 7 says EIO"
    acted = failure(errors.ToolError(f"Do this, not {SECRET}."), "t", hide)
    assert (acted.model, acted.operator) == ("Do this, not [redacted].", "ToolError")
    command = failure(errors.CommandFailed("make it", status=2, stdout="", stderr="broken"), "run_shell")
    assert command.operator == "CommandFailed: make it (exit code 2)"


def command(status: int, stdout: str = "", stderr: str = "") -> str:
    return failure(errors.CommandFailed(status=status, stdout=stdout, stderr=stderr), "run_shell", hide).model


def test_a_command_shows_how_it_ended_and_both_outputs() -> None:
    assert command(3, "out\n", "err\n") == (
        "run_shell: the command ended with exit code 3.\nstdout:\n```\nout\n```\nstderr:\n```\nerr\n```"
    )
    late = errors.CommandFailed(status=-9, stdout="so far", stderr="", limit=1.5)
    assert failure(late, "run_shell").model.startswith(
        "run_shell: the command took longer than 1.5 s and was stopped"
    )
    assert command(-9) == "run_shell: the command ended with signal 9.\nIt printed nothing."
    assert "````\n```\n````" in command(1, "```")
    assert SECRET not in command(1, "x" * 2_990 + SECRET + "y" * 9_000, SECRET)


async def test_of_long_outputs_head_and_tail_are_shown_and_the_whole_is_kept(tools: Workbench) -> None:
    lines = "\n".join(f"line {number} 字" for number in range(5_000))
    failed = errors.CommandFailed(status=1, stdout=lines, stderr=f"first\n{lines}\nthe error")
    (result,) = await tools.run([tool_use("look")], Says("look", failed))
    shown = result["content"]
    assert result["is_error"] is True
    for words in ("line 0 字", "line 4999 字\n```\nstderr", "first", "the error\n```"):
        assert words in shown
    assert len(shown) < 8_000
    artifact = shown.rpartition("artifact ")[2].partition(",")[0]
    assert READER in shown
    page = await tools.read(artifact, grep="line 2500 ")
    assert page["content"].count("line 2500 字") == 2
    assert ToolResult.of(result).omission is None
