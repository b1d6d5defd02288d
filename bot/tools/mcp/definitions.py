"""Tools of MCP servers, in the form that the model can call. One invalid definition makes the model provider reject a
whole request, so a tool that cannot be declared safely is omitted. One invalid part makes the SDK reject a whole list
of tools or a whole result, so such parts are repaired or omitted first.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, ClassVar

import pydantic

from bot import text
from bot.contracts.base import Json
from bot.contracts.tools import MCP, Effect, Pictured
from bot.tools.permissions.display import HIDING
from bot.tools.registry import ToolOffer

LONGEST_NAME = 128
WORDS = 1_000
"""Max characters of a tool's description."""
INSTRUCTIONS = 2_000
"""Max characters of a server's instructions."""
INNER_WORDS = 400
"""Max characters of each description inside a schema."""
SCHEMA = 24_000
"""Max characters of a schema in JSON."""
PROBLEMS = 20
LAST_RESORT = 2 * 3_600.0
"""Seconds by which the time limit in `tools.dispatch` exceeds the tool's own limit. The connection enforces the tool's
own limit, which does not run while a person is being asked.
"""
LONGEST = 4_000_000
"""Max characters of a result. A result that is too large for the model's context becomes an artifact."""
MOST_PARTS = 1_000
"""Max parts (texts, pictures and others) of a result."""
LEFT_OUT = "shipmate/leftOut"
"""Key in `_meta` of a list of tools. Its value names the tools that cannot be declared, with the reasons."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
DEPTH = 24
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BRANCHES = ("allOf", "anyOf", "oneOf")
"""Keywords that the provider rejects at the top level of a schema. Servers validate the arguments themselves."""
_CHECKED = "type enum const required properties items minimum maximum minLength maxLength minItems maxItems"
"""Keywords that are checked here because checking them is fast. Servers check the others: patterns (which may take
forever), alternatives and references.
"""
_JOINERS = frozenset("\u200c\u200d")
"""Invisible characters that are kept in text, because Persian and emoji need them."""


class UndeclarableTool(ValueError):
    """Raised for a tool that cannot be declared; the message gives the reason."""


def name_of(server: str, tool: str) -> str:
    """Return the declared name of a tool, `mcp__<server>__<tool>`. If the provider would reject the name, it is changed
    and gets a hash as suffix, so that names stay unique.
    """
    whole = f"{MCP}{server}__{tool}"
    if _NAME.fullmatch(tool) and len(whole) <= LONGEST_NAME:
        return whole
    digest = hashlib.sha256(tool.encode("utf-8", "replace")).hexdigest()[:8]
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", tool)
    return f"{f'{MCP}{server}__{plain}'[: LONGEST_NAME - 9]}_{digest}"


def line(words: str, limit: int) -> str:
    """Return a server's text as one line of visible characters, cut to `limit` characters."""
    seen = (
        sign if sign in _JOINERS or unicodedata.category(sign) not in HIDING else " "
        for sign in words[: limit * 4]
    )
    return text.preview("".join(seen), limit)


def lines(words: str, limit: int) -> str:
    """Return a server's text as lines of visible characters, cut to `limit` characters. `…` marks a cut."""
    looked = words[: limit * 4]
    seen = "\n".join(filter(None, (line(one, limit) for one in looked.splitlines())))
    return seen if len(seen) <= limit and looked == words else f"{text.head(seen, limit - 1)}…"


def offer(server: str, tool: str, words: str, schema: Any, instructions: str = "") -> ToolOffer:
    """Return the catalog entry of a tool. `instructions` are the server's notes on its tools. Raises
    `UndeclarableTool`.
    """
    if not tool:
        raise UndeclarableTool("it has no name")
    try:
        shown = _schema(schema)
    except RecursionError:
        raise UndeclarableTool("its schema is nested too deeply") from None
    fields = tuple(shown.get("properties", {}))
    if odd := [field for field in fields if not _PROPERTY.fullmatch(field)]:
        raise UndeclarableTool(
            f"an argument has a name that cannot be declared: {text.preview(odd[0], 40)!r}"
        )
    said = line(words, WORDS)
    told = f"A tool of the MCP server {server}" + (f", in its own words: {said}" if said else ".")
    definition = {"name": name_of(server, tool), "description": told, "input_schema": shown}
    return ToolOffer(definition, tool, said, fields, server, instructions)


def _merged(schema: Any, whole: Json | None = None) -> Json:
    """Return an object schema in which the branches are merged. It has the fields of all branches, and requires only
    what each branch requires.
    """
    if not _is_object(schema):
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
        merged = [_merged(one, whole or schema) for one in each if _is_object(one)]
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
    import jsonschema  # installed with the SDK

    top = _merged(schema)
    for words in (INNER_WORDS, 0):
        shown = _tidied(top, words)
        if len(json.dumps(shown, ensure_ascii=False)) > SCHEMA:
            continue
        try:
            # This check compiles no pattern and fetches nothing.
            jsonschema.Draft202012Validator.check_schema(shown)
        except jsonschema.SchemaError as error:
            place = error.json_path.replace("$", "inputSchema", 1)
            raise UndeclarableTool(f"{line(place, 120)}: {line(error.message, 120)}") from None
        return dict(shown)
    raise UndeclarableTool(f"its schema has more than {SCHEMA:,} characters")


def _tidied(value: Any, words: int, depth: int = 0) -> Any:
    """Return a schema whose descriptions are cut to `words` characters; 0 removes them."""
    if depth > DEPTH:
        raise UndeclarableTool("its schema is nested too deeply")
    if isinstance(value, list):
        return [_tidied(item, words, depth + 1) for item in value]
    if not isinstance(value, dict):
        return text.clean(value) if isinstance(value, str) else value
    found = {}
    for key, item in value.items():
        if key == "$ref" and not (isinstance(item, str) and item.startswith("#")):
            raise UndeclarableTool("its schema refers to something outside of it")
        if key not in {"description", "title", "$comment"} or not isinstance(item, str):
            found[text.clean(key)] = _tidied(item, words, depth + 1)
        elif words:
            found[key] = line(item, words)
    return found


def arguments(schema: Json) -> type[pydantic.BaseModel]:
    """Return a Pydantic model that accepts arguments if they match a schema. The model leaves them unchanged."""

    class Arguments(pydantic.RootModel[Json]):
        @pydantic.model_validator(mode="after")
        def fits(self) -> Arguments:
            told = [
                ": ".join(filter(None, (".".join(map(str, one.absolute_path)), one.message)))
                for one in itertools.islice(problems(schema, self.root), PROBLEMS)
            ]
            if told:
                raise ValueError("; ".join(told))
            return self

    return Arguments


def problems(schema: Json, value: Any) -> Iterator[Any]:
    """Yield the errors that `jsonschema` finds with the keywords in `_CHECKED`, and an error for each unknown field."""
    yield from _validator()(schema).iter_errors(value)


@functools.cache
def _validator() -> Any:
    import jsonschema

    every = jsonschema.Draft202012Validator

    def closed(judge: Any, extra: Any, value: Any, schema: Json) -> Iterator[Any]:
        if extra is False and "patternProperties" not in schema:
            yield from every.VALIDATORS["additionalProperties"](judge, extra, value, schema)

    return jsonschema.validators.create(
        every.META_SCHEMA,
        {name: every.VALIDATORS[name] for name in _CHECKED.split()} | {"additionalProperties": closed},
        type_checker=every.TYPE_CHECKER,
    )


class ServerTool:
    """A tool of an MCP server. Its effects are unknown, so it counts as having all effects. `defined` is a hash of the
    server and the definition. An approval is valid only for this hash.
    """

    effects: ClassVar[frozenset[Effect]] = frozenset({"read", "write", "run", "network", "message"})
    ages = True

    def __init__(
        self,
        offer: ToolOffer,
        run: Callable[[str, Json], Awaitable[Pictured]],
        seconds: float,
        schema: Json,
        defined: str = "",
    ) -> None:
        self.offer = offer
        self.name = offer.name
        self.description = str(offer.definition["description"])
        self.timeout_seconds = seconds + LAST_RESORT
        self.defined = defined
        self._run = run
        self._schema = schema

    @functools.cached_property
    def input(self) -> type[pydantic.BaseModel]:
        return arguments(self._schema)

    async def run(self, args: Any) -> Pictured:
        return await self._run(self.offer.title, args.root)


def mended(result: Json) -> Json:
    """Return a server's result in which invalid tools and parts are repaired or omitted."""
    if isinstance(result.get("tools"), list):
        tools, left_out = [], []
        for one in result["tools"]:
            try:
                tools.append(_declared(one))
            except (UndeclarableTool, RecursionError) as error:
                name = one.get("name") if isinstance(one, dict) else one
                left_out.append(f"{line(str(name), 80)}: {error}")
        return result | {"tools": tools, "_meta": {LEFT_OUT: left_out}}
    if {"content", "structuredContent"}.isdisjoint(result):
        return result
    parts = result.get("content")
    parts = parts[:MOST_PARTS] if isinstance(parts, list) else [parts]
    data = (part.get("data") for part in parts if isinstance(part, dict) and part.get("type") == "image")
    pictures = [{"type": "image", "data": one, "mimeType": ""} for one in data if isinstance(one, str)]
    words = words_of({**result, "content": parts})
    kept = {name: value for name, value in result.items() if name != "structuredContent"}
    content = [{"type": "text", "text": words}, *pictures]
    return kept | {"content": content, "isError": result.get("isError") is True}


def _declared(tool: Any) -> Json:
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise UndeclarableTool("name: it has none")
    kept = {key: tool[key] for key in ("name", "title", "description") if isinstance(tool.get(key), str)}
    return kept | {"inputSchema": _merged(tool.get("inputSchema", {}))}


def words_of(result: Json) -> str:
    """Return a `CallToolResult` as text. Notes replace content that is not text."""
    parts = [words for part in result.get("content") or () if (words := _part(part))]
    structured = result.get("structuredContent")
    if structured is not None and not parts:
        parts.append(json.dumps(structured, ensure_ascii=False, default=str))
    return text.clean(text.shorten_middle("\n\n".join(parts), LONGEST))


def _part(part: Any) -> str:
    part = part if isinstance(part, dict) else {}
    kind = part.get("type")
    if kind == "text":
        return str(part.get("text") or "")
    if kind in {"image", "audio"}:
        size = len(str(part.get("data") or "")) * 3 // 4
        return f"[{kind}: {part.get('mimeType')}, {size:,} bytes]"
    if kind == "resource_link":
        return f"[resource: {part.get('name')}, {part.get('uri')}]"
    inner = part.get("resource") if kind == "resource" else None
    if isinstance(inner, dict):
        if isinstance(inner.get("text"), str):
            return f"[{inner.get('uri')}]\n{inner['text']}"
        return f"[resource: {inner.get('uri')}, {inner.get('mimeType')}, not shown]"
    return f"[{kind}: not shown]"
