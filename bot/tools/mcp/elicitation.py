"""Puts questions that a server asks during a tool call (elicitation) to the person of the turn."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.questions import Answer, Question, Questions
from bot.tools.context import ToolExecutionContext, current
from bot.tools.mcp import definitions
from bot.tools.permissions.display import quoted, visible
from bot.words import language, say, speaking

if TYPE_CHECKING:
    from mcp_types import ElicitResult

MOST_FIELDS = 5
"""Fields of one question; each is asked for by itself."""
TRIES = 3
WORDS = 3_000
"""Characters of a question."""
SKIP = frozenset({"skip", "cancel", "/skip"})
YES = frozenset(
    {"yes", "y", "ok", "true", "ja", "oui", "sí", "si", "sim", "да", "是", "好", "はい", "네", "نعم", "हाँ"}
)
NO = frozenset(
    {"no", "n", "false", "nein", "non", "não", "нет", "否", "不", "不是", "いいえ", "아니요", "لا", "नहीं"}
)


@dataclass(eq=False)
class _Call:
    """A call that runs, in its turn; `limit` is how long it may take, which stands still while a person is waited for."""

    tool: str
    turn: ToolExecutionContext
    limit: asyncio.Timeout
    seconds: float
    language: str
    waits: set[asyncio.Task[Answer]] = field(default_factory=set)


class Elicitations:
    """The questions of one server. While several of its calls run, a question belongs to no known turn and is declined."""

    def __init__(self, server: str, questions: Questions) -> None:
        self._questions = questions
        self._server = server
        self._calls: list[_Call] = []

    @contextlib.contextmanager
    def during(self, tool: str, limit: asyncio.Timeout, seconds: float) -> Iterator[None]:
        """A call runs for the block; with it ends what it asked."""
        try:
            turn = current()
        except errors.ToolError:
            yield
            return
        call = _Call(tool, turn, limit, seconds, language())
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)
            for task in call.waits:
                task.cancel()

    async def elicit(self, context: object, params: Any) -> ElicitResult:
        """The library's callback."""
        del context
        from mcp_types import ElicitResult

        schema = getattr(params, "requested_schema", None)
        fields = schema.get("properties") if isinstance(schema, dict) else None
        if len(self._calls) != 1 or not isinstance(fields, dict):
            return ElicitResult(action="decline")
        if len(fields) > MOST_FIELDS or not all(isinstance(one, dict) for one in fields.values()):
            return ElicitResult(action="decline")
        call = self._calls[0]
        content: dict[str, Any] = {}
        # Nothing to fill in: a yes is what is wanted.
        for name, one in (fields or {"": {"type": "boolean"}}).items():
            value = await self._field(call, str(params.message), name, one)
            if value is None or (not fields and value is False):
                return ElicitResult(action="decline")
            content |= {name: value} if fields else {}
        return ElicitResult(action="accept", content=content)

    async def _field(self, call: _Call, message: str, name: str, one: Json) -> Any:
        """The person's answer to one field; None where no answer fits."""
        for number in range(TRIES):
            with speaking(call.language):
                again = [say("question.again")] if number else []
                question = " ".join([*again, self._question(call.tool, message, name, one)])
            answer = await self._ask(call, question)
            words = answer.words.strip()
            if answer.ended != "answered" or words.casefold() in SKIP:
                return None
            value = read(one, words)
            if value is not None:
                return value
        return None

    async def _ask(self, call: _Call, words: str) -> Answer:
        question = Question(call.turn.request_id, call.turn.chat_key, words)
        task = asyncio.create_task(self._questions.ask(question))
        call.waits.add(task)
        call.limit.reschedule(None)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            call.waits.discard(task)
            if call in self._calls:
                call.limit.reschedule(asyncio.get_running_loop().time() + call.seconds)
        return Answer("nobody") if task.cancelled() else task.result()

    def _question(self, tool: str, message: str, name: str, one: Json) -> str:
        about = definitions.line(
            " – ".join(str(one[key]) for key in ("title", "description") if one.get(key)), 300
        )
        wanted = f"{definitions.line(name, 80)}: " if name else ""
        # The server's words are shown as they are: nothing in them is formatting, and a link hides no address behind words.
        words, *more = text.split(message, WORDS) or [""]
        said = f"{words}{' …' if more else ''}\n{wanted}{f'{about}, ' if about else ''}{kind(one)}."
        said = visible(said).replace("```", "\\u0060" * 3)
        asks = say("question.asks", tool=quoted(definitions.line(tool, 80)), server=self._server)
        return f"{asks}\n```\n{said}\n```\n{say('question.how')}"


def kind(one: Json) -> str:
    """Return the kind of answer wanted, in words for the person."""
    if choices := _choices(one):
        shown = ", ".join(
            f"{number}. {definitions.line(label, 80)}" for number, (label, _) in enumerate(choices[:20], 1)
        )
        return say("question.one_of", choices=shown)
    wanted = str(one.get("type"))
    return say(f"question.{wanted if wanted in {'boolean', 'integer', 'number'} else 'text'}")


def read(one: Json, words: str) -> Any:
    """A person's words as the value of a field; None where they are none."""
    if choices := _choices(one):
        fit = (
            value
            for number, (label, value) in enumerate(choices, 1)
            if words.casefold() in {label.casefold(), str(value).casefold(), str(number)}
        )
        return next(fit, None)
    wanted, plain = one.get("type"), words.casefold().rstrip(".!。！ ")
    if wanted == "boolean":
        return True if plain in YES else False if plain in NO else None
    if wanted in {"integer", "number"}:
        return _number(plain, whole=wanted == "integer")
    return words if wanted == "string" else None


def _number(words: str, *, whole: bool) -> int | float | None:
    try:
        value = float(words)
    except ValueError:
        return None
    if math.isfinite(value) and value.is_integer():
        return int(value)
    return None if whole or not math.isfinite(value) else value


def _choices(one: Json) -> list[tuple[str, Any]]:
    """Label and value of each choice; [] where there are none."""
    listed = one.get("oneOf")
    if isinstance(listed, list):
        return [
            (str(item.get("title") or item["const"]), item["const"])
            for item in listed
            if isinstance(item, dict) and "const" in item
        ]
    values, names = one.get("enum"), one.get("enumNames")
    if not isinstance(values, list):
        return []
    labels = names if isinstance(names, list) and len(names) == len(values) else values
    return [(str(label), value) for label, value in zip(labels, values, strict=True)]
