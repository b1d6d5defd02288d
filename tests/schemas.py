"""The JSON Schemas of ship.json, of log lines and of archive lines. `make schema` writes them into `bot/config/schema`."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import sys

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from bot import discovery
from bot.config import ship_file
from bot.contracts.base import Frozen, Json, Level
from bot.contracts.identity import ChatKey
from bot.contracts.messages import ArchiveLine
from tests.log_kinds import line_schema


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


@functools.cache
def schemas() -> dict[str, str]:
    """Return the JSON Schemas by file name."""
    channels = tuple((name, one.settings) for name, one in sorted(discovery.manifests().items()))
    ship = ship_file.with_channels(channels).model_json_schema(by_alias=True, schema_generator=_Described)
    # The schema allows every channel to be missing, and channels of other packages.
    ship.pop("required", None)
    ship["$defs"]["Channels"].pop("required", None)
    ship["$defs"]["Channels"]["additionalProperties"] = True
    found = {
        ("ship", "ship.json"): ship,
        ("log-line", "A line of .ship/logs"): line_schema(LogLine.model_json_schema(by_alias=True)),
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


class _Described(GenerateJsonSchema):
    """Generates the description of each field from the docstring below the field. With pydantic's option for this, importing
    the models would take longer.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        made, model = super().model_schema(schema), schema["cls"]
        for name, field in model.model_fields.items():
            docs = (_field_docs(base.__module__).get((base.__name__, name)) for base in model.__mro__)
            if words := next(filter(None, docs), None):
                made["properties"][field.alias or name].setdefault("description", words)
        return made


@functools.cache
def _field_docs(module: str) -> dict[tuple[str, str], str]:
    """Return the docstrings of the fields of a module's classes; {} if the module has no source."""
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
