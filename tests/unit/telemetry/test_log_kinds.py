"""The table of log kinds contains exactly the kinds and details that the code writes."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from bot.contracts.base import Level
from bot.telemetry import log as telemetry_log
from bot.telemetry.log import to_camel
from bot.testing.log import MemoryLog
from tests import log_lines
from tests.gates import parsed
from tests.log_kinds import COMMON, KINDS
from tests.schemas import LogLine

from .conftest import Make, lines

pytestmark = pytest.mark.together  # the code is parsed only once for all tests of this module

ROOT = Path(__file__).parents[3]
APART = {"level", "duration", "chat_key", "request_id", "step"}
"""Names of arguments that are no details."""


def test_the_table_has_what_the_code_writes_and_nothing_else() -> None:
    wrong, named, kinds = list[str](), set[str](), set[str]()
    for path in (path for top in ("bot", "channels") for path in (ROOT / top).rglob("*.py")):
        if "testing" in path.parts:
            continue
        for node in ast.walk(parsed(path.read_text("utf-8"))):
            match node:
                case ast.keyword(arg=str(name)):
                    named.add(to_camel(name))
                case ast.Constant(value=str(words)):
                    kinds.add(words)
                    named.add(to_camel(words) if words.isidentifier() else "")
                case ast.Call(
                    func=ast.Attribute(attr="write"), args=[ast.Constant(value=str(kind)), _], keywords=given
                ):
                    known = KINDS[kind].details.keys() | COMMON.keys() if kind in KINDS else set()
                    names = {one.arg for one in given if one.arg is not None} - APART
                    unknown = [name for name in names if to_camel(name) not in known]
                    if kind not in KINDS or unknown:
                        wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {kind} {unknown}")
    assert wrong == []
    assert set(KINDS) <= kinds
    details = {detail for kind in KINDS.values() for detail in kind.details}
    put_together = {f"{part}Ms" for part in ("approval", "delivery", "model", "tools")}
    assert details - named == put_together | {"inputLength", "resultLength"}


@pytest.mark.parametrize(
    ("kind", "level", "details", "said"),
    [
        ("nonsense", "info", {}, "unknown kind 'nonsense'"),
        ("error", "warn", {}, "kind error at level warn"),
        ("steer", "info", {"jioned": "A"}, "steer: unknown detail 'jioned'"),
        ("steer", "info", {"joined": 3}, "steer.joined: int, expected string"),
        ("task", "info", {"modelCalls": True}, "task.modelCalls: bool, expected integer"),
        ("task", "info", {"costUsd": None, "usage": {}, "task": "A", "leftOut": "9 bytes"}, ""),
        ("task", "info", {"error": None}, "task.error: NoneType, expected string"),
        ("inbound", "info", {"addressed": True}, ""),
    ],
)
def test_what_is_wrong_with_a_line_is_said(kind: str, level: str, details: Any, said: str) -> None:
    assert log_lines.complaint(kind, level, details) == said


def test_the_schema_says_the_same() -> None:
    made = json.loads((ROOT / "bot/config/schema/log-line.schema.json").read_text())
    line = {"id": "1", "timestamp": "t", "type": "info", "level": "info", "message": "m"}
    check = jsonschema.Draft202012Validator(made)
    assert check.is_valid(line | {"kind": "steer", "details": {"joined": "A", "task": "B"}})
    assert not check.is_valid(line | {"kind": "steer", "details": {"joined": 3}})
    assert not check.is_valid(line | {"kind": "steer", "details": {"other": "A"}})
    assert not check.is_valid(line | {"kind": "other", "details": {}})
    assert set(COMMON) <= set(made["allOf"][0]["then"]["properties"]["details"]["properties"])


def test_the_format_for_lnav_has_the_fields_and_levels_of_a_line() -> None:
    (made,) = [
        value
        for key, value in json.loads((ROOT / "deploy/shipmate.lnav.json").read_text()).items()
        if key != "$schema"
    ]
    fields = LogLine.model_json_schema(by_alias=True)["properties"].keys()
    assert {*made["value"], made["timestamp-field"], made["level-field"], made["body-field"]} == fields
    for level in get_args(Level):
        assert sum(re.search(pattern, level) is not None for pattern in made["level"].values()) == 1
    for name in ("2027-01-15.jsonl", "2027-01-15.2.jsonl", "2027-01-15.jsonl.gz"):
        assert re.search(made["file-pattern"], f"/srv/project/.ship/logs/{name}")


def test_what_is_not_known_is_left_out_unless_that_says_something(make: Make, tmp_path: Path) -> None:
    log = make()
    log.write("llm_response", "answered", cost_usd=None, error=None, model="m")
    assert log.flush()
    assert lines(tmp_path)[0]["details"] == {"costUsd": None, "model": "m"}


def test_the_suite_sees_lines_of_the_product_that_the_table_does_not_know(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    code = "def write(log, *a, **k): log.write(*a, **k)"
    exec(compile(code, f"{log_lines.PRODUCT[0]}invented.py", "exec"), names)
    log = MemoryLog()
    names["write"](log, "steer", "a message joined", jioned="A")
    log.write("steer", "by a test", jioned="A")
    assert log_lines.found == ["bot/invented.py: steer: unknown detail 'jioned' (a message joined)"]
    log_lines.found.clear()
    assert telemetry_log.JsonlLog.write.__qualname__ == log.write.__qualname__
