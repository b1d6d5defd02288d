"""The demo model works offline and uses the real tools, so that a new user can see everything before entering an API key. It
understands a few requests in English and Chinese. Its answer depends only on the request.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath

from bot import errors, tags, text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Clock
from bot.contracts.model import (
    DEMO,
    ModelFacts,
    ModelReply,
    ModelRequest,
    ModelStream,
    TextDelta,
    ToolInputDelta,
    Usage,
)
from bot.llm.messages_api import wire
from bot.words import say, speaking

MAX_QUOTED = 200  # Max characters of a message that the demo repeats in its answer
MAX_EARLIER = 10  # Max earlier messages that the demo lists
MAX_STEPS = 5  # Max model calls with tool calls in one turn. The demo's longest turn makes four.
PIECE = 12  # Number of characters in one delta of the streamed answer
PIECE_SECONDS = 0.02  # Interval in seconds between two deltas, so that people see the answer grow
REMINDER = "⏰ "  # Prefix of a reminder's prompt. The demo repeats such a prompt unchanged.

_QUOTES = r"[`'\"“”「」]*"
_REQUESTS = [
    (name, re.compile(pattern.replace("<Q>", _QUOTES), re.IGNORECASE | re.DOTALL))
    for name, patterns in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()
    for pattern in patterns
]
"""Requests that the demo understands. The first pattern that matches is used."""
_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_KANA = re.compile(r"[\u3040-\u30ff]")

Call = tuple[str, Json]  # Name and arguments of a tool call


@dataclass(slots=True)
class _Turn:
    words: str = ""
    time: str = ""
    """Time of the person's message in ISO 8601; "" in a subagent, because its task has no message."""
    files: list[str] = field(default_factory=list)
    earlier: list[tuple[str, str]] = field(default_factory=list)
    """Earlier messages in the model's context, as (author, text). The author "" is the bot."""
    loaded: list[tuple[str, str]] = field(default_factory=list)
    """Earlier messages that were loaded from the chat's history, as (author, text)."""
    steps: int = 0
    results: list[tuple[str, str, bool]] = field(default_factory=list)
    """Results of tool calls, as (tool, result, failed). `failed` is True if the call failed."""
    request: str = ""
    """Key in `demo.toml` of the person's request; "" if the demo does not understand the request."""
    found: dict[str, str] = field(default_factory=dict)

    def result(self, name: str) -> str | None:
        return next((words for tool, words, _ in self.results if tool == name), None)


def _read(messages: Sequence[Message]) -> _Turn:
    """Parse the messages of a request. The running turn begins at the newest message that contains a person's text."""
    turn, names = _Turn(), dict[str, str]()
    begins = (at for at, one in enumerate(messages) if one["role"] == "user" and _texts(one["content"]))
    begin = max(begins, default=len(messages))
    for message in messages[:begin]:
        if message["role"] == "assistant":
            sent = (block["input"] for block in message["content"] if block.get("name") == "chat_send")
            turn.earlier += (("", str(one["text"])) for one in sent if one.get("text"))
        elif (mark := tags.begins(message, tags.HISTORY)) is None:
            turn.earlier += (("you", one) for one in _untagged(message))
        else:
            facts = json.loads(mark.words)
            name, when = str(facts.get("speaker", "user")), f"{facts['time']} · " if facts.get("time") else ""
            speaker = "" if name == "you" else f"{when}**{name}**"
            turn.loaded += ((speaker, one) for one in _untagged(message))
    for message in messages[begin : begin + 1]:
        facts = tags.facts(message)
        turn.time = str(facts.get("time", ""))
        files = facts.get("attachments") or ()
        turn.files = [f"{one.get('kind', 'file')} {one.get('name') or ''}".strip() for one in files]
        turn.words = "\n".join(_untagged(message))
    for message in messages[begin:]:
        turn.steps += message["role"] == "assistant"
        for block in message["content"]:
            if block["type"] == "tool_use":
                names[block["id"]] = block["name"]
            elif block["type"] == "tool_result":
                words = "\n".join(_texts(block.get("content") or ""))
                turn.results.append((names[block["tool_use_id"]], words, bool(block.get("is_error"))))
    matches = ((name, pattern.search(turn.words.strip())) for name, pattern in _REQUESTS)
    name, match = next(((name, match) for name, match in matches if match), ("", None))
    if match is not None and not turn.words.startswith(REMINDER):
        turn.request = name
        turn.found = {key: value.strip() for key, value in match.groupdict().items() if value is not None}
    return turn


def _texts(content: str | Sequence[Json]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [str(block["text"]) for block in content if block["type"] == "text"]


def _untagged(message: Message) -> list[str]:
    pairs = zip(message["content"], tags.of(message), strict=True)
    return [str(one["text"]) for one, tag in pairs if one["type"] == "text" and tag is None and one["text"]]


@dataclass(eq=False)
class DemoModel:
    """Implements `contracts.model.Model` without a provider. Without a clock the demo answers at once."""

    clock: Clock | None = None

    async def stream(self, request: ModelRequest) -> ModelStream:
        content = _answer(request)
        for block in content:
            is_text = block["type"] == "text"
            words = block["text"] if is_text else json.dumps(block["input"], ensure_ascii=False)
            for at in range(0, len(words), PIECE):
                if self.clock is not None:
                    await self.clock.sleep(PIECE_SECONDS)
                piece = words[at : at + PIECE]
                yield TextDelta(piece) if is_text else ToolInputDelta(block["id"], block["name"], piece)
        answer = json.dumps(content, ensure_ascii=False)
        yield ModelReply(
            content=content,
            stop_reason="tool_use" if content[0]["type"] == "tool_use" else "end_turn",
            usage=Usage(input_tokens=len(wire(request)) // 4 + 1, output_tokens=len(answer) // 4 + 1),
            model=DEMO,
            cost_usd=0.0,
            first_token_ms=0,
        )

    async def check(self) -> None:
        pass

    async def facts(self, model: str) -> ModelFacts:
        if model != DEMO:
            raise errors.OneModel
        return ModelFacts()

    async def close(self) -> None:
        pass


def _answer(request: ModelRequest) -> list[Json]:
    turn = _read(request.messages)
    is_chinese = _HAN.search(turn.words) is not None and _KANA.search(turn.words) is None
    with speaking("zh" if is_chinese else "en"):
        tools = {str(tool.get("name")) for tool in request.tools}
        words = _reply(turn, tools)
        if request.purpose in {"memory", "compaction"}:
            rows = [f"- {' '.join(said.split())[:200]}" for who, said in turn.earlier if who and said.strip()]
            facts = "\n".join(rows[-20:]) or "- nothing was said yet"
            notes = f"## Facts\n{facts}\n\n## Decisions\n(none)\n\n## Preferences\n(none)\n\n## Open tasks\n(none)"
            words = notes if request.purpose == "memory" else f"<summary>\n{notes}\n</summary>"
        elif request.purpose == "synthesis":
            words = say("demo.introduction")
        # A delivered message ends the turn. So if there is a request after a call of chat_send, the message was not delivered.
        elif turn.steps < MAX_STEPS and turn.result("chat_send") is None:
            calls = _CALLS[turn.request](turn) if turn.request else []
            calls = [call for call in calls if call[0] in tools and turn.result(call[0]) is None]
            if not calls and "chat_send" in tools:
                calls = [("chat_send", {"text": words})]
            if calls:
                # Equal requests give equal ids. The same words later in the conversation give another id.
                made = [
                    hashlib.sha256(wire(request) + f"{name} {at}".encode()).hexdigest()[:24]
                    for at, (name, _) in enumerate(calls)
                ]
                return [
                    {"type": "tool_use", "id": f"toolu_demo{one}", "name": name, "input": given}
                    for one, (name, given) in zip(made, calls, strict=True)
                ]
        return [{"type": "text", "text": words}]


def _write(turn: _Turn) -> list[Call]:
    content = turn.found.get("content") or say("demo.file")
    return [("write_file", {"path": turn.found.get("path", "hello.txt"), "content": f"{content}\n"})]


def _remind(turn: _Turn) -> list[Call]:
    if not turn.time:
        return []
    count = int(turn.found["count"]) if turn.found["count"].isdecimal() else 1
    minutes = count * (60 if turn.found["unit"] in {"hour", "小时"} else 1)
    due = datetime.fromisoformat(turn.time) + timedelta(minutes=minutes)
    prompt = REMINDER + (turn.found.get("what") or say("demo.reminder"))
    return [("schedule_create", {"prompt": prompt, "when": due.isoformat()})]


def _look(turn: _Turn) -> list[Call]:
    """Return the calls that list the folder and then read the file that the person named, with or without its suffix."""
    wanted = PurePosixPath(turn.found["path"])
    if (listed := turn.result("list_dir")) is None:
        return [("list_dir", {"path": str(wanted.parent)})]
    rows = [PurePosixPath(row.rpartition("  ")[0]) for row in listed.splitlines()]
    names = {wanted.name.casefold(), wanted.stem.casefold()}
    found = [row for row in rows if {row.name.casefold(), row.stem.casefold()} & names]
    return [("read_file", {"path": str(found[0])})] if found else []


_CALLS: Mapping[str, Callable[[_Turn], list[Call]]] = {
    "three": lambda _: [
        ("task", {"prompt": one, "description": one}) for one in say("demo.three").split("|")
    ],
    "run": lambda turn: [("run_shell", {"command": turn.found["command"]})],
    "write": _write,
    "remind": _remind,
    "look": _look,
    "list": lambda _: [("list_dir", {})],
    "history": lambda _: [("chat_load_history", {"limit": MAX_EARLIER})],
    "skills": lambda _: [("skills_list", {})],
}
"""Functions that return the next tool calls, by the kind of request."""


def _reply(turn: _Turn, tools: set[str]) -> str:
    if turn.words.startswith(REMINDER):
        return turn.words
    if turn.request == "history":
        earlier = (turn.loaded or turn.earlier)[-MAX_EARLIER:]
        lines = (f"- {who or say('quoted.me')}: {text.preview(words, MAX_QUOTED)}" for who, words in earlier)
        return "\n\n".join((say("demo.history"), "\n".join(lines))) if earlier else say("demo.no_history")
    if turn.request and turn.results:
        return _outcome(turn)
    said = text.preview(turn.words, MAX_QUOTED)
    parts = [say("demo.understood", words=said)] if said or not turn.files else []
    parts += [say("demo.files", names=", ".join(turn.files[:10]))] if turn.files else []
    parts += [say("demo.introduction"), say("demo.try" if "chat_load_history" in tools else "demo.help")]
    return "\n\n".join([*parts, say("demo.connect")])


def _outcome(turn: _Turn) -> str:
    missing = turn.request == "look" and turn.result("read_file") is None
    parts = [say("demo.no_file", name=turn.found["path"])] if missing else []
    last = [name for name, _, _ in turn.results if name != "chat_send"][-1:]
    for name, words, failed in turn.results:
        if name in {"task", *last}:
            label = say("demo.failed" if failed else "demo.done", tool=name)
            parts.append(f"{label}\n\n```\n{text.head(words, 1_500)}\n```")
    return "\n\n".join(parts)
