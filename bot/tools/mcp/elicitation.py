"""Elicitation: an MCP server requests information during a tool call, and the person of the turn is asked for the information."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bot import errors, text
from bot.contracts.base import Json
from bot.contracts.environment import Log
from bot.text import escaped
from bot.tools.context import Ask, ToolExecutionContext, current, progress
from bot.tools.mcp import definitions
from bot.words import reader, say, speaking

if TYPE_CHECKING:
    from mcp_types import ElicitResult

TRIES = 3
WORDS = 3_000  # Max characters of a question
SKIP = frozenset({"skip", "/skip", "跳过"})
CANCEL = frozenset({"cancel", "/cancel", "取消"})
YES = frozenset({"yes", "y", "ok", "true", "是", "好"})
NO = frozenset({"no", "n", "false", "否", "不", "不是"})
PLAIN = ("string", "boolean", "integer", "number")


class Unanswered(errors.ShipmateError):
    """Raised if a form is neither answered nor declined. The message gives the reason."""


class Declined(errors.ShipmateError):
    """Raised if the person declines to answer a form."""


@dataclass(eq=False)
class _Call:
    """A running tool call. The call's time `limit` does not run while a person is being asked."""

    tool: str
    turn: ToolExecutionContext
    limit: asyncio.Timeout
    seconds: float
    language: str
    report: Callable[[str | None], object]
    waits: set[asyncio.Task[str | None]] = field(default_factory=set)
    unanswered: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Elicitations:
    """The questions of one MCP server. While several calls run, no question is asked, because nobody knows which call the
    question belongs to.
    """

    server: str
    ask: Ask | None
    log: Log
    _calls: list[_Call] = field(default_factory=list)

    @contextlib.contextmanager
    def during(self, tool: str, limit: asyncio.Timeout, seconds: float) -> Iterator[list[str]]:
        """Register a tool call that runs inside the `with` block. Questions that are open at the end of the block are
        closed. Yields notes for the model.
        """
        call = _Call(tool, current(), limit, seconds, reader().language, progress.get())
        self._calls.append(call)
        try:
            yield call.unanswered
        finally:
            self._calls.remove(call)
            for task in call.waits:
                task.cancel()

    async def elicit(self, context: object, params: Any) -> ElicitResult:
        """Answer an elicitation request; the SDK calls this function."""
        del context
        from mcp_types import ElicitResult

        try:
            content = await self._answers(params)
        except Declined:
            return ElicitResult(action="decline")
        except Unanswered as why:
            self.log.write("mcp", f"a form of {self.server} got no answer", level="warn", cause=str(why))
            for call in self._calls:
                call.unanswered.append(
                    f"[{self.server} asked the person by a form and got no answer: {why}.]"
                )
            return ElicitResult(action="cancel")
        return ElicitResult(action="accept", content=None if hasattr(params, "url") else content)

    async def _answers(self, params: Any) -> Json:
        """Return the person's answers by field. Raises `Declined` and `Unanswered`."""
        if len(self._calls) != 1:
            raise Unanswered("it is not known which of the calls that run asks")
        (call,) = self._calls
        schema = getattr(params, "requested_schema", None) or {}
        needed = schema.get("required") or ()
        given = {name: one for name, one in schema.get("properties", {}).items() if isinstance(one, dict)}
        fields = {name: one for name, one in given.items() if one.get("type") in PLAIN or _choices(one)}
        if odd := [name for name in needed if name not in fields]:
            raise Unanswered(f"its field {odd[0]} cannot be asked for in a chat")
        message = f"{params.message} {getattr(params, 'url', '')}".strip()
        with speaking(call.language):
            asks = say(
                "question.asks", tool=_literal(call.tool), server=self.server, words=_literal(message, WORDS)
            )
            if not fields:
                if not await self._field(call, f"{asks}\n", {"type": "boolean"}, optional=False):
                    raise Declined
                return {}
            content: Json = {}
            for number, (name, one) in enumerate(fields.items(), 1):
                place = f"{number}/{len(fields)} " if len(fields) > 1 else ""
                label = f"{asks if number == 1 else ''}\n{_literal(place + name)}: "
                value = await self._field(call, label, one, optional=name not in needed)
                content |= {name: value} if value is not None else {}
            return content

    async def _field(self, call: _Call, label: str, one: Json, *, optional: bool) -> Any:
        """Return the person's answer to one field; None if the person skips it. Raises `Declined` and `Unanswered`."""
        about = " – ".join(str(one[key]) for key in ("title", "description") if one.get(key))
        asked = f"{label}{f'{_literal(about, 300)}, ' if about else ''}{kind(one)}.\n\n"
        if "default" in one:
            given = one["default"] if isinstance(one["default"], list) else [one["default"]]
            labels = [label for label, value in _choices(one) if value in given]
            labels = labels or [item if isinstance(item, str) else json.dumps(item) for item in given]
            asked += say("question.default", value=_literal(", ".join(labels), 300)) + " "
        asked = (asked + say("question.how_optional" if optional else "question.how")).strip()
        for number in range(TRIES):
            answer = await self._ask(call, f"{say('question.again')} {asked}" if number else asked)
            if answer is None:
                raise Unanswered("the person did not answer")
            words, plain = answer.strip(), answer.strip().casefold()
            if plain in CANCEL:
                raise Declined
            if plain in SKIP:
                if optional:
                    return None
                continue
            value = one["default"] if plain == "ok" and "default" in one else read(one, words)
            if value is not None and next(definitions.problems(one, value), None) is None:
                return value
        raise Unanswered("no answer of the person fitted")

    async def _ask(self, call: _Call, words: str) -> str | None:
        if self.ask is None:
            return None
        task = asyncio.create_task(self.ask(call.turn.chat_key, call.turn.request_id, words))
        call.waits.add(task)
        call.limit.reschedule(None)
        call.report(None)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            call.waits.discard(task)
            if call in self._calls:
                call.limit.reschedule(asyncio.get_running_loop().time() + call.seconds)
                call.report("")
        return None if task.cancelled() else task.result()


def _literal(words: str, limit: int = 80) -> str:
    return text.literal(escaped(definitions.line(words, limit)))


def kind(one: Json) -> str:
    """Return a description of the answer that a field expects, in words for the person."""
    if choices := _choices(one):
        shown = ", ".join(f"{number}. {_literal(label)}" for number, (label, _) in enumerate(choices[:20], 1))
        return say("question.some_of" if "items" in one else "question.one_of", choices=shown)
    wanted = str(one.get("type"))
    return say(f"question.{wanted if wanted in {'boolean', 'integer', 'number'} else 'text'}")


def read(one: Json, words: str) -> Any:
    """Return the value that a person's text gives a field; None if the text is not valid for this field."""
    if "items" in one:
        values = [read(one["items"], part.strip()) for part in re.split("[,，、]", words)]
        return values if None not in values else None
    wanted, plain = one.get("type"), words.casefold().rstrip(".!。！ ")
    if choices := _choices(one):
        numbered = {str(number): value for number, (_, value) in enumerate(choices, 1)}
        labelled = {name.casefold(): value for label, value in choices for name in (label, str(value))}
        return (numbered | labelled).get(words.casefold())
    if wanted == "boolean":
        return True if plain in YES else False if plain in NO else None
    if wanted in {"integer", "number"}:
        with contextlib.suppress(ValueError):
            value = int(plain) if wanted == "integer" else float(plain)
            return value if math.isfinite(value) else None
        return None
    return words if wanted == "string" else None


def _choices(one: Json) -> list[tuple[str, Any]]:
    """Return the (label, value) pairs that a field offers for choice; [] if the field accepts any value."""
    one = one["items"] if isinstance(one.get("items"), dict) else one
    listed = one.get("oneOf") or one.get("anyOf")
    if isinstance(listed, list):
        choices = (item for item in listed if isinstance(item, dict) and "const" in item)
        return [(str(item.get("title") or item["const"]), item["const"]) for item in choices]
    values, names = one.get("enum"), one.get("enumNames")
    if not isinstance(values, list):
        return []
    labels = names if isinstance(names, list) and len(names) == len(values) else values
    return [(str(label), value) for label, value in zip(labels, values, strict=True)]
