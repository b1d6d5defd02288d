"""Words of the assistant in the running turn, as people and the history get them: last words, stopped answers, pauses."""

from __future__ import annotations

from collections.abc import Sequence

from bot import text
from bot.agent.steps import INTERRUPTED
from bot.contracts.base import Json, Message
from bot.core import blocks
from bot.core.repair import Entry
from bot.tools.builtin.chat_send import ChatSend
from bot.words import say

STOPPED = "(stopped)"
"""Marks for the model what a stop cut off."""
UNFINISHED = "(not finished)"
"""Stands for an answer that held nothing but calls of the provider's own tools."""


def spoken(words: str) -> Message:
    """A message of the assistant."""
    return {"role": "assistant", "content": [{"type": "text", "text": words}]}


def last_words(entries: Sequence[Entry]) -> str:
    """The text with which a turn ends: an answer that paused and went on is one answer. "" where nothing in it can be seen."""
    words: list[str] = []
    for entry in reversed(entries):
        if entry.message["role"] != "assistant":
            break
        words.insert(0, blocks.plain_text(begun(entry.message)))
    said = "".join(words)
    return said if text.visible(said) else ""


def begun(message: Message) -> Sequence[Json]:
    """Return the content of an answer so far; () if a placeholder stands for it."""
    return () if message["content"] == spoken(UNFINISHED)["content"] else message["content"]


def last_of_stopped(entries: Sequence[Entry], partial: str, begun: str) -> tuple[list[Message], str]:
    """Return the messages to add to a stopped turn, and the words owed to people who have seen nothing: `partial` had
    come of an answer, `begun` was complete and about to be sent. Only what was not complete is marked.
    """
    last, mark = entries[-1].message, say("turn.stopped")
    if partial:
        marked = spoken(f"{partial}\n\n{STOPPED}")
        return [marked], _marked(f"{last_words(entries)}{partial}", mark)
    if calls := blocks.tool_calls(last["content"]):
        results = blocks.interrupted_results(last, INTERRUPTED)
        words = [str(call.input.get("text") or "") for call in calls if call.name == ChatSend.name]
        if begun and begun in words:
            return [results, spoken(STOPPED)], begun
        said = "\n\n".join(filter(None, map(str.strip, words))) or blocks.plain_text(last["content"]).strip()
        return ([results, spoken(STOPPED)], _marked(said, mark)) if said else ([results], "")
    words_so_far = last_words(entries).strip()
    if not words_so_far or begun.startswith(words_so_far):
        return [], begun if words_so_far else ""
    return [], _marked(words_so_far, mark)


def _marked(words: str, mark: str) -> str:
    """Words with a mark behind them, also where they end inside of code."""
    return f"{text.with_code_closed(words)}\n\n{mark}".strip()


def only_sent(messages: Sequence[Message]) -> bool:
    """True if the last step did nothing but give people an answer."""
    if len(messages) < 2:
        return False
    calls = blocks.tool_calls(messages[-2]["content"])
    results = messages[-1]["content"]
    return bool(calls) and all(
        call.name == ChatSend.name and not result.get("is_error")
        for call, result in zip(calls, results, strict=False)
    )


def without_pause(message: Message) -> Message | None:
    """An answer that paused and is not gone on with, without what the provider's own tools were asked in it: that has
    no result. None where there is no such thing.
    """
    content = blocks.without_open_calls(message["content"])
    if message["role"] != "assistant" or len(content) == len(message["content"]):
        return None
    content = blocks.sayable(content)
    return {**message, "content": content or spoken(UNFINISHED)["content"]}
