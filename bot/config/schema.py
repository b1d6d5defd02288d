"""Creates the JSON Schemas of ship.json, of log lines and of archive lines, and describes the values in use."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from bot import text
from bot.config import ship_file
from bot.config.document import HIDDEN, is_secret_key
from bot.config.load import Settings, without
from bot.contracts import log_kinds
from bot.contracts.base import Frozen, Json, Level
from bot.contracts.channel import Manifest
from bot.contracts.environment import Disk
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine


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
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return {
        f"{name}.schema.json": json.dumps(
            dialect | schema | {"title": title}, indent=2, ensure_ascii=False, sort_keys=True
        )
        + "\n"
        for (name, title), schema in found.items()
    }


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
        for name, field in model.model_fields.items():
            if words := _described(model, name):
                made["properties"][field.alias or name].setdefault("description", words)
        return made


def _described(model: type[BaseModel], field: str) -> str:
    """Return the docstring of a field; "" if there is none."""
    docs = (_field_docs(base.__module__).get((base.__name__, field), "") for base in model.__mro__)
    return next(filter(None, docs), "")


@functools.lru_cache(maxsize=32)
def _field_docs(module: str) -> dict[tuple[str, str], str]:
    """Return the docstrings of the fields of a module's classes; {} if the module's source is missing."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    found = dict[tuple[str, str], str]()
    for item in tree.body:
        for pair in itertools.pairwise(getattr(item, "body", ())):
            match item, *pair:
                case [
                    ast.ClassDef(name=model),
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ]:
                    found[model, name] = inspect.cleandoc(words)
    return found


# ------------------------------------------------------------ values in use


def _leaves(key: str, value: Any, words: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield (full key in ship.json, value, description) for each value in a section."""
    if isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _leaves(f"{key}.{to_camel(name)}", getattr(value, name), _described(type(value), name))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}", inner)
    elif isinstance(value, tuple) and any(isinstance(one, BaseModel) for one in value):
        for at, one in enumerate(value):
            yield from _leaves(f"{key}.{at}", one)
    else:
        yield key, value, words


def _all_leaves(settings: Settings) -> Iterator[tuple[str, Any, str]]:
    for name in (*ship_file.ShipFile.model_fields, "channels"):
        if name != "schema_":
            yield from _leaves(to_camel(name), getattr(settings, name), _described(ship_file.ShipFile, name))


def leaves(settings: Settings) -> dict[str, Any]:
    """Return all values by their full key in ship.json, such as `llm.model`."""
    return {key: value for key, value, _ in _all_leaves(settings)}


def shown_leaves(settings: Settings) -> dict[str, tuple[str, str]]:
    """Return (value as JSON, description) by full key in ship.json. Secrets are hidden, also values whose keys usually have
    secrets.
    """
    return {
        key: (_shown(key, value, settings.secrets), " ".join(words.split()))
        for key, value, words in _all_leaves(settings)
    }


def _shown(key: str, value: Any, secrets: frozenset[str]) -> str:
    parts = key.split(".")
    private = parts[:2] == ["mcp", "servers"] and {"env", "headers"} & set(parts[3:])
    if value and (private or any(map(is_secret_key, parts))):
        return HIDDEN
    if isinstance(value, frozenset):
        value = sorted(map(str, value))
    value = list(value) if isinstance(value, tuple) else value
    return json.dumps(text.deep(value, lambda words: without(words, secrets)), ensure_ascii=False)
