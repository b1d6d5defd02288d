"""Questions of tools: the turn is suspended, and what its person writes next is the answer."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from bot import errors
from bot.contracts.approvals import SECONDS
from bot.contracts.environment import Clock, Ids, Log, ends_within
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.outbound import Address
from bot.contracts.questions import Answer, Question
from bot.gateway.conversation import Turn
from bot.gateway.delivery import Delivery
from bot.gateway.turn_queue import TurnSuspension


@dataclass(frozen=True, slots=True)
class _Waiting:
    first: Inbound
    answer: asyncio.Future[Answer]


class QuestionService:
    """`contracts.questions.Questions` in the chats. A question does not outlive its
    process: nor does the call that it belongs to.
    """

    def __init__(
        self, *, suspension: TurnSuspension, delivery: Delivery, clock: Clock, ids: Ids, log: Log
    ) -> None:
        self._suspension = suspension
        self._delivery = delivery
        self._clock = clock
        self._ids = ids
        self._log = log
        self._waiting: dict[ChatKey, _Waiting] = {}

    async def ask(self, question: Question) -> Answer:
        """As `contracts.questions.Questions`. One question at a time in a chat, approvals among them."""
        async with self._suspension.alone(question.chat_key):
            return await self._asked(question)

    async def _asked(self, question: Question) -> Answer:
        key = question.chat_key
        turn = self._suspension.turn(key)
        if turn is None or turn.first.due is not None:
            return Answer("nobody")
        waiting = _Waiting(turn.first, asyncio.get_running_loop().create_future())
        self._waiting[key] = waiting
        try:
            with self._suspension.waiting(turn, "question") as waits:
                if not waits:
                    return Answer("nobody")
                # Under a name of its own: it is no part of what the turn answers.
                to = replace(Address.of(turn.first), request_id=self._ids.ulid())
                await self._delivery.send(to, question.words, kind="notice")
                self._log.write("question", "the person is asked something", request_id=question.request_id)
                async with self._suspension.suspended(), self._delivery.suspended(Address.of(turn.first)):
                    return await self._wait(waiting)
        except errors.DeliveryFailed as error:
            self._log.write("question", "a question did not arrive", level="warn", cause=str(error))
            return Answer("nobody")
        finally:
            del self._waiting[key]

    async def _wait(self, waiting: _Waiting) -> Answer:
        ended = await ends_within(SECONDS, waiting.answer, self._clock)
        return waiting.answer.result() if ended else Answer("expired")

    def waits(self, chat_key: ChatKey) -> bool:
        """True where the turn of a chat waits for an answer."""
        return chat_key in self._waiting

    def asks(self, inbound: Inbound) -> bool:
        """True where the person of an inbound is asked something in its conversation."""
        waiting = self._waiting.get(inbound.chat_key)
        return waiting is not None and waiting.first.person == inbound.person

    def cancel(self, turn: Turn) -> None:
        """The person of a turn has said something that is no answer: it is waited for no longer."""
        waiting = self._waiting.get(turn.first.chat_key)
        if waiting is not None and waiting.first is turn.first and not waiting.answer.done():
            waiting.answer.set_result(Answer("nobody"))

    def answer(self, turn: Turn, inbound: Inbound) -> None:
        """Take what the person of a turn says as the answer that it waits for."""
        waiting = self._waiting.get(inbound.chat_key)
        if waiting is not None and waiting.first is turn.first and not waiting.answer.done():
            waiting.answer.set_result(Answer("answered", inbound.text))
