"""A model for gateways that are killed at random. A process may have died since its last request, so the model learns
only from the request which messages have no answer yet.
"""

from __future__ import annotations

import random
import re

from bot.contracts.base import Json
from bot.contracts.model import ModelReply, ModelRequest
from bot.testing.model import reply, text, tool_use

NAME = re.compile(r"\bm\d+\b")
"""Pattern of a message's name, which is the message's only text."""


class Script:
    """A model that answers every unanswered message in the request. It varies the way of answering."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def answer(self, request: ModelRequest) -> ModelReply:
        self.pending: list[str] = []
        self.pressed, self.sent = False, False
        self.calls: dict[str, Json] = {}
        for message in request.messages:
            for block in message["content"]:
                self._read(message["role"], block)
        return self._said()

    def _read(self, role: str, block: Json) -> None:
        match block["type"]:
            case "text" if role == "assistant":
                self._answered(block["text"])
            case "text" if NAME.fullmatch(block["text"]):
                self.pending.append(block["text"])
                self.pressed, self.sent = False, False
            case "tool_use":
                self.calls[block["id"]] = block
            case "tool_result":
                self._result(self.calls[block["tool_use_id"]], str(block["content"]))

    def _result(self, call: Json, content: str) -> None:
        if call["name"] == "press":
            self.pressed = True
        # These results say that the answer arrived, may have arrived or will arrive, so it must not be sent again.
        elif re.match("Delivered|.*(may have arrived|then be delivered)", content, re.DOTALL):
            self.sent = True
            self._answered(call["input"]["text"])

    def _answered(self, words: str) -> None:
        done = NAME.findall(words)
        self.pending = [name for name in self.pending if name not in done]

    def _said(self) -> ModelReply:
        chance, names = self.rng.random(), self.pending
        if not names:
            return reply() if chance < 0.7 else reply(text("ok"))
        if not self.pressed and chance < 0.5:
            return reply(tool_use("press"))
        whole = f"re: {' '.join(names)}"
        # After a `chat_send`, the text at the end of a turn is not shown, so it must repeat what was sent.
        if not self.sent and self.rng.random() < 0.35:
            return reply(text(whole))
        if len(names) > 1 and self.rng.random() < 0.3:
            return reply(*(tool_use("chat_send", text=f"re: {name}") for name in names))
        if len(names) > 1 and self.rng.random() < 0.3:
            return reply(tool_use("chat_send", text=f"re: {names[0]}", more=True))
        more = [tool_use("press")] if self.rng.random() < 0.3 else []
        return reply(tool_use("chat_send", text=whole), *more)
