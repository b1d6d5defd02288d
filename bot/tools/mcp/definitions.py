"""Turns a server's tool definitions into ones that a request may declare; validates arguments against a server's schema.

A request with one definition that the provider refuses fails as a whole, so a tool that cannot be declared safely is
left out.
"""

from __future__ import annotations

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
"""Characters of a description."""
INSTRUCTIONS = 2_000
"""Characters of what a server says of all its tools."""
INNER_WORDS = 400
"""Characters of a description inside a schema."""
SCHEMA = 24_000
"""Characters of a schema, written as JSON."""
DEPTH = 24
PROBLEMS = 20

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_AT_THE_TOP = frozenset({"oneOf", "anyOf", "allOf"})
"""Refused at the top of a schema; the server holds arguments against them itself."""
_JOINERS = frozenset("\u200c\u200d")
"""They hide nothing: Persian and emoji need them."""


class UndeclarableTool(ValueError):
    """A tool that no request can declare; the text says why."""


def name_of(server: str, tool: str) -> str:
    """`mcp__<server>__<tool>`, as the provider takes it. A name that has to be changed for that gets a digest of the
    whole, so that two never become one.
    """
    whole = f"{MCP}{server}__{tool}"
    if _NAME.fullmatch(tool) and len(whole) <= LONGEST_NAME:
        return whole
    digest = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:8]
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", tool)
    return f"{f'{MCP}{server}__{plain}'[: LONGEST_NAME - 9]}_{digest}"


def line(words: str, limit: int) -> str:
    """Return foreign text as one line of visible characters."""
    seen = (
        sign if sign in _JOINERS or unicodedata.category(sign) not in HIDING else " "
        for sign in words[: limit * 4]
    )
    return text.preview("".join(seen), limit)


def lines(words: str, limit: int) -> str:
    """Return foreign text as lines of visible characters, cut with `…` if it is longer."""
    looked = words[: limit * 4]
    seen = "\n".join(filter(None, (line(one, limit) for one in looked.splitlines())))
    return seen if len(seen) <= limit and looked == words else f"{text.head(seen, limit - 1)}…"


def offer(server: str, tool: str, words: str, schema: Any, instructions: str = "") -> ToolOffer:
    """A tool as it may be found. `instructions` is what its server says of them all. Raises `UndeclarableTool`."""
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


def _schema(schema: Any) -> Json:
    if not isinstance(schema, dict):
        raise UndeclarableTool("it has no schema")
    top = {key: value for key, value in schema.items() if key not in _AT_THE_TOP}
    if top.setdefault("type", "object") != "object":
        raise UndeclarableTool("its arguments are no object")
    if not isinstance(top.get("properties", {}), dict):
        raise UndeclarableTool("its schema is none")
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
    """A schema with its descriptions in one line each; without them where `words` is 0. `count` is of its parts."""
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
    """Raises `UndeclarableTool` for what is no JSON Schema. Patterns are not compiled and nothing is fetched."""
    import jsonschema  # comes with the library

    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except (jsonschema.SchemaError, RecursionError) as error:
        raise UndeclarableTool(
            f"its schema is none: {line(str(getattr(error, 'message', error)), 120)}"
        ) from None


# ------------------------------------------------------------ arguments

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def arguments(schema: Json) -> type[pydantic.BaseModel]:
    """A model that takes the arguments that fit a schema, and keeps them as they came."""

    class Arguments(pydantic.RootModel[Json]):
        @classmethod
        def model_validate(cls, obj: Any, **how: Any) -> Self:
            found = [
                InitErrorDetails(
                    type=PydanticCustomError("argument", "{words}", {"words": words}), loc=loc, input=None
                )
                for loc, words in itertools.islice(problems(schema, obj), PROBLEMS)
            ]
            if found:
                raise pydantic.ValidationError.from_exception_data("arguments", found)
            return super().model_validate(obj, **how)

    return Arguments


def problems(
    schema: Any, value: Any, loc: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the places where a value surely breaks the schema: type, required fields, enums. The rest of a schema
    (patterns, alternatives, references) is the server's to check. `jsonschema` checks the schema itself but not the
    values: it would run the server's regular expressions, which may never end, and shutting these out takes as many
    lines as this.
    """
    if not isinstance(schema, dict) or len(loc) > DEPTH:
        return
    if (words := _misfit(schema, value)) is not None:
        yield loc, words
        return
    if isinstance(value, dict):
        yield from _object(schema, value, loc)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from problems(schema.get("items"), item, (*loc, at))


def _object(
    schema: Json, value: Json, loc: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    known = schema.get("properties")
    known = known if isinstance(known, dict) else {}
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in value:
            yield (*loc, name), "expected a value, got nothing"
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    for name, item in value.items():
        if name in known:
            yield from problems(known[name], item, (*loc, name))
        elif closed:
            yield (*loc, name), f"there is no such field; there are {', '.join(known) or 'none'}"


def _misfit(schema: Json, value: Any) -> str | None:
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if names and not any(_is(name, value) for name in names):
        return f"expected {' or '.join(map(str, names))}, got {_shown(value)}"
    allowed = schema.get("enum")
    if isinstance(allowed, list) and not any(_same(one, value) for one in allowed):
        return f"expected one of {_shown(allowed)}, got {_shown(value)}"
    if "const" in schema and not _same(schema["const"], value):
        return f"expected {_shown(schema['const'])}, got {_shown(value)}"
    return None


def _is(name: Any, value: Any) -> bool:
    wanted = _TYPES.get(name) if isinstance(name, str) else None
    if wanted is None:
        return True
    if isinstance(value, bool):
        return bool(name == "boolean")
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, wanted)


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: true is not 1."""
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _shown(value: Any) -> str:
    return text.preview(json.dumps(value, ensure_ascii=False, default=str), 200)
