"""Questions that tools ask people. The turn is suspended, and the person's next message is the answer."""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

from bot.contracts.approvals import Approval, OpenLoop, Verdict, Viewer
from bot.contracts.identity import ChatKey
from bot.core import events
from bot.core.chat import Chat, Turn
from bot.core.chats import Fact
from bot.core.feature import Feature, Hooks, Runtime
from bot.core.outgoing import Address
from bot.core.outgoing import Question as Asked
from bot.tools.context import Answer, Question


class QuestionService:
    """Implements `tools.context.Questions`. A question is dropped when the process ends, because its tool call ends too."""

    def __init__(self, runtime: Runtime) -> None:
        self._run = runtime
        self._alone = WeakValueDictionary[ChatKey, asyncio.Lock]()

    async def ask(self, question: Question) -> Answer:
        """Implement `tools.context.Questions.ask`. Each chat has at most one open question at a time."""
        async with self._alone.setdefault(question.chat_key, asyncio.Lock()):
            chat = await self._run.chats.get(question.chat_key)
            turn = chat.turn
            if turn is None or turn.id != question.request_id or turn.first.due is not None:
                return Answer("nobody")
            asked = self._asked(chat, turn, question)
            self._run.log.write("question", "the person is asked something", request_id=turn.id)
            async with self._run.suspended():
                await self._run.chats.until(
                    chat.key, lambda: asked.verdict or False in asked.rows.values() or None
                )
            if asked.verdict is None:
                self._run.log.write("question", "a question did not arrive", level="warn")
                self._append(chat, turn, events.Decided(asked.id, Verdict("nobody")))
            return _answer(chat, asked)

    async def waiting(self, viewer: Viewer) -> list[OpenLoop]:
        """Return the open questions of tools that this person sees on the board."""
        asked = (one.record for chat in self._run.chats for one in chat.questions.values() if one.of_tool)
        return [
            OpenLoop("question", one.id, one.asked.chat_key, one.asked.shown, one.asked_at, one.asked.person)
            for one in asked
            if one.verdict is None and viewer.sees(one.asked.person, one.asked.chat_key)
        ]

    def _asked(self, chat: Chat, turn: Turn, question: Question) -> Asked:
        first, name = turn.first, self._run.ids.ulid()
        asked = Approval(
            turn.id,
            chat.key,
            first.channel,
            first.user_id,
            shown=question.words,
            granted=True,
            own=True,
            subject="question",
        )
        rows = self._run.saying.rows(name, Address.of(first), question.words, question=name)
        self._append(chat, turn, events.QuestionAsked(name, asked), *rows)
        return chat.questions[name]

    def _append(self, chat: Chat, turn: Turn, *data: events.EventData) -> None:
        self._run.chats.append(*(Fact(chat.key, one, turn.id) for one in data))


def _answer(chat: Chat, asked: Asked) -> Answer:
    verdict = asked.verdict
    if verdict is None or verdict.ended != "steered":
        return Answer("expired" if verdict is not None and verdict.ended == "expired" else "nobody")
    members = chat.turn.members if chat.turn is not None else []
    said = next((one for one in [*chat.waiting, *members] if one.request_id == verdict.request_id), None)
    return Answer("nobody") if said is None or said.command is not None else Answer("answered", said.text)


def _build(runtime: Runtime) -> Hooks:
    service = QuestionService(runtime)
    return Hooks(asks=service, waiting=service.waiting)


FEATURE = Feature("questions", _build)
