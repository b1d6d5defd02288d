"""What every turn of every chat works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bot.contracts import Archive, Clock, Ids, Log, Model, Redact, Skills, Steps
from bot.history.transcript import Transcript
from bot.tools.dispatch import Dispatcher
from bot.tools.registry import Registry


@dataclass(frozen=True, slots=True)
class Kit:
    """The agent's parts, put together in `bot.app`. `rules` are the output rules of each channel."""

    model: Model
    model_name: str
    registry: Registry
    dispatcher: Dispatcher
    transcript: Transcript
    archive: Archive
    steps: Steps
    skills: Skills
    root: Path
    clock: Clock
    ids: Ids
    log: Log
    max_tokens: int = 8_192
    max_messages: int = 60
    max_injected: int = 120
    context_window: int | None = None
    """Tokens that fit into one request, where ship.json says so."""
    redact: Redact = str
    rules: Mapping[str, str] = field(default_factory=dict)
