"""A gateway whose turns ask for an approval."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bot.contracts.agent import TurnOutcome, TurnRequest
from bot.contracts.approvals import Approval, Verdict
from bot.contracts.inbound import Command
from tests.unit.gateway.conftest import Bench
from tests.unit.gateway.outgoing import until

GROUP: dict[str, Any] = {
    "chat_id": "-100",
    "chat_key": "tele:chat:-100",
    "chat_type": "group",
    "target": {"chat": "-100"},
}
OPERATOR, MEMBER, STRANGER = "1", "77", "99"


class Desk(Bench):
    """A gateway whose turns ask for an approval, and reply with what came of it."""

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root, **options)
        self.granted = options.get("granted", False)
        self.lasting = True
        self.name = "f1"
        self.task = ""
        self.asked_more: dict[str, Any] = {}
        self.arguments = "run_shell\ncommand: make ``` x"
        self.ran: list[Verdict] = []
        self.agent.converse = self.ask_people  # type: ignore[method-assign]

    async def ask_people(self, request: TurnRequest) -> TurnOutcome:
        assert request.inbound is not None
        assert request.reply is not None
        if request.stopped:
            return TurnOutcome("stopped")
        if request.inbound.text.startswith("quick"):
            if self.agent.hold is not None:
                await self.agent.hold.wait()
            await request.reply.send("quickly")
            return TurnOutcome("done", delivered=1)
        verdict = await self.approvals.decide(
            replace(
                Approval(
                    request_id=request.request_id,
                    call_id="call1",
                    chat_key=request.chat_key,
                    tool="run_shell",
                    fingerprint=self.name,
                    shown=self.arguments,
                    why="default",
                    rule="ask run_shell",
                    channel=request.inbound.channel,
                    user_id=request.inbound.user_id,
                    granted=self.granted,
                    lasting=self.lasting,
                    task=self.task,
                ),
                **self.asked_more,
            )
        )
        self.ran.append(verdict)
        await request.reply.send(verdict.ended)
        return TurnOutcome("done", delivered=1)

    async def press(self, word: str, args: str = "", user: str = OPERATOR, **more: Any) -> None:
        await self.say(
            "", user_id=user, command=Command(name=word, args=args), addressed="command", **{**GROUP, **more}
        )

    async def asked(self, **more: Any) -> str:
        """Begin a turn that asks; the name of what waits."""
        before = set(self.names())
        await self.say("work", **{"user_id": MEMBER, **GROUP, **more})
        await until(lambda: bool(set(self.names()) - before))
        return self.names()[-1]

    def names(self) -> list[str]:
        return [one.buttons.question_id for one in self.tele.sent if one.buttons is not None]

    def decisions(self) -> list[str]:
        return [
            str(line.details["decision"]) for line in self.log.of("approval") if "decision" in line.details
        ]
