"""An offline, deterministic stand-in for a model, behind the same port and with the same tools.

What it answers is a pure function of the request. It shows a newcomer everything work without a key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import PurePosixPath

from bot import errors, tags, text
from bot.contracts.base import Json, Message
from bot.contracts.environment import Clock
from bot.contracts.model import DEMO, ModelFacts, ModelReply, ModelRequest, TextDelta, ToolInputDelta, Usage

_HISTORY = re.compile(
    r"what did (?:i|we|you) (?:say|write|tell|ask|talk)|\b(?:history|earlier|old|older|remember|before|previously)\b"
    r"|last (?:week|month|time)|yesterday|之前|以前|历史|歷史|记得|記得|刚才|剛才|昨天|前に|覚えて|履歴",
    re.IGNORECASE,
)
_MINE = re.compile(r"\b(?:did|have) i\b|我.{0,8}[说說问問写寫提]", re.IGNORECASE)
_SKILLS = re.compile(r"\bskills?\b|技能|スキル", re.IGNORECASE)
_REMINDER = "⏰ "
"""The job of a reminder begins with it, and is said as it is."""
_ANY = r"[`'\"“”「」]*"
_PLAINLY = re.compile(
    r"\b(?P<three>three|several|many)\b.{0,20}\b(?:at once|side by side|in parallel)|(?P<three_zh>同时|並行|并行)"
    rf"|^(?:please )?(?:run|execute)\b:? +{_ANY}(?P<run>.+?){_ANY}$|^(?:请)?(?:运行|执行) *{_ANY}(?P<run_zh>.+?){_ANY}$"
    rf"|^(?:please )?(?:write|create|make)(?: a| the)?(?: file)? +{_ANY}(?P<write>[\w./-]*\w\.\w+){_ANY}(?:.{{0,20}}?(?:: *|with +|saying +)(?P<content>.+))?$"
    rf"|^(?:请)?(?:写|创建) *{_ANY}(?P<write_zh>[\w./-]*\w\.\w+)"
    r"|\bremind me in (?P<count>an?|one|\d{1,3}) (?P<unit>minute|hour)s?(?: (?:to|of|that) (?P<what>.+))?"
    r"|(?P<count_zh>[一\d]{1,3}) ?(?P<unit_zh>分钟|小时)后提醒我(?P<what_zh>.*)"
    rf"|^(?:please )?(?:look at|read|open) +(?:the )?(?:file )?{_ANY}(?P<look>[\w./-]*\w){_ANY}[.!?]?$"
    rf"|^(?:please )?show(?: me)? +{_ANY}(?P<look_named>[\w./-]*\w\.\w+){_ANY}$"
    rf"|^(?:请)?(?:看看|打开|读一下) *{_ANY}(?P<look_zh>[\w./-]*\w){_ANY}$"
    r"|(?P<files>\b(?:list|which|what)\b.{0,12}\bfiles\b)|(?P<files_zh>有哪些文件|列出文件)",
    re.IGNORECASE | re.DOTALL,
)
"""Sentences that the demo understands; what a name has behind `_` tells apart forms of the same."""
_THREE = ("List the files", "Look at README", "Which skills are there?")
_THREE_CHINESE = ("列出文件", "看看 README", "有哪些技能？")
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
    time: str = ""
    """ISO 8601; "" in a task, which has none."""

    @property
    def plainly(self) -> dict[str, str]:
        """Requests in words that the demo understands: the parts of `_PLAINLY` by name."""
        match = _PLAINLY.search(self.words.strip())
        found = match.groupdict() if match else {}
        return {name.partition("_")[0]: words.strip() for name, words in found.items() if words is not None}

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

    def failed(self, name: str) -> bool:
        return any(tool == name and wrong for tool, _, wrong in self.results)

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
    facts = tags.facts(message)
    turn.time = str(facts.get("time", ""))
    for item in facts.get("attachments") or ():
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
    "try": "I understand a few plain requests, and use the real tools for them:\n- *Run ls*\n- *Write hello.txt*\n"
    "- *Remind me in a minute*\n- *Look at README*\n- *Do three things at once*\n"
    "- *What did I say earlier?*\n- *Which skills do you have?*\n- `/help` for the commands",
    "remember_not": "Try `/help` for the commands.",
    "connect": "For anything else I need a real model. This line in the project's folder adds its key, then start me again:\n\n"
    "```\necho 'ANTHROPIC_API_KEY=sk-ant-…' >> .env\n```",
    "done": "Done, with the tool `{}`. It says:",
    "not_done": "I tried it with the tool `{}`, and it did not happen:",
    "no_commands": "Commands need bubblewrap, which isn't here. This line installs it:\n\n```\nsudo apt install bubblewrap\n```\n\n"
    "I wrote a file in place of it:",
    "no_file": "There is no {} here. There is:",
    "file": "Hello from Shipmate.",
    "remind": "you asked me to remind you.",
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
    "try": "我听得懂几种简单的请求，并用真正的工具去做：\n- *运行 ls*\n- *写 hello.txt*\n- *一分钟后提醒我*\n- *看看 README*\n"
    "- *同时做三件事*\n- *我之前说过什么？*\n- *你有哪些技能？*\n- `/help` 查看命令",
    "remember_not": "可以用 `/help` 查看命令。",
    "connect": "其他的事需要真正的模型。在项目文件夹里用这一行加上密钥，然后重新启动我：\n\n"
    "```\necho 'ANTHROPIC_API_KEY=sk-ant-…' >> .env\n```",
    "done": "做好了，用的是工具 `{}`。结果是：",
    "not_done": "我用工具 `{}` 试了，没有做成：",
    "no_commands": "运行命令需要 bubblewrap，这里没有。这一行可以安装：\n\n```\nsudo apt install bubblewrap\n```\n\n我先写了一个文件：",
    "no_file": "这里没有 {}。这里有：",
    "file": "Shipmate 向你问好。",
    "remind": "这是你要的提醒。",
    "found": "我查了这个聊天的历史（我是演示模型，并不理解内容）。之前说过：",
    "found_view": "这是我现在还看得到的内容（我是演示模型，并不理解内容）：",
    "found_not": "我是演示模型，查了这个聊天的历史，没有找到这样的内容。",
    "skills": "这些是我的技能（我是演示模型，只能列出，不能使用）：",
    "me": "我",
    "you": "你",
}


def is_chinese(words: str) -> bool:
    return _HAN.search(words) is not None and _KANA.search(words) is None


def say(name: str, words: str) -> str:
    """One sentence, in the script of the person's words."""
    return (_CHINESE if is_chinese(words) else _ENGLISH)[name]


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


PIECE = 12  # characters of a delta
PIECE_SECONDS = 0.02
"""Between two deltas, so that an answer is seen to grow."""
LAST_STEP = 5
"""A turn of the demo has at most four steps; more means that its tools answer in circles."""


class DemoModel:
    """`contracts.model.Model` without a provider."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Without a clock it takes no time."""
        self._clock = clock

    async def stream(self, request: ModelRequest) -> AsyncIterator[TextDelta | ToolInputDelta | ModelReply]:
        content = _answer(request)
        for delta in (delta for block in content for delta in _deltas(block)):
            if self._clock is not None:
                await self._clock.sleep(PIECE_SECONDS)
            yield delta
        asked = _tokens([*request.system, *request.tools, *request.messages])
        yield ModelReply(
            content=content,
            stop_reason="tool_use" if content[0]["type"] == "tool_use" else "end_turn",
            usage=Usage(input_tokens=asked, output_tokens=_tokens(content)),
            model=DEMO,
            cost_usd=0.0,
            first_token_ms=0,
        )

    async def check(self) -> None:
        """There is nothing that could refuse."""

    async def facts(self, model: str) -> ModelFacts:
        """A demo has no limits, and no other model."""
        if model != DEMO:
            raise errors.OneModel
        return ModelFacts()

    async def close(self) -> None:
        """There is nothing to close."""


def _answer(request: ModelRequest) -> list[Json]:
    """The next thing to say or to do."""
    turn = read(request.messages)
    if request.purpose in {"memory", "compaction"}:
        told = notes(said.text for said in turn.earlier if said.who is not None)
        return [_text(told if request.purpose == "memory" else f"<summary>\n{told}\n</summary>")]
    if request.purpose == "synthesis":
        return [_text(say("demo", turn.words))]
    tools = {str(tool.get("name")) for tool in request.tools}
    # A delivered message ends the turn: after a call of it, it was not delivered.
    if turn.steps < LAST_STEP and not turn.called("chat_send"):
        if calls := [call for call in _next(turn) if call[0] in tools and not turn.called(call[0])]:
            return [_call(request, *call, at) for at, call in enumerate(calls)]
        if "chat_send" in tools:
            return [_call(request, "chat_send", {"text": _reply_text(turn, tools)})]
    return [_text(_reply_text(turn, tools))]


def _next(turn: DemoTurn) -> list[tuple[str, Json]]:
    """The calls that the words ask for, or that follow from the results so far."""
    if turn.words.startswith(_REMINDER):
        return []
    asked = turn.plainly
    for name, calls in _CALLS.items():
        if name in asked:
            return calls(turn, asked)
    if turn.wants_history:
        return [("chat_load_history", _history_input(turn))]
    return [("skills_list", {})] if turn.wants_skills else []


def _run(turn: DemoTurn, asked: dict[str, str]) -> list[tuple[str, Json]]:
    """A file where there can be no commands, so that an approval is seen there too."""
    return _write(turn, {}) if _no_commands(turn) else [("run_shell", {"command": asked["run"]})]


def _no_commands(turn: DemoTurn) -> bool:
    return turn.failed("run_shell") and "bubblewrap" in turn.result("run_shell")


def _write(turn: DemoTurn, asked: dict[str, str]) -> list[tuple[str, Json]]:
    content = asked.get("content") or say("file", turn.words)
    return [("write_file", {"path": asked.get("write", "hello.txt"), "content": f"{content}\n"})]


def _remind(turn: DemoTurn, asked: dict[str, str]) -> list[tuple[str, Json]]:
    count = int(asked["count"]) if asked["count"].isdecimal() else 1
    minutes = count * (60 if asked["unit"] in {"hour", "小时"} else 1)
    if not turn.time:
        return []
    due = datetime.fromisoformat(turn.time) + timedelta(minutes=minutes)
    prompt = _REMINDER + (asked.get("what") or say("remind", turn.words))
    return [("schedule_create", {"prompt": prompt, "when": due.isoformat()})]


def _look(turn: DemoTurn, asked: dict[str, str]) -> list[tuple[str, Json]]:
    """Look which files there are, then read the one that is meant."""
    wanted = PurePosixPath(asked["look"])
    if not turn.called("list_dir"):
        return [("list_dir", {"path": str(wanted.parent)})]
    rows = [PurePosixPath(row.rpartition("  ")[0]) for row in turn.result("list_dir").splitlines()]
    names = {wanted.name.casefold(), wanted.stem.casefold()}
    meant = [
        row for row in rows if row.name.casefold() in names or row.stem.casefold() == wanted.name.casefold()
    ]
    return [("read_file", {"path": str(meant[0])})] if meant else []


def _list(turn: DemoTurn, asked: dict[str, str]) -> list[tuple[str, Json]]:
    del turn, asked
    return [("list_dir", {})]


def _three(turn: DemoTurn, asked: dict[str, str]) -> list[tuple[str, Json]]:
    del asked
    prompts = _THREE_CHINESE if is_chinese(turn.words) else _THREE
    return [("task", {"prompt": prompt, "description": prompt}) for prompt in prompts]


_CALLS: dict[str, Callable[[DemoTurn, dict[str, str]], list[tuple[str, Json]]]] = {
    "three": _three,
    "run": _run,
    "write": _write,
    "count": _remind,
    "look": _look,
    "files": _list,
}


def _history_input(turn: DemoTurn) -> Json:
    asked: Json = {"limit": SHOWN}
    if turn.quoted:
        asked["keyword"] = turn.quoted
    if turn.about_me:
        asked["role"] = "user"
    return asked


def _reply_text(turn: DemoTurn, tools: set[str]) -> str:
    if turn.words.startswith(_REMINDER):
        return turn.words
    if turn.plainly and turn.results:
        return _outcome(turn)
    if turn.wants_history:
        # Loaded or still in view: both are what the person means by "earlier".
        return history(turn.words, turn.found, loaded=turn.called("chat_load_history"))
    if turn.wants_skills and turn.called("skills_list"):
        return skills(turn.words, turn.result("skills_list"))
    return greeting(turn.words, turn.attachments, turn.files, remembers="chat_load_history" in tools)


def _outcome(turn: DemoTurn) -> str:
    """Words for the outcome of the calls of a plain request."""
    parts = [say("no_commands", turn.words)] if _no_commands(turn) else []
    if turn.called("list_dir") and "look" in turn.plainly and not turn.called("read_file"):
        parts.append(say("no_file", turn.words).format(turn.plainly["look"]))
    names = [name for name, _, _ in turn.results if name != "chat_send"]
    for name, words, wrong in turn.results:
        if name in {"task", names[-1]}:
            label = say("not_done" if wrong else "done", turn.words).format(name)
            parts.append(f"{label}\n\n```\n{text.head(words, 1_500)}\n```")
    return "\n\n".join(parts)


def _text(words: str) -> Json:
    return {"type": "text", "text": words}


def _call(request: ModelRequest, name: str, arguments: Json, at: int = 0) -> Json:
    # The same request gives the same id, another place in the conversation another one.
    seed = json.dumps([list(request.messages), name, at], ensure_ascii=False, sort_keys=True, default=str)
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
