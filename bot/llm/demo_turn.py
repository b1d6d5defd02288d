"""Parses a request for the demo model: the person's words, the question, the results of tools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bot import tags
from bot.contracts.base import Json, Message

_HISTORY = re.compile(
    r"what did (?:i|we|you) (?:say|write|tell|ask|talk)|\b(?:history|earlier|old|older|remember|before|previously)\b"
    r"|last (?:week|month|time)|yesterday|之前|以前|历史|歷史|记得|記得|刚才|剛才|昨天|前に|覚えて|履歴",
    re.IGNORECASE,
)
_MINE = re.compile(r"\b(?:did|have) i\b|我.{0,8}[说說问問写寫提]", re.IGNORECASE)
_SKILLS = re.compile(r"\bskills?\b|技能|スキル", re.IGNORECASE)
_QUOTED = re.compile(r"""["“”«»「『]([^"“”«»「」『』\n]{1,80})["“”«»」』]|(?<!\w)'([^'\n]{1,80})'(?!\w)""")


@dataclass(frozen=True, slots=True)
class TaggedText:
    """Something that was said earlier. `who` is None for the bot itself."""

    text: str
    who: str | None = "you"
    time: str = ""


@dataclass(slots=True)
class DemoTurn:
    """The running turn: the person's words and what has happened since."""

    words: str = ""
    attachments: list[str] = field(default_factory=list)
    """Attachments that were not read; `files` are those that were."""
    files: list[str] = field(default_factory=list)
    earlier: list[TaggedText] = field(default_factory=list)
    loaded: list[TaggedText] = field(default_factory=list)
    steps: int = 0
    results: list[tuple[str, str, bool]] = field(default_factory=list)

    @property
    def wants_history(self) -> bool:
        return _HISTORY.search(self.words) is not None

    @property
    def wants_skills(self) -> bool:
        return _SKILLS.search(self.words) is not None

    @property
    def about_me(self) -> bool:
        """True if it asks for the person's own words alone."""
        return _MINE.search(self.words) is not None

    @property
    def quoted(self) -> str | None:
        """The text in quotation marks: the keyword."""
        match = _QUOTED.search(self.words)
        return (match[1] or match[2]).strip() or None if match else None

    @property
    def found(self) -> list[TaggedText]:
        """Earlier words that fit the question, oldest first: loaded ones, or else those in view."""
        key = (self.quoted or "").casefold()
        for said in (self.loaded, self.earlier):
            fits = [
                item for item in said if key in item.text.casefold() and not (self.about_me and not item.who)
            ]
            if fits:
                return fits
        return []

    def called(self, name: str) -> bool:
        return any(tool == name for tool, _, _ in self.results)

    def result(self, name: str) -> str:
        return next((words for tool, words, _ in reversed(self.results) if tool == name), "")


def read(messages: Sequence[Message]) -> DemoTurn:
    """The turn that a request is about: it begins at the newest words of a person."""
    start = next((at for at in range(len(messages) - 1, -1, -1) if _begins_turn(messages[at])), len(messages))
    turn = DemoTurn()
    for message in messages[:start]:
        _read_earlier(message, turn)
    names: dict[str, str] = {}
    for message in messages[start:]:
        if message.get("role") == "assistant":
            turn.steps += 1
        for block in _blocks(message):
            if block.get("type") == "tool_use":
                names[str(block.get("id"))] = str(block.get("name"))
            elif block.get("type") == "tool_result":
                name = names.get(str(block.get("tool_use_id")), "")
                turn.results.append((name, _flat(block.get("content")), bool(block.get("is_error"))))
    if start < len(messages):
        _read_words(messages[start], turn)
    return turn


def _begins_turn(message: Message) -> bool:
    if message.get("role") != "user":
        return False
    return any(block.get("type") == "text" for block in _blocks(message))


def _read_words(message: Message, turn: DemoTurn) -> None:
    for item in tags.facts(message).get("attachments") or ():
        read = isinstance(item, dict) and item.get("readable") is True
        (turn.files if read else turn.attachments).append(_attachment(item))
    turn.words = "\n".join(words for words, tag in _texts(message) if tag is None)


def _texts(message: Message) -> Iterator[tuple[str, tags.Tag | None]]:
    """The texts of a message, each with the tag that it is."""
    for block, tag in zip(_blocks(message), tags.of({**message, "content": _blocks(message)}), strict=True):
        if block.get("type") == "text":
            yield str(block.get("text", "")), tag


def _read_earlier(message: Message, turn: DemoTurn) -> None:
    if message.get("role") == "assistant":
        for block in _blocks(message):
            sent = block.get("input") if block.get("name") == "chat_send" else None
            if isinstance(sent, dict) and sent.get("text"):
                turn.earlier.append(TaggedText(str(sent["text"]), None))
        return
    first = tags.begins(message, tags.HISTORY)
    for words in (words for words, tag in _texts(message) if words and tag is None):
        if first is None:
            turn.earlier.append(TaggedText(words))
            continue
        mark = first.json if isinstance(first.json, dict) else {}
        speaker = str(mark.get("speaker", "user"))
        who = None if speaker == "you" else speaker
        turn.loaded.append(TaggedText(words, who, str(mark.get("time", ""))))


def _blocks(message: Message) -> list[Json]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list | tuple) else []
    )


def _flat(content: object) -> str:
    if isinstance(content, list | tuple):
        return "\n".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
    return content if isinstance(content, str) else ""


def _attachment(item: object) -> str:
    if not isinstance(item, dict):
        return "file"
    return f"{item.get('kind', 'file')} {item.get('name') or ''}".strip()
