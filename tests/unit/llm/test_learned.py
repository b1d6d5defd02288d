"""What is learnt of models is there after a restart, and is never in the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bot.llm.windows import LearnedFile
from bot.system import SystemDisk
from bot.testing.disk import Failure, FaultyDisk
from bot.testing.log import MemoryLog


def opened(path: Path, provider: str = "anthropic", disk: FaultyDisk | None = None) -> LearnedFile:
    made = LearnedFile(path, provider, disk=disk or SystemDisk(), log=MemoryLog())
    made.load()
    return made


async def test_figures_are_kept_by_provider_and_model(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "models.json"
    learned = opened(path)
    learned.set("模型:7b", "window", 8_000)
    learned.set("模型:7b", "tokenRatio", 1.25)
    await learned.save()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    again = opened(path)
    assert (again.get("模型:7b", "window"), again.get("模型:7b", "tokenRatio")) == (8_000, 1.25)
    assert again.get("another", "window") is None
    local = opened(path, "localhost:11434")
    assert local.get("模型:7b", "window") is None
    local.set("模型:7b", "window", 4_000)
    await local.save()
    assert opened(path).get("模型:7b", "window") == 8_000


async def test_what_is_forgotten_is_gone_and_what_is_known_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "models.json"
    learned = opened(path)
    await learned.save()
    assert not path.exists()
    learned.set("m", "window", 5_000)
    await learned.save()
    before = path.stat().st_ino
    learned.set("m", "window", 5_000)
    await learned.save()
    assert path.stat().st_ino == before
    learned.set("m", "window", None)
    await learned.save()
    assert opened(path).get("m", "window") is None
    assert "m" not in json.loads(path.read_text(encoding="utf-8"))["models"]


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"v": 9, "models": {}}',
        b'{"v": 1, "models": {"anthropic m": {"window": "8000"}, "x": 3}}',
        b'{"v": 1, "models": {"anthropic m": {"window": -1}}}',
        b'{"v": 1, "models": {"anthropic m": {"window": 1e999}}}',
    ],
)
async def test_a_damaged_file_is_as_good_as_none_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(content)
    learned = opened(path)
    assert learned.get("m", "window") is None
    learned.set("m", "window", 9_000)
    await learned.save()
    assert opened(path).get("m", "window") == 9_000


async def test_what_a_full_disk_refuses_is_written_later(tmp_path: Path) -> None:
    disk = FaultyDisk(SystemDisk())
    disk.fail(Failure("replace"))
    learned = opened(tmp_path / "models.json", disk=disk)
    learned.set("m", "window", 9_000)
    await learned.save()
    assert opened(tmp_path / "models.json").get("m", "window") is None
    await learned.save()
    assert opened(tmp_path / "models.json").get("m", "window") == 9_000
