"""The fake model of the corpus. An answer depends only on the request, so it is the same before and after a kill."""

from __future__ import annotations

import re
from typing import Any

from bot.contracts.base import Json
from bot.testing.anthropic_script import Reply, reply, tool_use

LINE = "This line belongs to the long answer, and so does the next one.\n"
_CALLS: dict[str, tuple[str, Json]] = {
    "note": ("memory", {"command": "create", "path": "/memories/me/note.md", "file_text": "one note"}),
    "skills": ("skills_list", {}),
    "plan once": ("schedule_create", {"prompt": "the planned question", "when": "2027-01-15T10:00:00Z"}),
    "plan abroad": (
        "schedule_create",
        {"prompt": "the planned question", "when": "2027-01-15T19:00:00", "timezone": "Asia/Tokyo"},
    ),
    "book": ("mcp__friends__book", {}),
}
"""Tools that the model calls before its answer, each by a word of the question."""

_BOT = re.compile(r"^(?:<@U0SHIP>|@shipmate_bot) ")


def answer(body: Json) -> Reply:
    """Call the tool that the question names, then answer all questions of the turn."""
    asked, called = _turn(body["messages"])
    for word, (tool, arguments) in _CALLS.items():
        if any(word in one for one in asked) and tool not in called:
            return reply(tool_use(tool, arguments))
    if any("make a table" in one for one in asked):
        made = tool_use("write_file", {"path": "表.csv", "content": "名,值\n一,1\n"})
        sent = tool_use("chat_send", {"text": "the table", "attachments": ["表.csv"]})
        return reply(sent if "write_file" in called else made)
    if any("two tasks" in one for one in asked) and "task" not in called:
        return reply(
            *(tool_use("task", {"prompt": f"report {n}", "description": f"Part {n}"}) for n in (1, 2))
        )
    return reply(words(*asked))


def words(*asked: str) -> str:
    """Return the answer to these questions."""
    said = f"answer to {' and '.join(asked)}"
    if "long" not in said:
        return said
    return f"{said}\n\n{LINE * (130 if 'very long' in said else 65)}".rstrip()


def _turn(messages: list[Any]) -> tuple[list[str], list[str]]:
    """Return the questions and the called tools since the last answer."""
    asked: list[str] = []
    called: list[str] = []
    for message in messages:
        blocks = message["content"]
        if message["role"] == "user":
            said = [_BOT.sub("", block["text"]) for block in blocks if block["type"] == "text"]
            asked += [one for one in said if _said(one)]
            continue
        calls = [block["name"] for block in blocks if block["type"] == "tool_use"]
        called += calls
        if not calls:
            asked, called = [], []
    return asked, called


def _said(block: str) -> bool:
    """Return True if a person wrote this text. All other texts are inside tags."""
    return not re.match(r"<[a-z_-]", block)
