"""Generates the JSON Schemas of ship.json, of a line in the operator's log, and of a line in a chat's archive."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from bot.config import ship_file
from bot.contracts import log_kinds
from bot.contracts.archive import ArchiveLine
from bot.contracts.base import Frozen, Json, Level
from bot.contracts.channel import Manifest
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey


class LogLine(Frozen):
    """One line of `.ship/logs/<YYYY-MM-DD>.jsonl`. `id` is a ULID, `timestamp` is ISO 8601 in UTC, and
    `duration` is in milliseconds. `type` and `level` have the same value.
    """

    id: str
    timestamp: str
    type: Level
    level: Level
    kind: str
    message: str
    details: Json
    duration: float | None = None
    chat_key: ChatKey | None = None
    request_id: str | None = None
    step: int | None = None


DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas(manifests: Mapping[str, Manifest]) -> dict[str, str]:
    """Return the JSON Schemas by file name."""
    return _schemas(tuple((name, manifests[name].settings) for name in sorted(manifests)))


@functools.lru_cache(maxsize=2)  # building the schemas takes 0.1 s
def _schemas(channels: tuple[tuple[str, type[BaseModel]], ...]) -> dict[str, str]:
    ship = ship_file.with_channels(channels).model_json_schema(by_alias=True, schema_generator=_Described)
    # The schema allows every channel to be missing.
    ship.pop("required", None)
    ship["$defs"]["Channels"].pop("required", None)
    found = {
        ("ship", "ship.json"): ship,
        ("log-line", "A line of .ship/logs"): log_kinds.line_schema(LogLine.model_json_schema(by_alias=True)),
        ("archive-line", "A line of .ship/chats"): ArchiveLine.model_json_schema(by_alias=True),
    }
    return {
        f"{name}.schema.json": json.dumps(
            {"$schema": DIALECT, **schema, "title": title}, indent=2, ensure_ascii=False, sort_keys=True
        )
        + "\n"
        for (name, title), schema in found.items()
    }


def descriptions(manifests: Mapping[str, Manifest], keys: Iterable[str]) -> dict[str, str]:
    """Return the descriptions of keys of ship.json such as `queue.mode`. Keys without one are left out."""
    schema = json.loads(schemas(manifests)["ship.schema.json"])
    described = dict[str, str]()
    for key in keys:
        found: Any = schema
        for name in key.split("."):
            model = model_of(found, schema["$defs"]) or found
            found = model.get("properties", {}).get(name) or model.get("additionalProperties") or {}
            if not isinstance(found, Mapping):
                break
        else:
            if words := found.get("description"):
                described[key] = " ".join(words.split())
    return described


def model_of(found: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the JSON Schema of the object that is a key's value; None if the value is no object with fixed keys."""
    either = (found, *found.get("anyOf", ()))
    reference = next((one["$ref"] for one in either if "$ref" in one), None)
    return definitions[reference.rpartition("/")[2]] if reference is not None else None


def write_schema(folder: Path, manifests: Mapping[str, Manifest], disk: Disk) -> None:
    """Write each schema whose file is missing or out of date."""
    for name, content in schemas(manifests).items():
        data = content.encode()
        if disk.read(folder / name) != data:
            disk.replace(folder / name, data)


class _Described(GenerateJsonSchema):
    """Generates the description of each field from the docstring below the field. pydantic can do this too, but that
    took a third of the import time.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made, model = super().model_schema(schema), schema["cls"]
        for base in model.__mro__:
            for name, words in _field_docs(base.__module__).get(base.__name__, {}).items():
                if field := model.model_fields.get(name):
                    made["properties"][field.alias or name].setdefault("description", words)
        return made


@functools.lru_cache(maxsize=32)
def _field_docs(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of a module's classes; {} if the module's source is missing."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    found = dict[str, dict[str, str]]()
    for item in tree.body:
        for field, below in itertools.pairwise(getattr(item, "body", ())):
            match item, field, below:
                case (
                    ast.ClassDef(name=model),
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ):
                    found.setdefault(model, {})[name] = inspect.cleandoc(words)
    return found
