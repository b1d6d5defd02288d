from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import channels
from bot import discovery, errors

MANIFEST = """
from bot.contracts.channel import ChannelSettings, Manifest
MANIFEST = Manifest(name={name!r}, settings=ChannelSettings, build=print, encode=str, decode=dict)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A second folder in which channels are found."""
    monkeypatch.setattr(channels, "__path__", [*channels.__path__, str(tmp_path)])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


def write(folder: Path, name: str, content: str | None) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    if content is not None:
        (folder / name / "manifest.py").write_text(content)


def test_the_shipped_channels_are_found_by_name() -> None:
    found = discovery.manifests()
    assert {"slack", "telegram", "web", "console"} <= set(found)
    assert all(name == manifest.name for name, manifest in found.items())


def test_a_new_folder_is_a_new_channel(folder: Path) -> None:
    write(folder, "carrier_pigeon", MANIFEST.format(name="carrier_pigeon"))
    write(folder, "notes", None)
    (folder / "helper.py").touch()
    found = discovery.manifests()
    assert found["carrier_pigeon"].name == "carrier_pigeon"
    assert not {"notes", "helper"} & set(found)


def test_manifests_that_cannot_be_used_are_findings(folder: Path) -> None:
    write(folder, "aaa", MANIFEST.format(name="bbb"))
    write(folder, "ccc", "MANIFEST = 1")
    write(folder, "ddd", "import does_not_exist")
    with pytest.raises(errors.ConfigError) as caught:
        discovery.manifests()
    assert [line.split(":")[0] for line in caught.value.findings] == [
        "channels.aaa.manifest",
        "channels.ccc.manifest",
        "channels.ddd.manifest",
    ]


def test_finding_the_channels_imports_no_sdk() -> None:
    code = (
        "import sys; from bot import config, discovery; discovery.manifests();"
        "print(sorted({'slack_bolt', 'slack_sdk', 'telegram', 'anthropic', 'apscheduler', 'aiohttp'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
