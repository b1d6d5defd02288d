"""Questions that tools ask people. The turn is suspended, and the person's next message is the answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from dataclasses import replace
from weakref import WeakValueDictionary

from bot.contracts.approvals import Approval, Subject, Verdict
from bot.contracts.identity import ChatKey
from bot.core import events
from bot.core.chat import Chat
from bot.core.chats import Fact
from bot.core.feature import Runtime
from bot.core.outgoing import Address
from bot.core.outgoing import Question as Asked
from bot.tools.context import Answer, Question

REACHED_SECONDS = 3.0  # timeout in seconds for delivering a question to an operator


class QuestionService:
    """Base of the services that ask people questions."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime
        self._locks = WeakValueDictionary[ChatKey, asyncio.Lock]()

    def _alone(self, chat_key: ChatKey) -> asyncio.Lock:
        return self._locks.setdefault(chat_key, asyncio.Lock())

    def _append(self, chat: Chat, turn: str | None, *data: events.EventData) -> None:
        self._run.chats.append(*(Fact(chat.key, one, turn) for one in data))

    def _open(self, *subjects: Subject) -> list[tuple[Chat, Asked]]:
        return [
            (chat, one)
            for chat in self._run.chats
            for one in chat.questions.values()
            if one.verdict is None and one.asked.subject in subjects
        ]

    async def _reached(self, chat: Chat, found: Asked, rows: Collection[str]) -> bool:
        """Return True once one of these outbox rows is delivered or the question is decided. Return False after
        `REACHED_SECONDS`, or if no row can be delivered.
        """

        def known() -> bool | None:
            states = [found.arrived(name) for name in rows]
            if True in states or found.verdict is not None:
                return True
            return None if None in states else False

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REACHED_SECONDS):
                return await self._run.chats.until(chat.key, known)
        return False


class ToolQuestions(QuestionService):
    """Implements `tools.context.Questions`. A question is dropped when the process ends, because its tool call ends too."""

    async def ask(self, question: Question) -> Answer:
        """Implement `tools.context.Questions.ask`. Each chat has at most one open question at a time."""
        async with self._alone(question.chat_key):
            chat = await self._run.chats.get(question.chat_key)
            turn = chat.turn
            if turn is None or turn.id != question.request_id or turn.first.due is not None:
                return Answer("nobody")
            first, name = turn.first, self._run.ids.ulid()
            record = Approval(turn.id, chat.key, first.channel, first.user_id, shown=question.words)
            record = replace(record, granted=True, own=True, subject="question")
            rows = self._run.saying.rows(name, Address.of(first), question.words, question=name)
            self._append(chat, turn.id, events.QuestionAsked(name, record), *rows)
            asked = chat.questions[name]
            self._run.log.write("question", "the person is asked something", request_id=turn.id)
            async with self._run.suspended():
                await self._run.chats.until(
                    chat.key, lambda: asked.verdict or False in asked.rows.values() or None
                )
            if asked.verdict is None:
                self._run.log.write("question", "a question did not arrive", level="warn")
                self._append(chat, turn.id, events.Decided(name, Verdict("nobody")))
            return _answer(chat, asked.verdict)


def _answer(chat: Chat, verdict: Verdict | None) -> Answer:
    if verdict is None or verdict.ended != "steered":
        return Answer("expired" if verdict is not None and verdict.ended == "expired" else "nobody")
    members = chat.turn.members if chat.turn is not None else []
    said = next((one for one in [*chat.waiting, *members] if one.request_id == verdict.request_id), None)
    return Answer("nobody") if said is None or said.command is not None else Answer("answered", said.text)
