"""Converts the tool definitions of MCP servers into definitions that a model request can declare. Arguments
of calls are validated against the servers' schemas here too.

The model provider rejects a whole request because of one invalid definition, so a tool that cannot be
declared safely is omitted.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any, Self

import pydantic
from pydantic_core import InitErrorDetails, PydanticCustomError

from bot import text
from bot.contracts.base import Json
from bot.contracts.tools import MCP
from bot.tools.permissions.display import HIDING
from bot.tools.registry import ToolOffer

LONGEST_NAME = 128
WORDS = 1_000
"""Max characters of a tool's description."""
INSTRUCTIONS = 2_000
"""Max characters of a server's instructions."""
INNER_WORDS = 400
"""Max characters of a description inside a schema."""
SCHEMA = 24_000
"""Max characters of a schema written as JSON."""
DEPTH = 24
PROBLEMS = 20

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BRANCHES = ("allOf", "anyOf", "oneOf")
"""Keywords that the model provider rejects at the top of a schema. Servers validate arguments themselves."""
_JOINERS = frozenset("\u200c\u200d")
"""Invisible characters that are kept, because Persian and emoji need them."""


class UndeclarableTool(ValueError):
    """Raised for a tool that cannot be declared; the message gives the reason."""


def name_of(server: str, tool: str) -> str:
    """Return the declared name of a tool, `mcp__<server>__<tool>`. A name that the model provider would
    reject is changed and gets a hash as suffix, so that names stay unique.
    """
    whole = f"{MCP}{server}__{tool}"
    if _NAME.fullmatch(tool) and len(whole) <= LONGEST_NAME:
        return whole
    digest = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:8]
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", tool)
    return f"{f'{MCP}{server}__{plain}'[: LONGEST_NAME - 9]}_{digest}"


def line(words: str, limit: int) -> str:
    """Return a server's text reduced to one line of visible characters."""
    seen = (
        sign if sign in _JOINERS or unicodedata.category(sign) not in HIDING else " "
        for sign in words[: limit * 4]
    )
    return text.preview("".join(seen), limit)


def lines(words: str, limit: int) -> str:
    """Return a server's text reduced to lines of visible characters; a cut is marked by `…`."""
    looked = words[: limit * 4]
    seen = "\n".join(filter(None, (line(one, limit) for one in looked.splitlines())))
    return seen if len(seen) <= limit and looked == words else f"{text.head(seen, limit - 1)}…"


def offer(server: str, tool: str, words: str, schema: Any, instructions: str = "") -> ToolOffer:
    """Return the catalog entry of a tool. `instructions` are the server's notes on its tools. Raises
    `UndeclarableTool`.
    """
    if not tool:
        raise UndeclarableTool("it has no name")
    shown = _schema(schema)
    fields = tuple(shown.get("properties", {}))
    if odd := [field for field in fields if not _PROPERTY.fullmatch(field)]:
        raise UndeclarableTool(
            f"an argument has a name that cannot be declared: {text.preview(odd[0], 40)!r}"
        )
    said = line(words, WORDS)
    told = f"A tool of the MCP server {server}" + (f", in its own words: {said}" if said else ".")
    definition = {"name": name_of(server, tool), "description": told, "input_schema": shown}
    return ToolOffer(definition, tool, said, fields, server, instructions)


def declared(tool: Any) -> Json:
    """Return the parts of a server's tool definition that Shipmate uses. Faults that can be repaired without
    harm are repaired. Raises `UndeclarableTool`.
    """
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise UndeclarableTool("name: it has none")
    kept = {key: tool[key] for key in ("name", "title", "description") if isinstance(tool.get(key), str)}
    return kept | {"inputSchema": _merged(tool.get("inputSchema", {}))}


def _merged(schema: Any, whole: Json | None = None, depth: int = 0) -> Json:
    """Return an object schema with its branches merged. The result has the fields of all branches, and
    requires only what each branch requires.
    """
    if not _is_object(schema) or depth > DEPTH:
        raise UndeclarableTool("inputSchema.type: its arguments are no object")
    top = {"type": "object"} | {key: value for key, value in schema.items() if key not in _BRANCHES}
    branches = {key: schema[key] for key in _BRANCHES if isinstance(schema.get(key), list)}
    if str(top.get("$ref")).startswith("#/"):
        found: Any = whole or schema
        for step in top.pop("$ref")[2:].split("/"):
            found = found.get(step) if isinstance(found, dict) else None
        branches["$ref"] = [found]
    fields, needed = top.pop("properties", None), top.pop("required", None)
    fields = fields if isinstance(fields, dict) else {}
    fields = {name: one if isinstance(one, dict | bool) else {} for name, one in fields.items()}
    needed = [one for one in needed if isinstance(one, str)] if isinstance(needed, list) else []
    for key, each in branches.items():
        merged = [_merged(one, whole or schema, depth + 1) for one in each if _is_object(one)]
        for name, one in (item for branch in merged for item in branch.get("properties", {}).items()):
            fields[name] = one if fields.get(name, one) == one else {"anyOf": [fields[name], one]}
        sets = [set(branch.get("required", ())) for branch in merged] or [set[str]()]
        more = set.intersection(*sets) if key in {"anyOf", "oneOf"} else set.union(*sets)
        needed += sorted(more.difference(needed))
    top |= {"properties": fields} if fields or "properties" in schema else {}
    return top | ({"required": needed} if needed or "required" in schema else {})


def _is_object(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    return schema.get("type", "object") == "object" and isinstance(schema.get("$schema", ""), str)


def _schema(schema: Any) -> Json:
    top = _merged(schema)
    for words in (INNER_WORDS, 0):
        shown = _tidied(top, words, 0, itertools.count())
        try:
            size = len(json.dumps(shown, ensure_ascii=False, allow_nan=False))
        except ValueError:
            raise UndeclarableTool("its schema holds a number that is none") from None
        if size <= SCHEMA:
            _check(shown)
            return dict(shown)
    raise UndeclarableTool(f"its schema has more than {SCHEMA:,} characters")


def _tidied(value: Any, words: int, depth: int, count: Iterator[int]) -> Any:
    """Return a schema with its descriptions cut to `words` characters; 0 removes descriptions. `count`
    counts the parts of the schema.
    """
    if depth > DEPTH:
        raise UndeclarableTool("its schema is nested too deeply")
    if next(count) > SCHEMA:
        raise UndeclarableTool(f"its schema has more than {SCHEMA:,} parts")
    if isinstance(value, str):
        return text.clean(value)
    if isinstance(value, list):
        return [_tidied(item, words, depth + 1, count) for item in value]
    if not isinstance(value, dict):
        return value
    found = {}
    for key, item in value.items():
        if key == "$ref" and not (isinstance(item, str) and item.startswith("#")):
            raise UndeclarableTool("its schema refers to something outside of it")
        if key in {"description", "title", "$comment"} and isinstance(item, str):
            if words:
                found[key] = line(item, words)
        else:
            found[text.clean(key)] = _tidied(item, words, depth + 1, count)
    return found


def _check(schema: Json) -> None:
    """Raise `UndeclarableTool` for an invalid JSON Schema. No pattern is compiled and nothing is fetched."""
    import jsonschema  # installed with the SDK

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError) as error:
        place = getattr(error, "json_path", "$").replace("$", "inputSchema", 1)
        raise UndeclarableTool(
            f"{line(place, 120)}: {line(str(getattr(error, 'message', error)), 120)}"
        ) from None


# ------------------------------------------------------------ arguments


def arguments(schema: Json) -> type[pydantic.BaseModel]:
    """Return a Pydantic model that accepts arguments matching a schema and leaves them unchanged."""

    class Arguments(pydantic.RootModel[Json]):
        @classmethod
        def model_validate(cls, obj: Any, **how: Any) -> Self:
            found = [
                InitErrorDetails(
                    type=PydanticCustomError("argument", "{words}", {"words": one.message}),
                    loc=tuple(one.absolute_path),
                    input=None,
                )
                for one in itertools.islice(problems(schema, obj), PROBLEMS)
            ]
            if found:
                raise pydantic.ValidationError.from_exception_data("arguments", found)
            return super().model_validate(obj, **how)

    return Arguments


def problems(schema: Json, value: Any) -> Iterator[Any]:
    """Yield the errors that `jsonschema` finds for keywords that are cheap to check. Patterns (which may
    take forever), alternatives and references are left to the server.
    """
    yield from _judge()(schema).iter_errors(value)


@functools.cache
def _judge() -> Any:
    import jsonschema

    every = jsonschema.Draft202012Validator.VALIDATORS
    judged = "type enum const required properties items minimum maximum minLength maxLength minItems maxItems"

    def closed(judge: Any, extra: Any, value: Any, schema: Json) -> Iterator[Any]:
        if extra is False and "patternProperties" not in schema:
            yield from every["additionalProperties"](judge, extra, value, schema)

    return jsonschema.validators.create(
        jsonschema.Draft202012Validator.META_SCHEMA,
        {name: every[name] for name in judged.split()} | {"additionalProperties": closed},
        type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER,
    )
