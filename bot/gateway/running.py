"""The turn that runs in a chat, as the gateway sees it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from bot.contracts.identity import ChatKey
from bot.contracts.inbound import Inbound, SeenFile
from bot.gateway.lanes import TurnPlan
from bot.gateway.relations import same_message


@dataclass(slots=True, eq=False)
class Turn:
    """`joined` is what it took up while it ran, `open` what the journal still has open beside its first message;
    `seen` is what became of the files of its messages, by requestId, and `below` what its person is still to be told of
    them; `reading` reads what it begins with; `asked` and `over` tell of the agent.
    """

    portion: TurnPlan
    joined: list[Inbound] = field(default_factory=list)
    open: list[Inbound] = field(default_factory=list)
    withdrawn: set[str] = field(default_factory=set)
    seen: dict[str, tuple[SeenFile, ...]] = field(default_factory=dict)
    below: list[str] = field(default_factory=list)
    reading: asyncio.Task[Any] | None = None
    stopped: bool = False
    asked: bool = False
    over: bool = False

    def __post_init__(self) -> None:
        self.open += self.portion.rest

    @property
    def first(self) -> Inbound:
        return self.portion.first

    @property
    def all(self) -> tuple[Inbound, ...]:
        """Every message that it answers."""
        return (*self.portion.all, *self.joined)

    @property
    def left(self) -> tuple[Inbound, ...]:
        """Those of them that were not withdrawn."""
        return tuple(one for one in self.all if one.request_id not in self.withdrawn)

    def join(self, more: list[Inbound]) -> None:
        """Take up what came while it ran."""
        self.joined += more
        self.open += more

    def about(self, change: Inbound) -> Inbound | None:
        """The newest message, or edit, of this turn that a change is about."""
        return next((one for one in reversed(self.all) if same_message(one, change)), None)

    def withdraw(self, change: Inbound) -> bool:
        """A message of this turn is gone; True where nothing is left of it."""
        self.withdrawn |= {one.request_id for one in self.all if same_message(one, change)}
        return self.withdrawn >= {one.request_id for one in self.all}

    def outcome(self, inbound: Inbound) -> str:
        """What became of a message that was answered together with the first."""
        return "withdrawn" if inbound.request_id in self.withdrawn else f"joined {self.first.request_id}"


Running = dict[ChatKey, Turn]
"""By chatKey."""
