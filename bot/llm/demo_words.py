"""Answers of the demo model: in Chinese to Chinese, else in English."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from bot import text
from bot.llm.demo_turn import TaggedText

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
