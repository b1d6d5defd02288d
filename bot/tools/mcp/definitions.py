"""Converts tool definitions of servers into ones that a request can declare; validates arguments against their schemas.

The provider refuses a whole request for one invalid definition, so a tool that cannot be declared safely is omitted.
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
from bot.tools.catalog import ToolOffer
from bot.tools.permissions.display import HIDING

LONGEST_NAME = 128
WORDS = 1_000
"""Max characters of a description."""
INSTRUCTIONS = 2_000
"""Max characters of a server's instructions."""
INNER_WORDS = 400
"""Max characters of a description inside a schema."""
SCHEMA = 24_000
"""Max characters of a schema as JSON."""
DEPTH = 24
PROBLEMS = 20

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BRANCHES = ("allOf", "anyOf", "oneOf")
"""The provider refuses them at the top of a schema. Servers validate arguments themselves."""
_JOINERS = frozenset("\u200c\u200d")
"""Invisible, but Persian and emoji need them."""


class UndeclarableTool(ValueError):
    """The tool cannot be declared; the text says why."""


def name_of(server: str, tool: str) -> str:
    """`mcp__<server>__<tool>`. A name that the provider would refuse is changed and gets a digest, so that names stay unique."""
    whole = f"{MCP}{server}__{tool}"
    if _NAME.fullmatch(tool) and len(whole) <= LONGEST_NAME:
        return whole
    digest = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:8]
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", tool)
    return f"{f'{MCP}{server}__{plain}'[: LONGEST_NAME - 9]}_{digest}"


def line(words: str, limit: int) -> str:
    """Reduce foreign text to one line of visible characters."""
    seen = (
        sign if sign in _JOINERS or unicodedata.category(sign) not in HIDING else " "
        for sign in words[: limit * 4]
    )
    return text.preview("".join(seen), limit)


def lines(words: str, limit: int) -> str:
    """Reduce foreign text to lines of visible characters, cut with `…`."""
    looked = words[: limit * 4]
    seen = "\n".join(filter(None, (line(one, limit) for one in looked.splitlines())))
    return seen if len(seen) <= limit and looked == words else f"{text.head(seen, limit - 1)}…"


def offer(server: str, tool: str, words: str, schema: Any, instructions: str = "") -> ToolOffer:
    """Build the catalog entry of a tool. `instructions` are its server's notes. Raises `UndeclarableTool`."""
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
    """The used parts of a server's definition, repaired where that is harmless. Raises `UndeclarableTool`."""
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise UndeclarableTool("name: it has none")
    kept = {key: tool[key] for key in ("name", "title", "description") if isinstance(tool.get(key), str)}
    return kept | {"inputSchema": _merged(tool.get("inputSchema", {}))}


def _merged(schema: Any, whole: Json | None = None, depth: int = 0) -> Json:
    """Merge the branches of an object schema: it has the fields of all branches and requires what each of them requires."""
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
    """Reduce descriptions in a schema to `words` characters; 0 removes them. `count` counts the parts."""
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
    """Raises `UndeclarableTool` for an invalid JSON Schema. No pattern is compiled, nothing is fetched."""
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
    """A model that accepts arguments matching a schema, unchanged."""

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
    """Yield the errors of `jsonschema` for keywords that are cheap to check. Patterns (which may never end), alternatives and references
    are left to the server.
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
