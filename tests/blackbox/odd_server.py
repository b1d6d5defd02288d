"""An MCP server with faults that real servers have: partly wrong definitions and results, forms, and progress. `python
odd_server.py FOLDER`. The tool `slow` runs until the folder contains a file `go`.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]
FOLDER = Path(sys.argv[-1])
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
LINK = "https://accounts.example.org/consent?client=tracker&scope=read_all&state=" + "a_b*" * 30
TOOLS = json.loads("""[
    {"name": "zebra_two", "inputSchema": {}},
    {"name": "titled", "title": 3, "inputSchema": {"type": "object"}, "outputSchema": {"properties": {}}},
    {"name": "loose", "inputSchema": {"type": "object", "properties": {"x": 3}, "required": "x"}},
    {"name": "branches", "inputSchema": {
        "anyOf": [{"$ref": "#/$defs/Place"}, {"properties": {"id": {"type": "integer"}}, "required": ["id"]}, 3],
        "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}},
    {"name": "of_a_list", "inputSchema": {"type": "array"}},
    {"name": "strange", "inputSchema": {"type": "object", "properties": {"x": {"type": "strange"}}}},
    {"name": 7, "inputSchema": {"type": "object"}}
]""")
FORM = json.loads("""{
    "name": {"type": "string", "title": "Your *name*", "description": "as on the door"},
    "check": {"type": "boolean"},
    "line": {"type": "string", "default": "It was a dark night"},
    "email": {"type": "string", "format": "email"},
    "age": {"type": "integer", "minimum": 1, "maximum": 120},
    "size": {"type": "number", "default": 3.5},
    "colour": {"type": "string", "enum": ["red", "green", "blue"], "default": "green"},
    "friend": {"type": "string", "oneOf": [{"const": "f1", "title": "Monica"}, {"const": "f2", "title": "Ross"}]},
    "several": {"type": "array", "items": {"type": "string", "enum": ["red", "green", "blue"]}, "default": ["red"]},
    "fish": {"type": "array", "minItems": 1, "items": {"anyOf": [{"const": "a", "title": "Tuna"}, {"const": "b", "title": "Cod"}]}},
    "pet": {"type": "string", "enum": ["p1", "p2"], "enumNames": ["Cats", "Dogs"]}
}""")
DEFAULTS = json.loads("""{
    "text": {"type": "string", "default": "John"},
    "whole": {"type": "integer", "default": 30},
    "number": {"type": "number", "default": 9.5},
    "yes": {"type": "boolean", "default": false},
    "one": {"type": "string", "enum": ["a", "b"], "default": "b"}
}""")
LOCK = threading.Lock()


def write(line: bytes) -> None:
    with LOCK:
        sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()


def out(message: Json) -> None:
    write(json.dumps({"jsonrpc": "2.0", **message}).encode())


def said(number: Any, *parts: Any) -> None:
    out(
        {
            "id": number,
            "result": {"content": [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]},
        }
    )


def asked(number: Any, message: str, fields: Json, *required: str, **more: Any) -> None:
    schema = {"type": "object", "properties": fields, "required": list(required)}
    params = {"message": message, **(more or {"requestedSchema": schema})}
    out({"id": f"form-{number}", "method": "elicitation/create", "params": params})


def slow(number: Any, token: Any) -> None:
    step = 0
    while not (FOLDER / "go").exists():
        step += 1
        told = {"progressToken": token, "progress": step, "total": 9_000, "message": "reading *all* pages"}
        out({"method": "notifications/progress", "params": told})
        threading.Event().wait(0.2)
    said(number, "read")


def begun(number: Any) -> bytes:
    return f'{{"jsonrpc": "2.0", "id": {number}, "result": {{"content": ['.encode()


IMAGE = {"type": "image", "mimeType": "image/png", "data": PNG}
CALLS: dict[str, Callable[[Any, Json], object]] = {
    "locked": lambda number, _: out(
        {"id": number, "error": {"code": -32000, "message": "database is locked by job 17"}}
    ),
    "half": lambda number, _: said(number, "half \ud800 a pair"),
    "pictured": lambda number, _: said(number, "Here it is.", IMAGE, IMAGE | {"data": "bm8gcGljdHVyZQ=="}),
    "bytes": lambda number, _: write(begun(number) + b'{"type": "text", "text": "caf\xe9 open"}]}}'),
    "blocks": lambda number, _: said(
        number, "kept", 7, {"type": "text", "text": None}, {}, {"type": "hologram"}, "to the end"
    ),
    "form": lambda number, _: asked(number, "See [the rules](https://evil.example) first", FORM, "name"),
    "defaults": lambda number, _: asked(number, "Fill in", DEFAULTS, *DEFAULTS),
    "link": lambda number, _: asked(number, "Sign in", {}, mode="url", url=LINK, elicitationId="e1"),
    "odd_form": lambda number, _: asked(number, "Where?", {"place": {"type": "object"}}, "place"),
    "slow": lambda number, params: threading.Thread(
        target=slow, args=(number, params["_meta"]["progressToken"]), daemon=True
    ).start(),
}


def heard(message: Json) -> None:
    number, params = message.get("id"), message.get("params", {})
    match message.get("method"):
        case "initialize":
            info = {"name": "odd", "version": "0"}
            greeting = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": info,
            }
            out({"id": number, "result": greeting})
        case "tools/list":
            named = [{"name": name, "inputSchema": {"type": "object"}} for name in CALLS]
            out({"id": number, "result": {"tools": [*TOOLS, *named]}})
        case "tools/call" if params["name"] in CALLS:
            CALLS[params["name"]](number, params)
        case "tools/call":
            said(number, f"{params['name']} {json.dumps(params['arguments'])}")
        case None:
            said(int(str(number).removeprefix("form-")), f"answered {json.dumps(message.get('result'))}")


if __name__ == "__main__":
    for line in sys.stdin:
        heard(json.loads(line))
