from __future__ import annotations

from pathlib import Path

from tests.bench import storage


async def test_the_measurement_runs_and_everything_it_wrote_is_there(tmp_path: Path) -> None:
    for speed in (
        await storage.journal_speed(tmp_path, calls=50, at_once=8),
        await storage.archive_speed(tmp_path, calls=50, at_once=8),
    ):
        assert 0 < speed.p50 <= speed.p99
        assert speed.rate > 0
    assert sum(path.read_bytes().count(b"\n") for path in (tmp_path / "chats").glob("*.jsonl")) == 150
