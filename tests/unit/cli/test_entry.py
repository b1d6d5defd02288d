from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from typer import Context, Typer
from typer.core import TyperGroup
from typer.main import get_command

from bot import errors
from bot.cli import entry
from bot.cli.commands import app, naming

from .conftest import ENV, Shipmate, process

HEAVY = "{'slack_bolt', 'slack_sdk', 'telegram', 'anthropic', 'apscheduler', 'aiohttp', 'rich'}"


def app_that(monkeypatch: pytest.MonkeyPatch, outcome: int | BaseException) -> list[Path]:
    """Put an app in the place of the real one, whose `run` and `chat` return or raise."""
    called: list[Path] = []

    async def act(root: Path, *, defaults: bool = False) -> int:
        del defaults
        called.append(root)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    module = types.ModuleType("bot.app")
    module.run = module.chat = act  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bot.app", module)
    monkeypatch.setattr("bot.app", module, raising=False)
    return called


def test_no_command_is_described_in_half_a_sentence(shipmate: Shipmate) -> None:
    _, _, commands = shipmate("--help").out.partition("Commands:\n")
    assert "  init " in commands
    assert "..." not in commands


@pytest.mark.parametrize("command", ["run", "chat"])
@pytest.mark.parametrize("code", [0, 75, 78])
def test_the_app_decides_the_exit_code(
    shipmate: Shipmate, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str, code: int
) -> None:
    called = app_that(monkeypatch, code)
    assert shipmate(command, "--dir", tmp_path).code == code
    assert called == [tmp_path]


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (errors.ConfigError("a: found b", "c: found d"), 78, "a: found b\nc: found d\n"),
        (
            errors.Unavailable("port 3000 is held by process 12"),
            75,
            "shipmate: port 3000 is held by process 12\n",
        ),
        (errors.ChannelRefused("slack refuses the token"), 78, "shipmate: slack refuses the token\n"),
        (errors.ModelRefused("the key is refused"), 78, "shipmate: the key is refused\n"),
        (errors.StorageError("two\nlines"), 1, "shipmate: two lines\n"),
        (OSError(28, "No space left on device"), 1, "shipmate: No space left on device\n"),
        (PermissionError(13, "Permission denied", "x/y"), 1, "shipmate: Permission denied: x/y\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_lines_on_stderr_and_exit_codes(
    shipmate: Shipmate,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    *,
    error: BaseException,
    code: int,
    line: str,
) -> None:
    app_that(monkeypatch, error)
    done = shipmate("run", "--dir", tmp_path)
    assert (done.code, done.out, done.err) == (code, "", line)


@pytest.mark.parametrize(
    "words",
    [
        ("nosuch",),
        ("surgeon",),
        ("run", "--nosuch"),
        ("history",),
        ("check", "--dir", "/does/not/exist"),
        ("allow", "x"),
    ],
)
def test_wrong_usage_is_2(shipmate: Shipmate, words: tuple[str, ...]) -> None:
    done = shipmate(*words)
    assert done.code == 2
    assert "Error: " in done.err


def test_a_command_is_read_without_the_parsers_of_the_others_and_as_with_them() -> None:
    whole = commands_of(app)
    names = [one.callback.__name__ for one in app.registered_commands if one.callback]
    for name in names:
        ((found, alone),) = commands_of(naming([name, "--help"])).items()
        assert found == name
        assert alone.get_help(Context(alone)) == whole[name].get_help(Context(whole[name]))
    assert {*names, "memory", "index"} == whole.keys()
    for words in ([], ["memory", "show"], ["--version"], ["runs"]):
        assert naming(words) is app


def commands_of(parser: Typer) -> dict[str, Any]:
    group = get_command(parser)
    assert isinstance(group, TyperGroup)
    return dict(group.commands)


def test_no_words_show_the_commands(shipmate: Shipmate) -> None:
    done = shipmate()
    assert done.code == 2
    shown = done.out + done.err
    for command in (
        "init",
        "run",
        "chat",
        "check",
        "logs",
        "chats",
        "history",
        "allow",
        "block",
        "pending",
        "version",
    ):
        assert f"  {command} " in shown


def test_an_unforeseen_error_is_one_line_and_its_details_are_in_the_log(project: Path) -> None:
    code = (
        "import sys; from bot import cli; from bot.cli import setup\n"
        "def settings(root, **_): raise ZeroDivisionError('hunter2')\n"
        "setup.settings = settings\n"
        f"sys.argv = ['shipmate', 'check', '--dir={project}']\n"
        "sys.exit(cli.main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=ENV)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "shipmate: unexpected ZeroDivisionError; details are in .ship/logs\n"
    (path,) = (project / ".ship" / "logs").iterdir()
    line = json.loads(path.read_text())
    assert (line["kind"], line["level"]) == ("error", "error")
    assert line["details"]["error"] == "ZeroDivisionError: hunter2"
    assert "settings" in line["details"]["frames"][-1]


def test_an_unforeseen_error_outside_a_project_says_where_it_was(tmp_path: Path) -> None:
    code = (
        "import sys; from bot import cli; from bot.cli import setup\n"
        "def settings(root, **_): raise ZeroDivisionError\n"
        "setup.settings = settings\n"
        f"sys.argv = ['shipmate', 'check', '--dir', {str(tmp_path)!r}]\n"
        "sys.exit(cli.main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=ENV)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "unexpected ZeroDivisionError in settings (" in done.stderr
    assert not (tmp_path / ".ship").exists()


def test_the_version_is_the_packages(shipmate: Shipmate) -> None:
    here = importlib.metadata.version("shipmate")
    assert shipmate("--version").out == f"shipmate {here}\n"
    done = shipmate("version")
    assert done.out.splitlines()[:2] == [
        f"shipmate {here}",
        f"Python {'.'.join(map(str, sys.version_info[:3]))}",
    ]
    assert f"  anthropic {importlib.metadata.version('anthropic')}" in done.out
    (found,) = shipmate("version", "--json").lines
    assert found["dependencies"]["slack-bolt"] == importlib.metadata.version("slack-bolt")


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--version"], f"{HEAVY} | {{'pydantic', 'typer'}}"),
        (["version"], f"{HEAVY} | {{'pydantic', 'typer'}}"),
        (["--help"], f"{HEAVY} | {{'pydantic'}}"),
        (["run", "--help"], HEAVY),
    ],
)
def test_help_and_version_import_nothing_heavy(words: list[str], heavy: str) -> None:
    code = (
        "import sys; from bot import cli\n"
        f"code = cli.main({words!r})\n"
        f"print(sorted(({heavy}) & set(sys.modules)), code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=ENV)
    assert done.stderr == "[] 0\n"


def test_output_that_nobody_reads_is_no_traceback(project: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m bot version | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        env=ENV,
    )
    assert done.stderr == ""


def test_python_m_bot_is_shipmate() -> None:
    assert process("--version").out.startswith("shipmate ")


def test_a_checkout_that_is_not_installed_has_a_version_too(
    shipmate: Shipmate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setattr(importlib.metadata, "requires", missing)
    assert shipmate("version").out.splitlines()[0] == "shipmate not installed"


@pytest.mark.parametrize(
    ("words", "folder"),
    [(["run", "--dir", "a"], "a"), (["run", "--dir=b c"], "b c"), (["run", "--dir"], "."), (["run"], ".")],
)
def test_the_folder_is_known_before_the_words_are_read(words: list[str], folder: str) -> None:
    assert entry.folder_of(words) == Path(folder)


def test_text_that_the_terminal_cannot_show_is_no_error(project: Path) -> None:
    (project / "ship.json").write_text('{"name": "Möwe 🐦"}', encoding="utf-8")
    done = process("check", "--dir", project, env={"PYTHONIOENCODING": "ascii:strict"})
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("M?we ?: ship.json is fine.")
