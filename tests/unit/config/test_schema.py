from __future__ import annotations

import json
from pathlib import Path

from bot import config
from bot.system import SystemDisk
from tests.schemas import schemas

REPO = Path(__file__).parents[3]


def test_the_committed_schemas_are_current() -> None:
    for name, content in schemas().items():
        committed = REPO / "bot" / "config" / "schema" / name
        assert committed.read_text(encoding="utf-8") == content, "run `make schema`"


def test_the_schema_knows_the_channels_and_demands_nothing(tmp_path: Path) -> None:
    config.write_schemas(tmp_path, SystemDisk())
    schema = json.loads((tmp_path / "schema" / "ship.schema.json").read_text())
    channels = schema["$defs"]["Channels"]
    assert set(channels["properties"]) == {"console", "slack", "telegram", "web"}
    assert "required" not in channels
    assert "required" not in schema
    assert schema["additionalProperties"] is False
    assert "maxTokens" in schema["$defs"]["Llm"]["properties"]
    line = json.loads((tmp_path / "schema" / "log-line.schema.json").read_text())
    assert {"id", "timestamp", "chatKey", "requestId", "duration", "step"} <= set(line["properties"])
    assert "requestId" not in line["required"]
    archive = json.loads((tmp_path / "schema" / "archive-line.schema.json").read_text())
    assert {"ts", "chatId", "userId", "messageId"} <= set(archive["properties"])


def test_files_that_are_current_are_left_alone(tmp_path: Path) -> None:
    config.write_schemas(tmp_path, SystemDisk())
    folder = tmp_path / "schema"
    before = {path.name: path.stat().st_ino for path in folder.iterdir()}
    (folder / "ship.schema.json").write_text("{}")
    config.write_schemas(tmp_path, SystemDisk())
    after = {path.name: path.stat().st_ino for path in folder.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {"ship.schema.json"}
