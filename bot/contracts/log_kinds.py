"""The table of log kinds (`log_kinds.toml`), from which `docs/logs.md` and the schema of a line are made."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bot.contracts.base import Json

TEXTS = frozenset({"messages", "payload", "input", "result", "stopDetails"})
"""Details that hold words of people, the model and tools, unless they are numbers."""


@dataclass(frozen=True, slots=True)
class Detail:
    types: tuple[str, ...]
    """JSON types."""
    meaning: str

    @classmethod
    def parse(cls, line: str) -> Detail:
        types, _, meaning = line.partition(": ")
        return cls(tuple(types.split("|")), meaning)


@dataclass(frozen=True, slots=True)
class LogKind:
    meaning: str
    details: Mapping[str, Detail]


def _kinds(table: dict[str, Any]) -> tuple[dict[str, LogKind], dict[str, Detail]]:
    """The kinds, and the details that a line of any kind may have."""
    common = {name: Detail.parse(line) for name, line in table.pop("common").items()}
    shared, kinds = table.pop("shared"), dict[str, LogKind]()
    for kind, section in table.items():
        meaning, names = section.pop("meaning"), section.pop("shared", "").split()
        lines = section | {name: shared[name] for name in names}
        kinds[kind] = LogKind(meaning, {name: Detail.parse(line) for name, line in lines.items()})
    return kinds, common


KINDS, COMMON = _kinds(tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")))
NULLABLE = {
    (name, detail)
    for name, kind in KINDS.items()
    for detail, told in kind.details.items()
    if "null" in told.types
}
"""Kinds and details where null is written; elsewhere it is left out of the line."""


def line_schema(schema: Json) -> Json:
    """Add the details of each kind to the JSON Schema of a line."""
    rules = []
    for name, kind in KINDS.items():
        properties = {
            detail: {"type": list(told.types), "description": told.meaning}
            for detail, told in (COMMON | dict(kind.details)).items()
        }
        details = {"properties": properties, "additionalProperties": False}
        rules.append(
            {
                "if": {"properties": {"kind": {"const": name}}},
                "then": {"properties": {"details": details}},
            }
        )
    schema["properties"]["kind"]["enum"] = list(KINDS)
    return schema | {"allOf": rules}


def tables() -> str:
    """The table in Markdown, for docs/logs.md."""
    parts: list[str] = []
    for name, kind in KINDS.items():
        parts.append(f"### `{name}`\n\n{kind.meaning}\n")
        if kind.details:
            parts.append("| detail | type | |\n| --- | --- | --- |")
            parts += [
                f"| `{detail}` | {' or '.join(told.types)} | {told.meaning} |"
                for detail, told in kind.details.items()
            ]
            parts.append("")
    return "\n".join(parts)
