"""Loopback servers that record times: when a message was delivered, when the model was asked, when it
answered, and when the reply was sent.

All times are `time.perf_counter` of the servers' process, taken when a request arrives or when the last byte
leaves. The tested programs themselves are not measured.
"""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from bot.contracts.base import Json
from bot.testing import anthropic_script as script
from bot.testing import telegram_rules as rules
from bot.testing import telegram_world as world
from bot.testing.anthropic import AnthropicServer, Seen
from bot.testing.telegram import TelegramServer

ANSWER = (
    "Certainly. **Here it is**: the number you asked for is 42, as `answer.txt` has it, and nothing else.\n"
    * 3
)
MEMORY = "<memory>\n## Facts\n- The number is 42.\n</memory>"
SUMMARY = "<summary>\n## Facts\n- The number is 42.\n## Open tasks\n(none)\n</summary>"
_CHAT = re.compile(r"chat (\d+)\.")
_NUMBER = re.compile(r"question (\d+),")

_entered: ContextVar[float] = ContextVar("entered")
_flight: ContextVar[Flight] = ContextVar("flight")


@dataclass(slots=True)
class Flight:
    """Times of one message, in seconds. `calls` counts the requests to the model."""

    pushed: float
    handed: float = 0.0
    asked: float = 0.0
    answered: float = 0.0
    sent: float = 0.0
    calls: int = 0
    landed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def inbound(self) -> float:
        """Seconds from the platform's answer to the poll until the model is asked."""
        return self.asked - self.handed

    @property
    def outbound(self) -> float:
        """Seconds from the last byte of the model's answer until the program asks the platform to deliver."""
        return self.sent - self.answered


class Board:
    """Messages in progress by chat. The programs use different chat numbers."""

    def __init__(self) -> None:
        self.flights: dict[int, Flight] = {}


class TimedTelegram(TelegramServer):
    """A Telegram server for one bot that records times."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board
        self.polled = asyncio.Event()

    def ask(self, chat_id: int) -> Flight:
        """Send a message as a person; return the record of its times. The bot may answer it once."""
        flight = self._board.flights[chat_id] = Flight(time.perf_counter())
        self.say(
            f"What is the number that we spoke about, here in chat {chat_id}. Thank you!", chat_id=chat_id
        )
        return flight

    async def _request(self, request: web.Request) -> web.StreamResponse:
        _entered.set(time.perf_counter())
        self.calls.clear()  # recorded calls would only grow the memory
        return await super()._request(request)

    async def _get_updates(self, args: rules.Args) -> list[Any]:
        self.polled.set()
        found = await super()._get_updates(args)
        now = time.perf_counter()
        for update in found:
            flight = self._board.flights.get(update["message"]["chat"]["id"])
            if flight is not None:
                flight.handed = flight.handed or now
        return found

    def _chat_of(self, args: rules.Args) -> world.Chat:
        # The strict server searches all of its chats; that time would count as time of the tested programs.
        return self.chats.get(args.integer("chat_id")) or super()._chat_of(args)

    async def _send_message(self, args: rules.Args) -> Json:
        flight = self._board.flights.get(args.integer("chat_id"))
        if flight is not None and not flight.sent:
            flight.sent = _entered.get()
            flight.landed.set()
        return await super()._send_message(args)


class TimedModel(AnthropicServer):
    """A model that waits and then always gives the same answer, through `chat_send` or as text. The wait is
    random between `thinking` and `longest` seconds; it is `thinking` if `longest` is smaller.
    """

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board
        self.thinking = self.longest = 0.0
        self._rng = random.Random(20)
        self.by_tool = False
        self.words = ANSWER
        self.script(self._say)

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        _entered.set(time.perf_counter())
        self.calls.clear()
        del self.requests[:-1]
        return await super()._messages(request)

    async def _answer(self, request: web.Request, seen: Seen, request_id: str) -> web.StreamResponse:
        background = _background(seen.body)
        _flight.set(Flight(0.0) if background else self._board.flights[_chat_of(seen.body)])
        response = await super()._answer(request, seen, request_id)
        if isinstance(response, web.Response):
            # An answer that is not streamed is written here, so that the time of its last byte is known.
            await response.prepare(request)
            _leaves()
            await response.write_eof()
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, wire: Sequence[script.Frame], **how: Any
    ) -> web.StreamResponse:
        return await super()._stream(request, response, _LastSeen(wire), **how)

    def _check(self, body: Json, request: web.Request) -> None:
        """Check nothing. The checks are for tests; here they would count as time of the tested programs."""

    def _say(self, body: Json) -> script.Answer:
        if background := _background(body):
            return script.reply(background, delay=self.thinking)
        flight = self._board.flights[_chat_of(body)]
        flight.calls += 1
        flight.asked = flight.asked or _entered.get()
        if not self.by_tool:
            return script.reply(
                self.words, delay=self._rng.uniform(self.thinking, max(self.thinking, self.longest))
            )
        if flight.calls > 1:
            return script.reply("Done.", delay=self.thinking)
        return script.reply(script.tool_use("chat_send", {"text": self.words}), delay=self.thinking)


class Parrot(AnthropicServer):
    """A model that answers with the number in the question, and stores no requests."""

    def __init__(self, thinking: float = 0.0) -> None:
        super().__init__()
        self.script(lambda body: script.reply(f"answer to {_number_of(body)}", delay=thinking))

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        self.calls.clear()
        del self.requests[:-1]
        return await super()._messages(request)

    def _check(self, body: Json, request: web.Request) -> None:
        """Check nothing; the checks are for tests."""


class _LastSeen(list[script.Frame]):
    """The frames of an answer. The time is recorded when the server sends the last frame."""

    def __iter__(self) -> Iterator[script.Frame]:
        last = len(self) - 1
        for at in range(len(self)):
            if at == last:
                _leaves()
            yield self[at]


def _leaves() -> None:
    flight = _flight.get()
    flight.answered = flight.answered or time.perf_counter()


def _background(body: Json) -> str:
    """Return the answer to a request for the chat's memory or for a summary; "" for a request of a turn."""
    last = body["messages"][-1]["content"]
    asked = last if isinstance(last, str) else last[-1].get("text", "")
    return MEMORY if "<memory_task>" in asked else SUMMARY if "<summary_task>" in asked else ""


def _chat_of(body: Json) -> int:
    return _found(body, _CHAT)


def _number_of(body: Json) -> int:
    return _found(body, _NUMBER)


def _found(body: Json, pattern: re.Pattern[str]) -> int:
    """Return the newest number in a request that matches the pattern."""
    for message in reversed(body["messages"]):
        for block in _blocks(message):
            found = pattern.search(block.get("text", ""))
            if found is not None:
                return int(found[1])
    raise web.HTTPBadRequest(text="nobody asked for this")


def _blocks(message: Json) -> list[Json]:
    """Return the blocks of a message, last block first."""
    content = message["content"]
    return [{"text": content}] if isinstance(content, str) else list(reversed(content))
