"""The gateway's door as channels get it: what is set aside there, operators hear of."""

from __future__ import annotations

from bot.contracts.approvals import OpenQuestion
from bot.contracts.archive import ArchiveLine
from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.gateway.approvals import ApprovalService
from bot.gateway.intake import GatewayIntake
from bot.gateway.operations.alerts import OperatorAlerts


class Door:
    """`contracts.channel.Intake` in front of the gateway's."""

    def __init__(self, intake: GatewayIntake, reports: OperatorAlerts, approvals: ApprovalService) -> None:
        self._intake = intake
        self._reports = reports
        self._approvals = approvals

    async def accept(self, inbound: Inbound) -> bool:
        return await self._intake.accept(inbound)

    async def bury(self, channel: str, key: str, raw: str, reason: str) -> None:
        await self._intake.bury(channel, key, raw, reason)
        self._reports.tell(
            f"dead letters of {channel}",
            f"An event of {channel} could not be read and is among the dead letters: {reason} (event {key}). What "
            "came after it goes on as usual. If there are more of this kind within the hour, `shipmate logs --level "
            "error` shows them.",
        )

    async def recent(self, chat_key: ChatKey, limit: int) -> list[ArchiveLine]:
        return await self._intake.recent(chat_key, limit)

    async def questions(self, channel: str, chat_key: ChatKey, user_id: str) -> list[OpenQuestion]:
        return await self._approvals.open_in(chat_key, f"{channel}:{user_id}")
