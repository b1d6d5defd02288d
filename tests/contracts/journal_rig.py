"""What the suites of the journal have in common."""

from __future__ import annotations

import abc
from dataclasses import replace
from typing import Any

import pytest

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound
from bot.contracts.journal import Inbox, Journal, StepRecord
from bot.contracts.outbound import OutboxRow
from bot.testing.clock import FakeClock

DAY = 86_400.0


def inbound(number: int = 1, **fields: Any) -> Inbound:
    """A message of a person; each `number` is another one."""
    given: dict[str, Any] = {
        "channel": "telegram",
        "chat_id": "5",
        "chat_key": "telegram:chat:5",
        "chat_type": "direct",
        "user_id": "7",
        "keys": (f"update:{number}", f"message:5:{number}"),
        "ts": 1_800_000_000_000 + number,
        "target": {"chat_id": "5"},
        "text": f"text {number}",
        "request_id": f"R{number:025d}",
    }
    return Inbound(**{**given, **fields})


def outbound(number: int = 1, request: int = 1, **fields: Any) -> OutboxRow:
    """A message of the bot in answer to `request`."""
    given: dict[str, Any] = {
        "id": f"O{number:025d}",
        "request_id": f"R{request:025d}",
        "chat_key": "telegram:chat:5",
        "target": {"chat_id": "5"},
        "text": f"answer {number}",
    }
    given |= fields
    key = given["chat_key"]
    return OutboxRow(**given | {"chat_key": key if isinstance(key, ChatKey) else ChatKey.parse(key)})


def step(number: int = 1, request: int = 1, **fields: Any) -> StepRecord:
    """A tool call of `request` that has begun."""
    given: dict[str, Any] = {
        "request_id": f"R{request:025d}",
        "id": f"toolu_{number}",
        "kind": "tool",
        "name": "chat_send",
        "began_at": 1_800_000_000.0,
    }
    return StepRecord(**{**given, **fields})


async def still_open(journal: Inbox, limit: int | None = None, after: str = "") -> list[Inbound]:
    """The inbound that have not ended, oldest first."""
    return [row.inbound for row in await journal.unfinished(limit, after)]


class JournalRig(abc.ABC):
    """`restart` closes the journal and opens it again on what it left behind."""

    nul = "\0"
    """The letter that comes back for this one from a column of its own; in JSON it is always itself."""

    @abc.abstractmethod
    @pytest.fixture
    def clock(self) -> FakeClock: ...

    @abc.abstractmethod
    @pytest.fixture
    def journal(self) -> Journal: ...

    @abc.abstractmethod
    async def restart(self, journal: Journal) -> Journal: ...


async def sent_as(journal: Journal, row: OutboxRow) -> None:
    """Write that a row is being sent, and then what became of that."""
    await journal.update_outbox(replace(row, state="sending"))
    await journal.update_outbox(row)
