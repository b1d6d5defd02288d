"""Records the usage of each model call as an event."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from bot import errors
from bot.core.chats import NO_CHAT, Chats, Fact
from bot.core.events import Used
from bot.telemetry import context


class UsageRecorder:
    """Appends an event for each model call of any purpose. Observes the operator's log (`bot.telemetry.JsonlLog`)."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats
        self._tasks = set[asyncio.Task[None]]()

    def observe(self, line: Mapping[str, Any]) -> None:
        """Record a line of the operator's log, in the task that wrote the line."""
        if line["kind"] != "llm_response":
            return
        details, running = line["details"], context.current()
        used = Used(
            str(details.get("model") or ""),
            str(details.get("purpose") or ""),
            str(details.get("person") or ""),
            details.get("usage"),
            details.get("costUsd"),
            str(details.get("error") or ""),
        )
        fact = Fact(running.chat_key or NO_CHAT, used, running.request_id)
        if self._chats.loaded(fact.chat) is not None:
            self._chats.append(fact)
            return
        task = asyncio.get_running_loop().create_task(self._append(fact), name="usage")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _append(self, fact: Fact) -> None:
        with contextlib.suppress(errors.StorageError):  # the log of the operator has it
            await self._chats.get(fact.chat)
            self._chats.append(fact)
