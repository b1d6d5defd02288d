"""Tools of MCP servers, in the form that the model can call. One invalid definition makes the model provider reject a
whole request, so tools with invalid definitions are omitted. One invalid part makes the SDK reject a whole list
of tools or a whole result, so results are converted before the SDK reads them (`mended`).
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
import unicodedata
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pydantic

from bot import text
from bot.contracts.base import Json
from bot.contracts.tools import MCP, Effect, Pictured
from bot.text import HIDING
from bot.tools.dispatch import ToolOffer

LONGEST_NAME = 128
WORDS = 1_000  # Max characters of a tool's description
INSTRUCTIONS = 2_000  # Max characters of a server's instructions
INNER_WORDS = 400  # Max characters of each description inside a schema
SCHEMA = 24_000  # Max characters of a schema in JSON
PROBLEMS = 20
LAST_RESORT = 2 * 3_600.0
"""Seconds by which the time limit in `tools.dispatch` exceeds the tool's own limit. The connection enforces the tool's
limit, and does not count the time in which a person is being asked.
"""
LONGEST = 4_000_000
"""Max characters of a result. A result that is too large for the model's context becomes an artifact."""
MOST_PARTS = 1_000  # Max parts of a result, such as texts and pictures
RAW = "shipmate/raw"
"""Key in a listed tool's `_meta`. The key's value is the tool's definition as the server sent it."""

_NAME = re.compile(r"[A-Za-z0-9_-]+")
DEPTH = 24
_PROPERTY = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_BRANCHES = ("allOf", "anyOf", "oneOf")
"""Keywords that the provider rejects at the top level of a schema. `_merged` removes them; servers check the arguments anyway."""
_CHECKED = "type enum const required properties items minimum maximum minLength maxLength minItems maxItems"
"""Keywords that are checked here because checking them is fast. Servers check the other keywords: patterns (which may take
forever), alternatives and references.
"""
_JOINERS = frozenset("\u200c\u200d")
"""Invisible characters that are kept in text, because Persian and emoji need them."""


class UndeclarableTool(ValueError):
    """Raised for a tool that cannot be declared; the message gives the reason."""


def name_of(server: str, tool: str) -> str:
    """Return the declared name of a tool, `mcp__<server>__<tool>`. A name that the provider would reject is changed and gets a
    hash as suffix, so that names stay unique.
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


def offer(server: str, tool: Any, instructions: str = "") -> ToolOffer:
    """Return the catalog entry of a tool. `instructions` are the server's notes on its tools. Raises `UndeclarableTool`."""
    name = tool.get("name") if isinstance(tool, dict) else None
    if not isinstance(name, str) or not name:
        raise UndeclarableTool("name: it has none")
    try:
        shown = _schema(tool.get("inputSchema", {}))
    except RecursionError:
        raise UndeclarableTool("its schema is nested too deeply") from None
    if odd := [field for field in shown.get("properties", {}) if not _PROPERTY.fullmatch(field)]:
        raise UndeclarableTool(
            f"an argument has a name that cannot be declared: {text.preview(odd[0], 40)!r}"
        )
    words = (one for key in ("description", "title") if isinstance(one := tool.get(key), str) and one)
    said = line(next(words, ""), WORDS)
    told = f"A tool of the MCP server {server}" + (f", in its own words: {said}" if said else ".")
    definition = {"name": name_of(server, name), "description": told, "input_schema": shown}
    return ToolOffer(definition, name, said, server, instructions)


def _merged(schema: Any) -> Json:
    """Return an object schema without branches such as `anyOf`. The result has the fields of all branches. Only fields that the
    schema requires outside its branches are required.
    """
    if not _is_object(schema):
        raise UndeclarableTool("inputSchema.type: its arguments are no object")
    top = {"type": "object"} | {key: one for key, one in schema.items() if key not in {*_BRANCHES, "$ref"}}
    needed = top.pop("required", None)
    needed = [one for one in needed if isinstance(one, str)] if isinstance(needed, list) else []
    fields = _fields(schema, schema)
    top |= {"properties": fields} if fields or "properties" in schema else {}
    return top | ({"required": needed} if needed else {})


def _fields(schema: Json, whole: Json) -> Json:
    own = schema.get("properties")
    found = (
        {name: one if isinstance(one, dict | bool) else {} for name, one in own.items()}
        if isinstance(own, dict)
        else {}
    )
    branches = [one for key in _BRANCHES if isinstance(schema.get(key), list) for one in schema[key]]
    if str(schema.get("$ref")).startswith("#/"):
        branch: Any = whole
        for step in schema["$ref"][2:].split("/"):
            branch = branch.get(step) if isinstance(branch, dict) else None
        branches.append(branch)
    for branch in filter(_is_object, branches):
        for name, one in _fields(branch, whole).items():
            found[name] = one if found.get(name, one) == one else {"anyOf": [found[name], one]}
    return found


def _is_object(schema: Any) -> bool:
    return isinstance(schema, dict) and schema.get("type", "object") == "object"


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
    """Return a Pydantic model that accepts arguments if they match a schema. The model does not change the arguments."""

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


def problems(schema: Json, value: Any) -> Any:
    """Return the errors that `jsonschema` finds with the keywords in `_CHECKED`."""
    return _validator()(schema).iter_errors(value)


@functools.cache
def _validator() -> Any:
    import jsonschema

    every = jsonschema.Draft202012Validator
    checks = {name: every.VALIDATORS[name] for name in _CHECKED.split()}
    return jsonschema.validators.create(every.META_SCHEMA, checks, type_checker=every.TYPE_CHECKER)


@dataclass(frozen=True)
class ServerTool:
    """A tool of an MCP server. The tool's effects are unknown, so it counts as having all effects. `defined` is a hash of the
    server and the definition. An approval is valid only for this hash.
    """

    offer: ToolOffer
    call: Callable[[str, Json], Awaitable[Pictured]]
    timeout_seconds: float
    defined: str
    effects: frozenset[Effect] = frozenset({"read", "write", "run", "network", "message"})
    ages: bool = True

    @property
    def name(self) -> str:
        return self.offer.name

    @property
    def description(self) -> str:
        return str(self.offer.definition["description"])

    @functools.cached_property
    def input(self) -> type[pydantic.BaseModel]:
        return arguments(self.offer.definition["input_schema"])

    async def run(self, args: Any) -> Pictured:
        return await self.call(self.offer.title, args.root)


def mended(result: Json) -> Json:
    """Return a server's result in a form that the SDK accepts. Each listed tool gets its own definition as metadata
    (`RAW`). A tool's result becomes one text and its pictures.
    """
    if isinstance(result.get("tools"), list):
        shell = {"name": "tool", "inputSchema": {"type": "object"}}
        return result | {"tools": [{**shell, "_meta": {RAW: one}} for one in result["tools"]]}
    if {"content", "structuredContent"}.isdisjoint(result):
        return result
    parts = result.get("content")
    parts = parts[:MOST_PARTS] if isinstance(parts, list) else [parts]
    parts = [part if isinstance(part, dict) else {} for part in parts]
    data = (part.get("data") for part in parts if part.get("type") == "image")
    pictures = [{"type": "image", "data": one, "mimeType": ""} for one in data if isinstance(one, str)]
    kept = {name: value for name, value in result.items() if name != "structuredContent"}
    content = [{"type": "text", "text": words_of({**result, "content": parts})}, *pictures]
    return kept | {"content": content, "isError": result.get("isError") is True}


def words_of(result: Json) -> str:
    """Return a `CallToolResult` as text. Notes replace content that is not text."""
    parts = [words for part in result.get("content") or () if (words := _part(part))]
    structured = result.get("structuredContent")
    if structured is not None and not parts:
        parts.append(json.dumps(structured, ensure_ascii=False, default=str))
    return text.clean(text.shorten_middle("\n\n".join(parts), LONGEST))


def _part(part: Json) -> str:
    inner = part.get("resource")
    match part.get("type"):
        case "text":
            return str(part.get("text") or "")
        case "image" | "audio" as kind:
            size = len(str(part.get("data") or "")) * 3 // 4
            return f"[{kind}: {part.get('mimeType')}, {size:,} bytes]"
        case "resource_link":
            return f"[resource: {part.get('name')}, {part.get('uri')}]"
        case "resource" if isinstance(inner, dict) and isinstance(inner.get("text"), str):
            return f"[{inner.get('uri')}]\n{inner['text']}"
        case "resource" if isinstance(inner, dict):
            return f"[resource: {inner.get('uri')}, {inner.get('mimeType')}, not shown]"
        case kind:
            return f"[{kind}: not shown]"
