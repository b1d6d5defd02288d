"""An offline, deterministic stand-in for a model, behind the same port and with the same tools.

What it answers is a pure function of the request. It shows a newcomer everything work without a key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from bot import errors, tags, text
from bot.contracts.base import Json, Message
from bot.contracts.model import ModelFacts, ModelReply, ModelRequest, TextDelta, ToolInputDelta, Usage

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


ECHO = 200  # characters of a person's words that are said back
SHOWN = 10  # earlier messages that are named

_HAN = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_KANA = re.compile(r"[\u3040-\u30ff]")

_ENGLISH = {
    "demo": "I am the built-in **demo model**, so no language model has read this.",
    "understood": "You wrote: “{}”.",
    "nothing": "You sent no words that I could read.",
    "files": "I cannot open files yet: {}.",
    "read": "I was shown what this holds: {}.",
    "try": "Try:\n- *What did I say earlier?* – I look it up in the history of this chat\n"
    "- *Which skills do you have?* – I list them\n- `/help` for the commands",
    "remember_not": "Try `/help` for the commands.",
    "connect": "To connect a real model, put `ANTHROPIC_API_KEY` into `.env` and start me again.",
    "found": "I looked into the history of this chat (as the demo model, without understanding it). Earlier:",
    "found_view": "This is what I still see of this chat (as the demo model, without understanding it):",
    "found_not": "I looked into the history of this chat, as the demo model, and found nothing like that.",
    "skills": "These are my skills (I am the demo model, so I can list them but not use them):",
    "me": "me",
    "you": "you",
}
_CHINESE = {
    "demo": "我是内置的**演示模型**（demo），没有真正的语言模型读过这条消息。",
    "understood": "你写的是：“{}”。",
    "nothing": "你的消息里没有我能读的文字。",
    "files": "我还不能打开文件：{}。",
    "read": "我看到了这些文件的内容：{}。",
    "try": "可以试试：\n- *我之前说过什么？* – 我会查这个聊天的历史\n- *你有哪些技能？* – 我会列出来\n- `/help` 查看命令",
    "remember_not": "可以用 `/help` 查看命令。",
    "connect": "要连接真正的模型，请把 `ANTHROPIC_API_KEY` 写进 `.env`，然后重新启动我。",
    "found": "我查了这个聊天的历史（我是演示模型，并不理解内容）。之前说过：",
    "found_view": "这是我现在还看得到的内容（我是演示模型，并不理解内容）：",
    "found_not": "我是演示模型，查了这个聊天的历史，没有找到这样的内容。",
    "skills": "这些是我的技能（我是演示模型，只能列出，不能使用）：",
    "me": "我",
    "you": "你",
}


def say(name: str, words: str) -> str:
    """One sentence, in the script of the person's words."""
    chinese = _HAN.search(words) is not None and _KANA.search(words) is None
    return (_CHINESE if chinese else _ENGLISH)[name]


def notes(said: Iterable[str]) -> str:
    """The demo's memory notes: the newest words of people."""
    rows = [f"- {' '.join(words.split())[:200]}" for words in said if words.strip()]
    facts = "\n".join(rows[-20:]) or "- nothing was said yet"
    return f"## Facts\n{facts}\n\n## Decisions\n(none)\n\n## Preferences\n(none)\n\n## Open tasks\n(none)"


def greeting(words: str, attachments: Sequence[str], files: Sequence[str], *, remembers: bool) -> str:
    """An answer that shows that the message arrived, and what can be done next."""
    said = text.preview(words, ECHO)
    parts = [say("understood", words).format(said) if said else say("nothing", words)]
    if files:
        parts = [*parts[: bool(said)], say("read", words).format(", ".join(files[:10]))]
    if attachments:
        parts.append(say("files", words).format(", ".join(attachments[:10])))
    parts += [say("demo", words), say("try" if remembers else "remember_not", words), say("connect", words)]
    return "\n\n".join(parts)


def history(words: str, found: Sequence[TaggedText], *, loaded: bool) -> str:
    """The newest of the earlier messages, in their order."""
    if not found:
        return say("found_not", words)
    lines = []
    for item in found[-SHOWN:]:
        who = say("me", words) if item.who is None else (item.who if item.time else say("you", words))
        when = f"{item.time} · " if item.time else ""
        lines.append(f"- {when}**{who}**: {text.preview(item.text, ECHO)}")
    return "\n\n".join((say("found" if loaded else "found_view", words), "\n".join(lines)))


def skills(words: str, listed: str) -> str:
    return f"{say('skills', words)}\n\n{text.head(listed, 3_000)}"


MODEL = "demo"
PIECE = 12  # characters of a delta
LAST_STEP = 5
"""A turn of the demo has at most four steps; more means that its tools answer in circles."""


class DemoModel:
    """`contracts.model.Model` without a provider."""

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        block = _answer(request)
        for delta in _deltas(block):
            yield delta
        asked = _tokens([*request.system, *request.tools, *request.messages])
        yield ModelReply(
            content=[block],
            stop_reason="tool_use" if block["type"] == "tool_use" else "end_turn",
            usage=Usage(input_tokens=asked, output_tokens=_tokens([block])),
            model=MODEL,
            cost_usd=0.0,
            first_token_ms=0,
        )

    async def check(self) -> None:
        """There is nothing that could refuse."""

    async def facts(self, model: str) -> ModelFacts:
        """A demo has no limits, and no other model."""
        if model != MODEL:
            raise errors.OneModel
        return ModelFacts()

    async def close(self) -> None:
        """There is nothing to close."""


def _answer(request: ModelRequest) -> Json:
    """The next thing to say or to do."""
    turn = read(request.messages)
    if request.purpose in {"memory", "compaction"}:
        told = notes(said.text for said in turn.earlier if said.who is not None)
        return _text(told if request.purpose == "memory" else f"<summary>\n{told}\n</summary>")
    tools = {str(tool.get("name")) for tool in request.tools}
    if turn.called("chat_send"):
        return _text(_reply_text(turn, tools))  # It was not delivered: a delivered message ends the turn.
    if turn.steps < LAST_STEP:
        if turn.wants_history and "chat_load_history" in tools and not turn.called("chat_load_history"):
            return _call(request, "chat_load_history", _history_input(turn))
        if turn.wants_skills and "skills_list" in tools and not turn.called("skills_list"):
            return _call(request, "skills_list", {})
        if "chat_send" in tools:
            return _call(request, "chat_send", {"text": _reply_text(turn, tools)})
    return _text(_reply_text(turn, tools))


def _history_input(turn: DemoTurn) -> Json:
    asked: Json = {"limit": SHOWN}
    if turn.quoted:
        asked["keyword"] = turn.quoted
    if turn.about_me:
        asked["role"] = "user"
    return asked


def _reply_text(turn: DemoTurn, tools: set[str]) -> str:
    if turn.wants_history:
        # Loaded or still in view: both are what the person means by "earlier".
        return history(turn.words, turn.found, loaded=turn.called("chat_load_history"))
    if turn.wants_skills and turn.called("skills_list"):
        return skills(turn.words, turn.result("skills_list"))
    return greeting(turn.words, turn.attachments, turn.files, remembers="chat_load_history" in tools)


def _text(words: str) -> Json:
    return {"type": "text", "text": words}


def _call(request: ModelRequest, name: str, arguments: Json) -> Json:
    # The same request gives the same id, another place in the conversation another one.
    seed = json.dumps([list(request.messages), name], ensure_ascii=False, sort_keys=True, default=str)
    digest = hashlib.sha256(seed.encode("utf-8", "replace")).hexdigest()[:24]
    return {"type": "tool_use", "id": f"toolu_demo{digest}", "name": name, "input": arguments}


def _deltas(block: Json) -> Iterator[TextDelta | ToolInputDelta]:
    if block["type"] == "text":
        for piece in _pieces(block["text"]):
            yield TextDelta(piece)
    else:
        for piece in _pieces(json.dumps(block["input"], ensure_ascii=False)):
            yield ToolInputDelta(block["id"], block["name"], piece)


def _pieces(words: str) -> Iterator[str]:
    return (words[at : at + PIECE] for at in range(0, len(words), PIECE))


def _tokens(blocks: list[Json]) -> int:
    return len(json.dumps(blocks, ensure_ascii=False, default=str)) // 4 + 1
