"""A gateway as `bot.app` starts it in a folder."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path

from bot import app


async def test_the_collector_runs_once_everything_is_imported(tmp_path: Path) -> None:
    channels = {"web": {"enabled": False}, "console": {"enabled": True}}
    (tmp_path / "ship.json").write_text(json.dumps({"llm": {"provider": "demo"}, "channels": channels}))
    gc.disable()
    try:
        async with app.started(tmp_path, lambda _: None, asyncio.Event()):
            assert gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()
