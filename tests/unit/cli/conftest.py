from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot import cli


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """Return the printed lines as JSON objects."""
        return [json.loads(line) for line in self.out.splitlines()]


class Terminal(io.StringIO):
    """Standard input of a person who types this text at a terminal."""

    def isatty(self) -> bool:
        return True


Shipmate = Callable[..., Done]
ENV = {"PATH": "/usr/bin:/bin", "TZ": "UTC"} | {
    name: value for name, value in os.environ.items() if name.startswith("COV")
}


@pytest.fixture
def shipmate(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shipmate:
    """Run a command in this process, with stdin and stdout that are no terminals."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for name in ("ANTHROPIC_API_KEY", "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "TELEGRAM_BOT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TZ", "UTC")

    def run(*words: str | Path) -> Done:
        capsys.readouterr()
        code = cli.main([str(word) for word in words])
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    return run


def process(*words: str | Path, env: Mapping[str, str] | None = None) -> Done:
    """Run a command in a process of its own, without a terminal."""
    done = subprocess.run(
        [sys.executable, "-m", "bot", *map(str, words)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={**ENV, **(env or {})},
        timeout=60,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def project(tmp_path: Path, shipmate: Shipmate) -> Path:
    """A folder that `shipmate init` has set up."""
    assert shipmate("init", tmp_path, "--yes").code == 0
    return tmp_path
