"""An MCP server whose tool descriptions and results are texts of the corpus: `python box.py TEXTS [NOTES]`. TEXTS is a JSON
file; NOTES is the server's text on the use of its tools.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TEXTS: list[str] = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
SAY = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


def tools() -> list[dict[str, Any]]:
    """Return one tool that returns any of the texts, and one tool for each text that is its description."""
    say = {
        "name": "say",
        "description": "Say something.",
        "inputSchema": SAY,
        "annotations": {"readOnlyHint": True},
    }
    named = [
        {"name": f"number{at}", "description": f"number{at} {words}", "inputSchema": NOTHING}
        for at, words in enumerate(TEXTS)
    ]
    return [say, *named]


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    match asked["method"]:
        case "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": "box", "version": "0"}
            notes = {"instructions": sys.argv[2]} if sys.argv[2:] else {}
            told = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            return {"result": told | notes}
        case "tools/list":
            return {"result": {"tools": tools()}}
        case "tools/call":
            words = TEXTS[asked["params"]["arguments"]["number"]]
            return {"result": {"content": [{"type": "text", "text": words}]}}
        case _:
            return {"error": {"code": -32601, "message": "unknown"}}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer(message)}) + "\n")
        sys.stdout.flush()
