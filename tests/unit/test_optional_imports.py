"""Libraries are imported without unused optional packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot import discovery
from bot.discovery import import_without


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path. Modules from the folder are removed afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, **modules: str) -> None:
    for name, code in modules.items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")


OPTIONAL = "try:\n    import spare_large\n    found = True\nexcept ImportError:\n    found = False\n"


def test_an_optional_package_is_left_out_and_can_be_imported_afterwards(packages: Path) -> None:
    write(packages, spare_library=OPTIONAL, spare_large="size = 9")
    import_without("spare_library", ["spare_large"])
    assert sys.modules["spare_library"].found is False
    assert "spare_large" not in sys.modules
    assert __import__("spare_large").size == 9


def test_a_package_that_is_imported_already_stays(packages: Path) -> None:
    write(packages, spare_library=OPTIONAL, spare_large="size = 9")
    large = __import__("spare_large")
    import_without("spare_library", ["spare_large"])
    assert sys.modules["spare_library"].found is True
    assert sys.modules["spare_large"] is large


def test_a_library_that_needs_the_package_after_all_gets_it(packages: Path) -> None:
    write(packages, spare_library="import spare_large\nsize = spare_large.size\n", spare_large="size = 9")
    import_without("spare_library", ["spare_large"])
    assert sys.modules["spare_library"].size == 9


def test_a_module_that_is_not_there_is_told(packages: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="spare_nowhere"):
        import_without("spare_nowhere", ["spare_large"])
    assert "spare_large" not in sys.modules


def test_a_gateway_imports_nothing_large_that_it_does_not_use() -> None:
    """Both platforms and the provider are imported, without the optional packages of Telegram's library."""
    code = """
import sys
import bot.app
from bot import discovery
from types import SimpleNamespace
manifests = discovery.manifests()
settings = SimpleNamespace(llm=SimpleNamespace(provider="anthropic"))
bot.app.preload(settings, [manifests["telegram"], manifests["slack"]])
print(" ".join(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    assert {"telegram", "slack_bolt", "bot.llm.client", "channels.slack.adapter"} <= imported
    unused = discovery.manifests()["telegram"].unused
    assert unused
    assert not imported & {
        *unused,
        "mcp",
        "typer",
        "snowballstemmer",
        "jsonschema",
        "opentelemetry.sdk",
        "requests",
    }
    rest = [one for one in imported if one.partition(".")[0] != "anthropic"]
    assert len(rest) < 1_600, "1,432 with Python 3.11"
