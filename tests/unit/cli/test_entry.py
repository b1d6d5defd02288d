from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

from bot import errors
from bot.cli.commands import COMMANDS, HIDDEN

from .conftest import ENV, Shipmate, process

HEAVY = "{'slack_bolt', 'slack_sdk', 'telegram', 'anthropic', 'apscheduler', 'aiohttp', 'rich'}"


def app_that(monkeypatch: pytest.MonkeyPatch, outcome: int | BaseException) -> list[Path]:
    """Replace `bot.app` by a module whose `run` and `chat` return or raise `outcome`."""
    called: list[Path] = []

    async def act(root: Path, *, defaults: bool = False) -> int:
        called.append(root)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    module = types.ModuleType("bot.app")
    module.run = module.chat = act  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "bot.app", module)
    monkeypatch.setattr("bot.app", module, raising=False)
    return called


def test_without_arguments_and_with_help_every_command_is_described(shipmate: Shipmate) -> None:
    bare, asked = shipmate(), shipmate("--help")
    assert (bare.code, asked.code) == (2, 0)
    for shown in (bare.out + bare.err, asked.out):
        assert all(f"\n  {name} " in shown for name in COMMANDS.keys() - HIDDEN)
        assert "..." not in shown.partition("Commands:\n")[2]


@pytest.mark.parametrize("command", ["run", "chat"])
@pytest.mark.parametrize("code", [0, 75])
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
        (errors.Unavailable("port 3000 is taken"), 75, "shipmate: port 3000 is taken\n"),
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
    ("words", "why"),
    [
        ("nosuch", "No such command"),
        ("run --nosuch", "No such option"),
        ("history", "Missing argument"),
        ("check --dir /none", "does not exist"),
        ("allow telegram -x", "only stable ids count"),
        ("init --operator bob", "--operator"),
        ("init --operator slack:@bob", "--operator"),
        ("init new --name " + "x" * 81, "at most 80 characters"),
        ("logs --level loud", "'loud' is not one of 'debug'"),
        ("logs --since soon", "'soon' is not a time"),
        ("logs --since 999999w", "is not a time"),
        ("history nonsense", "'nonsense' names no conversation; `shipmate chats"),
        ("history telegram:chat:1 --before yesterday", "is not a time"),
        ("history telegram:chat:1 --limit 0", "--limit"),
        ("stats --by foo", "'foo' is not one of 'day', 'person', 'chat', 'model'"),
    ],
)
def test_wrong_usage_says_what_is_wrong(
    shipmate: Shipmate, project: Path, monkeypatch: pytest.MonkeyPatch, words: str, why: str
) -> None:
    monkeypatch.chdir(project)
    done = shipmate(*words.split())
    assert (done.code, done.out) == (2, "")
    assert why in " ".join(done.err.split())


def test_a_misspelt_command_is_answered_with_the_nearest(shipmate: Shipmate) -> None:
    assert "Did you mean 'logs'" in shipmate("logg").err


def test_an_unforeseen_error_is_one_line_and_its_details_are_in_the_log(project: Path) -> None:
    code = (
        "import sys; from bot import cli; from bot.cli import setup\n"
        "def failing(root, **_): raise ZeroDivisionError('hunter2')\n"
        "setup.configuration.load = failing\n"
        "sys.exit(cli.main())"
    )

    def run(*words: str) -> str:
        command = [sys.executable, "-c", code, "check", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENV)
        assert (done.returncode, done.stdout) == (1, "")
        return done.stderr

    assert run(f"--dir={project}") == "shipmate: unexpected ZeroDivisionError; details are in .ship/logs\n"
    (path,) = (project / ".ship" / "logs").iterdir()
    line = json.loads(path.read_text())
    assert (line["kind"], line["level"]) == ("error", "error")
    assert line["details"]["error"] == "ZeroDivisionError: hunter2"
    assert "failing" in line["details"]["frames"][-1]
    (project / ".ship").rename(project / "aside")
    outside = run("--dir", str(project))
    assert outside.startswith("shipmate: unexpected ZeroDivisionError in failing (")
    assert outside.count("\n") == 1
    assert not (project / ".ship").exists()


def test_the_version_is_the_packages(shipmate: Shipmate, monkeypatch: pytest.MonkeyPatch) -> None:
    here = importlib.metadata.version("shipmate")
    assert shipmate("--version").out == process("--version").out == f"shipmate {here}\n"
    done = shipmate("version")
    python = ".".join(map(str, sys.version_info[:3]))
    assert done.out.splitlines()[:2] == [f"shipmate {here}", f"Python {python}"]
    (found,) = shipmate("version", "--json").lines
    assert found["dependencies"]["slack-bolt"] == importlib.metadata.version("slack-bolt")

    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    assert shipmate("version").out.splitlines()[0] == "shipmate not installed"


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["version"], HEAVY),
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


def test_text_that_the_terminal_cannot_show_is_no_error(project: Path) -> None:
    (project / "ship.json").write_text('{"name": "Möwe 🐦"}', encoding="utf-8")
    done = process("check", "--dir", project, env={"PYTHONIOENCODING": "ascii:strict"})
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("M?we ?: ship.json is valid.")
