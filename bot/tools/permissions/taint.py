"""Whether words of people without rights are in view: pages, files, output of programs, others in the chat.

It follows from the messages alone, so a restart finds the same. In doubt it says yes: what cannot be told apart from
somebody else's words counts as theirs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from bot.contracts import Json, Message

_OPEN, _CLOSE = "<turn_context>", "</turn_context>"
_ORIGIN, _END = "<origin>", "</origin>"
_SUMMARY = "<conversation_summary"
_TELLING = frozenset({"memory", "schedule_list"})
"""Tools whose results say themselves whose words they hold."""
_FOREIGN = ("<quoted_messages", "<attached_files")
"""What words of others in a person's message begin with."""
_BLOCK = "compaction"
"""A summary that the provider wrote; what it stands for is said behind it, as for ours."""
_OWN = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "tool_result", _BLOCK})
_SOURCES = frozenset(
    {
        "chat_load_history",
        "list_dir",
        "read_artifact",
        "read_file",
        "run_shell",
        "search_files",
        "task",
        "web_fetch",
    }
)
"""Tools whose results may hold what anybody has written; so may those of MCP servers."""


def authors(messages: Iterable[Message]) -> frozenset[str] | None:
    """The ids of the people whose words these messages are; None where anybody's may be among them."""
    calls: dict[str, str] = {}
    found: set[str] = set()
    for message in messages:
        content = message["content"]
        blocks: Sequence[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if any(block.get("type") not in _OWN for block in blocks):
            return None
        if message["role"] == "assistant":
            calls |= {block["id"]: block["name"] for block in blocks if block["type"] == "tool_use"}
            continue
        results = [block for block in blocks if block["type"] == "tool_result"]
        for block in results:
            name = calls.get(block["tool_use_id"], "")
            people = _remembered(block) if name in _TELLING else frozenset()
            if _is_source(name) or people is None:
                return None
            found |= people
        if not results:
            texts = [block["text"] for block in blocks if block["type"] == "text"]
            begins = [_SUMMARY] if blocks and blocks[0].get("type") == _BLOCK else []
            people = _people([*begins, *texts])
            if people is None:
                return None
            found |= people
    return frozenset(found)


def origin(people: frozenset[str] | None) -> str:
    """The block that says in a summary whose words it stands for; "" where anybody's."""
    return f"{_ORIGIN}{json.dumps(sorted(people))}{_END}" if people is not None else ""


def listed(people: frozenset[str] | None) -> str:
    """The first line of what is shown from memory or of jobs: whose words it holds; None where anybody's."""
    return f"{_ORIGIN}{json.dumps(sorted(people) if people is not None else None)}{_END}"


def _remembered(result: Json) -> frozenset[str] | None:
    """Whose words a result holds that says so; nobody's where it shows nothing that somebody wrote."""
    content = result.get("content")
    first = content.partition("\n")[0] if isinstance(content, str) else ""
    if not first.startswith(_ORIGIN):
        return frozenset()
    people = _inside(first, _ORIGIN, _END)
    return frozenset(map(str, people)) if isinstance(people, list) else None


def _is_source(name: str) -> bool:
    return not name or name in _SOURCES or name.startswith("mcp__")


def _people(texts: Sequence[str]) -> frozenset[str] | None:
    """Whose words a message of the user's side is. What the gateway has written has two blocks at the least; one block
    alone may be what anybody wrote, as where a history was made from an archive.
    """
    if len(texts) < 2 or any(words.startswith(_FOREIGN) for words in texts[1:]):
        return None
    if texts[0].startswith(_SUMMARY):
        people = _inside(texts[1], _ORIGIN, _END)
        return frozenset(map(str, people)) if isinstance(people, list) else None
    facts = _inside(texts[0], _OPEN, _CLOSE)
    author = facts.get("userId") if isinstance(facts, dict) else None
    if not isinstance(author, str):
        return None
    # What a job is to do was written by a model, which had these people's words in view.
    job = facts.get("job", {"wordsOf": []})
    others = job.get("wordsOf") if isinstance(job, dict) else None
    return frozenset({author, *map(str, others)}) if isinstance(others, list) else None


def _inside(words: str, begin: str, end: str) -> Any:
    """The JSON between two marks; None where there is none."""
    if not (words.startswith(begin) and words.endswith(end)):
        return None
    try:
        return json.loads(words[len(begin) : -len(end)])
    except ValueError:
        return None
