"""Tells operators at startup if the log file was damaged or missing."""

from __future__ import annotations

from bot.core.feature import Feature, Hooks, Runtime
from bot.core.sqlite_log import LOST
from bot.words import sentence


def _build(runtime: Runtime) -> Hooks:
    async def tell() -> None:
        if (found := runtime.chats.facts.get(LOST, "log")) is not None:
            # The log remembers this alert, so operators read it once. A later loss has another time, and thus another alert.
            runtime.alerts.tell(
                f"log lost {found['at']}", sentence(f"operators.chat_log_{found['what']}"), every=float("inf")
            )

    return Hooks(serves=(tell,))


FEATURE = Feature("lost_messages", _build)
