"""What a person writes while their turn runs: it answers what the turn waits for, joins it, or interrupts it."""

from __future__ import annotations

from bot.contracts.inbound import Inbound
from bot.gateway.approvals import ApprovalService
from bot.gateway.background import BackgroundTasks
from bot.gateway.conversation import QueueMode
from bot.gateway.lanes import Lanes
from bot.gateway.questions import QuestionService
from bot.gateway.relations import follows
from bot.gateway.running import Running
from bot.gateway.stops import Stops


class Steering:
    """Puts inbounds into their lanes, and lets what runs there hear of them."""

    def __init__(
        self,
        *,
        lanes: Lanes,
        running: Running,
        approvals: ApprovalService,
        questions: QuestionService,
        stops: Stops,
        mode: QueueMode,
        tasks: BackgroundTasks,
    ) -> None:
        self._lanes = lanes
        self._running = running
        self._approvals = approvals
        self._questions = questions
        self._stops = stops
        self._mode = mode
        self._tasks = tasks

    def add(self, inbound: Inbound) -> None:
        """Queue an inbound behind the others of its person in its chat."""
        self._lanes.put(inbound)
        self._approvals.steer(inbound)
        if self._questions.answer(inbound):
            return
        turn = self._running.get(inbound.chat_key)
        if self._mode.interrupts and turn is not None and turn.asked and follows(inbound, turn.first):
            self._tasks.start(self._stops.end(turn))
