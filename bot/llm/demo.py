"""An offline, deterministic stand-in for a model, behind the same port and with the same tools.

What it answers is a pure function of the request. It shows a newcomer everything work without a key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator

from bot import errors
from bot.contracts.base import Json
from bot.contracts.model import ModelFacts, ModelReply, ModelRequest, TextDelta, ToolInputDelta, Usage
from bot.llm import demo_words
from bot.llm.demo_turn import DemoTurn, read

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
        notes = demo_words.notes(said.text for said in turn.earlier if said.who is not None)
        return _text(notes if request.purpose == "memory" else f"<summary>\n{notes}\n</summary>")
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
    asked: Json = {"limit": demo_words.SHOWN}
    if turn.quoted:
        asked["keyword"] = turn.quoted
    if turn.about_me:
        asked["role"] = "user"
    return asked


def _reply_text(turn: DemoTurn, tools: set[str]) -> str:
    if turn.wants_history:
        # Loaded or still in view: both are what the person means by "earlier".
        return demo_words.history(turn.words, turn.found, loaded=turn.called("chat_load_history"))
    if turn.wants_skills and turn.called("skills_list"):
        return demo_words.skills(turn.words, turn.result("skills_list"))
    return demo_words.greeting(
        turn.words, turn.attachments, turn.files, remembers="chat_load_history" in tools
    )


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
