"""The table of log kinds (`bot/contracts/log_kinds.toml`) as objects."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.contracts.base import Json
from bot.contracts.log_kinds import TABLE


@dataclass(frozen=True, slots=True)
class Detail:
    types: tuple[str, ...]  # JSON types that the detail may have
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
    common = {name: Detail.parse(line) for name, line in table.pop("common").items()}
    shared, kinds = table.pop("shared"), dict[str, LogKind]()
    for kind, section in table.items():
        meaning, names = section.pop("meaning"), section.pop("shared", "").split()
        lines = section | {name: shared[name] for name in names}
        kinds[kind] = LogKind(meaning, {name: Detail.parse(line) for name, line in lines.items()})
    return kinds, common


KINDS, COMMON = _kinds(copy.deepcopy(TABLE))


def line_schema(schema: Json) -> Json:
    """Add the details of each kind to the JSON Schema of a log line, and return the schema."""
    rules = []
    for name, kind in KINDS.items():
        properties = {
            detail: {"type": list(told.types), "description": told.meaning}
            for detail, told in (COMMON | dict(kind.details)).items()
        }
        details = {"properties": properties, "additionalProperties": False}
        rules.append(
            {"if": {"properties": {"kind": {"const": name}}}, "then": {"properties": {"details": details}}}
        )
    schema["properties"]["kind"]["enum"] = list(KINDS)
    return schema | {"allOf": rules}
